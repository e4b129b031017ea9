//! Caches of one token a page under every write policy, and what their tests ask again and again.

use super::rig::{MIRRORED, Rig, Shape};
use super::store::FaultStore;
use hicache_core::hash::chain;
use hicache_core::ids::{HitId, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::policy::{HostCopies, Write, Writing};
use std::sync::Arc;

pub const WRITES: [Write; 3] = [Write::Through, Write::Selective, Write::Back];
pub const COPIES: [HostCopies; 2] = [HostCopies::GiveWay, HostCopies::Keep];

/// Copies give way; a reserve of the whole device, so that whatever may leave is copied beforehand.
pub const fn writing(host: Write, storage: Write) -> Writing {
    Writing { host, storage, host_copies: HostCopies::GiveWay, clean_reserve: 1.0 }
}

pub fn rig(writing: Writing, device: u32, host: u32, store: Option<&Arc<FaultStore>>) -> Rig {
    Rig::new(Shape { page: 1, device, host, writing, ..Shape::default() }, store)
}

/// In one half of a test's runs the host has what the device has; in the other one copies give way, as they do by default.
pub fn either(seed: u64) -> Writing {
    if (seed / 2).is_multiple_of(2) { MIRRORED } else { Writing::default() }
}

/// So many tokens that no other path begins with.
pub fn path(number: i32, pages: i32) -> Vec<i32> {
    (0..pages).map(|page| 1000 * number + page).collect()
}

/// Pages that a store has of these tokens.
pub fn stored(store: &FaultStore, tokens: &[i32]) -> usize {
    let keys = chain(None, Tokens::I32(tokens), PageSize::new(1).unwrap());
    keys.iter().filter(|key| store.page(key).is_some()).count()
}

impl Rig {
    /// Computes what a loaded hit lacks, so many pages at a time.
    pub fn compute_in_pieces(&mut self, hit: HitId, tokens: &[i32], pages: usize) {
        let mut from = self.view(hit).device as usize;
        while from < tokens.len() {
            let to = tokens.len().min(from + pages);
            assert!(self.compute(hit, &tokens[..to]), "room for {} pages", to - from);
            from = to;
        }
    }

    /// Polls so often that whatever a poll starts, and what follows from it, has been started.
    pub fn idle(&mut self) {
        for _ in 0..4 {
            self.settle();
        }
    }

    /// Of tokens, as many pages as are said to hit come back to the device with their stamps.
    pub fn comes_back(&mut self, tokens: &[i32]) -> usize {
        let hit = self.find(tokens);
        let usable = self.view(hit).usable;
        let found = self.load(hit);
        self.settle();
        self.verify(hit, tokens);
        self.cache.release(hit, 0).unwrap();
        assert_eq!(found.device, usable, "room for what was found");
        found.device as usize
    }

    /// The same after all of it has left the device.
    pub fn comes_back_from_the_host(&mut self, tokens: &[i32]) -> usize {
        self.settle();
        self.evict(Tier::Device, usize::MAX);
        self.comes_back(tokens)
    }

    pub fn on(&self, tier: Tier) -> usize {
        self.cache.tree().resident(tier)
    }
}
