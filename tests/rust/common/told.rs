//! Random requests over a cache that tells a router what changes, and the tree's walks beside it.

use super::rig::{Rig, Shape, config};
use super::router::Router;
use super::staging::straight;
use super::store::FaultStore;
use super::{Seeded, writing};
use hicache_core::events::{Event, Medium};
use hicache_core::hash::{Digest, Namespace, chain};
use hicache_core::identity::Fingerprint;
use hicache_core::ids::{HitId, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::storage::{Keys, Outcome, Store};
use hicache_core::transfer::Direction;
use hicache_core::{HostMode, Ready};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct Told {
    pub rig: Rig,
    store: Option<Arc<FaultStore>>,
    identity: Fingerprint,
    pub random: Seeded,
    pub held: Vec<(HitId, Vec<i32>)>,
    at: f64,
    made: BTreeSet<(usize, Vec<i32>)>,
    pub router: Router,
}

/// Requests of two namespaces.
fn namespace(which: usize) -> Namespace {
    Namespace { salt: (which > 0).then(|| "tenant".to_owned()), ..Namespace::default() }
}

impl Told {
    pub fn new(seed: u64, store: Option<&Arc<FaultStore>>) -> Self {
        let mut random = Seeded(seed);
        let (host, page) = ([6, 16, 40][random.below(3)], [1, 2][random.below(2)]);
        let writing = writing::either(seed);
        let usual = Shape { page, device: 16, host, writing, queue: 3, deadline: 3.0, ..Shape::default() };
        // Every third one without a host tier: pages pass through it.
        let writing = straight(writing.storage, writing.clean_reserve);
        let shape =
            if seed % 3 == 2 { Shape { writing, mode: HostMode::BufferOnly, ..usual } } else { usual };
        let mut rig = Rig::new(shape, store);
        rig.cache.keep_events(100_000).unwrap();
        let (identity, store) = (config(shape).identity, store.cloned());
        let router = Router::default();
        Self { rig, store, identity, random, held: Vec::new(), at: 0.0, made: BTreeSet::new(), router }
    }

    fn size(&self) -> PageSize {
        self.rig.cache.tree().page_size()
    }

    pub fn tokens(&mut self) -> Vec<i32> {
        let pages = self.random.tokens(8, 3);
        pages.into_iter().flat_map(|page| vec![page; self.rig.size()]).collect()
    }

    /// True: what follows is a poll.
    pub fn step(&mut self) -> bool {
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

    pub fn serve(&mut self, mut tokens: Vec<i32>, fetching: bool) {
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

    pub fn poll(&mut self, limits: Option<Ready>) {
        self.rig.cache.poll(limits, self.at).unwrap();
    }

    /// What came since the last time, applied and compared.
    pub fn listen(&mut self) -> Vec<Event> {
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
    pub fn begin_late(&mut self) {
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

    pub fn end(mut self) -> Router {
        self.rig.gate.open(Direction::Out);
        for (hit, _) in std::mem::take(&mut self.held) {
            self.rig.cache.release(hit, 0).unwrap();
        }
        // Whether all ends by itself is what other tests are about.
        let began = Instant::now();
        while self.rig.cache.in_flight() > 0 && began.elapsed() < Duration::from_secs(1) {
            self.rig.cache.poll(None, self.at).unwrap();
            self.listen();
        }
        if self.rig.cache.in_flight() == 0 {
            for tier in Tier::ALL {
                self.rig.evict(tier, usize::MAX);
            }
            self.listen();
            let held = self.rig.cache.in_flight() > 0;
            assert!(held || self.router.in_memory().is_empty());
        }
        self.router
    }
}
