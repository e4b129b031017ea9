//! Between a cache and its store: what is written is what was computed, whatever happens meanwhile, and what is known
//! to be gone is not read.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use common::store::{Fault, FaultStore, Verb};
use hicache_core::hash::chain;
use hicache_core::ids::Tier;
use hicache_core::page::{PageSize, Tokens};
use hicache_core::storage::Outcome;
use std::sync::Arc;

const TOKENS: [i32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

fn keys(rig: &Rig, tokens: &[i32]) -> Vec<hicache_core::hash::Digest> {
    let size = PageSize::new(u32::try_from(rig.size()).unwrap()).unwrap();
    chain(rig.namespace.seed(), Tokens::I32(tokens), size)
}

/// How many pages of these tokens are stored; each must carry its stamp.
fn stored(rig: &Rig, store: &FaultStore, tokens: &[i32]) -> usize {
    let pages = keys(rig, tokens).into_iter().enumerate();
    let pages = pages.filter_map(|(page, key)| Some((page, store.page(&key)?)));
    pages.inspect(|(page, bytes)| assert_eq!(*bytes, rig.stamp(tokens, *page), "page {page}")).count()
}

/// A write that waits, or is under way, reads host pages: nobody may put others there, however much room is needed.
#[test]
fn what_is_written_late_is_what_was_computed() {
    let store = Arc::new(FaultStore::default());
    store.plan(|verb, _| if verb == Verb::Put { Fault::Gated } else { Fault::None });
    let shape = Shape { device: 12, host: 12, threads: 2, queue: 64, ..Shape::default() };
    let mut rig = Rig::new(shape, Some(&store));
    rig.serve(&TOKENS);
    rig.until("the write", |_| store.waiting() == 1);
    // While it is at the gate it is a miss for everybody else.
    let mut other = Rig::new(Shape::default(), Some(&store));
    let hit = other.fetch(&TOKENS);
    assert_eq!(other.view(hit).usable, 0);
    other.cache.release(hit, 0).unwrap();
    // Others need all the room that there is, again and again.
    let prompts: Vec<Vec<i32>> =
        (0..20).map(|turn| (0..12).map(|at| 100 * turn + at + 50).collect()).collect();
    for prompt in &prompts {
        rig.evict(Tier::Device, usize::MAX);
        rig.evict(Tier::Host, usize::MAX);
        rig.serve(prompt);
        rig.poll(0.0);
        if store.waiting() > 1 {
            assert!(store.pass(1));
        }
    }
    assert_eq!(stored(&rig, &store, &TOKENS), 0);
    assert!(store.pass(0));
    rig.until("the first write", |rig| stored(rig, &store, &TOKENS) == 6);
    while rig.cache.in_flight() > 0 {
        store.pass(0);
        rig.poll(0.0);
    }
    let others: usize = prompts.iter().map(|prompt| stored(&rig, &store, prompt)).sum();
    assert!(others > 0, "others were stored, too");
    other.drained();
    rig.drained();
}

/// Pages that are gone are asked for, since they may be back, and never read: neither those that the store says are
/// absent, nor what a failed read took away.
#[test]
fn what_is_gone_is_not_read_again_and_again() {
    let store = Arc::new(FaultStore::default());
    let mut writer = Rig::new(Shape::default(), Some(&store));
    writer.serve(&TOKENS);
    writer.settle();
    let keys = keys(&writer, &TOKENS);
    let mut rig = Rig::new(Shape::default(), Some(&store));
    // It is damaged, which takes it away.
    store.spoil(keys[2], Outcome::Corrupt);
    let asked = store.calls(Verb::Exists);
    for request in 1..=20 {
        let hit = rig.fetch(&TOKENS);
        assert_eq!(rig.load(hit).device, 2);
        rig.verify(hit, &TOKENS);
        rig.cache.release(hit, 0).unwrap();
        assert_eq!(store.calls(Verb::Exists), asked + request, "one question a request");
    }
    // The first request read all, and found the damage; the others found nothing to read.
    assert_eq!((store.calls(Verb::Get), rig.cache.stats().corrupt_pages), (1, 1));
    // Without any page nothing is read at all.
    let mut rig = Rig::new(Shape::default(), Some(&store));
    for _ in 0..20 {
        let hit = rig.fetch(&[90, 91, 92, 93]);
        rig.cache.release(hit, 0).unwrap();
    }
    assert_eq!(store.calls(Verb::Get), 1);
    rig.drained();
    writer.drained();
}

/// A store that says what isn't true costs a request one read each time, and no request waits for ever.
#[test]
fn a_store_that_only_promises_is_believed_twice() {
    let store = Arc::new(FaultStore::default());
    store.plan(|verb, _| if verb == Verb::Exists { Fault::Answer(Outcome::Hit) } else { Fault::None });
    let mut rig = Rig::new(Shape::default(), Some(&store));
    for request in 1..=10 {
        let hit = rig.fetch(&TOKENS);
        assert_eq!(rig.load(hit).device, 0);
        rig.cache.release(hit, 0).unwrap();
        assert_eq!(store.calls(Verb::Get), request.min(2));
    }
    assert_eq!(rig.cache.stats().prefetched_pages, 0);
    rig.drained();
}

/// What a read brings after its deadline is of no use to anybody; what was wrong with it is told all the same.
#[test]
fn damage_that_is_found_too_late_is_counted() {
    let store = Arc::new(FaultStore::default());
    let mut writer = Rig::new(Shape::default(), Some(&store));
    writer.serve(&TOKENS);
    writer.settle();
    let mut rig = Rig::new(Shape { deadline: 5.0, ..Shape::default() }, Some(&store));
    store.spoil(keys(&rig, &TOKENS)[2], Outcome::Corrupt);
    store.plan(|verb, _| if verb == Verb::Get { Fault::Hang } else { Fault::None });
    let hit = rig.find(&TOKENS);
    assert!(rig.cache.prefetch(hit).unwrap());
    rig.until("the read", |_| store.calls(Verb::Get) == 1);
    rig.poll(5.0);
    assert!(!rig.view(hit).waiting);
    rig.cache.release(hit, 0).unwrap();
    assert_eq!(rig.cache.stats().corrupt_pages, 0);
    store.release();
    rig.settle();
    let stats = *rig.cache.stats();
    assert_eq!((stats.corrupt_pages, stats.prefetched_pages, stats.prefetch_dropped_pages), (1, 0, 5));
    rig.drained();
    writer.drained();
}
