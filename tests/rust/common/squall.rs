//! Requests for windows and states in every state at once, over copies that land page by page and a store that
//! finishes when the test says so. Every page carries its stamp or the run fails.

use super::Seeded;
use super::mixed::{Gives, Mixed, Shape};
use hicache_core::Ready;
use hicache_core::ids::{Cursor, HitId, Slot, Tier};
use hicache_core::transfer::Direction;

struct Request {
    hit: HitId,
    tokens: Vec<i32>,
    loaded: bool,
    /// Loaded, and nothing inserted since: all that the next token needs must be there.
    whole: bool,
}

pub struct Squall {
    pub rig: Mixed,
    random: Seeded,
    live: Vec<Request>,
    cursors: Vec<(Cursor, Vec<i32>)>,
    /// Slots that somebody else has for a while: pages', then each part's.
    out: Vec<Vec<Slot>>,
    /// Every path that an insert made, with all its parts at its end.
    pub made: Vec<Vec<i32>>,
    pub at: f64,
    /// Of the last load of all.
    newest: u64,
    /// Loads that brought what they promised, and such that had no room for it.
    pub brought: [usize; 2],
}

impl Squall {
    pub fn new(rig: Mixed, seed: u64) -> Self {
        let out = vec![Vec::new(); rig.components.len() + 1];
        Self {
            rig,
            random: Seeded(seed),
            live: Vec::new(),
            cursors: Vec::new(),
            out,
            made: Vec::new(),
            at: 0.0,
            newest: 0,
            brought: [0; 2],
        }
    }

    pub fn step(&mut self) {
        match self.random.below(16) {
            0 | 1 => self.arrive(),
            2 => self.continue_one(),
            3 => self.prefetch(),
            4 | 5 => self.load(),
            6..=8 => self.compute(),
            9 => self.release(),
            10 => self.squeeze(),
            11 => self.back_up(),
            12 | 13 => {
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
        if let Some(at) = self.pick(false) {
            self.rig.cache.prefetch(self.live[at].hit).unwrap();
        }
    }

    /// One hit or several. Each gets what is usable anywhere, or what is usable on the device as it is.
    fn load(&mut self) {
        let Some(at) = self.pick(false) else { return };
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

    fn give_back(&mut self) {
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

    /// Once every load has landed, all of loaded requests carries its stamps.
    fn verify(&self) {
        if self.rig.cache.progress(Direction::In).finished() >= self.newest {
            for request in self.live.iter().filter(|request| request.loaded) {
                assert_eq!(self.rig.wrong(request.hit, &request.tokens, request.whole), None);
            }
        }
    }

    /// Everybody leaves, in some order, and everything lands.
    pub fn end(&mut self) {
        while !self.live.is_empty() {
            self.release();
        }
        self.give_back();
        self.rig.land();
    }
}

/// Models of all kinds, with little room anywhere.
pub fn shapes() -> Vec<Shape> {
    use super::mixed::{STATE, WINDOW};
    use hicache_core::pool::Needs;
    let wide = Needs::Window { tokens: 7 };
    let kinds: [&[(Needs, u32, u32)]; 5] = [
        &[(WINDOW, 12, 14)],
        &[(STATE, 5, 7)],
        &[(WINDOW, 12, 14), (STATE, 5, 7)],
        &[(STATE, 4, 4), (wide, 14, 20), (Needs::Window { tokens: 1 }, 7, 9)],
        &[(STATE, 5, 0), (wide, 14, 16)],
    ];
    let shape = |parts: &[_]| Shape { device: 20, host: 26, ..Shape::of(parts) };
    kinds.iter().map(|parts| shape(parts)).collect()
}
