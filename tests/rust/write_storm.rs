//! Every combination of write policies under random requests, gated copies and a store that fails now and then: books,
//! invariants and bytes after each step; and the same decisions for the same calls.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use common::store::{Fault, FaultStore};
use common::writing::{COPIES, WRITES};
use common::{Seeded, mix, seeds};
use hicache_core::hash::chain;
use hicache_core::ids::{HitId, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::policy::Writing;
use hicache_core::storage::Outcome;
use hicache_core::transfer::Direction;
use std::collections::BTreeSet;
use std::sync::Arc;

fn writings() -> impl Iterator<Item = Writing> {
    let all = WRITES.into_iter().flat_map(|host| WRITES.map(|storage| (host, storage)));
    let all = all.flat_map(|(host, storage)| COPIES.map(|host_copies| (host, storage, host_copies)));
    all.flat_map(|(host, storage, host_copies)| {
        [0.0, 0.2, 1.0].map(|clean_reserve| Writing { host, storage, host_copies, clean_reserve })
    })
}

struct Storm {
    rig: Rig,
    random: Seeded,
    held: Vec<(HitId, Vec<i32>)>,
    at: f64,
    made: BTreeSet<Vec<i32>>,
}

impl Storm {
    fn new(seed: u64, writing: Writing, store: Option<&Arc<FaultStore>>) -> Self {
        let mut random = Seeded(seed);
        let host = [6, 16, 40][random.below(3)];
        let shape = Shape { page: 1, device: 16, host, writing, queue: 3, deadline: 3.0, ..Shape::default() };
        Self { rig: Rig::new(shape, store), random, held: Vec::new(), at: 0.0, made: BTreeSet::new() }
    }

    fn step(&mut self) {
        let tokens = self.random.tokens(8, 3);
        match self.random.below(13) {
            0..=3 => self.serve(tokens),
            4 => {
                let hit = self.rig.find(&tokens);
                self.rig.cache.prefetch(hit).unwrap();
                self.begin(hit, tokens);
            }
            5 | 6 if !self.held.is_empty() => {
                let at = self.random.below(self.held.len());
                let (hit, _) = self.held.swap_remove(at);
                self.rig.cache.release(hit, 0).unwrap();
            }
            7 => {
                let (tier, pages) = (Tier::ALL[self.random.below(2)], 1 + self.random.below(4));
                self.rig.evict(tier, pages);
            }
            8 => self.rig.gate.shut(Direction::Out),
            9 => self.rig.gate.open(Direction::Out),
            10 => {
                let slots = self.rig.cache.allocate(1 + self.random.below(4)).unwrap();
                // Whatever was in them is nobody's: a copy that still reads them would show.
                for &slot in slots.iter().flatten() {
                    self.rig.memory.write_device(slot, &[0xBB; 24]);
                }
                self.rig.cache.free(&slots.unwrap_or_default()).unwrap();
            }
            _ => {
                self.at += f64::from(u8::try_from(self.random.below(2)).unwrap());
                self.rig.cache.poll(None, self.at).unwrap();
            }
        }
        self.rig.books();
        self.verify();
    }

    fn serve(&mut self, tokens: Vec<i32>) {
        let hit = self.rig.find(&tokens);
        self.begin(hit, tokens);
    }

    /// Loads come at once; backups as the gate lets them.
    fn begin(&mut self, hit: HitId, mut tokens: Vec<i32>) {
        self.rig.load(hit);
        if self.random.below(4) > 0 && !self.rig.compute(hit, &tokens) {
            tokens.truncate(self.rig.view(hit).device as usize);
        }
        tokens.truncate(self.rig.view(hit).device as usize);
        self.made.insert(tokens.clone());
        if self.random.below(8) == 0 {
            self.rig.cache.backup(hit).unwrap();
        }
        self.held.push((hit, tokens));
        if self.held.len() > 3 {
            let (hit, _) = self.held.remove(0);
            self.rig.cache.release(hit, 0).unwrap();
        }
    }

    fn verify(&self) {
        self.held.iter().for_each(|(hit, tokens)| self.rig.verify(*hit, tokens));
    }

    /// Whatever a store has of any path is what that path's pages are.
    fn readable(&self, store: &FaultStore) {
        for tokens in &self.made {
            let keys = chain(None, Tokens::I32(tokens), PageSize::new(1).unwrap());
            for (page, key) in keys.iter().enumerate() {
                if let Some(bytes) = store.page(key) {
                    assert_eq!(bytes, self.rig.stamp(tokens, page), "page {page} of {tokens:?}");
                }
            }
        }
    }

    fn end(mut self) -> Rig {
        self.rig.gate.open(Direction::Out);
        for (hit, _) in std::mem::take(&mut self.held) {
            self.rig.cache.release(hit, 0).unwrap();
        }
        self.rig.idle();
        self.rig
    }
}

/// Nothing is lost, leaked or wrong, and nothing is believed stored that isn't.
#[test]
fn every_combination_holds() {
    let mut stored = 0;
    for seed in seeds(3) {
        for writing in writings() {
            let store = Arc::new(FaultStore::default());
            let faulty = [0, 3, 6][(seed % 3) as usize];
            store.plan(move |_, call| {
                let fails = faulty > 0 && mix(seed ^ call as u64).is_multiple_of(faulty);
                if fails { Fault::Answer(Outcome::Failed) } else { Fault::None }
            });
            let mut engine = Storm::new(seed, writing, Some(&store));
            for _ in 0..150 {
                engine.step();
            }
            engine.readable(&store);
            let mut rig = engine.end();
            let stats = *rig.cache.stats();
            assert!(
                stats.dropped_unsaved_pages + stats.dropped_unstored_pages <= stats.dropped_pages,
                "{writing:?}"
            );
            assert_eq!(stats.stored_pages, store.puts().1 as u64, "{writing:?}");
            stored += stats.stored_pages;
            rig.drained();
        }
    }
    assert!(stored > 1_000, "only {stored} pages were stored");
}

/// The same calls are decided alike.
#[test]
fn twins_decide_alike() {
    for seed in seeds(3) {
        for writing in writings() {
            let (mut a, mut b) = (Storm::new(seed, writing, None), Storm::new(seed, writing, None));
            for _ in 0..150 {
                a.step();
                b.step();
                assert_eq!(a.rig.cache.tree().digest(), b.rig.cache.tree().digest(), "{writing:?}");
            }
            assert_eq!(a.rig.cache.stats(), b.rig.cache.stats());
            a.end().drained();
            b.end().drained();
        }
    }
}
