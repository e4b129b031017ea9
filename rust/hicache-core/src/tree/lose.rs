//! Pages whose bytes never arrived leave a tier, whatever the order of leaving says: a copy failed.
//!
//! Looks at every node: it is rare, and nothing else is fast then either. On error: nothing here fails.

use super::Tree;
use super::evict::Evicted;
use super::walk::Place;
use crate::ids::Tier;

impl Tree {
    /// Takes the last page before a place out of a tier, with all that hangs below it there; other branches stay.
    /// No hard pin may hold any of it; soft ones move up as far as they must.
    pub fn lose(&mut self, tier: Tier, from: Place) -> Evicted {
        let mut out = self.nothing_evicted();
        let nodes = self.arena.iter().filter(|(index, _)| self.is_from(*index, from));
        let mut lost: Vec<(u32, u32)> = nodes.map(|(index, node)| (node.start, index)).collect();
        // What hangs below something begins behind it: tails first.
        lost.sort_unstable_by_key(|&(start, index)| std::cmp::Reverse((start, index)));
        for (start, index) in lost {
            let stays = if index == from.node { from.depth - 1 - start } else { 0 };
            let count = self.pages_in(index, tier).saturating_sub(stays);
            if count > 0 {
                debug_assert!(self.hard_floor(tier, index) <= stays, "T6: a pinned page is lost");
                self.take(tier, index, count, &mut out);
            }
        }
        out
    }

    /// Whether a node is the one that a place is on, or below it.
    fn is_from(&self, index: u32, from: Place) -> bool {
        let mut at = index;
        while self.arena[at].start >= from.depth {
            at = self.arena[at].parent;
        }
        at == from.node
    }
}
