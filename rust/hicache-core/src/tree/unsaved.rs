//! What of a tier is wanted in the next one and isn't there: all of it, for who writes everything before an end.
//!
//! Looks at every node: it is for moments when nothing else is to be fast. On error: nothing here fails.

use super::Tree;
use super::marks::Marks;
use super::saving::Wanted;
use super::walk::Place;
use crate::events::Medium;
use crate::ids::Tier;

impl Tree {
    /// What is stored isn't known of any page any more: storage is another one, or empty.
    pub fn forget_stored(&mut self) {
        self.tell_cleared(Medium::Storage);
        for index in self.strands.parents_first() {
            self.strands.owe(index, false);
            let strand = &mut self.strands[index];
            strand.stored = Marks::new(strand.start);
            self.strands.owe(index, true);
        }
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
            let owed = tier == Tier::Host && to == node.end && node.parts.iter().any(|part| part.owed);
            self.unsaved(tier, index, node.start..to).max(usize::from(owed))
        });
        own.sum()
    }

    /// Ends of the paths that lead to such pages, as far as they are wanted.
    pub fn unsaved_ends(&self, tier: Tier) -> Vec<Place> {
        let edges = self.arena.iter().filter(|(_, node)| !node.is_root());
        let ends = edges.filter_map(|(node, n)| {
            let depth = self.wanted_end(tier, node);
            let last = n.resident_children[tier as usize] == 0 || depth < n.end;
            let missing = self.unsaved(tier, node, n.start..depth) > 0
                || (tier == Tier::Host && n.parts.iter().any(|part| part.owed));
            (depth > n.start && last && missing).then_some(Place { node, depth })
        });
        ends.collect()
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
