//! Giving pages their slots of a component, and finding the ones that miss theirs.

use super::{ABSENT, Component, Part};
use crate::ids::{Slot, Tier};
use crate::policy::{Order, Why};
use crate::tree::Tree;
use crate::tree::decisions::Decision;
use crate::tree::walk::Place;

/// What a component misses in a tier at the end of a path, and has in the other one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Pages, counted from 0 at the root, in order.
    pub pages: Vec<u32>,
    /// Their slots in the other tier.
    pub slots: Vec<Slot>,
}

impl Tree {
    /// Gives pages of the path to `end` their slots of a component in a tier, where FULL lives there. A page
    /// that has one keeps it, and the given one comes back as a duplicate. A checkpoint belongs to the last
    /// page before `end`.
    pub fn attach(
        &mut self,
        component: usize,
        tier: Tier,
        end: Place,
        pages: &[u32],
        slots: &[Slot],
    ) -> Vec<Slot> {
        let end = match self.components[component] {
            Component::State => self.split(end),
            Component::Swa { window } => self.split_before_window(end, window),
        };
        let mut duplicates = Vec::new();
        for (&page, &slot) in pages.iter().zip(slots) {
            let at = self.ancestor(end, page + 1);
            let adopted = match self.components[component] {
                Component::Swa { .. } => self.put_window(component, tier, at, slot),
                Component::State => self.put_state(component, tier, at, slot),
            };
            if adopted {
                let order = Order::of(component, tier).number();
                self.decisions.word(self.arena[at.node].key_hash);
                self.decisions.fold(Decision::PartPlaced, page, order, &[slot]);
                self.part_resident[component][tier as usize] += 1;
                self.note_part(component, at.node, page..page + 1);
            } else {
                duplicates.push(slot);
            }
        }
        self.touch_parts(end);
        duplicates
    }

    /// What no match that ends at a place needs is on an edge of its own: it ages by itself, and a pin at the place
    /// doesn't hold it. The same place, under the name that it has then.
    fn split_before_window(&mut self, end: Place, window: u32) -> Place {
        let used = window.saturating_add(1);
        if end.depth > used {
            self.split(self.ancestor(end, end.depth - used));
        }
        self.ancestor(end, end.depth)
    }

    /// The same for the windows of all components, at the end of a hit. The same place, under the name that it has
    /// then.
    pub fn split_before_windows(&mut self, end: Place) -> Place {
        let windows = self.components.iter().filter_map(|component| match *component {
            Component::Swa { window } => Some(window),
            Component::State => None,
        });
        let windows: Vec<u32> = windows.collect();
        windows.into_iter().fold(end, |end, window| self.split_before_window(end, window))
    }

    /// What a match that ends at `end` needs of a component in a tier and finds only in the other one.
    /// For a tier where FULL doesn't reach, nothing can be given yet.
    pub fn missing(&self, component: usize, tier: Tier, end: Place) -> Missing {
        self.missing_up_to(component, tier, end, self.resident_depth(end, tier))
    }

    /// The same, as if FULL reached so far in the tier.
    pub fn missing_up_to(&self, component: usize, tier: Tier, end: Place, reach: u32) -> Missing {
        let other = other(tier);
        let mut missing = Missing::default();
        for page in self.needs_from(component, end.depth)..end.depth.min(reach) {
            let at = self.ancestor(end, page + 1);
            if self.part_slot(component, tier, at).is_none()
                && let Some(slot) = self.part_slot(component, other, at)
            {
                missing.pages.push(page);
                missing.slots.push(slot);
            }
        }
        missing
    }

    /// A component's slot of the last page before a place (of the checkpoint there, for STATE).
    pub fn part_slot(&self, component: usize, tier: Tier, at: Place) -> Option<Slot> {
        let node = &self.arena[at.node];
        if node.is_root() || at.depth <= node.start {
            return None;
        }
        let part = &node.parts[component];
        let offset = match self.components[component] {
            Component::Swa { .. } => at.depth - 1 - node.start,
            Component::State if at.depth == node.end => 0,
            Component::State => return None,
        };
        part.has(tier, offset).then(|| part.slots[tier as usize][offset as usize])
    }

    /// Where a checkpoint would help the next request most: where tokens matched deeper than states.
    pub fn checkpoint_at(&self, found: &crate::tree::Found) -> Option<u32> {
        let has_state = self.components.contains(&Component::State);
        (has_state && found.place.depth > found.usable).then_some(found.place.depth)
    }

    /// Marks what a match at the end of a path uses of every component: a window, and one page more.
    pub(in crate::tree) fn touch_parts(&mut self, end: Place) {
        for component in 0..self.components.len() {
            let window = match self.components[component] {
                Component::Swa { window } => window.saturating_add(1),
                Component::State => 1,
            };
            let mut nodes = Vec::new();
            self.climb(end, end.depth.saturating_sub(window)..end.depth, |node, _| nodes.push(node));
            // The deepest last: it is the newest.
            for node in nodes.into_iter().rev() {
                for tier in Tier::ALL {
                    if self.arena[node].parts[component].any(tier) {
                        let order = Order::of(component, tier);
                        self.offer(order, node, Why::Used);
                    }
                }
            }
        }
    }

    fn put_window(&mut self, component: usize, tier: Tier, at: Place, slot: Slot) -> bool {
        debug_assert!(at.depth <= self.resident_depth(at, tier), "S2: FULL must be there");
        let node = &mut self.arena[at.node];
        let (offset, pages) = (at.depth - 1 - node.start, node.pages() as usize);
        let part = &mut node.parts[component];
        if part.has(tier, offset) {
            return false;
        }
        part.slots[tier as usize].resize(pages, ABSENT);
        part.slots[tier as usize][offset as usize] = slot;
        self.list_part(component, tier, at.node);
        true
    }

    fn put_state(&mut self, component: usize, tier: Tier, at: Place, slot: Slot) -> bool {
        debug_assert!(at.depth == self.arena[at.node].end, "a checkpoint is at an edge's end");
        debug_assert!(at.depth <= self.resident_depth(at, tier), "S2: FULL must be there");
        let node = &mut self.arena[at.node];
        let part: &mut Part = &mut node.parts[component];
        if part.any(tier) {
            return false;
        }
        part.slots[tier as usize].push(slot);
        self.hold_new(component, tier, at.node);
        self.list_part(component, tier, at.node);
        true
    }

    /// Whatever has slots and may leave is in the order; pinned or mirrored ones come back by themselves.
    pub(in crate::tree) fn list_part(&mut self, component: usize, tier: Tier, node: u32) {
        let order = Order::of(component, tier);
        if self.arena[node].parts[component].any(tier) {
            self.offer(order, node, Why::Freed);
        }
    }
}

pub(super) const fn other(tier: Tier) -> Tier {
    match tier {
        Tier::Device => Tier::Host,
        Tier::Host => Tier::Device,
    }
}
