//! Caches whose host is staging, of one token a page, and what their tests ask again and again.

use super::rig::{Rig, Shape};
use super::store::FaultStore;
use hicache_core::HostMode;
use hicache_core::hash::chain;
use hicache_core::ids::{HitId, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::policy::{HostCopies, Write, Writing};
use std::sync::Arc;

/// What goes to storage, and when; the reserve is a share of the device.
pub const fn straight(storage: Write, clean_reserve: f64) -> Writing {
    Writing { host: Write::Through, storage, host_copies: HostCopies::GiveWay, clean_reserve }
}

/// With so many batches of writes at once.
pub fn shape(writing: Writing, device: u32, host: u32) -> Shape {
    Shape { page: 1, device, host, mode: HostMode::BufferOnly, writing, ..Shape::default() }
}

pub fn rig(writing: Writing, device: u32, host: u32, store: &Arc<FaultStore>) -> Rig {
    Rig::new(shape(writing, device, host), Some(store))
}

impl Rig {
    /// Of a path's pages on the device, those that are believed stored or on their way.
    pub fn believed(&self, tokens: &[i32]) -> Vec<u32> {
        let tree = self.cache.tree();
        let Some(root) = tree.known_root(&self.namespace) else { return Vec::new() };
        let found = tree.walk(root, Tokens::I32(tokens));
        let missing = tree.unstored(found.place);
        (0..found.place.depth).filter(|page| !missing.iter().any(|range| range.contains(page))).collect()
    }

    /// Nothing is under way, and what is believed stored is, with its stamp; how many pages that are.
    pub fn stored_truly(&self, store: &FaultStore, tokens: &[i32]) -> usize {
        assert_eq!((self.cache.pending(), self.cache.staged()), (0, [0; 2]));
        let believed = self.believed(tokens);
        for &page in &believed {
            assert!(self.has(store, tokens, page as usize), "page {page} is believed stored");
        }
        believed.len()
    }

    /// Whether the store has a page of these tokens. If so, with its stamp.
    pub fn has(&self, store: &FaultStore, tokens: &[i32], page: usize) -> bool {
        let size = PageSize::new(u32::try_from(self.size()).unwrap()).unwrap();
        let key = chain(self.namespace.seed(), Tokens::I32(&tokens[..(page + 1) * self.size()]), size)[page];
        let Some(bytes) = store.page(&key) else { return false };
        assert_eq!(bytes, self.stamp(tokens, page), "page {page} in the store");
        true
    }

    /// Pages of these tokens that the store has.
    pub fn stored(&self, store: &FaultStore, tokens: &[i32]) -> usize {
        (0..tokens.len() / self.size()).filter(|&page| self.has(store, tokens, page)).count()
    }

    /// Until nothing waits or is under way; in no poll the tree had anything on the host, nor writes more than their share.
    pub fn all_written(&mut self) {
        let most = self.cache.slots(Tier::Host).capacity();
        let most = most - most.div_ceil(5);
        self.until("all writes", |rig| {
            assert_eq!(rig.cache.tree().resident(Tier::Host), 0);
            assert!(rig.cache.staged()[0] <= most);
            rig.cache.pending() == 0
        });
        assert_eq!(self.cache.staged(), [0; 2]);
    }

    /// Nothing is held any more, anywhere; nothing is left in the tree when it is emptied.
    pub fn all_back(&mut self, held: &[HitId]) {
        for &hit in held {
            self.cache.release(hit, 0).unwrap();
        }
        self.all_written();
        self.drained();
    }
}
