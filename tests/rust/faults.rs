//! Backups and writes that are late, refused or fail; stores that panic or hang; the order of `poll`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use common::store::{Fault, FaultStore, Verb};
use hicache_core::Ready;
use hicache_core::hash::chain;
use hicache_core::ids::Tier;
use hicache_core::page::{PageSize, Tokens};
use hicache_core::storage::Outcome;
use hicache_core::transfer::Direction;
use std::sync::Arc;
use std::time::{Duration, Instant};

const TOKENS: [i32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

fn store() -> Arc<FaultStore> {
    Arc::new(FaultStore::default())
}

/// Every stored page must carry the stamp of its prefix.
fn stored_stamps(rig: &Rig, store: &FaultStore, tokens: &[i32]) -> usize {
    let size = PageSize::new(u32::try_from(rig.size()).unwrap()).unwrap();
    let keys = chain(rig.namespace.seed(), Tokens::I32(tokens), size);
    let pages = keys.iter().enumerate().filter_map(|(page, key)| Some((page, store.page(key)?)));
    pages.inspect(|(page, bytes)| assert_eq!(*bytes, rig.stamp(tokens, *page), "page {page}")).count()
}

/// A page whose backup hasn't landed keeps its device slot; nobody else can overwrite it.
#[test]
fn device_slots_stay_while_a_backup_reads_them() {
    let mut rig = Rig::new(Shape { device: 6, ..Shape::default() }, None);
    rig.gate.shut(Direction::Out);
    rig.serve(&TOKENS);
    rig.poll(0.0);
    assert_eq!(rig.gate.waiting(Direction::Out), 1);
    assert_eq!(rig.evict(Tier::Device, 6), []);
    assert_eq!(rig.cache.allocate(1).unwrap(), None);
    // Landed, but not let in yet: still held.
    rig.gate.open(Direction::Out);
    assert_eq!(rig.evict(Tier::Device, 6), []);
    rig.poll(0.0);
    let other = [50, 51, 52, 53];
    rig.serve(&other);
    let hit = rig.find(&TOKENS);
    assert_eq!((rig.view(hit).device, rig.view(hit).usable), (4, 6));
    rig.settle();
    rig.load(hit);
    rig.verify(hit, &TOKENS);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// The other way: a load's host pages and device pages stay while it is under way, released or not.
#[test]
fn a_load_under_way_keeps_both_sides() {
    let mut rig = Rig::new(Shape { device: 6, host: 6, ..Shape::default() }, None);
    rig.serve(&TOKENS);
    rig.settle();
    rig.evict(Tier::Device, 6);
    rig.gate.shut(Direction::In);
    let hit = rig.find(&TOKENS);
    let loaded = rig.cache.load(&[hit], None).unwrap();
    assert!(!rig.cache.progress(Direction::In).wait(loaded.ticket, 1, Duration::from_millis(1)));
    rig.cache.release(hit, 0).unwrap();
    assert_eq!(rig.evict(Tier::Device, 6), []);
    assert_eq!(rig.evict(Tier::Host, 6), []);
    // Another hit of the same pages copies nothing, but must wait for the same copies.
    let other = rig.find(&TOKENS);
    assert_eq!(rig.cache.load(&[other], None).unwrap().ticket, loaded.ticket);
    rig.gate.open(Direction::In);
    assert!(rig.cache.progress(Direction::In).wait(loaded.ticket, 2, Duration::from_millis(1)));
    rig.verify(other, &TOKENS);
    rig.cache.release(other, 0).unwrap();
    rig.drained();
}

/// What was queued is what gets stored, whatever the tree looks like when it lands.
#[test]
fn a_split_while_a_backup_waits_loses_no_page() {
    let store = store();
    let mut rig = Rig::new(Shape::default(), Some(&store));
    rig.gate.shut(Direction::Out);
    rig.serve(&TOKENS);
    let mut fork = TOKENS;
    fork[10] = 99;
    rig.serve(&fork);
    fork[4] = 98;
    rig.serve(&fork);
    rig.gate.open(Direction::Out);
    rig.settle();
    assert_eq!(stored_stamps(&rig, &store, &TOKENS), 6);
    assert_eq!(store.len(), 6 + 1 + 4);
    rig.drained();
}

/// A store that panics on a write gets the next ones all the same; a write that fails is tried once
/// more, and only one that fails twice is lost.
#[test]
fn a_panic_loses_its_batch_and_nothing_else() {
    for (panics, calls, stored) in [(2..=2, 6, 10), (2..=3, 6, 8)] {
        let store = store();
        store.plan(move |_, call| if panics.contains(&call) { Fault::Panic } else { Fault::None });
        let mut rig = Rig::new(Shape { threads: 1, ..Shape::default() }, Some(&store));
        for first in 0..5 {
            rig.serve(&[first, 1, first, 2]);
            rig.settle();
        }
        assert_eq!(store.calls(Verb::Put), calls);
        assert_eq!(store.len(), stored);
        let stats = rig.cache.stats();
        assert_eq!((stats.stored_pages, stats.store_failed_pages), (stored as u64, 10 - stored as u64));
        rig.drained();
    }
}

/// One answer a key, or none of them is believed.
#[test]
fn a_wrong_number_of_answers_is_a_failed_batch() {
    for fault in [Fault::Short, Fault::Long, Fault::Answer(Outcome::Failed), Fault::Panic] {
        let store = store();
        store.plan(move |_, _| fault);
        let mut rig = Rig::new(Shape::default(), Some(&store));
        rig.serve(&TOKENS);
        rig.settle();
        assert_eq!((rig.cache.stats().stored_pages, rig.cache.stats().store_failed_pages), (0, 6));
        rig.drained();
    }
}

/// A full queue loses nothing: what finds no room in it waits.
#[test]
fn what_finds_the_write_queue_full_waits_its_turn() {
    let store = store();
    store.plan(|_, call| if call == 1 { Fault::Hang } else { Fault::None });
    let mut rig = Rig::new(Shape { threads: 1, queue: 1, device: 64, ..Shape::default() }, Some(&store));
    rig.serve(&[0, 1, 0, 2]);
    rig.until("the first write", |_| store.calls(Verb::Put) == 1);
    for first in 1..6 {
        rig.serve(&[first, 1, first, 2]);
        rig.poll(0.0);
    }
    assert_eq!(rig.evict(Tier::Device, usize::MAX).len(), 12);
    assert_eq!(rig.cache.stats().store_failed_pages, 0, "nobody overtakes the first");
    store.release();
    rig.settle();
    let stats = *rig.cache.stats();
    assert_eq!((stats.stored_pages, stats.store_failed_pages), (12, 0));
    assert_eq!(store.len(), 12);
    rig.drained();
}

/// A store that never answers: deadlines pass by `poll`'s time, others go on, and when it answers after
/// all, everything comes back.
#[test]
fn a_hanging_read_ends_by_its_deadline() {
    let store = store();
    let mut rig = Rig::new(Shape { threads: 2, deadline: 5.0, ..Shape::default() }, Some(&store));
    rig.serve(&TOKENS);
    rig.settle();
    Tier::ALL.into_iter().for_each(|tier| drop(rig.evict(tier, 6)));
    store.plan(|verb, call| if verb == Verb::Get && call == 1 { Fault::Hang } else { Fault::None });
    let hit = rig.find(&TOKENS);
    rig.cache.prefetch(hit).unwrap();
    rig.until("the read", |_| store.calls(Verb::Get) == 1);
    rig.poll(4.9);
    assert!(rig.view(hit).waiting);
    rig.poll(5.0);
    assert!(!rig.view(hit).waiting);
    assert_eq!(rig.cache.stats().deadlines_passed, 1);
    assert_eq!(rig.load(hit).device, 0);
    assert!(rig.compute(hit, &TOKENS));
    // The slots it may still write to belong to nobody else.
    assert_eq!(rig.cache.slots(Tier::Host).out(), 6);
    rig.cache.release(hit, 0).unwrap();
    // Others go on.
    rig.serve(&[60, 61]);
    rig.until("a write", |_| store.len() == 7);
    store.release();
    rig.settle();
    let hit = rig.find(&TOKENS);
    rig.load(hit);
    rig.verify(hit, &TOKENS);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

#[test]
fn a_hanging_write_does_not_hold_the_others_back() {
    let store = store();
    store.plan(|_, call| if call == 1 { Fault::Hang } else { Fault::None });
    let mut rig = Rig::new(Shape { threads: 2, deadline: 5.0, ..Shape::default() }, Some(&store));
    rig.serve(&[1, 2]);
    rig.until("the write", |_| store.calls(Verb::Put) == 1);
    rig.poll(1.0);
    rig.serve(&[3, 4]);
    rig.until("the other write", |_| store.len() == 1);
    assert_eq!(rig.cache.stats().stored_pages, 0);
    rig.poll(5.0);
    rig.until("the other's turn", |rig| rig.cache.stats().stored_pages == 1);
    assert_eq!(rig.cache.stats().deadlines_passed, 1);
    assert_eq!(rig.evict(Tier::Device, 2).len(), 2);
    assert_eq!(rig.evict(Tier::Host, 2).len(), 1, "one is still being written");
    store.release();
    rig.drained();
}

#[test]
fn close_returns_though_a_store_hangs() {
    for verb in [Verb::Put, Verb::Exists, Verb::Get] {
        let store = store();
        let mut rig = Rig::new(Shape::default(), Some(&store));
        rig.serve(&TOKENS);
        rig.settle();
        store.plan(move |at, _| if at == verb { Fault::Hang } else { Fault::None });
        Tier::ALL.into_iter().for_each(|tier| drop(rig.evict(tier, 6)));
        let hit = rig.find(&TOKENS);
        rig.cache.prefetch(hit).unwrap();
        rig.serve(&[70, 71]);
        let calls = if verb == Verb::Put { 2 } else { 1 };
        rig.until("the hanging call", |_| store.calls(verb) == calls);
        let start = Instant::now();
        rig.cache.close(Duration::from_millis(50));
        assert!(start.elapsed() < Duration::from_secs(2), "{verb:?}");
        assert!(!rig.view(hit).waiting);
        assert!(rig.cache.poll(None, 0.0).is_err() && rig.cache.allocate(1).is_err());
        rig.cache.release(hit, 0).unwrap();
        let memory = Arc::downgrade(&rig.memory);
        let ended = store.ended();
        drop(rig);
        assert!(memory.upgrade().is_none());
        // It answers into memory that must still be there.
        store.release();
        let end = Instant::now() + Duration::from_secs(5);
        while store.ended() == ended && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(store.ended() > ended, "{verb:?}: the late call ended");
    }
}

#[test]
fn poll_keeps_to_its_limits_for_writes_and_reads() {
    let store = store();
    let mut rig = Rig::new(Shape::default(), Some(&store));
    for first in 1..=3 {
        rig.serve(&[first, first]);
        rig.cache.poll(Some(Ready { backups: 1, ..Ready::default() }), 0.0).unwrap();
    }
    let none = Ready::default();
    let end = Instant::now() + Duration::from_secs(5);
    while rig.cache.ready().stores < 3 {
        assert_eq!(rig.cache.poll(Some(none), 0.0).unwrap(), none);
        assert!(Instant::now() < end);
    }
    for stored in 1..=3 {
        rig.cache.poll(Some(Ready { stores: 1, ..none }), 0.0).unwrap();
        assert_eq!(rig.cache.stats().stored_pages, stored);
    }
    Tier::ALL.into_iter().for_each(|tier| drop(rig.evict(tier, 3)));
    let hit = rig.find(&[2, 2]);
    rig.cache.prefetch(hit).unwrap();
    while rig.cache.ready().prefetches < 1 {
        assert!(Instant::now() < end);
    }
    rig.cache.poll(Some(none), 0.0).unwrap();
    assert_eq!(store.calls(Verb::Get), 0, "the answer wasn't let in");
    rig.until("the prefetch", |rig| !rig.view(hit).waiting);
    assert_eq!(rig.view(hit).usable, 1);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// `poll` applies exactly as many as it may, in order of submission.
#[test]
fn poll_applies_exactly_its_limits_in_order() {
    let mut rig = Rig::new(Shape { device: 32, host: 32, ..Shape::default() }, None);
    rig.gate.shut(Direction::Out);
    for first in 1..=4 {
        rig.serve(&[first, first, first, 9]);
    }
    rig.gate.pass(Direction::Out, 3);
    assert_eq!(rig.cache.ready(), Ready { backups: 3, ..Ready::default() });
    let one = Ready { backups: 1, loads: 9, stores: 9, prefetches: 9, strays: 9 };
    assert_eq!(rig.cache.poll(Some(one), 0.0).unwrap(), Ready { backups: 1, ..Ready::default() });
    rig.books();
    assert_eq!(rig.cache.poll(Some(Ready::default()), 0.0).unwrap(), Ready::default());
    // The first one's device pages are free to go, and no others.
    assert_eq!(rig.evict(Tier::Device, 99).len(), 2);
    let hit = rig.find(&[1, 1, 1, 9]);
    assert_eq!((rig.view(hit).device, rig.view(hit).usable), (0, 2));
    rig.cache.release(hit, 0).unwrap();
    assert_eq!(rig.cache.poll(None, 0.0).unwrap().backups, 2);
    assert_eq!(rig.cache.ready().backups, 0);
    rig.gate.open(Direction::Out);
    rig.drained();
}
