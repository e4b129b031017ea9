//! A store that is attached late: pages that are there already get their digests, parents first, so that
//! the chain runs from every namespace's seed without a break.

use super::Tree;
use crate::hash;

impl Tree {
    /// Gives every page its digest from now on, those that are there included.
    pub fn start_hashing(&mut self) {
        if std::mem::replace(&mut self.hashing, true) {
            return;
        }
        for index in self.strands.parents_first() {
            let prior = self.last_digest(self.before(index));
            let strand = &mut self.strands[index];
            strand.digests = hash::chain(prior, strand.tokens.view(), self.page_size);
        }
    }
}
