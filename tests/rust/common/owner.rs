//! An engine that owns the device slots, over doubles: where each of its slots is, it knows at any time.

use super::rig::{Rig, Shape, config};
use super::store::FaultStore;
use hicache_core::Config;
use hicache_core::identity::Fingerprint;
use hicache_core::ids::{HitId, Slot, Tier};
use hicache_core::page::Tokens;
use hicache_core::policy::Lru;
use hicache_core::policy::fetching::Fair;
use std::collections::BTreeSet;
use std::sync::Arc;

const NEXT: Fingerprint = Fingerprint([9; 32]);

/// An engine with an allocator of its own. What is neither free nor in use is the cache's.
pub struct Owner {
    pub rig: Rig,
    pub free: BTreeSet<Slot>,
}

impl Owner {
    pub fn new(shape: Shape, store: Option<&Arc<FaultStore>>) -> Self {
        let config = Config { engine_owns_slots: true, ..config(shape) };
        let rig = Rig::over(config, store, Box::new(Lru::default()), Box::<Fair>::default());
        Self { rig, free: (0..shape.device).map(Slot).collect() }
    }

    fn take(&mut self, count: usize) -> Option<Vec<Slot>> {
        if self.free.len() < count {
            let evicted = self.rig.evict(Tier::Device, count - self.free.len());
            self.give(&evicted);
        }
        (self.free.len() >= count).then(|| (0..count).map(|_| self.free.pop_first().unwrap()).collect())
    }

    /// Slots are ours again.
    pub fn give(&mut self, slots: &[Slot]) {
        for &slot in slots {
            assert!(self.free.insert(slot), "{slot:?} was told before");
            // Whatever else is in them: nobody may read it.
            self.rig.memory.write_device(slot, &vec![0xEE; self.rig.memory.page_bytes()]);
        }
    }

    /// What the cache tells.
    pub fn told(&mut self) -> usize {
        let slots = self.rig.cache.returned_slots().unwrap();
        self.give(&slots);
        self.books();
        slots.len()
    }

    /// Every slot is ours or a page's, or waits to be told.
    pub fn books(&self) {
        self.rig.books();
        let pool = self.rig.cache.slots(Tier::Device);
        assert!(self.free.iter().all(|&slot| !pool.is_placed(slot) && !pool.is_free(slot)));
        let known = self.free.len() + pool.free() + self.rig.cache.tree().resident(Tier::Device);
        assert_eq!(known, pool.capacity());
    }

    pub fn load(&mut self, hit: HitId) {
        let view = self.rig.view(hit);
        let given = self.take((view.usable - view.device) as usize).unwrap_or_default();
        let loaded = self.rig.cache.load(&[hit], Some(&given)).unwrap();
        // They were never anybody else's.
        self.free.extend(loaded.unused);
        self.books();
    }

    pub fn compute(&mut self, hit: HitId, tokens: &[i32]) -> bool {
        let (from, size) = (self.rig.view(hit).device as usize, self.rig.size());
        let Some(slots) = self.take(tokens.len() / size - from) else { return false };
        for (page, &slot) in (from..).zip(&slots) {
            self.rig.memory.write_device(slot, &self.rig.stamp(tokens, page));
        }
        let done = self.rig.cache.insert(hit, Tokens::I32(&tokens[from * size..]), &slots).unwrap();
        self.free.extend(&slots[..done.duplicates]);
        self.books();
        true
    }

    pub fn release(&mut self, hit: HitId) {
        self.rig.cache.release(hit, 0).unwrap();
        self.books();
    }

    pub fn serve(&mut self, tokens: &[i32]) {
        let hit = self.rig.find(tokens);
        self.load(hit);
        assert!(self.compute(hit, tokens));
        self.release(hit);
    }

    pub fn end_epoch(&mut self, weights: bool) -> usize {
        let gone =
            if weights { self.rig.cache.bump_epoch(NEXT) } else { self.rig.cache.clear_memory() }.unwrap();
        self.books();
        gone[Tier::Device as usize]
    }
}
