//! Eviction: leaf first, in the policy's order, from the tail, exactly as many pages as asked.

use super::Tree;
use super::give_way::{RESERVE, SPARE, WAITING};
use super::pin::Hold;
use super::walk::Place;
use crate::ids::{Slot, Tier};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// What an eviction doesn't take, each with what is before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spared {
    /// Everything that may leave may be taken.
    Nothing,
    /// What waiting requests hold.
    Waiting,
    /// Host copies of what leaves the device next.
    Reserve,
    /// Host copies of what is on the device, whenever that leaves.
    Copies,
}

/// What an eviction took.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Slots that are free now, in the order in which their pages left.
    pub slots: Vec<Slot>,
    /// Pages of these that live in no tier any more.
    pub dropped: usize,
    /// Of the pages that live in no tier any more: so many were wanted in the next tier, and weren't there yet.
    pub unsaved: usize,
    /// Per component besides FULL: slots that are free now.
    pub parts: Vec<Vec<Slot>>,
}

impl Tree {
    /// Takes `pages` pages out of a tier, or as many as can go.
    ///
    /// Host copies of pages that are on the device leave before all others, or ([`super::Saving`]) stay. Where the next
    /// leaf isn't saved one tier further down, those of the reserve that are go first.
    pub fn evict(&mut self, tier: Tier, pages: usize) -> Evicted {
        self.evict_but(tier, pages, Spared::Nothing)
    }

    /// The same without what is spared.
    pub fn evict_but(&mut self, tier: Tier, pages: usize, spared: Spared) -> Evicted {
        let mut out = self.nothing_evicted();
        out.slots.reserve_exact(pages.min(self.resident(tier)));
        let copies = tier == Tier::Host && self.saving.give_way;
        let mut looked = self.saving.reserve(tier.into()) == 0 || pages >= self.resident(tier);
        while out.slots.len() < pages {
            let left = pages - out.slots.len();
            if copies && spared < Spared::Copies && self.give_way(SPARE, left, &mut out) {
                continue;
            }
            let next = self.leaving.next(tier);
            let last = next.is_none_or(|(_, deferred)| deferred);
            let lists = [(Spared::Reserve, RESERVE), (Spared::Waiting, WAITING)];
            if last
                && copies
                && lists.iter().any(|&(by, list)| spared < by && self.give_way(list, left, &mut out))
            {
                continue;
            }
            let Some((victim, deferred)) = next.filter(|_| !last || spared < Spared::Waiting) else { break };
            if !looked && !deferred && !self.is_saved(tier.into(), victim.leaf) {
                looked = true;
                self.evict_saved(tier, pages, &mut out);
                continue;
            }
            let wanted = u32::try_from(left).unwrap_or(u32::MAX).min(victim.pages.max(1));
            self.evict_from(tier, victim.leaf, deferred, wanted, &mut out);
        }
        out
    }

    /// Whether something may leave a tier that is no copy of what is on the device, and that nobody waits for; it may turn out
    /// to be held.
    pub fn leaves_alone(&mut self, tier: Tier) -> bool {
        self.leaving.next(tier).is_some_and(|(_, deferred)| !deferred)
    }

    /// What leaves soon and is saved.
    fn evict_saved(&mut self, tier: Tier, pages: usize, out: &mut Evicted) {
        for node in self.saved_next(tier.into()) {
            let left = u32::try_from(pages.saturating_sub(out.slots.len())).unwrap_or(u32::MAX);
            // What was taken before it may have taken it along.
            if left > 0 && self.arena.holds(node) && self.pages_in(node, tier) > 0 {
                self.evict_from(tier, node, false, left, out);
            }
        }
    }

    /// Whether so many pages of a tier can go. Looks at no pin unless the answer depends on what pins share,
    /// and then, for the device, not again before a hard pin comes or goes.
    pub fn can_evict(&mut self, tier: Tier, pages: usize) -> bool {
        let Some(spare) = self.resident(tier).checked_sub(pages) else { return false };
        let kept = self.pins.kept(tier);
        let mirrored = tier == Tier::Host && !self.saving.give_way;
        let mirrors = if mirrored { self.resident(Tier::Device) } else { 0 };
        if kept.most + mirrors <= spare {
            return true;
        }
        if kept.least > spare {
            return false;
        }
        if mirrored {
            return self.evictable(tier) >= pages;
        }
        let exactly = self.kept_by_pins(tier).0;
        self.pins.settle_kept(tier, exactly);
        exactly <= spare
    }

    /// Pages that an eviction of everything would free: all but those on the way to a hard pin and, on the
    /// host where copies don't give way, those that are on the device too. Walks up from every pin and, for such a
    /// host, through all strands.
    pub fn evictable(&self, tier: Tier) -> usize {
        let (pinned, held) = self.kept_by_pins(tier);
        if tier == Tier::Device || self.saving.give_way {
            return self.resident(tier) - pinned;
        }
        let own = self.strands.iter().map(|(index, strand)| {
            let held = held.get(&index).copied().unwrap_or(strand.start);
            strand.reach(Tier::Host).saturating_sub(held.max(strand.reach(Tier::Device))) as usize
        });
        own.sum()
    }

    /// Pages that hard pins keep in a tier, and up to which depth on each strand.
    pub(super) fn kept_by_pins(&self, tier: Tier) -> (usize, HashMap<u32, u32, FixedState>) {
        let (mut total, mut held) = (0, HashMap::with_hasher(FixedState::default()));
        for pin in self.pins.all().filter(|pin| pin.hold.tier() == Some(tier)) {
            let mut at = Place { node: pin.node, depth: pin.depth };
            while at.depth > 0 {
                let index = self.arena[at.node].strand;
                let start = self.strands[index].start;
                let to = held.entry(index).or_insert(start);
                let new = *to == start;
                total += at.depth.saturating_sub(*to) as usize;
                *to = at.depth.max(*to);
                if !new {
                    // What is above it was noted with it.
                    break;
                }
                at = self.before(index);
            }
        }
        (total, held)
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
        let (start, strand) = (self.arena[node].start, self.arena[node].strand);
        out.unsaved += self.lost(tier, node, start + remains..start + before);
        let parts = self.cut(node, tier, count, &mut out.slots);
        if self.in_debt() > 0 {
            self.settle_debt(strand);
        }
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
        if self.arena[node].is_root() {
            return 0;
        }
        let pinned = self.hard_floor(tier, node);
        match tier {
            Tier::Device => pinned,
            Tier::Host => pinned.max(self.pages_in(node, Tier::Device).min(self.pages_in(node, tier))),
        }
    }

    /// Pages of a node that hard pins keep in the tier.
    pub(super) fn hard_floor(&self, tier: Tier, node: u32) -> u32 {
        let deepest = self.pins.deepest(&self.arena, node, Hold::hard(tier));
        deepest.map_or(0, |depth| depth - self.arena[node].start)
    }

    /// Pages of a node that go only when nothing else can.
    pub(super) fn soft_floor(&self, node: u32) -> u32 {
        let deepest = self.pins.deepest(&self.arena, node, Hold::Soft);
        deepest.map_or(0, |depth| depth - self.arena[node].start)
    }
}
