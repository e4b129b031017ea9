//! Two caches with windows and states that are given the same calls and the same poll limits decide the same, though
//! their copies and stores run at different speeds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::mixed::{Gives, Mixed};
use common::models::{Shape, shapes};
use common::store::{Fault, FaultStore};
use common::{Seeded, seeds};
use hicache_core::Ready;
use hicache_core::ids::{Cursor, HitId, Tier};
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Live {
    /// Each rank has its own name for a hit.
    hit: [HitId; 2],
    tokens: Vec<i32>,
    loaded: bool,
}

struct Pair {
    ranks: [Mixed; 2],
    stores: [Arc<FaultStore>; 2],
    random: Seeded,
    live: Vec<Live>,
    cursors: Vec<([Cursor; 2], Vec<i32>)>,
    at: f64,
}

/// Prompts share beginnings: a page is one of two.
fn prompt(random: &mut Seeded, most: usize, size: usize) -> Vec<i32> {
    let pages = 1 + random.below(most);
    let kinds: Vec<usize> = (0..pages).map(|_| random.below(2)).collect();
    let page = |kind: usize| (0..size).map(move |at| i32::try_from(at + 10 * kind).unwrap());
    kinds.into_iter().flat_map(page).collect()
}

impl Pair {
    /// The same call on both: the same answer.
    fn both<T: PartialEq + std::fmt::Debug>(&mut self, call: impl Fn(&mut Mixed, usize) -> T) -> T {
        let [one, two] = &mut self.ranks;
        let (first, second) = (call(one, 0), call(two, 1));
        assert_eq!(first, second);
        one.books();
        two.books();
        first
    }

    fn poll(&mut self) {
        let [one, two] = self.ranks.each_mut().map(|rig| rig.cache.ready());
        let most = Ready {
            backups: one.backups.min(two.backups),
            loads: one.loads.min(two.loads),
            stores: one.stores.min(two.stores),
            prefetches: one.prefetches.min(two.prefetches),
            strays: one.strays.min(two.strays),
        };
        let at = self.at;
        self.both(|rig, _| rig.cache.poll(Some(most), at).unwrap());
    }

    /// On one rank some pages are copied, and some calls of its store end, in any order.
    fn change_speeds(&mut self) {
        let rank = self.random.below(2);
        for _ in 0..self.random.below(20) {
            self.ranks[rank].drip.step(&mut self.random);
        }
        (0..6).for_each(|_| _ = self.stores[rank].pass(self.random.below(2)));
    }

    fn step(&mut self) {
        let size = self.ranks[0].size();
        let at = self.random.below(self.live.len().max(1));
        let some = !self.live.is_empty();
        match self.random.below(18) {
            0 | 1 => self.arrive(),
            2 if !self.cursors.is_empty() => self.go_on(size),
            3 | 4 if some && !self.live[at].loaded => {
                let hit = self.live[at].hit;
                self.both(|rig, rank| rig.cache.prefetch(hit[rank]).unwrap());
            }
            5 if some && !self.live[at].loaded => self.load(),
            6 | 7 if some && self.live[at].loaded => self.compute(at),
            8 if some => self.release(at),
            9 => {
                let (tier, count) = (Tier::ALL[self.random.below(2)], 1 + self.random.below(6));
                let part = self.random.below(self.ranks[0].components.len() + 1);
                self.both(|rig, _| match part {
                    0 => rig.cache.evict(tier, count).unwrap(),
                    part => rig.cache.evict_part(part - 1, tier, count).unwrap(),
                });
            }
            10..=13 => self.change_speeds(),
            14 => self.at += 0.3,
            _ => self.poll(),
        }
        self.compare();
    }

    fn arrive(&mut self) {
        let size = self.ranks[0].size();
        let tokens = prompt(&mut self.random, 9, size);
        let hit = self.ranks.each_mut().map(|rig| rig.find(&tokens));
        self.live.push(Live { hit, tokens, loaded: false });
        if self.live.len() > 6 {
            self.release(0);
        }
    }

    fn go_on(&mut self, size: usize) {
        let (cursor, mut tokens) = self.cursors.swap_remove(self.random.below(self.cursors.len()));
        let new = prompt(&mut self.random, 4, size);
        let at = self.at;
        let [one, two] = [0, 1].map(|rank| self.ranks[rank].find_after(&new, Some(cursor[rank]), at));
        assert_eq!(one.is_ok(), two.is_ok(), "stale for both or for none");
        if let (Ok(one), Ok(two)) = (one, two) {
            tokens.extend(new);
            self.live.push(Live { hit: [one, two], tokens, loaded: false });
        }
    }

    /// One hit or several.
    fn load(&mut self) {
        let waiting: Vec<usize> = (0..self.live.len()).filter(|&at| !self.live[at].loaded).collect();
        let batch: Vec<usize> = waiting.into_iter().filter(|_| self.random.below(2) == 0).collect();
        let hits: Vec<[HitId; 2]> = batch.iter().map(|&at| self.live[at].hit).collect();
        self.both(|rig, rank| {
            let hits: Vec<HitId> = hits.iter().map(|hit| hit[rank]).collect();
            rig.cache.load(&hits, None).unwrap()
        });
        batch.into_iter().for_each(|at| self.live[at].loaded = true);
    }

    fn compute(&mut self, at: usize) {
        let (hit, tokens) = (self.live[at].hit, self.live[at].tokens.clone());
        let from = self.ranks[0].view(hit[0]).device as usize;
        let to = from + self.random.below(tokens.len() / self.ranks[0].size() - from + 1);
        let what = Gives { windows: self.random.below(8), states: self.random.below(4) > 0 };
        self.both(|rig, rank| rig.compute(hit[rank], &tokens, to, what));
    }

    fn release(&mut self, at: usize) {
        let Live { hit, mut tokens, .. } = self.live.swap_remove(at);
        let cursors = [0, 1].map(|rank| self.ranks[rank].cache.release(hit[rank], 0).unwrap());
        assert_eq!(cursors[0].depth, cursors[1].depth);
        tokens.truncate(cursors[0].depth as usize * self.ranks[0].size());
        self.cursors.push((cursors, tokens));
    }

    fn compare(&mut self) {
        let hits: Vec<([HitId; 2], bool)> = self.live.iter().map(|live| (live.hit, live.loaded)).collect();
        self.both(|rig, rank| hits.iter().map(|(hit, _)| rig.view(hit[rank])).collect::<Vec<_>>());
        self.both(|rig, _| rig.cache.tree().digest());
        self.both(|rig, rank| {
            let loaded = hits.iter().filter(|hit| hit.1).map(|(hit, _)| hit[rank]);
            loaded
                .map(|hit| (rig.cache.hit_slots(hit).unwrap(), rig.cache.hit_parts(hit).unwrap()))
                .collect::<Vec<_>>()
        });
        let parts = self.ranks[0].components.len();
        self.both(|rig, _| {
            let free =
                |tier| (0..parts).map(|part| rig.cache.part_slots(part, tier).unwrap().free()).collect();
            Tier::ALL.map(|tier| -> (usize, Vec<usize>) { (rig.cache.slots(tier).free(), free(tier)) })
        });
    }

    fn settle(&mut self) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.ranks.iter().any(|rig| rig.cache.in_flight() > 0) {
            for (rig, store) in self.ranks.iter().zip(&self.stores) {
                rig.drip.finish_all();
                store.pass(0);
            }
            self.poll();
            assert!(Instant::now() < end, "something never lands");
        }
    }
}

/// A store with paths of an earlier time, and from now on the same answers whenever it is asked: ranks agree on counts,
/// not on answers.
fn filled(shape: &Shape, seed: u64) -> Arc<FaultStore> {
    let store = Arc::new(FaultStore::default());
    let parts = shape.parts.iter().map(|&(needs, ..)| (needs, 64, 64)).collect();
    let mut before = Mixed::over(&Shape { device: 64, host: 64, parts, ..shape.clone() }, Some(&store));
    let mut random = Seeded(seed);
    for _ in 0..8 {
        let tokens = prompt(&mut random, 9, before.size());
        before.serve(&tokens, 3);
        before.settle();
    }
    store.freeze();
    store.plan(|_, _| Fault::Gated);
    store
}

#[test]
fn equal_calls_and_limits_make_equal_decisions_with_parts() {
    let (mut fetched, mut late) = (0, 0);
    for shape in shapes() {
        for seed in seeds(8) {
            let page = 1 + u32::try_from(seed % 2).unwrap();
            let shape = Shape {
                page,
                deadline: 1.0,
                writing: common::writing::either(seed),
                cap: if seed.is_multiple_of(3) { 2 } else { 0 },
                ..shape.clone()
            };
            let stores = [filled(&shape, seed), filled(&shape, seed)];
            let ranks = stores.each_ref().map(|store| Mixed::over(&shape, Some(store)));
            let (random, live, cursors) = (Seeded(seed), Vec::new(), Vec::new());
            let mut pair = Pair { ranks, stores, random, live, cursors, at: 0.0 };
            (0..400).for_each(|_| pair.step());
            pair.settle();
            pair.compare();
            let [one, two] = pair.ranks.each_ref().map(|rig| {
                // What arrives for a request that left is counted by how far it came, which is no decision.
                let mut stats = *rig.cache.stats();
                stats.prefetch_dropped_pages = 0;
                let parts = (0..rig.components.len()).map(|part| *rig.cache.part_stats(part).unwrap());
                (stats, parts.collect::<Vec<_>>())
            });
            assert_eq!(one, two);
            fetched += one.1.iter().map(|part| part.prefetched).sum::<u64>();
            late += one.0.deadlines_passed;
            while !pair.live.is_empty() {
                pair.release(0);
            }
            pair.settle();
            // What a poll finds to be saved or stored since.
            pair.stores.iter().for_each(|store| store.plan(|_, _| Fault::None));
            pair.ranks.iter_mut().for_each(Mixed::drained);
        }
    }
    assert!(fetched > 0 && late > 0, "{fetched} {late}: parts came from storage, and deadlines passed");
}
