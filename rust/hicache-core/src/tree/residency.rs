//! Pages that are known get slots in another tier, and paths are used: changes without a change of shape.

use super::Tree;
use super::decisions::{Decision, full};
use super::walk::Place;
use crate::ids::{Slot, Tier};
use crate::policy::Why;

impl Tree {
    /// Gives the pages of the path to `end` that follow the ones on the host a slot there each, as far
    /// as the slots go. The pages must be on the device. Returns the place after the last one.
    pub fn mirror(&mut self, end: Place, slots: &[Slot]) -> Place {
        let from = self.resident_depth(end, Tier::Host);
        #[expect(clippy::cast_possible_truncation, reason = "no more slots than pages")]
        let to = from + slots.len() as u32;
        self.settle(end, from..to, Tier::Host, slots)
    }

    /// The way back: gives the pages that follow the ones on the device a slot there each.
    pub fn raise(&mut self, end: Place, slots: &[Slot]) -> Place {
        let from = self.resident_depth(end, Tier::Device);
        #[expect(clippy::cast_possible_truncation, reason = "no more slots than pages")]
        let to = from + slots.len() as u32;
        self.settle(end, from..to, Tier::Device, slots)
    }

    /// Gives pages of the path to `end` their slots in a tier; they must follow what is there.
    pub(super) fn settle(
        &mut self,
        end: Place,
        pages: std::ops::Range<u32>,
        tier: Tier,
        slots: &[Slot],
    ) -> Place {
        let mut parts = Vec::new();
        let to = self.ancestor(end, pages.end);
        self.climb(to, pages.clone(), |node, part| parts.push((node, part)));
        for (index, part) in parts.into_iter().rev() {
            let given = &slots[(part.start - pages.start) as usize..(part.end - pages.start) as usize];
            self.adopt_new(index, tier, given);
        }
        to
    }

    /// Marks the end of a path as used now, in every tier it lives in.
    pub fn touch(&mut self, place: Place) {
        for tier in Tier::ALL {
            // The end may live elsewhere only: then what of the path lives here was used.
            if let Some(node) = self.last_in(place, tier) {
                self.offer(tier, node, Why::Used);
            }
        }
        if !self.components.is_empty() {
            self.touch_parts(place);
        }
    }

    /// Marks a path as used to exactly its end, which may be inside an edge: that is split, so that what was
    /// not used keeps its own place in the order. Returns the place under the name that it has then.
    pub fn touch_exactly(&mut self, place: Place) -> Place {
        let place = self.split(place);
        self.touch(place);
        place
    }

    /// The last node on the path to a place that has pages in a tier.
    fn last_in(&self, place: Place, tier: Tier) -> Option<u32> {
        let depth = self.resident_depth(place, tier);
        (depth > 0).then(|| self.ancestor(place, depth).node)
    }

    /// Marks what a match found as used: the deepest edge that it matched to the end.
    pub fn touch_matched(&mut self, place: Place) {
        let node = &self.arena[place.node];
        let whole = place.depth == node.end;
        self.touch(if whole { place } else { Place { node: node.parent, depth: node.start } });
    }

    /// Gives the pages of an edge that follow its resident ones their slots.
    pub(super) fn adopt_new(&mut self, index: u32, tier: Tier, slots: &[Slot]) {
        let node = &self.arena[index];
        let (parent, key_hash) = (node.parent, node.key_hash);
        let strand = &mut self.strands[node.strand];
        let reach = strand.reach(tier);
        let first = reach == node.start;
        debug_assert!(node.start <= reach && reach < node.end, "T3: adopted pages must follow resident ones");
        strand.give(tier, slots);
        self.decisions.word(key_hash);
        self.decisions.fold(Decision::Placed, reach, full(tier), slots);
        self.resident[tier as usize] += slots.len();
        #[expect(clippy::cast_possible_truncation, reason = "no more slots than pages")]
        let pages = reach..reach + slots.len() as u32;
        self.note(index, pages.clone());
        self.came(index, tier, pages);
        if first {
            self.arena[parent].resident_children[tier as usize] += 1;
            self.no_leaf(parent, tier);
        }
        self.offer(tier, index, Why::Used);
    }

    /// A node got a child in a tier, and is older than that: it needn't be met before others that may leave.
    /// (State of components may make the child leave before its time, hence the other one keep its own.)
    fn no_leaf(&mut self, parent: u32, tier: Tier) {
        if self.components.is_empty() && !self.arena[parent].is_root() {
            self.leaving.pass_over(tier, parent);
        }
    }

    /// Pages of an edge that live in a tier.
    #[inline]
    pub(super) fn pages_in(&self, node: u32, tier: Tier) -> u32 {
        let node = &self.arena[node];
        if node.is_root() {
            return 0;
        }
        self.strands[node.strand].reach(tier).clamp(node.start, node.end) - node.start
    }
}
