//! A store's calls with pages in one piece and without parents.

use hicache_core::hash::Digest;
use hicache_core::identity::Fingerprint;
use hicache_core::storage::{Keys, Outcome, PageMut, PageRef, Store};

/// A store under one identity.
pub struct Plain<'a>(pub &'a dyn Store, pub Fingerprint);

impl Plain<'_> {
    fn keys<'a>(&'a self, digests: &'a [Digest]) -> Keys<'a> {
        Keys { identity: &self.1, digests }
    }

    pub fn exists(&self, digests: &[Digest]) -> Vec<Outcome> {
        self.0.exists(self.keys(digests))
    }

    pub fn put(&self, digests: &[Digest], pages: &[&[u8]]) -> Vec<Outcome> {
        let pages: Vec<PageRef<'_>> = pages.iter().map(|page| PageRef::from(*page)).collect();
        self.0.put(self.keys(digests), &vec![None; digests.len()], &pages)
    }

    pub fn get(&self, digests: &[Digest], pages: &mut [&mut [u8]]) -> Vec<Outcome> {
        let mut pages: Vec<PageMut<'_>> = pages.iter_mut().map(|page| PageMut::from(&mut **page)).collect();
        self.0.get(self.keys(digests), &mut pages)
    }

    pub fn remove(&self, digests: &[Digest]) -> Vec<Outcome> {
        self.0.remove(self.keys(digests))
    }
}
