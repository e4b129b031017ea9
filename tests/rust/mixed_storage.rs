//! Windows and states in storage: what the store has of pages and of parts is a set each, and the deepest boundary
//! at which all of them agree is what a prefetch brings, with nothing that this one doesn't need.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::mixed::{ALL, Mixed};
use common::models::{STATE, Shape, WINDOW, config};
use common::plain::Plain;
use common::store::{Fault, FaultStore, Verb};
use hicache_core::hash::{Digest, chain, of_part};
use hicache_core::ids::Tier;
use hicache_core::page::{PageSize, Tokens};
use hicache_core::storage::Outcome;
use std::sync::Arc;

const BOTH: [(hicache_core::pool::Needs, u32, u32); 2] = [(WINDOW, 16, 32), (STATE, 8, 16)];

fn pages(range: std::ops::Range<i32>) -> Vec<i32> {
    range.flat_map(|page| [2 * page, 2 * page + 1]).collect()
}

/// The key of a page, or of what a part has of it.
fn key(tokens: &[i32], page: usize, part: Option<&str>) -> Digest {
    let digest = chain(None, Tokens::I32(tokens), PageSize::new(2).unwrap())[page];
    part.map_or(digest, |part| of_part(&digest, part))
}

/// A store that a cache filled with these paths, in chunks of two pages.
fn filled(paths: &[&[i32]]) -> Arc<FaultStore> {
    let store = Arc::new(FaultStore::default());
    let mut rig = Mixed::over(&Shape::of(&BOTH), Some(&store));
    paths.iter().for_each(|tokens| _ = rig.serve(tokens, 2));
    rig.drained();
    store
}

fn fresh(store: &Arc<FaultStore>) -> Mixed {
    Mixed::over(&Shape::of(&BOTH), Some(store))
}

fn prefetched(rig: &Mixed) -> (u64, u64, u64) {
    let part = |part| rig.cache.part_stats(part).unwrap().prefetched;
    (rig.cache.stats().prefetched_pages, part(0), part(1))
}

#[test]
fn parts_have_keys_of_their_own() {
    let page = Digest(std::array::from_fn(|at| u8::try_from(at).unwrap()));
    // SHA-256 of the domain, the name's length as 8 little-endian bytes, the name and the page's digest.
    let expected = "618fbcc8abd8f5d891077e99639706262e17a2db0fd3b91bc2a1a73ab817d323";
    assert_eq!(format!("{:?}", of_part(&page, "window")), expected);
    assert_ne!(of_part(&page, "state"), of_part(&page, "window"));
}

/// A store learns of every page which one it is worth nothing without: the page before, or of a part its own page.
#[test]
fn pages_are_stored_with_their_parents() {
    let tokens = pages(0..8);
    let store = filled(&[&tokens]);
    assert_eq!(store.parent(&key(&tokens, 0, None)), None);
    for page in 1..8 {
        assert_eq!(
            store.parent(&key(&tokens, page, None)),
            Some(key(&tokens, page - 1, None)),
            "page {page}"
        );
    }
    for part in ["part0", "part1"] {
        let own = (0..8).filter(|&page| store.page(&key(&tokens, page, Some(part))).is_some());
        for page in own.collect::<Vec<_>>() {
            assert_eq!(
                store.parent(&key(&tokens, page, Some(part))),
                Some(key(&tokens, page, None)),
                "{part}"
            );
        }
    }
}

/// Pages, the last window and the last state come back, and no other window or state.
#[test]
fn a_prefix_comes_back_with_its_last_window_and_state() {
    let tokens = pages(0..8);
    let store = filled(&[&tokens]);
    // 8 pages; at each of 4 boundaries a window of two pages and a state.
    assert_eq!(store.len(), 8 + 8 + 4);
    let mut rig = fresh(&store);
    let hit = rig.fetch(&tokens);
    assert_eq!(prefetched(&rig), (8, 2, 1));
    assert_eq!((rig.view(hit).usable, rig.view(hit).stored), (8, 8));
    let view = rig.load(hit);
    rig.land();
    assert_eq!((view.device, view.copied), (8, 8));
    assert_eq!(rig.wrong(hit, &tokens, true), None);
    let stats = rig.cache.stats();
    assert_eq!((stats.hit_storage_tokens, stats.hit_host_tokens, stats.hit_device_tokens), (16, 0, 0));
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// FULL and the window are on the host already, or on the device: the state alone is asked for and comes.
#[test]
fn a_window_or_a_state_comes_back_alone() {
    for (part, alone) in [(0, (0, 2, 0)), (1, (0, 0, 1))] {
        let tokens = pages(0..8);
        let store = filled(&[&tokens]);
        let mut rig = fresh(&store);
        // What follows, and is held, makes it an inner edge: parts leave it alone.
        let longer = pages(0..10);
        rig.serve(&tokens, 8);
        let held = rig.find(&longer);
        rig.load(held);
        assert!(rig.compute(held, &longer, 10, ALL));
        rig.settle();
        for tier in Tier::ALL {
            rig.cache.evict_part(part, tier, usize::MAX).unwrap();
        }
        assert_eq!(rig.usable(&tokens), (0, 0));
        let before = store.calls(Verb::Get);
        let hit = rig.fetch(&tokens);
        assert_eq!(prefetched(&rig), alone);
        assert_eq!(store.calls(Verb::Get), before + 1);
        assert_eq!((rig.view(hit).usable, rig.view(hit).stored), (8, 8));
        rig.load(hit);
        rig.land();
        assert_eq!(rig.view(hit).device, 8);
        assert_eq!(rig.wrong(hit, &tokens, true), None);
        for hit in [hit, held] {
            rig.cache.release(hit, 0).unwrap();
        }
        rig.drained();
    }
}

/// Where each kind has its own deepest boundary, none of these is what counts: it is the deepest that all share.
#[test]
fn boundaries_are_intersected() {
    let tokens = pages(0..8);
    let store = filled(&[&tokens]);
    // Without the last page, one window page before 6, and no state at 4: windows say 4, states say 6, pages say 7.
    let gone = [key(&tokens, 7, None), key(&tokens, 5, Some("part0")), key(&tokens, 3, Some("part1"))];
    Plain(&*store, config(&Shape::of(&BOTH)).identity).remove(&gone);
    let mut rig = fresh(&store);
    let hit = rig.fetch(&tokens);
    assert_eq!((rig.view(hit).usable, rig.view(hit).stored), (2, 2));
    assert_eq!(prefetched(&rig), (2, 2, 1), "exactly what that boundary needs");
    rig.load(hit);
    rig.land();
    assert_eq!(rig.wrong(hit, &tokens, true), None);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// What is here and what the store has count alike, page by page.
#[test]
fn a_window_may_be_half_here() {
    let tokens = pages(0..8);
    let store = filled(&[&tokens]);
    let mut rig = fresh(&store);
    rig.serve(&tokens[..14], 7);
    rig.settle();
    let hit = rig.fetch(&tokens);
    assert_eq!(rig.view(hit).usable, 8);
    assert_eq!(prefetched(&rig), (1, 1, 1), "the last page, its half of the window, its state");
    rig.load(hit);
    rig.land();
    assert_eq!(rig.wrong(hit, &tokens, true), None);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// A page, a window or a state that can't be read makes the hit as short as it must be, and leaks nothing.
#[test]
fn what_cannot_be_read_is_a_shorter_hit() {
    let tokens = pages(0..8);
    let names = [None, Some("part0"), Some("part1")];
    for outcome in [Outcome::Corrupt, Outcome::Failed] {
        for name in names {
            let store = filled(&[&tokens]);
            store.spoil(key(&tokens, 7, name), outcome);
            let mut rig = fresh(&store);
            let hit = rig.fetch(&tokens);
            let view = rig.view(hit);
            assert_eq!((view.usable, view.stored), (0, 0), "a checkpoint at 8 alone was read: {name:?}");
            let stats = rig.cache.stats();
            assert_eq!(stats.corrupt_pages + stats.read_failed_pages, 1);
            rig.load(hit);
            rig.land();
            assert_eq!(rig.wrong(hit, &tokens, true), None);
            rig.cache.release(hit, 0).unwrap();
            // The next one knows what was corrupt, and goes for what is left.
            if outcome == Outcome::Corrupt {
                let hit = rig.fetch(&tokens);
                assert_eq!(rig.view(hit).usable, 6);
                rig.cache.release(hit, 0).unwrap();
            }
            rig.drained();
        }
    }
}

/// A request that leaves while its state is read gets it back, and so does one whose deadline passes.
#[test]
fn reads_of_parts_that_nobody_waits_for_come_back() {
    let tokens = pages(0..8);
    for late in [false, true] {
        let store = filled(&[&tokens]);
        let reads = store.calls(Verb::Get);
        store.plan(move |verb, call| match verb {
            // The pages are read, their parts hang.
            Verb::Get if call > reads + 1 => Fault::Hang,
            _ => Fault::None,
        });
        let mut rig = fresh(&store);
        let hit = rig.find(&tokens);
        rig.cache.prefetch(hit).unwrap();
        rig.until("the pages", |rig| rig.cache.stats().prefetched_pages == 8);
        assert_eq!((rig.view(hit).usable, rig.view(hit).waiting), (0, true));
        let out = |rig: &Mixed| [0, 1].map(|part| rig.cache.part_slots(part, Tier::Host).unwrap().out());
        assert_eq!(out(&rig), [2, 1]);
        if late {
            rig.cache.poll(None, 100.0).unwrap();
            assert!(!rig.view(hit).waiting);
        } else {
            rig.cache.release(hit, 0).unwrap();
        }
        rig.books();
        assert_eq!(out(&rig), [2, 1], "still the read's");
        store.release();
        rig.settle();
        assert_eq!(out(&rig), [0, 0]);
        if late {
            rig.cache.release(hit, 0).unwrap();
        }
        rig.drained();
    }
}

/// Where the host has no room for the deepest boundary, one before it is read.
#[test]
fn without_room_for_all_of_it_less_is_read() {
    let tokens = pages(0..8);
    let store = filled(&[&tokens]);
    let mut rig = Mixed::over(&Shape { host: 5, ..Shape::of(&BOTH) }, Some(&store));
    let hit = rig.fetch(&tokens);
    assert_eq!(rig.view(hit).usable, 4);
    assert_eq!(prefetched(&rig), (4, 2, 1));
    assert_eq!(rig.cache.stats().prefetch_no_room, 1);
    rig.load(hit);
    rig.land();
    assert_eq!(rig.wrong(hit, &tokens, true), None);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// What a read is to be hung below doesn't go to make room for it: less is read instead.
#[test]
fn room_for_a_read_is_not_made_from_its_own_path() {
    let tokens = pages(0..8);
    let store = filled(&[&tokens]);
    let mut rig = Mixed::over(&Shape { host: 6, ..Shape::of(&BOTH) }, Some(&store));
    rig.serve(&tokens[..8], 2);
    rig.settle();
    rig.cache.evict(Tier::Device, usize::MAX).unwrap();
    let hit = rig.fetch(&tokens);
    assert_eq!((rig.view(hit).usable, rig.view(hit).stored), (6, 2));
    rig.load(hit);
    rig.land();
    assert_eq!(rig.wrong(hit, &tokens, true), None);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// Pages that have come and wait for their state leave after those that nobody waits for.
#[test]
fn pages_that_wait_for_their_state_are_held() {
    let (tokens, other) = (pages(0..8), pages(100..104));
    let store = filled(&[&tokens]);
    let reads = store.calls(Verb::Get);
    store.plan(
        move |verb, call| if verb == Verb::Get && call > reads + 1 { Fault::Hang } else { Fault::None },
    );
    let mut rig = Mixed::over(&Shape { host: 12, ..Shape::of(&BOTH) }, Some(&store));
    let hit = rig.find(&tokens);
    rig.cache.prefetch(hit).unwrap();
    rig.until("the pages", |rig| rig.cache.stats().prefetched_pages == 8);
    // Newer, and held by nobody.
    rig.serve(&other, 4);
    rig.until("its writes", |rig| rig.cache.pending() == 1);
    rig.cache.evict(Tier::Device, usize::MAX).unwrap();
    assert_eq!(rig.cache.evict(Tier::Host, 4).unwrap().len(), 4);
    store.release();
    rig.settle();
    assert_eq!((rig.view(hit).usable, rig.view(hit).stored), (8, 8));
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}
