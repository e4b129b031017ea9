//! Everything that can end while everything is under way: stores go and come, memory and storage are cleared, device
//! memory goes, requests are retracted, prefixes are warmed and given up; at random moments of a storm.

use super::Seeded;
use super::rig::Shape;
use super::store::{Fault, FaultStore};
use super::storm::{Storm, Weather};
use hicache_core::HostMode;
use hicache_core::page::Tokens;
use hicache_core::storage::Store;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const MOMENT: Duration = Duration::from_millis(1);

pub struct Fate {
    pub storm: Storm,
    random: Seeded,
    /// Never waits; what is in it stays.
    quick: Arc<FaultStore>,
    /// Whether the host does.
    keeps: bool,
    warm: Vec<u64>,
    /// How often each thing happened.
    pub did: BTreeMap<&'static str, usize>,
}

impl Fate {
    pub fn new(seed: u64, shape: Shape) -> Self {
        let shape = Shape { page: [1, 2][(seed % 2) as usize], threads: 3, deadline: 4.0, ..shape };
        let weather = Weather {
            late: seed.is_multiple_of(3),
            tight: seed % 5 > 1,
            faulty: seed % 4 * 5,
            patient: false,
        };
        let storm = Storm::new(shape, seed, weather);
        let (random, quick) = (Seeded(!seed), Arc::new(FaultStore::default()));
        let keeps = shape.mode == HostMode::Cache;
        Self { storm, random, quick, keeps, warm: Vec::new(), did: BTreeMap::new() }
    }

    pub fn step(&mut self) {
        self.storm.step();
        let what = self.strike();
        *self.did.entry(what).or_default() += 1;
        self.storm.rig.books();
    }

    fn strike(&mut self) -> &'static str {
        let cache = &mut self.storm.rig.cache;
        match self.random.below(40) {
            0 | 1 if cache.has_store() => {
                cache.detach_store(MOMENT).unwrap();
                "detach store"
            }
            0..=3 if !cache.has_store() => {
                let stores = [&self.storm.store, &self.quick];
                let store: Arc<dyn Store> = Arc::<FaultStore>::clone(stores[self.random.below(2)]);
                cache.attach_store(&|| Ok(Arc::clone(&store))).unwrap();
                "attach store"
            }
            4 => {
                cache.clear_memory().unwrap();
                "clear memory"
            }
            5 if cache.has_store() => {
                cache.clear_storage().unwrap();
                "clear storage"
            }
            6 | 7 => {
                let before = cache.unwritten();
                let left = cache.write_out().unwrap();
                assert!(left[0] <= before[0]);
                "write out"
            }
            8..=11 => {
                let (tokens, to_device) =
                    (self.random.tokens(12, 3), self.random.below(2) == 0 || !self.keeps);
                let namespace = self.storm.rig.namespace.clone();
                self.warm.extend(cache.warm(Tokens::I32(&tokens), &namespace, to_device, 0.0).unwrap());
                "warm"
            }
            12 if !self.warm.is_empty() => {
                let at = self.random.below(self.warm.len());
                cache.cool(self.warm.swap_remove(at));
                "cool"
            }
            13..=16 if self.storm.retract() => "retract",
            17..=20 if self.storm.sleep() => "detach device",
            _ => "nothing",
        }
    }

    /// All lands and leaves.
    pub fn end(&mut self) {
        self.warm.drain(..).for_each(|number| self.storm.rig.cache.cool(number));
        self.storm.end();
        for tokens in &self.storm.made {
            self.storm.stored(tokens);
        }
    }
}

/// In as many runs as there are seeds; everything happened, again and again.
pub fn all_ends(seeds: std::ops::Range<u64>, shape: impl Fn(u64) -> Shape) {
    let mut did: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in seeds {
        let mut fate = Fate::new(seed, shape(seed));
        (0..250).for_each(|_| fate.step());
        fate.end();
        fate.storm.rig.drained();
        fate.did.iter().for_each(|(what, times)| *did.entry(what).or_default() += times);
    }
    assert_eq!(did.len(), 10, "{did:?}");
    assert!(did.values().all(|&times| times > 20), "{did:?}");
}

/// Closed at any moment, in bounded time, though copies and the store never end; its memory goes with the last of it.
pub fn closes(seed: u64, shape: Shape) {
    let mut fate = Fate::new(seed, shape);
    (0..20 + fate.random.below(120)).for_each(|_| fate.step());
    let began = Instant::now();
    fate.storm.rig.cache.close(Duration::from_millis(5));
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(fate.storm.rig.cache.poll(None, 0.0).is_err());
    fate.storm.release_all();
    let (memory, slab) = (Arc::downgrade(&fate.storm.rig.memory), fate.storm.rig.memory.slab());
    let store = Arc::clone(&fate.storm.store);
    drop(fate);
    // What waits at the gate is inside a store that nobody waits for.
    store.plan(|_, _| Fault::None);
    while store.pass(0) {}
    let end = Instant::now() + Duration::from_secs(10);
    while memory.upgrade().is_some() || slab.upgrade().is_some() {
        assert!(Instant::now() < end, "something keeps the memory");
        std::thread::sleep(MOMENT);
        store.pass(0);
    }
}
