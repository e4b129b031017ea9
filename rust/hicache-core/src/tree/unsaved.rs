//! What of a tier is wanted in the next one and isn't there: of parts along a path; and all of it, for who writes everything
//! before an end. That looks at every node: it is for moments when nothing else is to be fast. On error: nothing here fails.

use super::Tree;
use super::marks::Marks;
use super::saving::Wanted;
use super::walk::Place;
use crate::events::Medium;
use crate::ids::{Slot, Tier};
use foldhash::fast::FixedState;
use hashbrown::HashSet;

impl Tree {
    /// Slots of a component on the host that storage hasn't got, on the path to `end` behind so many pages, with their pages
    /// (counted from 0): they are on their way there from now on. As many as are wanted, and what is on the same edge; and
    /// behind how many pages there may be more.
    pub fn take_owed(
        &mut self,
        component: usize,
        end: Place,
        from: u32,
        most: usize,
    ) -> (Vec<(u32, Slot)>, Option<u32>) {
        let (mut owed, mut behind) = (Vec::new(), from);
        for node in self.path(end) {
            let n = &mut self.arena[node];
            if n.end > end.depth || n.end <= from || !n.parts[component].owed {
                continue;
            }
            if owed.len() >= most {
                return (owed, Some(behind));
            }
            behind = n.end;
            n.parts[component].owed = false;
            let slots = &n.parts[component].slots[Tier::Host as usize];
            let first = if slots.len() == 1 { n.end - 1 } else { n.start };
            let there = (first..).zip(slots).filter(|(_, slot)| **slot != crate::ids::NO_SLOT);
            owed.extend(there.map(|(page, &slot)| (page, slot)));
        }
        (owed, None)
    }

    /// What is stored isn't known of any page any more: storage is another one, or empty.
    pub fn forget_stored(&mut self) {
        self.tell_cleared(Medium::Storage);
        for index in self.strands.parents_first() {
            self.strands.owe(index, false);
            let strand = &mut self.strands[index];
            strand.stored = Marks::new(strand.start);
            self.strands.owe(index, true);
        }
        self.strands.parts.clear();
        self.strands.told.clear();
        let nodes: Vec<u32> = self.arena.iter().map(|(index, _)| index).collect();
        for index in nodes {
            for part in &mut self.arena[index].parts {
                part.owed = !part.slots[Tier::Host as usize].is_empty();
            }
        }
        for index in self.strands.parents_first() {
            self.settle_debt(index);
        }
    }

    /// Pages of a tier that are wanted in the next one and aren't there.
    pub fn unsaved_pages(&self, tier: Tier) -> usize {
        let edges = self.arena.iter().filter(|(_, node)| !node.is_root());
        let own = edges.map(|(index, node)| {
            let to = self.wanted_end(tier, index);
            let owed = to == node.end && self.owes_parts(tier, index);
            self.unsaved(tier, index, node.start..to).max(usize::from(owed))
        });
        own.sum()
    }

    /// Ends of the paths that lead to such pages, as far as they are wanted. Pages before them may be saved, and so may some
    /// that hang on them: what storage has isn't always a prefix.
    pub fn unsaved_ends(&self, tier: Tier) -> Vec<Place> {
        let edges = self.arena.iter().filter(|(_, node)| !node.is_root());
        let ends = edges.filter_map(|(node, n)| {
            let depth = self.wanted_end(tier, node);
            let missing = self.unsaved(tier, node, n.start..depth) > 0 || self.owes_parts(tier, node);
            (depth > n.start && missing).then_some(Place { node, depth })
        });
        let mut ends: Vec<Place> = ends.collect();
        let mut passed = HashSet::with_hasher(FixedState::default());
        for end in &ends {
            let mut at = self.arena[end.node].parent;
            while !self.arena[at].is_root() && passed.insert(at) {
                at = self.arena[at].parent;
            }
        }
        ends.retain(|end| !passed.contains(&end.node));
        ends
    }

    /// Whether an edge has parts in a tier that storage is to get from there, and hasn't got.
    fn owes_parts(&self, tier: Tier, node: u32) -> bool {
        let n = &self.arena[node];
        match tier {
            _ if tier != self.saving.source() => false,
            Tier::Host => n.parts.iter().any(|part| part.owed),
            // What hangs on it has its own end.
            Tier::Device => n.resident_children[tier as usize] == 0 && self.lacks_parts(node),
        }
    }

    /// Up to where an edge's pages are in a tier and wanted in the next one.
    fn wanted_end(&self, tier: Tier, node: u32) -> u32 {
        if self.saving.wanted[tier as usize] == Wanted::Nothing {
            return 0;
        }
        let n = &self.arena[node];
        self.strands[n.strand].reach(tier).min(n.end).min(self.wanted_to(tier, node))
    }
}
