//! When pages go on from the host to storage, and what becomes of them where storage fails or can't keep up.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::store::{Fault, FaultStore, Verb};
use common::writing::{WRITES, path, rig, stored, writing};
use hicache_core::ids::Tier;
use hicache_core::policy::{Write, Writing};
use hicache_core::storage::Outcome;
use hicache_core::transfer::Direction;
use std::sync::Arc;

/// Idle polls alone bring to storage what was inserted.
#[test]
fn polls_alone_store_what_came() {
    let store = Arc::new(FaultStore::default());
    let mut rig = rig(writing(Write::Through, Write::Through), 8, 8, Some(&store));
    rig.serve(&path(1, 4));
    rig.until("the store", |_| store.len() == 4);
    rig.settle();
    assert_eq!(rig.cache.stats().stored_pages, 4);
    rig.drained();
}

/// Who waits until nothing is under way waits for that, too.
#[test]
fn what_is_to_be_stored_is_under_way() {
    let store = Arc::new(FaultStore::default());
    let mut rig = rig(writing(Write::Through, Write::Selective), 8, 8, Some(&store));
    rig.serve(&path(1, 4));
    rig.settle();
    assert_eq!((store.len(), rig.cache.pending()), (0, 0));
    rig.serve(&path(1, 4));
    assert_eq!(rig.cache.in_flight(), 0);
    assert!(rig.cache.pending() > 0, "a second request used them");
    rig.until("the store", |rig| rig.cache.pending() == 0);
    assert_eq!(store.len(), 4);
    rig.drained();
}

/// What was handed on is stored whole, whatever is split meanwhile.
#[test]
fn a_split_stores_no_less() {
    let store = Arc::new(FaultStore::default());
    store.plan(|verb, _| if verb == Verb::Put { Fault::Hang } else { Fault::None });
    let mut rig = rig(writing(Write::Through, Write::Through), 16, 32, Some(&store));
    let tokens = path(1, 6);
    rig.gate.shut(Direction::Out);
    rig.serve(&tokens);
    let mut other = path(1, 5);
    other.push(3);
    rig.serve(&other);
    rig.gate.open(Direction::Out);
    rig.poll(0.0);
    let mut third = path(1, 2);
    third.push(4);
    rig.serve(&third);
    rig.poll(0.0);
    store.release();
    rig.settle();
    assert_eq!(stored(&store, &tokens) + stored(&store, &other) + stored(&store, &third), 6 + 6 + 3);
    assert_eq!(store.puts(), (1, 8), "each page once");
    rig.drained();
}

/// A batch that fails doesn't keep others from being stored, and is stored when its path comes again.
#[test]
fn a_failed_batch_is_not_believed_stored() {
    let store = Arc::new(FaultStore::default());
    // Each try is made twice.
    store.plan(|verb, call| match (verb, call) {
        (Verb::Put, 1 | 2) => Fault::Answer(Outcome::Failed),
        _ => Fault::None,
    });
    let mut rig = rig(writing(Write::Through, Write::Through), 400, 400, Some(&store));
    let tokens = path(1, 180);
    rig.serve(&tokens);
    rig.idle();
    let stats = *rig.cache.stats();
    assert_eq!(stats.stored_pages + stats.store_failed_pages, 180);
    assert!(stats.store_failed_pages >= 52 && stats.stored_pages >= 52, "{stats:?}");
    assert_eq!(store.len() as u64, stats.stored_pages);
    rig.serve(&tokens);
    rig.idle();
    assert_eq!(store.len(), 180, "all of it");
    assert_eq!(rig.comes_back_from_the_host(&tokens), 180);
    rig.drained();
}

/// The host has more of a path than storage: what comes behind it takes what is missing along.
#[test]
fn storage_catches_up_with_the_host() {
    let store = Arc::new(FaultStore::default());
    let mut rig = rig(writing(Write::Through, Write::Through), 16, 16, Some(&store));
    rig.serve(&path(1, 4));
    rig.idle();
    store.plan(|verb, _| if verb == Verb::Put { Fault::Answer(Outcome::Failed) } else { Fault::None });
    rig.serve(&path(1, 6));
    rig.idle();
    assert_eq!((rig.on(Tier::Host), store.len()), (6, 4));
    store.plan(|_, _| Fault::None);
    rig.serve(&path(1, 8));
    rig.idle();
    assert_eq!((rig.on(Tier::Host), store.len()), (8, 8));
    rig.drained();
}

/// Storage that is written selectively has what two requests used; written back, what is about to leave the host.
#[test]
fn storage_has_a_policy_of_its_own() {
    for host in WRITES {
        let store = Arc::new(FaultStore::default());
        let mut rig = rig(writing(host, Write::Selective), 16, 16, Some(&store));
        rig.serve(&path(1, 4));
        rig.idle();
        assert_eq!(store.len(), 0, "{host:?}: used once");
        rig.serve(&path(1, 6));
        rig.idle();
        assert_eq!(store.len(), 4, "{host:?}: what two used");
        rig.serve(&path(1, 6));
        rig.idle();
        assert_eq!(stored(&store, &path(1, 6)), 6, "{host:?}");
        rig.drained();

        let store = Arc::new(FaultStore::default());
        let write = Writing { clean_reserve: 0.5, ..writing(host, Write::Back) };
        let mut rig = common::writing::rig(write, 8, 8, Some(&store));
        for number in 1..=6 {
            rig.serve(&path(number, 4));
            rig.serve(&path(number, 4));
            rig.idle();
        }
        let stats = *rig.cache.stats();
        assert!(store.len() >= 12, "{host:?}: {} of 24 pages", store.len());
        assert_eq!(stats.dropped_unstored_pages + stats.dropped_unsaved_pages, 0, "{host:?}");
        (1..=6).for_each(|number| {
            let hit = rig.fetch(&path(number, 4));
            rig.load(hit);
            rig.settle();
            rig.verify(hit, &path(number, 4));
            assert_eq!(rig.view(hit).device, 4, "{host:?}: {number}");
            rig.cache.release(hit, 0).unwrap();
        });
        rig.drained();
    }
}

/// A store that never answers is asked no more than so much, and holds no more of the host than that.
#[test]
fn a_slow_store_bounds_what_waits() {
    let store = Arc::new(FaultStore::default());
    store.plan(|verb, _| if verb == Verb::Put { Fault::Hang } else { Fault::None });
    let mut rig = rig(writing(Write::Through, Write::Through), 16, 32, Some(&store));
    for number in 1..=100 {
        rig.serve(&path(number, 4));
        rig.poll(0.0);
        assert!(rig.cache.in_flight() <= 6, "{} transfers", rig.cache.in_flight());
    }
    let stats = *rig.cache.stats();
    assert!(stats.dropped_unstored_pages > 200, "{stats:?}");
    assert_eq!(stats.backup_no_room_pages, 0, "the host goes on");
    store.release();
    rig.idle();
    let stored = store.len() as u64;
    let stats = *rig.cache.stats();
    assert_eq!(stats.stored_pages, stored);
    assert!(stored + stats.dropped_unstored_pages + stats.dropped_unsaved_pages >= 400, "{stats:?}");
    rig.drained();
}

/// However often a step polls, what waits for a store that never answers waits once.
#[test]
fn what_waits_waits_once() {
    for storage in WRITES {
        let store = Arc::new(FaultStore::default());
        store.plan(|verb, _| if verb == Verb::Put { Fault::Hang } else { Fault::None });
        let mut rig = rig(writing(Write::Through, storage), 32, 64, Some(&store));
        for number in 1..=8 {
            rig.serve(&path(number, 7));
            rig.serve(&path(number, 7));
            rig.poll(0.0);
        }
        (0..2_000).for_each(|_| _ = rig.cache.poll(None, 0.0).unwrap());
        let stats = *rig.cache.stats();
        assert_eq!(stats.stores_forgotten, 0, "{storage:?}");
        assert!(rig.cache.in_flight() <= 16);
        store.release();
        rig.idle();
        assert_eq!(rig.cache.tree().in_debt(), 0);
        rig.drained();
    }
}

/// Once what failed is stored, or gone, nothing is looked at for it any more.
#[test]
fn a_debt_ends() {
    for gone in [false, true] {
        let store = Arc::new(FaultStore::default());
        store.plan(|verb, call| match (verb, call) {
            (Verb::Put, 1 | 2) => Fault::Answer(Outcome::Failed),
            _ => Fault::None,
        });
        let mut rig = rig(writing(Write::Through, Write::Through), 16, 16, Some(&store));
        rig.serve(&path(1, 4));
        rig.idle();
        assert_eq!((rig.cache.tree().in_debt(), store.len()), (1, 0));
        if gone {
            Tier::ALL.into_iter().for_each(|tier| drop(rig.evict(tier, usize::MAX)));
            assert_eq!(rig.cache.stats().dropped_unstored_pages, 4);
        } else {
            rig.serve(&path(2, 4));
            rig.idle();
            assert_eq!((rig.cache.tree().in_debt(), store.len()), (1, 4), "another path");
            rig.serve(&path(1, 4));
            rig.idle();
            assert_eq!(store.len(), 8);
        }
        assert_eq!(rig.cache.tree().in_debt(), 0);
        rig.drained();
    }
}

/// What waited behind others and lost its end on the host is stored when its path comes again.
#[test]
fn what_lost_its_name_is_owed() {
    let store = Arc::new(FaultStore::default());
    store.plan(|verb, _| if verb == Verb::Put { Fault::Hang } else { Fault::None });
    let mut rig = rig(writing(Write::Through, Write::Through), 64, 32, Some(&store));
    rig.serve(&path(1, 16));
    rig.poll(0.0);
    rig.until("the copies", |rig| rig.cache.copying() == 0);
    rig.serve(&path(2, 6));
    rig.until("the copies", |rig| rig.cache.copying() == 0);
    rig.evict(Tier::Device, usize::MAX);
    assert_eq!(rig.evict(Tier::Host, 2).len(), 2);
    assert_eq!(rig.cache.stats().dropped_unstored_pages, 2);
    store.release();
    rig.idle();
    rig.serve(&path(2, 4));
    rig.idle();
    assert_eq!(stored(&store, &path(2, 6)), 4);
    assert_eq!(rig.cache.tree().in_debt(), 0);
    rig.drained();
}

/// Many that finish in one step are one copy and few batches.
#[test]
fn what_comes_in_one_step_goes_together() {
    let store = Arc::new(FaultStore::default());
    let mut rig = rig(writing(Write::Through, Write::Through), 600, 600, Some(&store));
    rig.gate.shut(Direction::Out);
    for number in 1..=64 {
        let hit = rig.find(&path(number, 8));
        rig.load(hit);
        rig.compute(hit, &path(number, 8));
        rig.cache.release(hit, 0).unwrap();
    }
    rig.poll(0.0);
    // A load or an allocation submits what was decided before it.
    assert!(rig.gate.waiting(Direction::Out) <= 64);
    let hits: Vec<_> = (101..=132).map(|number| (number, rig.find(&path(number, 2)))).collect();
    rig.cache.load(&hits.iter().map(|&(_, hit)| hit).collect::<Vec<_>>(), None).unwrap();
    let slots = rig.cache.allocate(64).unwrap().unwrap();
    let waiting = rig.gate.waiting(Direction::Out);
    for (&(number, hit), slots) in hits.iter().zip(slots.chunks(2)) {
        for (page, &slot) in slots.iter().enumerate() {
            rig.memory.write_device(slot, &rig.stamp(&path(number, 2), page));
        }
        let tokens = path(number, 2);
        rig.cache.insert(hit, hicache_core::page::Tokens::I32(&tokens), slots).unwrap();
        rig.cache.release(hit, 0).unwrap();
    }
    rig.poll(0.0);
    assert_eq!(rig.gate.waiting(Direction::Out), waiting + 1, "one copy for all of them");
    let puts = store.calls(Verb::Put);
    rig.gate.open(Direction::Out);
    rig.settle();
    assert_eq!(store.len(), 64 * 8 + 32 * 2);
    assert!(store.calls(Verb::Put) - puts <= 6, "{} calls", store.calls(Verb::Put) - puts);
    (101..=132).for_each(|number| assert_eq!(rig.comes_back_from_the_host(&path(number, 2)), 2));
    rig.drained();
}
