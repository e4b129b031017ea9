//! How component state leaves: by its own eviction, with the FULL pages it belongs to, or by the cap on
//! checkpoints; and where it goes when an edge is split.

use super::attach::other;
use super::{ABSENT, Component, Part};
use crate::ids::{Slot, Tier};
use crate::policy::Order;
use crate::tree::Tree;
use crate::tree::decisions::Decision;
use crate::tree::evict::{Evicted, Spared};
use crate::tree::give_way::{RESERVE, SPARE};
use crate::tree::walk::Place;

impl Tree {
    /// Takes `wanted` slots of a component out of a tier, or as many as can go, in the policy's order.
    ///
    /// Inside the tree only the component's own state goes (a window's front first: it is the first that no
    /// match needs any more). At a leaf everything goes together: what is left could not be used.
    pub fn evict_component(&mut self, component: usize, tier: Tier, wanted: usize) -> Evicted {
        self.evict_component_but(component, tier, wanted, Spared::Nothing)
    }

    /// The same without what is spared; what waiting requests hold softly is no part's.
    pub fn evict_component_but(
        &mut self,
        component: usize,
        tier: Tier,
        wanted: usize,
        spared: Spared,
    ) -> Evicted {
        let mut out = self.nothing_evicted();
        let order = Order::of(component, tier);
        let copies = tier == Tier::Host && self.saving.give_way;
        let mut looked = self.saving.reserve(order) == 0 || wanted >= self.part_resident(component, tier);
        while out.parts[component].len() < wanted {
            let left = wanted - out.parts[component].len();
            if copies && spared < Spared::Copies && self.give_way_part(component, SPARE, left, &mut out) {
                continue;
            }
            let Some((victim, _)) = self.leaving.next(order) else {
                if copies
                    && spared < Spared::Reserve
                    && self.give_way_part(component, RESERVE, left, &mut out)
                {
                    continue;
                }
                break;
            };
            if !looked && self.part_may_go(component, tier, victim.leaf) && !self.is_saved(order, victim.leaf)
            {
                looked = true;
                for node in self.saved_next(order) {
                    let left = wanted.saturating_sub(out.parts[component].len());
                    if left > 0 && self.arena.holds(node) && self.part_may_go(component, tier, node) {
                        self.take_part(component, tier, node, left, &mut out);
                    }
                }
                continue;
            }
            self.take_part(component, tier, victim.leaf, left, &mut out);
        }
        out
    }

    /// Takes what it can of a component from one edge, or takes the edge out of the question.
    fn take_part(&mut self, component: usize, tier: Tier, node: u32, wanted: usize, out: &mut Evicted) {
        if !self.part_may_go(component, tier, node) {
            // Comes back when its last pin goes, or its mirror on the device.
            self.leaving.withhold(Order::of(component, tier), node);
        } else if self.is_loose_leaf(tier, node) {
            self.take_leaf(component, tier, node, out);
        } else {
            self.take_inside(component, tier, node, wanted, out);
        }
    }

    /// Limits the checkpoints of a path on the device: the shallowest beyond `cap` go. Spared are the
    /// path's last one, held ones, those at forks and at leaves. Returns their slots.
    pub fn cap_checkpoints(&mut self, component: usize, end: Place, cap: usize) -> Vec<Slot> {
        let path = self.path(end);
        let has = |tree: &Self, node: u32| tree.arena[node].parts[component].any(Tier::Device);
        let states: Vec<u32> = path.into_iter().filter(|&node| has(self, node)).collect();
        let over = states.len().saturating_sub(cap.max(1));
        let mut freed = Vec::new();
        for node in states.into_iter().take(over) {
            let n = &self.arena[node];
            let inside = n.children == 1 && n.resident_children[Tier::Device as usize] == 1;
            if inside && node != end.node && n.parts[component].held[Tier::Device as usize] == 0 {
                freed.extend(self.drop_part(component, Tier::Device, node));
            }
        }
        freed
    }

    pub(in crate::tree) fn nothing_evicted(&self) -> Evicted {
        let parts = self.components.iter().map(|_| Vec::new()).collect();
        Evicted { parts, ..Evicted::default() }
    }

    /// FULL pages from `keep` on left a tier: so does what belongs to them. `pages` are left of the edge.
    pub(in crate::tree) fn cut_parts(
        &mut self,
        index: u32,
        tier: Tier,
        keep: usize,
        pages: usize,
    ) -> Vec<Vec<Slot>> {
        if self.components.is_empty() {
            return Vec::new();
        }
        let mut freed = vec![Vec::new(); self.components.len()];
        for (component, freed) in freed.iter_mut().enumerate() {
            let kind = self.components[component];
            let part = &mut self.arena[index].parts[component];
            let slots = &mut part.slots[tier as usize];
            match kind {
                Component::State => freed.append(slots),
                Component::Swa { .. } => {
                    freed.extend(slots.iter().skip(keep).copied().filter(|&slot| slot != ABSENT));
                    slots.iter_mut().skip(keep).for_each(|slot| *slot = ABSENT);
                    part.slots.iter_mut().for_each(|slots| slots.truncate(pages));
                    part.tidy(tier);
                }
            }
            self.settle_part(component, tier, index, freed);
        }
        freed
    }

    /// An edge is split after `cut` pages: windows are divided, a checkpoint stays at the tail's end.
    /// `index` is the tail by now; its pins that move to the head are still on it.
    pub(in crate::tree) fn split_parts(
        &self,
        index: u32,
        at: u32,
        cut: usize,
        tail: &mut [Part],
    ) -> Vec<Part> {
        let mut head = vec![Part::default(); tail.len()];
        for (component, (head, tail)) in head.iter_mut().zip(tail).enumerate() {
            if matches!(self.components[component], Component::State) {
                continue;
            }
            for tier in Tier::ALL {
                let slots = &mut tail.slots[tier as usize];
                let rest = slots.split_off(cut.min(slots.len()));
                head.slots[tier as usize] = std::mem::replace(slots, rest);
                head.held[tier as usize] = tail.held[tier as usize];
                tail.held[tier as usize] -= self.moving(index, at, component, tier);
                head.owed = tail.owed;
                head.tidy(tier);
                tail.tidy(tier);
            }
        }
        head
    }

    /// After a split: the head stands right behind the tail in each order, or in its place.
    pub(in crate::tree) fn order_parts(&mut self, head: u32, tail: u32) {
        for component in 0..self.components.len() {
            for tier in Tier::ALL {
                let order = Order::of(component, tier);
                if self.arena[head].parts[component].any(tier) {
                    self.put_beside(order, tail, head);
                }
                if !self.arena[tail].parts[component].any(tier) {
                    self.leaving.withhold(order, tail);
                    self.copies.forget(order, tail);
                }
            }
        }
    }

    /// Pins on an edge that a split after `at` moves to the head.
    #[expect(clippy::cast_possible_truncation, reason = "one pin per request and transfer")]
    fn moving(&self, index: u32, at: u32, component: usize, tier: Tier) -> u32 {
        let pins = self.pins.on(&self.arena, index);
        pins.filter(|(id, pin)| {
            pin.depth <= at
                && pin.hold.tier() == Some(tier)
                && self.pins.marks(*id).get(component).is_some_and(|&mark| mark != super::NOT_HELD)
        })
        .count() as u32
    }

    /// Whether any of it may leave: it is not held and, on the host, not the mirror of the device's.
    pub(in crate::tree) fn part_may_go(&self, component: usize, tier: Tier, node: u32) -> bool {
        let part = &self.arena[node].parts[component];
        if part.held[tier as usize] > 0 {
            return false;
        }
        part.loose(tier).next().is_some()
    }

    fn is_loose_leaf(&self, tier: Tier, node: u32) -> bool {
        let n = &self.arena[node];
        let held = n.parts.iter().any(|part| part.held[tier as usize] > 0);
        let soft = self.soft_floor(node) > 0;
        n.resident_children[tier as usize] == 0 && self.floor(tier, node) == 0 && !held && !soft
    }

    /// A leaf goes page by page from its tail, until it has given a slot; without its checkpoint, all of it.
    fn take_leaf(&mut self, component: usize, tier: Tier, node: u32, out: &mut Evicted) {
        let pages = match self.components[component] {
            Component::State => self.pages_in(node, tier),
            Component::Swa { .. } => {
                let part = &self.arena[node].parts[component];
                let last = (0..self.pages_in(node, tier)).rev().find(|&page| part.has(tier, page));
                self.pages_in(node, tier) - last.unwrap_or(0)
            }
        };
        self.take(tier, node, pages, out);
    }

    fn take_inside(&mut self, component: usize, tier: Tier, node: u32, wanted: usize, out: &mut Evicted) {
        if matches!(self.components[component], Component::State) {
            out.parts[component].extend(self.drop_part(component, tier, node));
            return;
        }
        let part = &mut self.arena[node].parts[component];
        let mirror = part.slots[other(tier) as usize].clone();
        let mirrored = |at: usize| tier == Tier::Host && mirror.get(at).is_some_and(|&slot| slot != ABSENT);
        let mut freed = Vec::new();
        for (at, slot) in part.slots[tier as usize].iter_mut().enumerate() {
            if *slot != ABSENT && !mirrored(at) && freed.len() < wanted {
                freed.push(std::mem::replace(slot, ABSENT));
            }
        }
        part.tidy(tier);
        self.settle_part(component, tier, node, &freed);
        out.parts[component].extend(freed);
    }

    /// Copies of the device's leave the host: at most so many of an edge, the first ones first.
    pub(in crate::tree) fn drop_doubled(
        &mut self,
        component: usize,
        node: u32,
        wanted: usize,
        out: &mut Evicted,
    ) {
        let part = &mut self.arena[node].parts[component];
        let (at, freed): (Vec<usize>, Vec<Slot>) = part.doubled().take(wanted).unzip();
        at.into_iter().for_each(|at| part.slots[Tier::Host as usize][at] = ABSENT);
        part.tidy(Tier::Host);
        self.settle_part(component, Tier::Host, node, &freed);
        out.parts[component].extend(freed);
    }

    /// All that an edge has of a component in a tier.
    fn drop_part(&mut self, component: usize, tier: Tier, node: u32) -> Vec<Slot> {
        let mut slots = std::mem::take(&mut self.arena[node].parts[component].slots[tier as usize]);
        slots.retain(|&slot| slot != ABSENT);
        self.settle_part(component, tier, node, &slots);
        slots
    }

    /// Something left a tier: what has nothing there is in no order there; what the device gave up is the
    /// host's own from now on.
    #[expect(clippy::cast_possible_truncation, reason = "an edge has fewer than 2^32 pages")]
    pub(super) fn settle_part(&mut self, component: usize, tier: Tier, node: u32, left: &[Slot]) {
        if !left.is_empty() {
            let (depth, order) = (self.arena[node].start, Order::of(component, tier));
            self.decisions.word(self.arena[node].key_hash);
            self.decisions.fold(Decision::PartLeft, depth, order.number(), left);
            self.part_resident[component][tier as usize] -= left.len();
            let all = !self.arena[node].parts[component].any(tier);
            self.parts_left(order, node, left.len() as u32, all);
            // Those of a cut edge are still known by name.
            self.note_part(component, node, depth..self.arena[node].end);
        }
        if tier == Tier::Device {
            self.list_part(component, Tier::Host, node);
        } else if !self.arena[node].parts[component].any(tier) {
            self.arena[node].parts[component].owed = false;
        }
    }
}
