//! A store that is attached late: pages that are there already get their digests, parents first, so that
//! the chain runs from every namespace's seed without a break.

use super::{Place, Tree};
use crate::hash;

impl Tree {
    /// Gives every page its digest from now on, those that are there included.
    pub fn start_hashing(&mut self) {
        if std::mem::replace(&mut self.hashing, true) {
            return;
        }
        let mut nodes: Vec<(u32, u32)> = self.arena.iter().map(|(index, node)| (node.start, index)).collect();
        // A parent starts before its children do.
        nodes.sort_unstable();
        for (start, index) in nodes {
            let node = &self.arena[index];
            if !node.is_root() {
                let prior = self.last_digest(Place { node: node.parent, depth: start });
                self.arena[index].digests = hash::chain(prior, node.tokens.view(), self.page_size);
            }
        }
    }
}
