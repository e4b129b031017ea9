//! Requests for windows and states in every state at once, over copies that land page by page and a store that
//! finishes when the test says so. Every page carries its stamp or the run fails.

use super::Seeded;
use super::mixed::{Gives, Mixed};
use super::models::Shape;
use super::store::{Fault, FaultStore};
use hicache_core::Ready;
use hicache_core::ids::{Cursor, HitId, Slot, Tier};
use hicache_core::storage::Outcome;
use hicache_core::transfer::Direction;
use std::sync::Arc;

pub(super) struct Request {
    pub hit: HitId,
    tokens: Vec<i32>,
    pub loaded: bool,
    /// Loaded, and nothing inserted since: all that the next token needs must be there.
    whole: bool,
}

pub struct Squall {
    pub rig: Mixed,
    pub store: Option<Arc<FaultStore>>,
    /// Whether time passes, and with it deadlines.
    pub late: bool,
    pub(super) random: Seeded,
    pub(super) live: Vec<Request>,
    cursors: Vec<(Cursor, Vec<i32>)>,
    /// Slots that somebody else has for a while: pages', then each part's.
    pub(super) out: Vec<Vec<Slot>>,
    /// Every path that an insert made, with all its parts at its end.
    pub made: Vec<Vec<i32>>,
    pub at: f64,
    /// Of the last load of all.
    newest: u64,
    /// Whether prefixes are warmed.
    pub(super) warms: bool,
    /// Loads that brought what they promised, and such that had no room for it.
    pub brought: [usize; 2],
}

impl Squall {
    pub fn new(shape: &Shape, seed: u64) -> Self {
        Self::of(Mixed::new(shape), None, seed)
    }

    /// Over a store whose calls wait for the test; of so many calls one fails, 0: none.
    pub fn over(shape: &Shape, store: &Arc<FaultStore>, seed: u64, faulty: u64) -> Self {
        store.plan(move |_, call| {
            let fails = faulty > 0 && super::mix(seed ^ call as u64).is_multiple_of(faulty);
            if fails { Fault::Answer(Outcome::Failed) } else { Fault::Gated }
        });
        Self::of(Mixed::over(shape, Some(store)), Some(Arc::clone(store)), seed)
    }

    pub(super) fn of(rig: Mixed, store: Option<Arc<FaultStore>>, seed: u64) -> Self {
        let out = vec![Vec::new(); rig.components.len() + 1];
        Self {
            rig,
            store,
            late: false,
            random: Seeded(seed),
            live: Vec::new(),
            cursors: Vec::new(),
            out,
            made: Vec::new(),
            at: 0.0,
            newest: 0,
            warms: false,
            brought: [0; 2],
        }
    }

    pub fn step(&mut self) {
        match self.random.below(20) {
            0 | 1 => self.arrive(),
            2 => self.continue_one(),
            3 | 4 => self.prefetch(),
            5 | 6 => self.load(),
            7..=9 => self.compute(),
            10 => self.release(),
            11 => self.squeeze(),
            12 => self.back_up(),
            16..=18 => self.store_calls(),
            13 if self.late => self.at += 1.0,
            13..=15 => {
                let steps = self.random.below(12);
                (0..steps).for_each(|_| _ = self.rig.drip.step(&mut self.random));
            }
            _ => self.poll(),
        }
        self.rig.books();
        self.verify();
    }

    /// Prompts share beginnings: a page is one of two.
    fn prompt(&mut self, most: usize) -> Vec<i32> {
        let pages = 1 + self.random.below(most);
        let size = i32::try_from(self.rig.size()).unwrap();
        let page = |kind: usize| (0..size).map(move |at| at + 10 * i32::try_from(kind).unwrap());
        let kinds: Vec<usize> = (0..pages).map(|_| self.random.below(2)).collect();
        kinds.into_iter().flat_map(page).collect()
    }

    fn arrive(&mut self) {
        let mut tokens = match self.random.below(2) {
            0 if !self.made.is_empty() => self.made[self.random.below(self.made.len())].clone(),
            _ => Vec::new(),
        };
        tokens.extend(self.prompt(6));
        let hit = self.rig.find_after(&tokens, None, self.at).unwrap();
        self.live.push(Request { hit, tokens, loaded: false, whole: false });
        if self.live.len() > 6 {
            self.release();
        }
    }

    /// The next turn of a released request, unless its place has gone, or its window or state.
    fn continue_one(&mut self) {
        if self.cursors.is_empty() {
            return;
        }
        let (cursor, mut tokens) = self.cursors.swap_remove(self.random.below(self.cursors.len()));
        let new = self.prompt(4);
        if let Ok(hit) = self.rig.find_after(&new, Some(cursor), self.at) {
            tokens.extend(new);
            self.live.push(Request { hit, tokens, loaded: false, whole: false });
        }
    }

    fn pick(&mut self, loaded: bool) -> Option<usize> {
        let fit: Vec<usize> = (0..self.live.len()).filter(|&at| self.live[at].loaded == loaded).collect();
        (!fit.is_empty()).then(|| fit[self.random.below(fit.len())])
    }

    fn prefetch(&mut self) {
        let Some(at) = self.pick(false) else { return };
        self.rig.cache.prefetch(self.live[at].hit).unwrap();
        // Often nothing else happens meanwhile, else it would hardly ever come to its end.
        for _ in 0..self.random.below(30) {
            self.store_calls();
            self.rig.cache.poll(None, self.at).unwrap();
            self.rig.books();
        }
    }

    /// One hit or several. Each gets what is usable anywhere, or what is usable on the device as it is.
    fn load(&mut self) {
        let Some(at) = self.pick(false) else { return };
        // Mostly when its prefetch has been decided.
        if self.rig.view(self.live[at].hit).waiting && self.random.below(8) > 0 {
            return;
        }
        let mut batch = vec![at];
        if self.random.below(3) == 0 {
            batch.extend((0..self.live.len()).filter(|&other| other != at && !self.live[other].loaded));
        }
        let hits: Vec<HitId> = batch.iter().map(|&at| self.live[at].hit).collect();
        let before: Vec<_> = hits.iter().map(|&hit| self.rig.view(hit)).collect();
        let loaded = self.rig.cache.load(&hits, None).unwrap();
        self.newest = self.newest.max(loaded.ticket);
        for (&at, before) in batch.iter().zip(before) {
            let after = self.rig.view(self.live[at].hit);
            // Others may have brought more since it was matched.
            let brought = after.device >= before.usable;
            assert!(brought || after.device >= before.device, "{before:?} became {after:?}");
            assert_eq!(after.device, after.usable);
            self.brought[usize::from(!brought)] += 1;
            (self.live[at].loaded, self.live[at].whole) = (true, true);
        }
    }

    /// A chunk of a request, once what it reads has landed.
    fn compute(&mut self) {
        let Some(at) = self.pick(true) else { return };
        self.rig.drip.finish(Direction::In);
        let (hit, tokens) = (self.live[at].hit, self.live[at].tokens.clone());
        let (from, end) = (self.rig.view(hit).device as usize, tokens.len() / self.rig.size());
        let to = from + self.random.below(end - from + 1);
        let what = match self.random.below(3) {
            0 => Gives { windows: self.random.below(5), states: self.random.below(2) == 0 },
            _ => Gives { windows: 4 + self.random.below(4), states: true },
        };
        if self.rig.compute(hit, &tokens, to, what) && to > from {
            self.live[at].whole = false;
            if what.states && what.windows >= 4.min(to - from) && to - from >= 4.min(to) {
                self.made.push(tokens[..to * self.rig.size()].to_vec());
            }
        }
    }

    pub(super) fn release(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let at = self.random.below(self.live.len());
        let Request { hit, mut tokens, .. } = self.live.swap_remove(at);
        let cursor = self.rig.cache.release(hit, 0).unwrap();
        tokens.truncate(cursor.depth as usize * self.rig.size());
        self.cursors.push((cursor, tokens));
    }

    /// Something leaves a tier, and others take slots for a while.
    fn squeeze(&mut self) {
        let (tier, count) = (Tier::ALL[self.random.below(2)], 1 + self.random.below(6));
        let parts = self.rig.components.len();
        match self.random.below(parts + 1) {
            0 => assert!(self.rig.cache.evict(tier, count).unwrap().len() <= count),
            part => assert!(self.rig.cache.evict_part(part - 1, tier, count).unwrap().len() <= count),
        }
        self.give_back();
        let few = self.random.below(4);
        self.out[0] = self.rig.cache.allocate(few).unwrap().unwrap_or_default();
        for part in 0..parts {
            let few = self.random.below(3);
            self.out[part + 1] = self.rig.cache.allocate_part(part, few).unwrap().unwrap_or_default();
        }
    }

    pub(super) fn give_back(&mut self) {
        for (space, slots) in self.out.iter_mut().enumerate() {
            let slots = std::mem::take(slots);
            match space {
                0 => self.rig.cache.free(&slots).unwrap(),
                space => self.rig.cache.free_part(space - 1, &slots).unwrap(),
            }
        }
    }

    fn back_up(&mut self) {
        if let Some(at) = self.pick(true) {
            self.rig.cache.backup(self.live[at].hit).unwrap();
        }
    }

    fn store_calls(&mut self) {
        let Some(store) = &self.store else { return };
        (0..9).for_each(|_| _ = store.pass(self.random.below(3)));
    }

    pub(super) fn poll(&mut self) {
        let limits = (self.random.below(3) > 0).then(|| Ready {
            backups: self.random.below(3),
            loads: self.random.below(3),
            stores: self.random.below(3),
            prefetches: self.random.below(3),
            strays: self.random.below(3),
        });
        self.rig.cache.poll(limits, self.at).unwrap();
    }

    /// Once every load has landed, all of loaded requests carries its stamps.
    fn verify(&mut self) {
        if self.warms {
            // Nobody has the ticket of what only warms: a load of nothing waits for all.
            self.newest = self.newest.max(self.rig.cache.load(&[], None).unwrap().ticket);
        }
        if self.rig.cache.progress(Direction::In).finished() >= self.newest {
            for request in self.live.iter().filter(|request| request.loaded) {
                assert_eq!(self.rig.wrong(request.hit, &request.tokens, request.whole), None);
            }
        }
    }
}
