//! `warm` of models with windows and states: what comes up is whole (pages, windows, state of one boundary), is exactly its
//! prefix, and takes no slot of any kind from anybody.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::mixed::{ALL, Gives, Mixed};
use common::models::{STATE, Shape, WINDOW};
use common::store::{Fault, FaultStore, Verb};
use hicache_core::Warmed;
use hicache_core::hash::Namespace;
use hicache_core::ids::Tier;
use hicache_core::page::Tokens;
use hicache_core::policy::Write;
use hicache_core::pool::Needs;
use std::sync::Arc;
use std::time::Duration;

type Parts = &'static [(Needs, u32, u32)];

const KINDS: [Parts; 3] = [&[(WINDOW, 16, 32)], &[(STATE, 8, 16)], &[(WINDOW, 16, 32), (STATE, 8, 16)]];

fn pages(range: std::ops::Range<i32>) -> Vec<i32> {
    range.flat_map(|page| [2 * page, 2 * page + 1]).collect()
}

fn warm(rig: &mut Mixed, tokens: &[i32], to_device: bool) -> u64 {
    let number = rig.cache.warm(Tokens::I32(tokens), &Namespace::default(), to_device, 0.0).unwrap();
    rig.books();
    number.unwrap()
}

fn warmed(rig: &mut Mixed, tokens: &[i32], to_device: bool) -> Warmed {
    let number = warm(rig, tokens, to_device);
    rig.until("the prefix", |rig| !rig.cache.warmed(number).unwrap().under_way);
    rig.settle();
    rig.cache.warmed(number).unwrap()
}

/// A cache whose store has this, in pieces of two pages, and whose memory is empty.
fn stored(shape: &Shape, tokens: &[i32]) -> (Mixed, Arc<FaultStore>) {
    let store = Arc::new(FaultStore::default());
    let mut rig = Mixed::over(shape, Some(&store));
    rig.serve(tokens, 2);
    rig.settle();
    empty(&mut rig);
    (rig, store)
}

fn empty(rig: &mut Mixed) {
    for tier in Tier::ALL {
        rig.cache.evict(tier, usize::MAX).unwrap();
        assert_eq!(rig.cache.tree().resident(tier), 0);
    }
}

/// Slots that left a tier, of pages and of all parts.
fn evicted(rig: &Mixed) -> u64 {
    let stats = rig.cache.stats();
    let parts = (0..rig.components.len()).map(|part| *rig.cache.part_stats(part).unwrap());
    let parts: u64 = parts.map(|part| part.evicted_device + part.evicted_host).sum();
    stats.evicted_device_pages + stats.evicted_host_pages + parts
}

/// The request that comes finds it there, and it is exactly its prefix.
fn is_there(rig: &mut Mixed, tokens: &[i32], device: u32, usable: u32) {
    assert_eq!(rig.usable(tokens), (device, usable));
    let hit = rig.find(tokens);
    rig.load(hit);
    rig.land();
    assert_eq!((rig.view(hit).device, rig.wrong(hit, tokens, true)), (usable, None));
    rig.cache.release(hit, 0).unwrap();
}

/// From the store to the host, and on to the device; counted apart from all requests.
#[test]
fn a_prefix_comes_up_whole() {
    for kinds in KINDS {
        for to_device in [false, true] {
            let tokens = pages(0..8);
            let (mut rig, _store) = stored(&Shape::of(kinds), &tokens);
            let (before, left) = (*rig.cache.stats(), evicted(&rig));
            let device = if to_device { 8 } else { 0 };
            let expected = Warmed { under_way: false, usable: 8, device };
            assert_eq!(warmed(&mut rig, &tokens, to_device), expected, "{kinds:?}");
            let stats = *rig.cache.stats();
            assert_eq!((stats.warm_prefixes, stats.warmed_host_pages), (1, 8));
            assert_eq!(stats.warmed_device_pages, u64::from(device));
            assert_eq!(evicted(&rig), left, "nothing left for it");
            assert_eq!([stats.requests, stats.loaded_requests], [before.requests, before.loaded_requests]);
            is_there(&mut rig, &tokens, device, 8);
            rig.drained();
        }
    }
}

/// Some of it may be on a tier already, pages without their window or state among it: what lacks comes, and no more.
#[test]
fn what_lacks_of_it_comes_alone() {
    for kinds in KINDS {
        for part in 0..kinds.len() {
            for tiers in [&Tier::ALL[..], &[Tier::Device]] {
                let (tokens, longer) = (pages(0..8), pages(0..10));
                let store = Arc::new(FaultStore::default());
                let mut rig = Mixed::over(&Shape::of(kinds), Some(&store));
                rig.serve(&tokens, 8);
                // What follows is held: the part leaves an inner edge alone.
                let held = rig.find(&longer);
                rig.load(held);
                assert!(rig.compute(held, &longer, 10, ALL));
                rig.settle();
                for &tier in tiers {
                    rig.cache.evict_part(part, tier, usize::MAX).unwrap();
                }
                assert_eq!(rig.usable(&tokens).0, 0);
                let full = rig.cache.stats().prefetched_pages;
                let expected = Warmed { under_way: false, usable: 8, device: 8 };
                assert_eq!(warmed(&mut rig, &tokens, true), expected, "{kinds:?} {part} {tiers:?}");
                assert_eq!(rig.cache.stats().prefetched_pages, full, "pages were there");
                is_there(&mut rig, &tokens, 8, 8);
                rig.cache.release(held, 0).unwrap();
                rig.drained();
            }
        }
    }
}

/// Pages that the device alone has go to the host first, as far as there is free room for them and their parts.
#[test]
fn what_comes_is_hung_below_what_the_device_has() {
    for kinds in KINDS {
        for room in [true, false] {
            let tokens = pages(0..8);
            let mut shape = Shape { host: 12, ..Shape::of(kinds) };
            let (_, store) = stored(&shape, &tokens);
            shape.writing.host = Write::Back;
            shape.writing.clean_reserve = 0.0;
            let mut rig = Mixed::over(&shape, Some(&store));
            rig.serve(&tokens[..8], 4);
            if !room {
                // Another one's pages fill the host but for three.
                let other = rig.find(&pages(50..59));
                rig.load(other);
                assert!(rig.compute(other, &pages(50..59), 9, ALL));
                rig.cache.backup(other).unwrap();
                rig.land();
                rig.cache.release(other, 0).unwrap();
            }
            let left = evicted(&rig);
            let device = if room { 8 } else { 4 };
            let expected = Warmed { under_way: false, usable: device, device };
            assert_eq!(warmed(&mut rig, &tokens, true), expected, "{kinds:?} {room}");
            assert_eq!(evicted(&rig), left, "nothing left for it");
            is_there(&mut rig, &tokens, device, device);
            rig.drained();
        }
    }
}

/// With little free room, on either tier and of either kind: as deep a boundary as fits, or none; nothing leaves.
#[test]
fn it_takes_no_room_from_anybody() {
    let (tokens, other) = (pages(0..8), pages(50..54));
    for kinds in KINDS {
        for (device, host, parts) in [(9, 64, None), (32, 9, None), (32, 64, Some(0)), (32, 64, Some(1))] {
            let (_, store) = stored(&Shape::of(kinds), &tokens);
            let mut shape = Shape { device, host, ..Shape::of(kinds) };
            // Of one tier as many windows and states as the other request has.
            for (needs, device, host) in &mut shape.parts {
                // The host has no more of a window than what is behind it needs.
                let [given, kept] = if *needs == STATE { [1, 1] } else { [4, 2] };
                match parts {
                    Some(0) => *device = given,
                    Some(_) => *host = kept,
                    None => {}
                }
            }
            let mut rig = Mixed::over(&shape, Some(&store));
            let hit = rig.find(&other);
            rig.load(hit);
            assert!(rig.compute(hit, &other, 4, ALL));
            rig.cache.release(hit, 0).unwrap();
            rig.settle();
            let left = evicted(&rig);
            let ended = warmed(&mut rig, &tokens, true);
            assert_eq!(evicted(&rig), left, "nothing left for it: {kinds:?} {device} {host} {parts:?}");
            let expected = match (device, host, parts) {
                // Of one boundary the store gave windows and states, and that one has no room.
                (9, ..) => (8, 0),
                (_, 9, _) => (4, 4),
                (.., Some(0)) => (8, 0),
                _ => (0, 0),
            };
            assert_eq!((ended.usable, ended.device), expected, "{kinds:?} {device} {host} {parts:?}");
            assert_eq!(rig.usable(&other), (4, 4), "what was there is");
            is_there(&mut rig, &tokens, ended.device, ended.usable);
            rig.drained();
        }
    }
}

/// What the host has of several boundaries comes to the device up to the deepest that there is free room for.
#[test]
fn less_of_it_comes_where_less_fits() {
    let (tokens, other) = (pages(0..8), pages(50..54));
    for kinds in KINDS {
        let mut rig = Mixed::over(&Shape { device: 9, ..Shape::of(kinds) }, None);
        rig.serve(&tokens, 2);
        rig.settle();
        rig.cache.evict(Tier::Device, usize::MAX).unwrap();
        rig.serve(&other, 4);
        rig.settle();
        // States are there behind every second page only.
        let device = if kinds.iter().any(|kind| kind.0 == STATE) { 4 } else { 5 };
        let left = evicted(&rig);
        assert_eq!(warmed(&mut rig, &tokens, true), Warmed { under_way: false, usable: 8, device });
        assert_eq!((evicted(&rig), rig.usable(&other)), (left, (4, 4)), "nothing left for it: {kinds:?}");
        is_there(&mut rig, &tokens, device, 8);
        rig.drained();
    }
}

/// Given up, let go and ended in any state of its reads, those of parts among them: one thread reads, pages first.
#[test]
fn it_ends_in_any_state() {
    for kinds in KINDS {
        for hangs in 0..4 {
            for end in 0..4 {
                let tokens = pages(0..8);
                let (mut rig, store) = stored(&Shape { threads: 1, ..Shape::of(kinds) }, &tokens);
                let [asked, read] = [Verb::Exists, Verb::Get].map(|verb| store.calls(verb));
                store.plan(move |verb, call| match (hangs, verb) {
                    (1, Verb::Exists) | (2, Verb::Get) => Fault::Hang,
                    (3, Verb::Get) if call > read + 1 => Fault::Hang,
                    _ => Fault::None,
                });
                let number = warm(&mut rig, &tokens, end % 2 == 0);
                match hangs {
                    1 => rig.until("the question", |_| store.calls(Verb::Exists) > asked),
                    2 => rig.until("the read", |_| store.calls(Verb::Get) > read),
                    3 => rig.until("the pages", |rig| rig.cache.stats().prefetched_pages == 8),
                    _ => {}
                }
                match end {
                    0 => rig.cache.cool(number),
                    1 => drop(rig.cache.detach_store(Duration::from_millis(5)).unwrap()),
                    2 => drop(rig.cache.clear_memory().unwrap()),
                    _ => drop(rig.cache.poll(None, 100.0).unwrap()),
                }
                rig.books();
                rig.until("its end", |rig| !rig.cache.warmed(number).unwrap().under_way);
                let ended = rig.cache.warmed(number).unwrap();
                assert!(hangs == 0 || ended.usable == 0, "{kinds:?} {hangs} {end}: {ended:?}");
                store.release();
                rig.drained();
            }
        }
    }
}

/// Windows of a boundary that has none of a state, and the other way round, are no boundary: what comes is before them.
#[test]
fn it_comes_to_where_all_agree() {
    let (tokens, store) = (pages(0..8), Arc::new(FaultStore::default()));
    let mut rig = Mixed::over(&Shape::of(KINDS[2]), Some(&store));
    let hit = rig.find(&tokens);
    rig.load(hit);
    for (to, states) in [(4, true), (8, false)] {
        assert!(rig.compute(hit, &tokens, to, Gives { windows: usize::MAX, states }));
    }
    rig.cache.release(hit, 0).unwrap();
    rig.settle();
    empty(&mut rig);
    assert_eq!(warmed(&mut rig, &tokens, true), Warmed { under_way: false, usable: 4, device: 4 });
    assert_eq!(rig.cache.stats().prefetched_pages, 4);
    is_there(&mut rig, &tokens, 4, 4);
    rig.drained();
}

/// It is no request: under a selective policy what it brings isn't used a second time by it.
#[test]
fn bringing_it_is_no_use() {
    for kinds in KINDS {
        let tokens = pages(0..8);
        let mut shape = Shape::of(kinds);
        shape.writing.storage = Write::Selective;
        let store = Arc::new(FaultStore::default());
        let mut rig = Mixed::over(&shape, Some(&store));
        rig.serve(&tokens, 4);
        rig.settle();
        rig.cache.evict(Tier::Device, usize::MAX).unwrap();
        assert_eq!(warmed(&mut rig, &tokens, true).device, 8);
        assert_eq!((store.len(), rig.cache.stats().stored_pages), (0, 0));
        is_there(&mut rig, &tokens, 8, 8);
        rig.settle();
        assert!(store.len() > 0, "the request that came used it again");
        rig.drained();
    }
}
