//! Prefetches that end well, badly, halfway, late or never, over a store that fails as told.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{MIRRORED, Rig, Shape};
use common::store::{Fault, FaultStore, Verb};
use hicache_core::hash::{Digest, chain};
use hicache_core::ids::Tier;
use hicache_core::page::{PageSize, Tokens};
use hicache_core::policy::{Write, Writing};
use hicache_core::storage::Outcome;
use std::sync::Arc;

const TOKENS: [i32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

fn keys(rig: &Rig, tokens: &[i32]) -> Vec<Digest> {
    let size = PageSize::new(u32::try_from(rig.size()).unwrap()).unwrap();
    chain(rig.namespace.seed(), Tokens::I32(tokens), size)
}

/// A store that holds the pages of `tokens`, stamped, and a fresh cache over it.
fn stored(shape: Shape, tokens: &[i32]) -> (Rig, Arc<FaultStore>) {
    let store = Arc::new(FaultStore::default());
    let roomy = Shape { device: 512, host: 512, ..shape };
    let mut writer = Rig::new(roomy, Some(&store));
    writer.serve(tokens);
    writer.settle();
    assert_eq!(store.len(), tokens.len() / writer.size());
    (Rig::new(shape, Some(&store)), store)
}

/// Loads a fetched hit, compares every stamp, and leaves nothing behind.
fn usable(rig: &mut Rig, hit: hicache_core::ids::HitId, tokens: &[i32]) -> u32 {
    let view = rig.load(hit);
    rig.verify(hit, tokens);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
    view.device
}

#[test]
fn all_of_it_comes_in_in_a_fresh_instance() {
    let (mut rig, _store) = stored(Shape::default(), &TOKENS);
    let hit = rig.fetch(&TOKENS);
    assert_eq!((rig.view(hit).usable, rig.view(hit).stored), (6, 6));
    assert_eq!(usable(&mut rig, hit, &TOKENS), 6);
    assert_eq!(rig.cache.stats().hit_storage_tokens, 12);
}

#[test]
fn nothing_is_asked_for_when_all_is_known_or_too_short() {
    let (mut rig, store) = stored(Shape { threshold: 8, ..Shape::default() }, &TOKENS);
    let short = rig.find(&TOKENS[..6]);
    assert!(!rig.cache.prefetch(short).unwrap());
    let hit = rig.fetch(&TOKENS);
    assert!(!rig.cache.prefetch(hit).unwrap());
    assert_eq!(store.calls(Verb::Exists), 1);
}

/// The first page that fails cuts what is usable; its slot and those after it come back.
#[test]
fn the_first_failing_page_cuts() {
    for outcome in [Outcome::Failed, Outcome::Absent, Outcome::Corrupt, Outcome::Cancelled] {
        let (mut rig, store) = stored(Shape::default(), &TOKENS[..8]);
        store.spoil(keys(&rig, &TOKENS)[2], outcome);
        let hit = rig.fetch(&TOKENS[..8]);
        assert_eq!(rig.view(hit).usable, 2, "{outcome:?}");
        assert_eq!(rig.free(Tier::Host), 30);
        let stats = *rig.cache.stats();
        assert_eq!(stats.prefetched_pages, 2);
        assert_eq!(stats.corrupt_pages, u64::from(outcome == Outcome::Corrupt));
        assert_eq!(stats.read_failed_pages, u64::from(outcome == Outcome::Failed));
        assert_eq!(usable(&mut rig, hit, &TOKENS), 2);
    }
}

/// Whatever becomes of a batch, no slot comes back twice (the books see it) and none is lost.
#[test]
fn every_outcome_gives_slots_back_once() {
    let faults = [
        Fault::None,
        Fault::Answer(Outcome::Failed),
        Fault::Answer(Outcome::Absent),
        Fault::Answer(Outcome::Corrupt),
        Fault::Short,
        Fault::Long,
        Fault::Panic,
    ];
    for fault in faults {
        for verb in [Verb::Exists, Verb::Get] {
            let (mut rig, store) = stored(Shape::default(), &TOKENS);
            store.plan(move |at, _| if at == verb { fault } else { Fault::None });
            let hit = rig.fetch(&TOKENS);
            let good = matches!(fault, Fault::None);
            assert_eq!(rig.view(hit).usable, if good { 6 } else { 0 }, "{fault:?} in {verb:?}");
            usable(&mut rig, hit, &TOKENS);
        }
    }
}

/// The host has room for four of six pages; four come in.
#[test]
fn as_many_come_in_as_there_is_room_for() {
    let (mut rig, _store) = stored(Shape { host: 4, ..Shape::default() }, &TOKENS);
    let hit = rig.fetch(&TOKENS);
    assert_eq!(rig.view(hit).usable, 4);
    assert_eq!(rig.cache.stats().prefetch_no_room, 1);
    assert_eq!(usable(&mut rig, hit, &TOKENS), 4);
}

/// The pages to hang the new ones below must not be what makes room for them.
#[test]
fn room_is_not_made_of_what_the_prefetch_continues() {
    let (mut rig, _store) = stored(Shape { host: 5, ..Shape::default() }, &TOKENS);
    let first = rig.fetch(&TOKENS[..8]);
    assert_eq!(rig.view(first).usable, 4);
    rig.cache.release(first, 0).unwrap();
    let hit = rig.fetch(&TOKENS);
    assert_eq!(rig.view(hit).usable, 5, "four were there, and there is room for one more");
    assert_eq!(usable(&mut rig, hit, &TOKENS), 5);
}

/// What a match promised may be gone at load: less, and no error.
#[test]
fn eviction_between_match_and_load() {
    for (tier, gone) in [(Tier::Device, 3), (Tier::Host, 2), (Tier::Host, 6), (Tier::Device, 6)] {
        let mut rig = Rig::new(Shape::default(), None);
        rig.serve(&TOKENS);
        rig.settle();
        if tier == Tier::Host {
            rig.evict(Tier::Device, 6);
        }
        let hit = rig.find(&TOKENS);
        assert_eq!(rig.view(hit).usable, 6);
        rig.evict(tier, gone);
        let expected = if tier == Tier::Host { 6 - u32::try_from(gone).unwrap() } else { 6 };
        assert_eq!(rig.load(hit).device, expected);
        rig.verify(hit, &TOKENS);
        assert!(rig.compute(hit, &TOKENS), "the rest is computed");
        rig.verify(hit, &TOKENS);
        rig.cache.release(hit, 0).unwrap();
        rig.drained();
    }
}

/// A match that found less than there is now finds the rest at load.
#[test]
fn a_load_may_find_more_than_the_match() {
    let mut rig = Rig::new(Shape::default(), None);
    let early = rig.find(&TOKENS);
    rig.serve(&TOKENS);
    assert_eq!(rig.load(early).device, 6);
    rig.verify(early, &TOKENS);
    rig.cache.release(early, 0).unwrap();
    rig.drained();
}

/// The room for a load is never made of the pages it loads.
#[test]
fn load_back_against_eviction() {
    let (a, b) = ([1, 2, 3, 4], [5, 6, 7, 8]);
    let writing = Writing { host: Write::Selective, ..MIRRORED };
    let mut rig = Rig::new(Shape { page: 1, device: 4, host: 4, writing, ..Shape::default() }, None);
    rig.serve(&a);
    rig.serve(&a);
    rig.settle();
    rig.evict(Tier::Device, 4);
    rig.serve(&b);
    // A on the host alone, which it fills; B on the device alone.
    let hit = rig.find(&a);
    assert_eq!((rig.view(hit).device, rig.view(hit).usable), (0, 4));
    assert_eq!(rig.load(hit).device, 4);
    rig.settle();
    rig.verify(hit, &a);
    let other = rig.find(&b);
    assert_eq!(rig.view(other).usable, 0, "dropped: it had nowhere to go");
    assert_eq!(rig.load(other).device, 0);
    rig.cache.release(other, 0).unwrap();
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// The whole host is held by a load that hasn't landed; the device still gives up pages.
#[test]
fn a_host_without_room_is_no_error() {
    let mut rig = Rig::new(Shape { page: 1, device: 8, host: 4, ..Shape::default() }, None);
    rig.serve(&[1, 2, 3, 4]);
    rig.settle();
    rig.evict(Tier::Device, 4);
    rig.gate.shut(hicache_core::transfer::Direction::In);
    let hit = rig.find(&[1, 2, 3, 4]);
    rig.load(hit);
    rig.serve(&[5, 6, 7, 8]);
    assert_eq!(rig.cache.stats().backup_no_room_pages, 4);
    assert_eq!(rig.evict(Tier::Device, 2).len(), 2);
    assert_eq!(rig.evict(Tier::Host, 1).len(), 0);
    rig.gate.open(hicache_core::transfer::Direction::In);
    rig.settle();
    rig.verify(hit, &[1, 2, 3, 4]);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// However far a prefetch is when its request leaves, nothing stays, and the next one works.
#[test]
fn an_abort_leaves_nothing() {
    let tokens: Vec<i32> = (0..200).collect();
    let (mut rig, store) = stored(Shape { device: 128, host: 128, ..Shape::default() }, &tokens);
    for round in 0..50 {
        let hit = rig.find(&tokens);
        assert!(rig.cache.prefetch(hit).unwrap());
        let gets = store.calls(Verb::Get);
        match round % 4 {
            // Queued, or the question is being answered.
            0 => {}
            // The question is answered and applied; pages are being read.
            1 => rig.until("a read", |_| store.calls(Verb::Get) > gets),
            // Read, and not applied.
            2 => {
                rig.until("a read", |_| store.calls(Verb::Get) > gets);
                while rig.cache.ready().prefetches == 0 && rig.view(hit).waiting {}
            }
            _ => rig.until("the end", |rig| !rig.view(hit).waiting),
        }
        rig.cache.release(hit, 0).unwrap();
        rig.books();
        rig.drained();
    }
    let hit = rig.fetch(&tokens);
    assert_eq!(usable(&mut rig, hit, &tokens), 100);
}

/// What waits for a request that left is not even begun.
#[test]
fn a_release_cancels_what_waits() {
    let (mut rig, store) = stored(Shape { threads: 1, ..Shape::default() }, &TOKENS);
    store.plan(|_, call| if call == 1 { Fault::Hang } else { Fault::None });
    let calls = store.calls(Verb::Exists);
    let (first, second) = (rig.find(&TOKENS), rig.find(&TOKENS[..8]));
    rig.cache.prefetch(first).unwrap();
    rig.until("the first question", |_| store.calls(Verb::Exists) == calls + 1);
    rig.cache.prefetch(second).unwrap();
    rig.cache.release(second, 0).unwrap();
    rig.cache.release(first, 0).unwrap();
    store.release();
    rig.settle();
    assert_eq!((store.calls(Verb::Exists), store.calls(Verb::Get)), (calls + 1, 0));
    rig.drained();
}

/// Many batches of one prefetch, landing in any order: applied in the path's order.
#[test]
fn batches_that_land_out_of_order_are_applied_in_order() {
    let tokens: Vec<i32> = (0..400).collect();
    let shape = Shape { page: 1, device: 512, host: 512, threads: 4, ..Shape::default() };
    let (mut rig, store) = stored(shape, &tokens);
    store.plan(|verb, call| match (verb, call) {
        (Verb::Get, 1) => Fault::Slow(std::time::Duration::from_millis(40)),
        (Verb::Get, 2) => Fault::Slow(std::time::Duration::from_millis(20)),
        _ => Fault::None,
    });
    let hit = rig.fetch(&tokens);
    assert_eq!(store.calls(Verb::Get), 4);
    assert_eq!(rig.view(hit).usable, 400);
    assert_eq!(usable(&mut rig, hit, &tokens), 400);
}

/// Two requests fetch the same pages: both end, the pages are there once.
#[test]
fn two_prefetches_of_the_same_pages() {
    let (mut rig, _store) = stored(Shape::default(), &TOKENS);
    let (one, two) = (rig.find(&TOKENS), rig.find(&TOKENS[..8]));
    assert!(rig.cache.prefetch(one).unwrap() && rig.cache.prefetch(two).unwrap());
    rig.until("both", |rig| !rig.view(one).waiting && !rig.view(two).waiting);
    assert_eq!(rig.cache.tree().resident(Tier::Host), 6);
    rig.load(two);
    rig.verify(two, &TOKENS);
    rig.cache.release(two, 0).unwrap();
    assert_eq!(usable(&mut rig, one, &TOKENS), 6);
}
