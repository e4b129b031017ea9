//! Eviction: leaf first, in the policy's order, from the tail, exactly as many pages as asked.

use super::Tree;
use super::pin::Hold;
use crate::ids::{Slot, Tier};
use hashbrown::HashMap;

/// What an eviction took.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Slots that are free now, in the order in which their pages left.
    pub slots: Vec<Slot>,
    /// Pages of these that live in no tier any more.
    pub dropped: usize,
    /// Per component besides FULL: slots that are free now.
    pub parts: Vec<Vec<Slot>>,
}

impl Tree {
    /// Takes `pages` pages out of a tier, or as many as can go.
    ///
    /// Host copies of pages that are on the device stay (the host mirrors: `host_copies = "keep"`).
    pub fn evict(&mut self, tier: Tier, pages: usize) -> Evicted {
        let mut out = self.nothing_evicted();
        while out.slots.len() < pages {
            let Some((victim, deferred)) = self.leaving.next(tier) else { break };
            let wanted = u32::try_from(pages - out.slots.len()).unwrap_or(u32::MAX);
            self.evict_from(tier, victim.leaf, deferred, wanted.min(victim.pages.max(1)), &mut out);
        }
        out
    }

    /// Pages that an eviction of everything would free: all but those on the way to a hard pin and, on the
    /// host, those that are on the device too. Walks up from every pin, and for the host through all nodes.
    pub fn evictable(&self, tier: Tier) -> usize {
        let mut kept: HashMap<u32, u32> = HashMap::new();
        let mut total = 0;
        for pin in self.pins.all().filter(|pin| pin.hold.tier() == Some(tier)) {
            total += self.keep(&mut kept, tier, pin.node);
        }
        if tier == Tier::Host {
            for (index, _) in self.arena.iter() {
                total += self.keep(&mut kept, tier, index);
            }
        }
        self.resident(tier) - total
    }

    /// Notes the pages that a node's floor keeps: its own and, above it, whole edges. Returns the new ones.
    fn keep(&self, kept: &mut HashMap<u32, u32>, tier: Tier, node: u32) -> usize {
        let (mut at, mut pages, mut new) = (node, self.floor(tier, node), 0);
        while !self.arena[at].is_root() && pages > kept.get(&at).copied().unwrap_or(0) {
            new += (pages - kept.insert(at, pages).unwrap_or(0)) as usize;
            at = self.arena[at].parent;
            pages = self.pages_in(at, tier);
        }
        new
    }

    /// Takes what it can from one node's tail, or takes the node out of the question.
    fn evict_from(&mut self, tier: Tier, node: u32, deferred: bool, wanted: u32, out: &mut Evicted) {
        let resident = self.pages_in(node, tier);
        let leaf = self.arena[node].resident_children[tier as usize] == 0;
        let floor = self.floor(tier, node);
        if !leaf || resident <= floor {
            // Comes back when its last child leaves or its last hard pin goes.
            self.leaving.withhold(tier, node);
            return;
        }
        let soft = if deferred { 0 } else { self.soft_floor(node) };
        let free = resident - floor.max(soft).min(resident);
        if free == 0 {
            self.leaving.defer(tier, node);
            return;
        }
        self.take(tier, node, free.min(wanted), out);
    }

    pub(super) fn take(&mut self, tier: Tier, node: u32, count: u32, out: &mut Evicted) {
        let (before, other) = (self.arena[node].pages(), self.elsewhere(tier, node));
        let remains = other.max(self.pages_in(node, tier) - count);
        out.dropped += (before - remains) as usize;
        let parts = self.cut(node, tier, count, &mut out.slots);
        out.parts.iter_mut().zip(parts).for_each(|(all, part)| all.extend(part));
        // What is left on the host alone is the host's to give up from now on.
        if tier == Tier::Device && other > 0 {
            self.relist(Tier::Host, node);
        }
    }

    fn elsewhere(&self, tier: Tier, node: u32) -> u32 {
        match tier {
            Tier::Device => self.pages_in(node, Tier::Host),
            Tier::Host => self.pages_in(node, Tier::Device),
        }
    }

    /// Pages of a node that must stay in the tier, whatever is asked.
    pub(super) fn floor(&self, tier: Tier, node: u32) -> u32 {
        let n = &self.arena[node];
        if n.is_root() {
            return 0;
        }
        let pinned = self.pins.on(&self.arena, node).filter(|(_, pin)| pin.hold.tier() == Some(tier));
        let pinned = pinned.map(|(_, pin)| pin.depth - n.start).max().unwrap_or(0);
        let mirrored = if tier == Tier::Host { self.pages_in(node, Tier::Device) } else { 0 };
        pinned.max(mirrored.min(self.pages_in(node, tier)))
    }

    /// Pages of a node that go only when nothing else can.
    fn soft_floor(&self, node: u32) -> u32 {
        let soft = self.pins.on(&self.arena, node).filter(|(_, pin)| pin.hold == Hold::Soft);
        soft.map(|(_, pin)| pin.depth - self.arena[node].start).max().unwrap_or(0)
    }
}
