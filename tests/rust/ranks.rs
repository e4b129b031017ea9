//! Two caches that are given the same calls and the same poll limits decide the same, though their
//! copies and stores run at different speeds. The limits are what both have ready, as ranks would agree.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{MIRRORED, Rig, Shape};
use common::store::{Fault, FaultStore, Verb};
use common::writing::{COPIES, WRITES};
use common::{Seeded, seeds};
use hicache_core::ids::{Cursor, HitId, Slot, Tier};
use hicache_core::page::Tokens;
use hicache_core::policy::fetching::Verdict;
use hicache_core::policy::{StopOptions, Writing};
use hicache_core::transfer::Direction;
use hicache_core::{HostMode, Ready};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Pair {
    ranks: [Rig; 2],
    random: Seeded,
    /// Each rank has its own name for a hit.
    live: Vec<([HitId; 2], Vec<i32>, bool)>,
    /// And for the place where one ended.
    cursors: Vec<([Cursor; 2], Vec<i32>)>,
    stores: [Arc<FaultStore>; 2],
    at: f64,
}

impl Pair {
    fn new(shape: Shape, seed: u64) -> Self {
        let stores = [Arc::new(FaultStore::default()), Arc::new(FaultStore::default())];
        let ranks = [Rig::new(shape, Some(&stores[0])), Rig::new(shape, Some(&stores[1]))];
        let (random, live, cursors) = (Seeded(seed), Vec::new(), Vec::new());
        Self { ranks, random, live, cursors, stores, at: 0.0 }
    }

    /// The same call on both: the same answer.
    fn both<T: PartialEq + std::fmt::Debug>(&mut self, call: impl Fn(&mut Rig, usize) -> T) -> T {
        let [one, two] = &mut self.ranks;
        let (first, second) = (call(one, 0), call(two, 1));
        assert_eq!(first, second);
        one.books();
        two.books();
        first
    }

    fn find(&mut self, tokens: &[i32]) -> [HitId; 2] {
        self.ranks.each_mut().map(|rig| rig.find(tokens))
    }

    fn poll(&mut self) -> Ready {
        let [one, two] = self.ranks.each_mut().map(|rig| rig.cache.ready());
        let most = Ready {
            backups: one.backups.min(two.backups),
            loads: one.loads.min(two.loads),
            stores: one.stores.min(two.stores),
            prefetches: one.prefetches.min(two.prefetches),
            strays: one.strays.min(two.strays),
        };
        let at = self.at;
        self.both(|rig, _| rig.cache.poll(Some(most), at).unwrap())
    }

    fn step(&mut self) {
        let at = self.random.below(self.live.len().max(1));
        match self.random.below(16) {
            0 | 1 => {
                let tokens = self.random.tokens(24, 3);
                let hit = self.find(&tokens);
                self.live.push((hit, tokens, false));
            }
            2 => self.continue_one(),
            3 if !self.live.is_empty() => {
                let (hit, _, loaded) = self.live[at];
                self.both(|rig, at| loaded || rig.cache.prefetch(hit[at]).unwrap());
            }
            4 if !self.live.is_empty() => self.load(at),
            5 if !self.live.is_empty() => self.release(at),
            6 => {
                let (tier, pages) = (Tier::ALL[self.random.below(2)], 1 + self.random.below(6));
                self.both(|rig, _| rig.evict(tier, pages));
            }
            7..=10 => self.change_speeds(),
            11 => self.at += 0.3,
            12 if !self.live.is_empty() => {
                let (hit, _, loaded) = self.live[at];
                let others = self.random.below(2);
                self.both(|rig, at| loaded || rig.cache.decide(hit[at], others).unwrap() == Verdict::Compute);
                self.both(|rig, _| rig.cache.stepped(3, 0.01, 0).unwrap());
            }
            _ => drop(self.poll()),
        }
        self.compare();
    }

    /// On one rank copies are held back, or some of its copies and calls of its store land, in any order.
    fn change_speeds(&mut self) {
        let (rank, way) = (self.random.below(2), [Direction::In, Direction::Out][self.random.below(2)]);
        let gate = &self.ranks[rank].gate;
        match self.random.below(6) {
            0 => gate.shut(way),
            1 => gate.open(way),
            2 => drop(gate.pass(way, 1 + self.random.below(3))),
            _ => (0..6).for_each(|_| _ = self.stores[rank].pass(self.random.below(2))),
        }
    }

    fn continue_one(&mut self) {
        if self.cursors.is_empty() {
            return;
        }
        let at = self.random.below(self.cursors.len());
        let (cursor, mut tokens) = self.cursors.swap_remove(at);
        let new = self.random.tokens(8, 3);
        let [one, two] = [0, 1].map(|at| self.ranks[at].find_after(&new, Some(cursor[at])));
        assert_eq!(one.is_ok(), two.is_ok(), "stale for both or for none");
        if let (Ok(one), Ok(two)) = (one, two) {
            tokens.extend(new);
            self.live.push(([one, two], tokens, false));
        }
    }

    fn release(&mut self, at: usize) {
        let (hit, mut tokens, _) = self.live.swap_remove(at);
        let cursors = [0, 1].map(|at| self.ranks[at].cache.release(hit[at], 0).unwrap());
        assert_eq!(cursors[0].depth, cursors[1].depth);
        tokens.truncate(cursors[0].depth as usize * self.ranks[0].size());
        self.cursors.push((cursors, tokens));
    }

    /// All that is under way lands on both.
    fn settle(&mut self) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.ranks.iter().any(|rig| rig.cache.in_flight() > 0) {
            for (rig, store) in self.ranks.iter().zip(&self.stores) {
                [Direction::In, Direction::Out].into_iter().for_each(|way| rig.gate.open(way));
                store.pass(0);
            }
            self.poll();
            assert!(Instant::now() < end, "something never lands");
        }
    }

    fn load(&mut self, at: usize) {
        let (hit, tokens, loaded) = self.live[at].clone();
        if loaded {
            return;
        }
        self.live[at].2 = true;
        self.both(|rig, at| rig.cache.load(&[hit[at]], None).unwrap());
        let size = self.ranks[0].size();
        let known = self.both(|rig, at| rig.view(hit[at])).device as usize;
        let pages = tokens.len() / size - known;
        if let Some(slots) = self.both(|rig, _| rig.cache.allocate(pages).unwrap()) {
            let rest = Tokens::I32(&tokens[known * size..known * size + pages * size]);
            let done = self.both(|rig, at| rig.cache.insert(hit[at], rest, &slots).unwrap());
            self.both(|rig, _| rig.cache.free(&slots[..done.duplicates]).unwrap());
        }
    }

    fn compare(&mut self) {
        let hits: Vec<[HitId; 2]> = self.live.iter().map(|(hit, ..)| *hit).collect();
        self.both(|rig, at| hits.iter().map(|&hit| rig.view(hit[at])).collect::<Vec<_>>());
        self.both(|rig, _| Tier::ALL.map(|tier| rig.free(tier)));
        self.both(|rig, _| rig.cache.tree().digest());
        let loaded: Vec<[HitId; 2]> = self.live.iter().filter(|hit| hit.2).map(|hit| hit.0).collect();
        let slots = |rig: &mut Rig, hit| -> Vec<Slot> { rig.cache.hit_slots(hit).unwrap() };
        self.both(|rig, at| loaded.iter().map(|&hit| slots(rig, hit[at])).collect::<Vec<_>>());
    }
}

#[test]
fn equal_calls_and_limits_make_equal_decisions() {
    decide_alike(seeds(12), HostMode::Cache, [MIRRORED]);
}

/// Under every write policy; the host is smaller than the device, so that copies give way.
#[test]
fn every_write_policy_decides_alike() {
    let all = WRITES.into_iter().flat_map(|host| WRITES.map(|storage| (host, storage)));
    let all = all.flat_map(|(host, storage)| {
        COPIES.map(|host_copies| Writing { host, storage, host_copies, clean_reserve: 0.25 })
    });
    decide_alike(seeds(3), HostMode::Cache, all);
}

/// Where the host is staging, of a few pages.
#[test]
fn staging_decides_alike() {
    let all = WRITES.map(|storage| Writing { storage, clean_reserve: 0.25, ..Writing::default() });
    decide_alike(seeds(8), HostMode::BufferOnly, all);
}

fn decide_alike(seeds: Range<u64>, mode: HostMode, writings: impl IntoIterator<Item = Writing>) {
    let (mut fetched, mut late) = (0, 0);
    for (seed, writing) in
        writings.into_iter().flat_map(|writing| seeds.clone().map(move |seed| (seed, writing)))
    {
        let page = 1 + u32::try_from(seed % 2).unwrap();
        let host = match mode {
            HostMode::BufferOnly => 8,
            HostMode::Cache if writing == MIRRORED => 40,
            HostMode::Cache => 20,
        };
        let shape =
            Shape { page, device: 24, host, mode, queue: 4, deadline: 1.0, writing, ..Shape::default() };
        let mut pair = Pair::new(shape, seed);
        let policy = ["timeout", "wait_complete", "best_effort"][(seed % 3) as usize];
        let options = StopOptions { timeout_base: 0.5, ..StopOptions::named(policy) };
        pair.ranks.iter_mut().for_each(|rig| rig.cache.stop_by(options.rule().unwrap()));
        pair.stores.iter().for_each(|store| {
            let mode = HostMode::Cache;
            let roomy = Shape { device: 64, host: 64, mode, writing: MIRRORED, ..shape };
            let mut before = Rig::new(roomy, Some(store));
            let mut random = Seeded(seed);
            for _ in 0..12 {
                before.serve(&random.tokens(24, 3));
            }
            before.settle();
            // What a store has must not depend on when it is asked: ranks agree on counts, not on answers.
            store.freeze();
            store.plan(|_, _| Fault::Gated);
        });
        for _ in 0..600 {
            pair.step();
        }
        pair.settle();
        pair.compare();
        let [one, two] = pair.ranks.each_ref().map(|rig| {
            // What arrives for a request that left is counted by how far it came, which is no decision.
            let mut stats = *rig.cache.stats();
            stats.prefetch_dropped_pages = 0;
            stats
        });
        assert_eq!(one, two);
        fetched += one.prefetched_pages;
        late += one.deadlines_passed;
        while !pair.live.is_empty() {
            pair.release(0);
        }
        pair.settle();
        // What a poll finds to be saved or stored since.
        pair.stores.iter().for_each(|store| store.plan(|_, _| Fault::None));
        for rig in &mut pair.ranks {
            [Direction::In, Direction::Out].into_iter().for_each(|way| rig.gate.open(way));
            rig.drained();
        }
    }
    assert!(fetched > 0 && late > 0, "{fetched} {late}: it went all the way, and deadlines passed");
}

/// A deadline passes at the same moment for both, also where only one of the stores has answered; and
/// what comes late enters through `poll` alone.
#[test]
fn deadlines_pass_alike() {
    let shape = Shape { page: 1, device: 16, host: 16, deadline: 5.0, ..Shape::default() };
    let mut pair = Pair::new(shape, 0);
    let stores = pair.stores.clone();
    let tokens = [1, 2, 3, 4];
    pair.both(|rig, _| rig.serve(&tokens));
    pair.ranks.iter_mut().for_each(Rig::settle);
    Tier::ALL.into_iter().for_each(|tier| drop(pair.both(|rig, _| rig.evict(tier, 4))));
    stores[1].plan(|verb, _| if verb == Verb::Get { Fault::Hang } else { Fault::None });
    let hit = pair.find(&tokens);
    pair.both(|rig, at| rig.cache.prefetch(hit[at]).unwrap());
    let end = Instant::now() + Duration::from_secs(5);
    while (stores[0].calls(Verb::Get), stores[1].calls(Verb::Get)) != (1, 1) {
        pair.poll();
        assert!(Instant::now() < end);
    }
    while pair.ranks[0].cache.ready().prefetches == 0 {
        assert!(Instant::now() < end);
    }
    pair.at = 5.0;
    for _ in 0..3 {
        pair.poll();
        pair.compare();
    }
    stores[1].release();
    while stores[1].ended() < stores[0].ended() {
        assert!(Instant::now() < end);
    }
    std::thread::sleep(Duration::from_millis(10));
    // Agreed limits of nothing: nothing may change on either, whoever has landed.
    pair.both(|rig, _| rig.cache.poll(Some(Ready::default()), 5.0).unwrap());
    pair.compare();
    pair.poll();
    pair.compare();
}
