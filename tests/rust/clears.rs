//! Nothing of before is found after a clear: not in memory, not in storage, not by a process that comes later; and
//! nobody else's pages are touched.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use common::store::{Fault, FaultStore, Verb};
use hicache_core::Cleared;
use hicache_core::explain::{Reason, Revoked};
use hicache_core::hash::Digest;
use hicache_core::identity::Fingerprint;
use hicache_core::ids::Tier;
use hicache_core::storage::{Keys, PageRef, Store};
use hicache_core::transfer::Direction;
use std::sync::Arc;
use std::time::Duration;

const TOKENS: [i32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
const OTHER: Fingerprint = Fingerprint([7; 32]);

fn clear_storage(rig: &mut Rig) -> Cleared {
    let id = rig.cache.clear_storage().unwrap();
    rig.books();
    assert_eq!(rig.cache.cleared(id), Cleared::Waiting);
    rig.until("the clear", |rig| rig.cache.cleared(id) != Cleared::Waiting);
    rig.cache.cleared(id)
}

/// A page of another model in the same store.
fn foreign(store: &FaultStore) {
    let keys = Keys { identity: &OTHER, digests: &[Digest([1; 32])] };
    store.put(keys, &[None], &[PageRef::new(vec![&[1; 48]])]);
}

/// How many pages a request finds, storage included.
fn finds(rig: &mut Rig, tokens: &[i32]) -> u32 {
    let hit = rig.fetch(tokens);
    let usable = rig.view(hit).usable;
    rig.cache.release(hit, 0).unwrap();
    usable
}

#[test]
fn after_a_clear_of_everything_nothing_is_found() {
    let store = Arc::new(FaultStore::default());
    foreign(&store);
    let mut rig = Rig::new(Shape::default(), Some(&store));
    rig.serve(&TOKENS);
    rig.settle();
    let cursor = {
        let hit = rig.find(&TOKENS);
        rig.cache.release(hit, 0).unwrap()
    };
    assert_eq!(rig.cache.clear_memory().unwrap(), [6, 6]);
    rig.books();
    assert_eq!(clear_storage(&mut rig), Cleared::Pages(6));
    assert_eq!((store.len(), store.of(OTHER)), (1, 1), "others' pages stay");
    assert_eq!(rig.cache.stats().cleared_storage_pages, 6);
    assert_eq!(finds(&mut rig, &TOKENS), 0);
    assert!(rig.find_after(&[1, 2], Some(cursor)).is_err(), "cursors are stale");
    // And it goes on as ever.
    rig.serve(&TOKENS);
    rig.settle();
    assert_eq!((store.len(), finds(&mut rig, &TOKENS)), (7, 6));
    rig.drained();
}

/// What requests hold stays theirs and is found by nobody; waiting ones find nothing; storage keeps everything.
#[test]
fn memory_alone_is_cleared_around_those_who_run() {
    let store = Arc::new(FaultStore::default());
    let mut rig = Rig::new(Shape::default(), Some(&store));
    rig.serve(&TOKENS);
    rig.settle();
    let (running, waiting) = (rig.find(&TOKENS), rig.find(&TOKENS));
    rig.load(running);
    let gone = rig.cache.clear_memory().unwrap();
    rig.books();
    assert_eq!(gone, [0, 0], "all of it is held");
    rig.verify(running, &TOKENS);
    assert_eq!((rig.view(waiting).usable, rig.view(running).device), (0, 6));
    assert_eq!(rig.cache.explain(waiting).unwrap().computed, [(12, Reason::Cleared)]);
    let hit = rig.find(&TOKENS);
    assert_eq!(rig.view(hit).usable, 0);
    rig.cache.release(hit, 0).unwrap();
    // The running one may go on.
    assert!(rig.compute(running, &[&TOKENS[..], &[13, 14]].concat()));
    rig.cache.release(running, 0).unwrap();
    rig.settle();
    assert_eq!(rig.cache.tree().resident(Tier::Device), 0, "it left with the last who held it");
    rig.cache.release(waiting, 0).unwrap();
    let again = rig.fetch(&TOKENS);
    assert_eq!(rig.load(again).device, 6, "storage still has it");
    rig.settle();
    rig.verify(again, &TOKENS);
    rig.cache.release(again, 0).unwrap();
    assert_eq!(store.len(), 6, "what was inserted into the past isn't stored");
    rig.drained();
}

/// Removal wins: over writes that wait, and over the one that is inside the store when it is asked for.
#[test]
fn writes_that_were_asked_for_before_lose() {
    let store = Arc::new(FaultStore::default());
    store.plan(|verb, call| if verb == Verb::Put && call == 1 { Fault::Gated } else { Fault::None });
    let mut rig = Rig::new(Shape { threads: 2, device: 64, host: 64, ..Shape::default() }, Some(&store));
    rig.serve(&TOKENS);
    rig.until("the write", |_| store.waiting() == 1);
    rig.gate.shut(Direction::Out);
    rig.serve(&[30, 31, 32, 33]);
    assert_eq!(clear_storage(&mut rig), Cleared::Pages(0));
    assert!(store.pass(0));
    rig.until("it is undone", |rig| rig.cache.stats().store_cancelled_pages == 6);
    assert_eq!((store.len(), rig.cache.stats().stored_pages), (0, 0));
    // What wasn't asked for yet is written.
    rig.gate.open(Direction::Out);
    rig.settle();
    assert_eq!(store.len(), 2);
    rig.drained();
}

/// A store that fails, hangs or goes meanwhile: never called a success.
#[test]
fn a_clear_that_did_not_happen_says_so() {
    let store = Arc::new(FaultStore::default());
    let mut rig = Rig::new(Shape::default(), Some(&store));
    rig.serve(&TOKENS);
    rig.settle();
    store.clears.plan(|call| match call {
        1 => Fault::Panic,
        2 => Fault::Answer(hicache_core::storage::Outcome::Failed),
        _ => Fault::Hang,
    });
    assert_eq!(clear_storage(&mut rig), Cleared::Failed);
    assert_eq!(clear_storage(&mut rig), Cleared::Failed);
    let id = rig.cache.clear_storage().unwrap();
    rig.until("it hangs", |_| store.clears.calls() == 3);
    // Reads and writes go on beside it; the deadline passes.
    assert_eq!(finds(&mut rig, &TOKENS), 6);
    rig.poll(11.0);
    assert_eq!(rig.cache.cleared(id), Cleared::Waiting);
    rig.cache.detach_store(Duration::from_millis(10)).unwrap();
    rig.books();
    store.release();
    rig.settle();
    assert_eq!(rig.cache.cleared(id), Cleared::Pages(6));
    assert_eq!(rig.cache.cleared(999), Cleared::Failed);
    assert!(rig.cache.clear_storage().is_err(), "there is none");
    rig.drained();
}

/// A prefetch that waits when storage is cleared ends, and says why.
#[test]
fn prefetches_end_with_what_they_asked_for() {
    let store = Arc::new(FaultStore::default());
    let mut rig = Rig::new(Shape::default(), Some(&store));
    rig.serve(&TOKENS);
    rig.settle();
    Tier::ALL.into_iter().for_each(|tier| drop(rig.evict(tier, 99)));
    store.plan(|verb, _| if verb == Verb::Get { Fault::Gated } else { Fault::None });
    let hit = rig.find(&TOKENS);
    rig.cache.prefetch(hit).unwrap();
    rig.until("the read", |_| store.waiting() == 1);
    assert_eq!(clear_storage(&mut rig), Cleared::Pages(6));
    let why = rig.cache.explain(hit).unwrap().computed;
    assert_eq!(why, [(12, Reason::Revoked(Revoked::Detached))]);
    assert!(store.pass(0));
    rig.settle();
    assert_eq!(rig.view(hit).usable, 0, "what was read is of before");
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}
