//! A router that only applies events knows after every step exactly what is in which tier: through splits, evictions,
//! prefetches, failed copies and writes, clears, epochs and stores that come and go. Each change is told exactly once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::models::{Shape, shapes};
use common::router::Router;
use common::squall::Squall;
use common::staging::straight;
use common::store::{Fault, FaultStore, Verb};
use common::told::Told;
use common::{mix, seeds};
use hicache_core::events::{Event, Medium};
use hicache_core::ids::Tier;
use hicache_core::policy::Write;
use hicache_core::storage::Outcome;
use hicache_core::{HostMode, Ready};
use std::sync::Arc;

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
        let mut engine = Told::new(seed, store.as_ref());
        for step in 0..300 {
            if engine.step() {
                engine.poll(None);
            }
            let events = engine.listen();
            coalesced += events
                .iter()
                .filter(|event| matches!(event, Event::Stored(stored) if stored.pages.len() > 1))
                .count();
            if step % 50 == 49 {
                engine.begin_late();
            }
        }
        stored += engine.rig.cache.stats().stored_pages;
        told += engine.end().told;
    }
    assert!(told > 20_000 && stored > 500 && coalesced > 500, "{told} {stored} {coalesced}");
}

/// Ranks that decide alike tell the same, in the same order.
#[test]
fn twins_tell_the_same() {
    for seed in seeds(20) {
        let stores = [(); 2].map(|()| Arc::new(FaultStore::default()));
        let mut twins = [0, 1].map(|at| Told::new(seed, Some(&stores[at]).filter(|_| seed % 2 == 0)));
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

impl Told {
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
    for usual in shapes() {
        for seed in seeds(12) {
            let writing = straight(Write::Through, 0.3);
            let buffer = Shape { writing, mode: HostMode::BufferOnly, ..usual.clone() };
            let shape = if seed % 4 == 3 { buffer } else { usual.clone() };
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
