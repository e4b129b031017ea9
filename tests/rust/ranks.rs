//! Two caches that are given the same calls and the same poll limits decide the same, though their
//! copies and stores run at different speeds. The limits are what both have ready, as ranks would agree.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::Seeded;
use common::rig::{Rig, Shape};
use common::store::{Fault, FaultStore, Verb};
use hicache_core::Ready;
use hicache_core::ids::{HitId, Slot, Tier};
use hicache_core::page::Tokens;
use hicache_core::transfer::Direction;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Pair {
    ranks: [Rig; 2],
    random: Seeded,
    /// Each rank has its own name for a hit.
    live: Vec<([HitId; 2], Vec<i32>, bool)>,
    at: f64,
}

impl Pair {
    fn new(shape: Shape) -> (Self, [Arc<FaultStore>; 2]) {
        let stores = [Arc::new(FaultStore::default()), Arc::new(FaultStore::default())];
        let ranks = [Rig::new(shape, Some(&stores[0])), Rig::new(shape, Some(&stores[1]))];
        (Self { ranks, random: Seeded(11), live: Vec::new(), at: 0.0 }, stores)
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
        match self.random.below(9) {
            0 | 1 => {
                let tokens = self.random.tokens(24, 3);
                let hit = self.find(&tokens);
                self.live.push((hit, tokens, false));
            }
            2 if !self.live.is_empty() => {
                let (hit, _, loaded) = self.live[at];
                self.both(|rig, at| loaded || rig.cache.prefetch(hit[at]).unwrap());
            }
            3 if !self.live.is_empty() => self.load(at),
            4 if !self.live.is_empty() => {
                let (hit, _, _) = self.live.swap_remove(at);
                self.both(|rig, at| rig.cache.release(hit[at], 0).unwrap().depth);
            }
            5 => {
                let (tier, pages) = (Tier::ALL[self.random.below(2)], 1 + self.random.below(6));
                self.both(|rig, _| rig.evict(tier, pages));
            }
            6 => {
                // One rank's copies are late, then the other's.
                let rank = self.random.below(2);
                self.ranks[rank].gate.shut(Direction::Out);
                self.ranks[1 - rank].gate.open(Direction::Out);
            }
            _ => drop(self.poll()),
        }
        self.compare();
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
    let (mut pair, stores) = Pair::new(Shape { device: 24, host: 40, queue: 10_000, ..Shape::default() });
    stores[1].plan(
        |_, call| {
            if call % 3 == 0 { Fault::Slow(Duration::from_micros(300)) } else { Fault::None }
        },
    );
    for _ in 0..4_000 {
        pair.step();
    }
    let stats = pair.ranks.each_ref().map(|rig| *rig.cache.stats());
    assert_eq!(stats[0], stats[1]);
    assert!(stats[0].prefetched_pages > 0 && stats[0].hit_host_tokens > 0, "it went all the way");
}

/// A deadline passes at the same moment for both, also where only one of the stores has answered; and
/// what comes late enters through `poll` alone.
#[test]
fn deadlines_pass_alike() {
    let shape = Shape { page: 1, device: 16, host: 16, deadline: 5.0, ..Shape::default() };
    let (mut pair, stores) = Pair::new(shape);
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
