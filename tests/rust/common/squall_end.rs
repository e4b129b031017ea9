//! How a squall ends: everything lands, or the copier does; and what another cache then finds in the store. And what an
//! engine's own policy, and who warms, add to one.

use super::Seeded;
use super::mixed::Mixed;
use super::models::Shape;
use super::squall::Squall;
use super::store::{Fault, FaultStore};
use super::writing::WRITES;
use hicache_core::Error;
use hicache_core::hash::{Namespace, chain, of_part};
use hicache_core::ids::Tier;
use hicache_core::page::{PageSize, Tokens};
use hicache_core::policy::Wish;
use hicache_core::policy::fetching::Verdict;
use hicache_core::tree::Component;
use std::time::{Duration, Instant};

impl Squall {
    /// The copier ends with whatever is under way: everybody leaves, and all go on with other device memory.
    pub fn fault(&mut self, why: &str) {
        self.rig.drip.end(why);
        let gone = || Error::Device(why.to_owned());
        for request in self.live.iter().filter(|request| request.loaded) {
            assert_eq!(self.rig.cache.hit_slots(request.hit), Err(gone()));
            assert_eq!(self.rig.cache.hit_parts(request.hit), Err(gone()));
        }
        assert_eq!(self.rig.cache.allocate(1), Err(gone()));
        assert_eq!(self.rig.cache.allocate_part(0, 1), Err(gone()));
        self.rig.books();
        self.poll();
        assert_eq!(self.rig.cache.copying(), 0, "a fault lands all, whatever the limits");
        self.rig.books();
        while !self.live.is_empty() {
            self.release();
        }
        self.give_back();
        self.rig.cache.poll(None, self.at).unwrap();
        assert_eq!(self.rig.cache.tree().resident(Tier::Device), 0);
        self.rig.wake_elsewhere();
    }

    /// One decision of an engine's own policy, about a request that waits: what is written of it, how much is loaded, or
    /// whether it runs. False: there is none.
    pub fn decide(&mut self, random: &mut Seeded) -> bool {
        let waiting: Vec<_> = self.live.iter().filter(|request| !request.loaded).map(|one| one.hit).collect();
        if waiting.is_empty() {
            return false;
        }
        let hit = waiting[random.below(waiting.len())];
        match random.below(3) {
            0 => {
                let mut write = || WRITES.get(random.below(WRITES.len() + 1)).copied();
                let wish = Wish { host: write(), storage: write() };
                self.rig.cache.wish(hit, wish).unwrap();
            }
            1 => self.rig.cache.at_most(hit, random.below(12)).unwrap(),
            _ => {
                if let Some(told) = self.rig.cache.undecided(hit, random.below(2)).unwrap() {
                    assert!(told.reading <= told.missing && told.missing <= told.requested, "{told:?}");
                    assert!(told.requested <= told.request.prompt, "{told:?}");
                    let verdict = [Verdict::Compute, Verdict::Wait, Verdict::Skip][random.below(3)];
                    self.rig.cache.decided(hit, verdict).unwrap();
                }
            }
        }
        true
    }

    /// Brings up what some insert made, or gives it up.
    pub fn warm(&mut self, random: &mut Seeded) {
        if self.made.is_empty() {
            return;
        }
        self.warms = true;
        let tokens = self.made[random.below(self.made.len())].clone();
        let device = random.below(2) == 0;
        let number =
            self.rig.cache.warm(Tokens::I32(&tokens), &Namespace::default(), device, self.at).unwrap();
        if let Some(number) = number.filter(|_| random.below(4) == 0) {
            self.rig.cache.cool(number);
        }
        self.rig.books();
    }

    /// Nobody warms any more.
    pub fn cool(&mut self) {
        let last = self.rig.cache.stats().warm_prefixes;
        (1..=last).for_each(|number| self.rig.cache.cool(number));
        self.rig.books();
    }

    /// Everybody leaves, in some order, and everything lands.
    pub fn end(&mut self) {
        while !self.live.is_empty() {
            self.release();
        }
        self.give_back();
        self.rig.land();
        let end = Instant::now() + Duration::from_secs(20);
        while self.rig.cache.in_flight() > 0 {
            assert!(Instant::now() < end, "something never lands");
            if let Some(store) = &self.store {
                store.pass(self.random.below(4));
                store.pass(0);
            }
            self.rig.land();
        }
        if let Some(store) = &self.store {
            store.plan(|_, _| Fault::None);
        }
    }

    /// How much of a path is usable with what the store has, straight from the definition.
    fn stored(&self, store: &FaultStore, tokens: &[i32]) -> usize {
        let size = PageSize::new(u32::try_from(self.rig.size()).unwrap()).unwrap();
        let keys = chain(None, Tokens::I32(tokens), size);
        let names = self.rig.cache.part_names();
        let agrees = |depth: usize| {
            let full = keys[..depth].iter().all(|key| store.page(key).is_some());
            full && self.rig.components.iter().zip(&names).all(|(component, name)| {
                let from = match component {
                    Component::Swa { window } => depth.saturating_sub(*window as usize),
                    Component::State => depth - 1,
                };
                keys[from..depth].iter().all(|key| store.page(&of_part(key, name)).is_some())
            })
        };
        (1..=keys.len()).rev().find(|&depth| agrees(depth)).unwrap_or(0)
    }

    /// A new cache over the same store: what it has is what a request gets, right to the byte. Returns how many
    /// paths were usable.
    pub fn readable(&self, shape: &Shape) -> usize {
        let Some(store) = &self.store else { return 0 };
        let parts = shape.parts.iter().map(|&(needs, ..)| (needs, 64, 64)).collect();
        let mut fresh = Mixed::over(&Shape { device: 64, host: 64, parts, ..shape.clone() }, Some(store));
        let mut usable = 0;
        for tokens in &self.made {
            let hit = fresh.fetch(tokens);
            let expected = self.stored(store, tokens);
            let view = fresh.load(hit);
            fresh.land();
            assert_eq!((view.device as usize, view.stored as usize), (expected, expected));
            assert_eq!(fresh.wrong(hit, tokens, true), None);
            fresh.cache.release(hit, 0).unwrap();
            usable += usize::from(expected > 0);
            fresh.cache.evict(Tier::Device, usize::MAX).unwrap();
            fresh.cache.evict(Tier::Host, usize::MAX).unwrap();
        }
        fresh.drained();
        usable
    }
}
