//! A router that only applies events knows after every step exactly what is in which tier: through splits, evictions,
//! prefetches, failed copies and writes, clears, epochs and stores that come and go. Each change is told exactly once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::models::shapes;
use common::rig::{Rig, Shape, config};
use common::router::Router;
use common::squall::Squall;
use common::store::{Fault, FaultStore, Verb};
use common::{Seeded, mix, seeds};
use hicache_core::Ready;
use hicache_core::events::{Event, Medium};
use hicache_core::hash::{Digest, Namespace, chain};
use hicache_core::identity::Fingerprint;
use hicache_core::ids::{HitId, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::storage::{Keys, Outcome, Store};
use hicache_core::transfer::Direction;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

struct Storm {
    rig: Rig,
    store: Option<Arc<FaultStore>>,
    identity: Fingerprint,
    random: Seeded,
    held: Vec<(HitId, Vec<i32>)>,
    at: f64,
    made: BTreeSet<(usize, Vec<i32>)>,
    router: Router,
}

/// Requests of two namespaces.
fn namespace(which: usize) -> Namespace {
    Namespace { salt: (which > 0).then(|| "tenant".to_owned()), ..Namespace::default() }
}

impl Storm {
    fn new(seed: u64, store: Option<&Arc<FaultStore>>) -> Self {
        let mut random = Seeded(seed);
        let (host, page) = ([6, 16, 40][random.below(3)], [1, 2][random.below(2)]);
        let writing = common::writing::either(seed);
        let shape = Shape { page, device: 16, host, writing, queue: 3, deadline: 3.0, ..Shape::default() };
        let mut rig = Rig::new(shape, store);
        rig.cache.keep_events(100_000).unwrap();
        let (identity, store) = (config(shape).identity, store.cloned());
        let router = Router::default();
        Self { rig, store, identity, random, held: Vec::new(), at: 0.0, made: BTreeSet::new(), router }
    }

    fn size(&self) -> PageSize {
        self.rig.cache.tree().page_size()
    }

    fn tokens(&mut self) -> Vec<i32> {
        let pages = self.random.tokens(8, 3);
        pages.into_iter().flat_map(|page| vec![page; self.rig.size()]).collect()
    }

    /// True: what follows is a poll.
    fn step(&mut self) -> bool {
        match self.random.below(24) {
            0..=5 => {
                let tokens = self.tokens();
                self.serve(tokens, false);
            }
            6..=8 => {
                let tokens = self.tokens();
                self.serve(tokens, true);
            }
            9 | 10 if !self.held.is_empty() => {
                let (hit, _) = self.held.swap_remove(self.random.below(self.held.len()));
                self.rig.cache.release(hit, 0).unwrap();
            }
            11 => {
                let (tier, pages) = (Tier::ALL[self.random.below(2)], 1 + self.random.below(4));
                self.rig.evict(tier, pages);
            }
            12 => self.rig.gate.shut(Direction::Out),
            13 | 14 => self.rig.gate.open(Direction::Out),
            15 => {
                let slots = self.rig.cache.allocate(1 + self.random.below(4)).unwrap();
                self.rig.cache.free(&slots.unwrap_or_default()).unwrap();
            }
            16 => self.rare(),
            _ => {
                self.at += f64::from(u8::try_from(self.random.below(2)).unwrap());
                return true;
            }
        }
        false
    }

    fn serve(&mut self, mut tokens: Vec<i32>, fetching: bool) {
        let which = self.random.below(2);
        self.rig.namespace = namespace(which);
        let hit = self.rig.find(&tokens);
        if fetching {
            self.rig.cache.prefetch(hit).unwrap();
            let limits = self.limits();
            (0..self.random.below(4)).for_each(|_| _ = self.rig.cache.poll(limits, self.at).unwrap());
        }
        self.rig.load(hit);
        if self.random.below(4) > 0 {
            self.rig.compute(hit, &tokens);
        }
        tokens.truncate(self.rig.view(hit).device as usize * self.rig.size());
        self.made.insert((which, tokens.clone()));
        self.held.push((hit, tokens));
        if self.held.len() > 3 {
            let (hit, _) = self.held.remove(0);
            self.rig.cache.release(hit, 0).unwrap();
        }
    }

    /// Where two do the same, what has landed mustn't differ.
    fn limits(&self) -> Option<Ready> {
        self.store.is_none().then(Ready::default)
    }

    /// What ends things.
    fn rare(&mut self) {
        match self.random.below(8) {
            0 => _ = self.rig.cache.clear_memory().unwrap(),
            1 if self.rig.cache.has_store() => _ = self.rig.cache.clear_storage().unwrap(),
            2 => {
                self.identity = Fingerprint([u8::try_from(self.random.below(250)).unwrap(); 32]);
                self.rig.cache.bump_epoch(self.identity).unwrap();
            }
            3 if self.rig.cache.has_store() => {
                self.rig.cache.detach_store(Duration::from_secs(10)).unwrap();
            }
            4 | 5 if self.store.is_some() && !self.rig.cache.has_store() => {
                let store: Arc<dyn Store> = Arc::<FaultStore>::clone(self.store.as_ref().unwrap());
                self.rig.cache.attach_store(&|| Ok(Arc::clone(&store))).unwrap();
            }
            6 => self.fault(),
            _ => {}
        }
    }

    /// Copies fail; other device memory comes.
    fn fault(&mut self) {
        self.rig.gate.end("on purpose");
        for (hit, _) in std::mem::take(&mut self.held) {
            self.rig.cache.release(hit, 0).unwrap();
        }
        self.rig.cache.poll(self.limits(), self.at).unwrap();
        self.listen();
        self.rig.wake_elsewhere();
    }

    fn poll(&mut self, limits: Option<Ready>) {
        self.rig.cache.poll(limits, self.at).unwrap();
    }

    /// What came since the last time, applied and compared.
    fn listen(&mut self) -> Vec<Event> {
        let events = self.rig.cache.take_events();
        self.router.apply(events.clone(), self.size());
        self.compare();
        events
    }

    /// All pages of paths that were ever made, by where they are, as the tree's walks find them.
    fn truth(&self) -> ([HashSet<Digest>; 2], HashSet<Digest>) {
        let tree = self.rig.cache.tree();
        let (mut tiers, mut believed) = ([HashSet::new(), HashSet::new()], HashSet::new());
        for (which, tokens) in &self.made {
            let namespace = namespace(*which);
            let Some(root) = tree.known_root(&namespace) else { continue };
            let keys = chain(namespace.seed(), Tokens::I32(tokens), self.size());
            let place = tree.follow(root, Tokens::I32(tokens));
            for tier in Tier::ALL {
                tiers[tier as usize].extend(&keys[..tree.resident_depth(place, tier) as usize]);
            }
            let unstored: HashSet<u32> = tree.unstored(place).into_iter().flatten().collect();
            believed.extend(
                (0..place.depth).filter(|page| !unstored.contains(page)).map(|page| keys[page as usize]),
            );
        }
        (tiers, believed)
    }

    fn compare(&mut self) {
        let ([device, host], believed) = self.truth();
        assert_eq!(self.router.of(Medium::Device), &device);
        assert_eq!(self.router.of(Medium::Host), &host);
        let Some(store) = &self.store else {
            assert!(self.router.of(Medium::Storage).is_empty());
            return;
        };
        let stored: Vec<Digest> = self.router.of(Medium::Storage).iter().copied().collect();
        if !stored.is_empty() {
            let there = store.exists(Keys { identity: &self.identity, digests: &stored });
            assert!(there.iter().all(|&outcome| outcome == Outcome::Hit), "storage is what the store took");
        }
        if self.rig.cache.pending() == 0 && self.rig.cache.has_store() {
            let forgotten = believed.difference(self.router.of(Medium::Storage)).count();
            assert_eq!(forgotten, 0, "nothing that the store took is kept secret");
        }
    }

    /// A router that begins now knows what one does that was there all the time.
    fn from_scratch(&mut self) {
        let mut fresh = Router::default();
        fresh.apply(self.rig.cache.events_from_scratch(), self.size());
        assert_eq!(fresh.there[..2], self.router.there[..2]);
        let in_memory = self.router.in_memory();
        assert!(fresh.of(Medium::Storage).is_subset(self.router.of(Medium::Storage)));
        assert!(fresh.of(Medium::Storage).is_subset(&in_memory));
        let believed = self.truth().1;
        if self.rig.cache.pending() == 0 && self.rig.cache.has_store() {
            assert_eq!(fresh.of(Medium::Storage), &believed);
        }
    }

    fn end(mut self) -> Router {
        self.rig.gate.open(Direction::Out);
        for (hit, _) in std::mem::take(&mut self.held) {
            self.rig.cache.release(hit, 0).unwrap();
        }
        self.rig.idle();
        self.listen();
        self.rig.drained();
        self.listen();
        assert!(self.router.in_memory().is_empty());
        self.router
    }
}

#[test]
fn who_applies_events_knows_what_is_where() {
    let (mut told, mut stored, mut coalesced) = (0, 0, 0);
    for seed in seeds(60) {
        let store = (seed % 4 > 0).then(|| Arc::new(FaultStore::default()));
        let faulty = [0, 3, 6][(seed % 3) as usize];
        if let Some(store) = &store {
            store.plan(move |verb, call| {
                let fails = faulty > 0 && verb == Verb::Put && mix(seed ^ call as u64).is_multiple_of(faulty);
                if fails { Fault::Answer(Outcome::Failed) } else { Fault::None }
            });
        }
        let mut storm = Storm::new(seed, store.as_ref());
        for step in 0..300 {
            if storm.step() {
                storm.poll(None);
            }
            let events = storm.listen();
            coalesced += events
                .iter()
                .filter(|event| matches!(event, Event::Stored(stored) if stored.pages.len() > 1))
                .count();
            if step % 50 == 49 {
                storm.from_scratch();
            }
        }
        stored += storm.rig.cache.stats().stored_pages;
        told += storm.end().told;
    }
    assert!(told > 20_000 && stored > 500 && coalesced > 500, "{told} {stored} {coalesced}");
}

/// Ranks that decide alike tell the same, in the same order.
#[test]
fn twins_tell_the_same() {
    for seed in seeds(20) {
        let stores = [(); 2].map(|()| Arc::new(FaultStore::default()));
        let mut twins = [0, 1].map(|at| Storm::new(seed, Some(&stores[at]).filter(|_| seed % 2 == 0)));
        let mut told = 0;
        for _ in 0..200 {
            let polls = [0, 1].map(|at: usize| twins[at].step_alike());
            assert_eq!(polls[0], polls[1]);
            if polls[0] {
                let ready = [0, 1].map(|at: usize| twins[at].rig.cache.ready());
                let limits = fewer(ready[0], ready[1]);
                twins.iter_mut().for_each(|twin| twin.poll(Some(limits)));
            }
            let [one, other] = [0, 1].map(|at: usize| twins[at].rig.cache.take_events());
            assert_eq!(one, other);
            told += one.len();
        }
        assert!(told > 20, "{told}");
    }
}

impl Storm {
    /// A step of which nothing depends on what has landed: that two agree on in polls alone.
    fn step_alike(&mut self) -> bool {
        let tokens = self.tokens();
        match self.random.below(8) {
            0..=2 => self.serve(tokens, false),
            3 => {
                let pages = 1 + self.random.below(4);
                self.rig.evict(Tier::ALL[pages % 2], pages);
            }
            4 => {
                let hit = self.rig.find(&tokens);
                self.rig.cache.prefetch(hit).unwrap();
                self.held.push((hit, tokens));
                let (hit, _) = self.held.remove(0);
                self.rig.cache.release(hit, 0).unwrap();
            }
            _ => return true,
        }
        false
    }
}

fn fewer(one: Ready, other: Ready) -> Ready {
    Ready {
        backups: one.backups.min(other.backups),
        loads: one.loads.min(other.loads),
        stores: one.stores.min(other.stores),
        prefetches: one.prefetches.min(other.prefetches),
        strays: one.strays.min(other.strays),
    }
}

/// With windows and states pages come and go by more ways; what is told is that of the pages.
#[test]
fn hybrids_tell_of_their_pages() {
    for shape in shapes() {
        for seed in seeds(12) {
            let store = Arc::new(FaultStore::default());
            let mut squall = Squall::over(&shape, &store, seed, [0, 5][(seed % 2) as usize]);
            squall.rig.cache.keep_events(1_000_000).unwrap();
            let (mut router, size) = (Router::default(), squall.rig.cache.tree().page_size());
            for _ in 0..300 {
                squall.step();
                router.apply(squall.rig.cache.take_events(), size);
                for (tier, medium) in Tier::ALL.into_iter().zip([Medium::Device, Medium::Host]) {
                    assert_eq!(router.of(medium).len(), squall.rig.cache.tree().resident(tier));
                }
            }
            let mut fresh = Router::default();
            fresh.apply(squall.rig.cache.events_from_scratch(), size);
            assert_eq!(fresh.there[..2], router.there[..2]);
            assert!(fresh.of(Medium::Storage).is_subset(router.of(Medium::Storage)));
            squall.end();
            squall.rig.drained();
        }
    }
}
