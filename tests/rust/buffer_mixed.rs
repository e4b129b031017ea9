//! Buffer-only mode for models with windows and states: what storage has goes to the device for one boundary, all that it
//! needs or nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::mixed::{Gives, Mixed};
use common::models::{STATE, Shape, WINDOW};
use common::staged_parts::{buffer, filled, fresh, key, loaded, nothing_left, pages, reads};
use common::store::Fault;
use hicache_core::ids::Tier;
use hicache_core::storage::Outcome;

/// Pages, the last window and the last state.
#[test]
fn a_prefix_comes_with_its_last_window_and_state() {
    let tokens = pages(0..8);
    let store = filled(&[&tokens]);
    let mut rig = fresh(&store, 12);
    let hit = rig.fetch(&tokens);
    assert_eq!((rig.view(hit).device, rig.view(hit).usable, rig.view(hit).stored), (0, 8, 8));
    assert_eq!(reads(&rig), 8 + 2 + 1);
    assert_eq!(rig.cache.explain(hit).unwrap().to_string(), "16 tokens: 16 storage");
    let view = rig.load(hit);
    assert_eq!((view.device, view.copied, reads(&rig)), (8, 8, 11), "the copies read them");
    rig.land();
    assert_eq!((rig.wrong(hit, &tokens, true), reads(&rig)), (None, 0));
    assert_eq!(rig.cache.stats().hit_storage_tokens, 16);
    let parts = [0, 1].map(|part| rig.cache.part_stats(part).unwrap().loaded);
    assert_eq!(parts, [2, 1]);
    rig.cache.release(hit, 0).unwrap();
    nothing_left(&mut rig);
}

/// The deepest boundary for which there is room in each space; where there is none for any, that is said at once.
#[test]
fn a_small_pool_gives_a_shallower_boundary() {
    let tokens = pages(0..8);
    let store = filled(&[&tokens]);
    for (host, window, state, fits) in
        [(12, 8, 4, 8), (8, 8, 4, 6), (5, 8, 4, 4), (3, 8, 4, 2), (2, 8, 4, 0), (12, 2, 4, 0), (12, 8, 0, 0)]
    {
        let parts = [(WINDOW, 16, window), (STATE, 8, state)];
        let mut rig = Mixed::over(&buffer(host, &parts), Some(&store));
        let hit = rig.fetch(&tokens);
        assert_eq!(rig.view(hit).usable, fits, "{host} {window} {state}");
        assert_eq!(rig.cache.stats().prefetch_no_room, u64::from(fits < 8));
        let said = rig.cache.explain(hit).unwrap().to_string();
        assert!(fits > 0 || said.contains("the host is full"), "{said}");
        assert_eq!(loaded(&mut rig, hit, &tokens), fits);
        rig.cache.release(hit, 0).unwrap();
        nothing_left(&mut rig);
    }
}

/// A page, a window's page or a state that doesn't come after all: none of it is of use.
#[test]
fn one_that_fails_fails_all() {
    let tokens = pages(0..8);
    for bad in [(5, None), (7, Some("part0")), (7, Some("part1"))] {
        let store = filled(&[&tokens]);
        store.spoil(key(&tokens, bad.0, bad.1), Outcome::Failed);
        let mut rig = fresh(&store, 12);
        let hit = rig.fetch(&tokens);
        rig.settle();
        assert_eq!((rig.view(hit).usable, reads(&rig)), (0, 0), "{bad:?}");
        assert_eq!(loaded(&mut rig, hit, &tokens), 0);
        rig.cache.release(hit, 0).unwrap();
        store.plan(|_, _| Fault::None);
        nothing_left(&mut rig);
    }
}

/// Behind what is usable on the device; pages that are there without their window or state aren't read.
#[test]
fn what_is_on_the_device_counts() {
    let tokens = pages(0..8);
    let store = filled(&[&tokens]);
    for gone in [None, Some(0), Some(1)] {
        let mut rig = fresh(&store, 12);
        rig.serve(&tokens[..8], 2);
        rig.settle();
        if let Some(part) = gone {
            rig.cache.evict_part(part, Tier::Device, 99).unwrap();
        }
        let there = rig.cache.tree().resident(Tier::Device);
        let hit = rig.fetch(&tokens);
        assert_eq!((rig.view(hit).device, rig.view(hit).usable), (if gone.is_some() { 0 } else { 4 }, 8));
        assert_eq!(reads(&rig), 8 - there + 2 + 1, "{gone:?}");
        assert_eq!(loaded(&mut rig, hit, &tokens), 8);
        rig.cache.release(hit, 0).unwrap();
        nothing_left(&mut rig);
    }
    // Pages are all there, and the state that a hit needs at their end isn't.
    let mut rig = fresh(&store, 12);
    computed_without_states(&mut rig, &tokens, 8);
    let hit = rig.fetch(&tokens);
    assert_eq!((rig.view(hit).device, rig.view(hit).usable, reads(&rig)), (0, 8, 1));
    assert_eq!(loaded(&mut rig, hit, &tokens), 8);
    rig.cache.release(hit, 0).unwrap();
    nothing_left(&mut rig);
}

/// So many pages are on the device with their windows, and no state.
fn computed_without_states(rig: &mut Mixed, tokens: &[i32], to: usize) {
    let hit = rig.find(tokens);
    rig.load(hit);
    assert!(rig.compute(hit, tokens, to, Gives { windows: to, states: false }));
    rig.cache.release(hit, 0).unwrap();
    rig.settle();
}

/// What it counted on leaves before the load: nothing of it is of use.
#[test]
fn a_hole_under_a_boundary() {
    let tokens = pages(0..8);
    let store = filled(&[&tokens]);
    for part in [None, Some(0)] {
        let mut rig = fresh(&store, 12);
        // A window of two pages: one of those that are read, one that is there.
        computed_without_states(&mut rig, &tokens, 7);
        let hit = rig.fetch(&tokens);
        assert_eq!(rig.view(hit).usable, 8);
        assert_eq!(reads(&rig), 1 + 1 + 1, "a page, its part of the window, its state");
        match part {
            None => drop(rig.cache.evict(Tier::Device, 1).unwrap()),
            Some(part) => drop(rig.cache.evict_part(part, Tier::Device, 99).unwrap()),
        }
        assert_eq!(rig.view(hit).usable, 0, "{part:?}");
        assert_eq!((rig.load(hit).device, reads(&rig)), (0, 0));
        let said = rig.cache.explain(hit).unwrap().to_string();
        assert!(said.contains("the path before left the device"), "{said}");
        rig.cache.release(hit, 0).unwrap();
        nothing_left(&mut rig);
    }
}

/// Two that want the same, loaded together: the second one copies what the first one didn't bring.
#[test]
fn two_requests_for_the_same_pages() {
    let tokens = pages(0..8);
    let store = filled(&[&tokens]);
    let parts = [(WINDOW, 16, 12), (STATE, 8, 8)];
    for order in [[0, 1], [1, 0]] {
        let mut rig = Mixed::over(&buffer(24, &parts), Some(&store));
        let hits = [&tokens[..], &tokens[..12]].map(|tokens| rig.find(tokens));
        for hit in hits {
            assert!(rig.cache.prefetch(hit).unwrap());
        }
        rig.until("both", |rig| hits.iter().all(|&hit| !rig.view(hit).waiting));
        assert_eq!(reads(&rig), 11 + 9);
        rig.cache.load(&order.map(|at| hits[at]), None).unwrap();
        rig.books();
        rig.land();
        assert_eq!((reads(&rig), rig.cache.tree().resident(Tier::Device)), (0, 8));
        for (hit, pages) in hits.into_iter().zip([8, 6]) {
            assert_eq!(rig.view(hit).device, pages);
            assert_eq!(rig.wrong(hit, &tokens, true), None);
            rig.cache.release(hit, 0).unwrap();
        }
        nothing_left(&mut rig);
    }
}

/// No room on the device for all of it, a budget, a policy: it ends where everything is there.
#[test]
fn what_is_not_loaded_is_given_back() {
    let tokens = pages(0..8);
    let store = filled(&[&tokens]);
    let cases = [(6, 16, None, None), (32, 1, None, None), (32, 16, Some(7), None), (32, 16, None, Some(6))];
    for (device, window, budget, most) in cases {
        let parts = [(WINDOW, window, 8), (STATE, 8, 4)];
        let mut rig = Mixed::over(&Shape { device, ..buffer(12, &parts) }, Some(&store));
        let hit = rig.fetch(&tokens);
        assert_eq!(rig.view(hit).usable, 8);
        most.into_iter().for_each(|most| rig.cache.at_most(hit, most).unwrap());
        rig.cache.load_within(&[hit], None, budget).unwrap();
        rig.books();
        assert_eq!((rig.view(hit).device, reads(&rig)), (0, 0), "{device} {window} {budget:?} {most:?}");
        rig.cache.release(hit, 0).unwrap();
        nothing_left(&mut rig);
    }
}
