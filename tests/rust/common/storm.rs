//! Requests in every state at once, over copies and a store that finish when the test says so, in any order.

use super::rig::{Rig, Shape};
use super::store::{Fault, FaultStore};
use super::{Seeded, mix};
use hicache_core::hash::chain;
use hicache_core::ids::{Cursor, HitId, Slot, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::storage::Outcome;
use hicache_core::transfer::Direction;
use hicache_core::{HostMode, Ready};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Request {
    hit: HitId,
    tokens: Vec<i32>,
    loaded: bool,
}

pub struct Storm {
    pub rig: Rig,
    pub store: Arc<FaultStore>,
    shape: Shape,
    random: Seeded,
    /// Paths that the store had from the beginning.
    known: Vec<Vec<i32>>,
    live: Vec<Request>,
    cursors: Vec<(Cursor, Vec<i32>)>,
    out: Vec<Slot>,
    /// Every path that an insert made.
    pub made: BTreeSet<Vec<i32>>,
    at: f64,
    weather: Weather,
    /// Of the last load of all.
    newest: u64,
}

/// What may happen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// Time passes, and with it deadlines.
    pub late: bool,
    /// The host is asked for pages too.
    pub tight: bool,
    /// Of how many calls of the store one fails; 0: of none.
    pub faulty: u64,
    /// Who asked storage is loaded when it has answered, which is soon.
    pub patient: bool,
}

const WAYS: [Direction; 2] = [Direction::In, Direction::Out];

impl Storm {
    /// A cache over a store that holds some paths from an earlier time.
    pub fn new(shape: Shape, seed: u64, weather: Weather) -> Self {
        let (store, mut random) = (Arc::new(FaultStore::default()), Seeded(seed));
        let mut before =
            Rig::new(Shape { device: 64, host: 64, mode: HostMode::Cache, ..shape }, Some(&store));
        let known: Vec<Vec<i32>> = (0..16).map(|_| random.tokens(20, 3)).collect();
        for tokens in &known {
            before.serve(tokens);
        }
        before.settle();
        store.forget_puts();
        let faulty = weather.faulty;
        store.plan(move |_, call| {
            let fails = faulty > 0 && mix(seed ^ call as u64).is_multiple_of(faulty);
            if fails { Fault::Answer(Outcome::Failed) } else { Fault::Gated }
        });
        let rig = Rig::new(shape, Some(&store));
        let (live, cursors, out, made) = (Vec::new(), Vec::new(), Vec::new(), BTreeSet::new());
        Self { rig, store, shape, random, known, live, cursors, out, made, at: 0.0, weather, newest: 0 }
    }

    pub fn step(&mut self) {
        match self.random.below(17) {
            0 | 1 => self.arrive(),
            2 => self.continue_one(),
            3 | 4 => self.prefetch(),
            5 | 6 => self.load(),
            7 | 8 => self.compute(),
            9 => self.release(),
            10 => self.squeeze(),
            11 | 12 => self.copies(),
            13 => (0..6).for_each(|_| _ = self.store.pass(self.random.below(3))),
            14 if self.weather.late => self.at += 1.0,
            15 => self.rewind(),
            _ => self.poll(),
        }
        if self.weather.patient {
            self.store.pass(0);
            self.rig.cache.poll(None, self.at).unwrap();
        }
        self.rig.books();
        self.verify();
    }

    fn arrive(&mut self) {
        let mut tokens = match self.random.below(2) {
            0 => Vec::new(),
            _ => self.known[self.random.below(self.known.len())].clone(),
        };
        tokens.extend(self.random.tokens(20 - tokens.len(), 3));
        let hit =
            self.rig.cache.match_prefix(Tokens::I32(&tokens), &self.rig.namespace, None, usize::MAX, self.at);
        self.live.push(Request { hit: hit.unwrap(), tokens, loaded: false });
        if self.live.len() > 8 {
            self.release();
        }
    }

    /// The next turn of a released request, unless its place has gone.
    fn continue_one(&mut self) {
        if self.cursors.is_empty() {
            return;
        }
        let (cursor, mut tokens) = self.cursors.swap_remove(self.random.below(self.cursors.len()));
        let new = self.random.tokens(6, 3);
        if let Ok(hit) = self.rig.find_after(&new, Some(cursor)) {
            tokens.extend(new);
            self.live.push(Request { hit, tokens, loaded: false });
        }
    }

    fn pick(&mut self, loaded: bool) -> Option<usize> {
        let fit = (0..self.live.len()).filter(|&at| self.live[at].loaded == loaded);
        let fit: Vec<usize> = fit.collect();
        (!fit.is_empty()).then(|| fit[self.random.below(fit.len())])
    }

    fn prefetch(&mut self) {
        if let Some(at) = self.pick(false) {
            self.rig.cache.prefetch(self.live[at].hit).unwrap();
        }
    }

    fn load(&mut self) {
        let Some(at) = self.pick(false) else { return };
        if self.weather.patient && self.rig.view(self.live[at].hit).waiting {
            return;
        }
        let loaded = self.rig.cache.load(&[self.live[at].hit], None).unwrap();
        self.live[at].loaded = true;
        self.newest = self.newest.max(loaded.ticket);
    }

    /// One turn of a request, or a part of it.
    fn compute(&mut self) {
        let Some(at) = self.pick(true) else { return };
        let (hit, tokens) = (self.live[at].hit, self.live[at].tokens.clone());
        let known = self.rig.view(hit).device as usize * self.rig.size();
        let end = known + self.random.below(tokens.len() - known + 1);
        let tokens = &tokens[..end / self.rig.size() * self.rig.size()];
        if self.rig.compute(hit, tokens) {
            self.made.insert(tokens.to_vec());
        }
    }

    /// Goes back to anywhere on its path, and on with other tokens.
    fn rewind(&mut self) {
        let Some(at) = self.pick(true) else { return };
        let hit = self.live[at].hit;
        let pages = self.random.below(self.rig.view(hit).device as usize + 1);
        self.rig.cache.rewind(hit, u32::try_from(pages).unwrap()).unwrap();
        self.live[at].tokens.truncate(pages * self.rig.size());
        let new = self.random.tokens(6, 3);
        self.live[at].tokens.extend(new);
    }

    /// In whatever state it is.
    fn release(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let at = self.random.below(self.live.len());
        let Request { hit, mut tokens, .. } = self.live.swap_remove(at);
        let cursor = self.rig.cache.release(hit, 0).unwrap();
        tokens.truncate(cursor.depth as usize * self.rig.size());
        self.cursors.push((cursor, tokens));
    }

    /// A running request loses its place, and is matched again: its tokens come back later.
    pub fn retract(&mut self) -> bool {
        let Some(at) = self.pick(true) else { return false };
        self.rig.cache.release(self.live[at].hit, 0).unwrap();
        let hit = self.rig.find(&self.live[at].tokens);
        self.live[at] = Request { hit, tokens: std::mem::take(&mut self.live[at].tokens), loaded: false };
        true
    }

    /// The device's memory goes and other comes, if nothing is in the way.
    pub fn sleep(&mut self) -> bool {
        let back = std::mem::take(&mut self.out);
        self.rig.cache.free(&back).unwrap();
        let slots = u32::try_from(self.rig.cache.slots(Tier::Device).capacity()).unwrap();
        let gone = self.rig.cache.detach().is_ok();
        if gone {
            self.rig.books();
            self.rig.attach_elsewhere(slots);
        }
        gone
    }

    pub fn release_all(&mut self) {
        while !self.live.is_empty() {
            self.release();
        }
    }

    fn squeeze(&mut self) {
        let tier = Tier::ALL[self.random.below(1 + usize::from(self.weather.tight))];
        let pages = 1 + self.random.below(8);
        assert!(self.rig.evict(tier, pages).len() <= pages);
        let back = std::mem::take(&mut self.out);
        self.rig.cache.free(&back).unwrap();
        self.out = self.rig.cache.allocate(self.random.below(4)).unwrap().unwrap_or_default();
    }

    fn copies(&mut self) {
        let way = WAYS[self.random.below(2)];
        match self.random.below(4) {
            0 => self.rig.gate.open(way),
            1 => self.rig.gate.shut(way),
            _ => drop(self.rig.gate.pass(way, 1 + self.random.below(2))),
        }
    }

    fn poll(&mut self) {
        let limits = (self.random.below(3) > 0).then(|| Ready {
            backups: self.random.below(3),
            loads: self.random.below(3),
            stores: self.random.below(3),
            prefetches: self.random.below(3),
            strays: self.random.below(3),
        });
        self.rig.cache.poll(limits, self.at).unwrap();
    }

    /// Once every load has landed, all pages of loaded requests carry their stamps.
    fn verify(&self) {
        if self.rig.cache.progress(Direction::In).finished() >= self.newest {
            for request in self.live.iter().filter(|request| request.loaded) {
                self.rig.verify(request.hit, &request.tokens);
            }
        }
    }

    /// Everything lands that is under way and everybody leaves, in some order.
    pub fn end(&mut self) {
        self.release_all();
        self.rig.cache.free(&std::mem::take(&mut self.out)).unwrap();
        WAYS.into_iter().for_each(|way| self.rig.gate.open(way));
        let end = Instant::now() + Duration::from_secs(20);
        while self.rig.cache.in_flight() > 0 {
            assert!(Instant::now() < end, "something never lands");
            self.store.pass(self.random.below(4));
            self.store.pass(0);
            self.rig.poll(self.at);
        }
        assert_eq!(self.rig.cache.tree().pins(), 0, "every reference came back");
        self.store.plan(|_, _| Fault::None);
    }

    /// How many leading pages of a path the store has; each must be the right one.
    pub fn stored(&self, tokens: &[i32]) -> usize {
        let size = PageSize::new(self.shape.page).unwrap();
        let keys = chain(self.rig.namespace.seed(), Tokens::I32(tokens), size);
        let pages = keys.iter().map_while(|key| self.store.page(key));
        pages.enumerate().inspect(|(page, bytes)| assert_eq!(*bytes, self.rig.stamp(tokens, *page))).count()
    }

    /// A new cache over the same store: what it has is what a request gets, right to the byte.
    pub fn readable(&self) {
        let roomy = Shape { device: 64, host: 64, ..self.shape };
        let mut fresh = Rig::new(roomy, Some(&self.store));
        for tokens in &self.made {
            let hit = fresh.fetch(tokens);
            assert_eq!(fresh.load(hit).device as usize, self.stored(tokens));
            fresh.verify(hit, tokens);
            fresh.cache.release(hit, 0).unwrap();
            fresh.evict(Tier::Device, usize::MAX);
            fresh.evict(Tier::Host, usize::MAX);
        }
        fresh.drained();
    }
}
