//! A store that never answers, for as long as it likes: nothing that waits for it grows with time, the host goes on serving,
//! and when it answers after all, everything comes back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::every::{filled, kinds, kinds_with, pages, served, under_every_policy};
use common::mixed::Mixed;
use common::models::Shape as Model;
use common::rig::{Rig, Shape};
use common::store::{Fault, FaultStore, Verb};
use common::writing::{path, writing};
use hicache_core::ids::Tier;
use hicache_core::page::Tokens;
use hicache_core::policy::{StopOptions, Write, Writing};
use hicache_core::storage::Outcome;
use std::sync::Arc;

fn hanging(verb: Verb) -> Arc<FaultStore> {
    let store = Arc::new(FaultStore::default());
    store.plan(move |at, _| if at == verb { Fault::Hang } else { Fault::None });
    store
}

/// What can't leave the host, whoever asks.
fn held(rig: &mut Mixed) -> usize {
    rig.drip.finish_all();
    rig.cache.poll(None, 0.0).unwrap();
    rig.evict_all(Tier::Device);
    rig.land();
    rig.evict_all(Tier::Host);
    rig.cache.tree().resident(Tier::Host)
}

/// Requests come and go, and their deadlines pass: no more is on its way than may be, and the host takes whatever comes.
#[test]
fn writes_that_never_end_hold_no_more_than_they_may() {
    for shape in under_every_policy(&kinds_with([16, 32], [16, 16], [8, 8])) {
        let shape = Model { queue: 2, deadline: 5.0, ..shape };
        let store = hanging(Verb::Put);
        let mut rig = Mixed::over(&shape, Some(&store));
        for number in 1..=60 {
            rig.ask_twice(&pages(number, 4));
            rig.drip.finish_all();
            rig.step(f64::from(number));
            rig.drip.finish_all();
            rig.step(f64::from(number));
            let under_way = rig.cache.in_flight() - rig.cache.copying();
            assert!(under_way <= 2, "{under_way} batches: {shape:?}");
        }
        assert!(store.calls(Verb::Put) <= 2);
        let stats = *rig.cache.stats();
        assert!(stats.deadlines_passed <= 2, "{shape:?}");
        assert_eq!((stats.backup_no_room_pages, stats.stores_forgotten), (0, 0), "{shape:?}");
        assert!(stats.dropped_unstored_pages > 0, "{shape:?}: what can't be kept is counted");
        let held = held(&mut rig);
        assert!(held > 0 && held <= 16, "{held} pages held: {shape:?}");
        store.release();
        rig.drained();
    }
}

/// A path that is longer than what may be on its way goes piece by piece, and all of it goes.
#[test]
fn a_long_path_holds_no_more_than_it_may() {
    for shape in under_every_policy(&kinds_with([80, 64], [80, 64], [64, 64])) {
        let store = hanging(Verb::Put);
        let mut rig = Mixed::over(&shape, Some(&store));
        let tokens = pages(1, 60);
        rig.ask(&tokens, 20);
        rig.ask(&tokens, 20);
        (0..4).for_each(|_| rig.land());
        if shape.writing.storage == Write::Back {
            rig.evict_all(Tier::Device);
            (0..4).for_each(|_| rig.land());
        }
        let hit = rig.find(&tokens);
        rig.load(hit);
        rig.land();
        let held = held(&mut rig);
        assert!(held > 0 && held <= 32, "{held} pages held: {shape:?}");
        rig.cache.release(hit, 0).unwrap();
        store.release();
        // What of it left the host is lost to storage; all of the next one's isn't.
        rig.idle();
        let tokens = pages(2, 60);
        rig.ask(&tokens, 20);
        rig.ask(&tokens, 20);
        rig.write_back();
        assert_eq!(served(&shape, &store, &tokens), 60, "{shape:?}");
        assert_eq!(rig.cache.tree().in_debt(), 0, "{shape:?}");
        rig.drained();
    }
}

/// What a store refuses of a long path is not asked of it for ever, and keeps nothing behind it from its turn.
#[test]
fn a_long_path_goes_on_behind_what_fails() {
    for shape in kinds_with([80, 64], [80, 64], [64, 64]) {
        for fails in [Outcome::Failed, Outcome::Declined] {
            let shape = Model { writing: writing(Write::Through, Write::Through), ..shape.clone() };
            let store = Arc::new(FaultStore::default());
            let mut rig = Mixed::over(&shape, Some(&store));
            let tokens = pages(1, 60);
            store.plan(move |verb, _| if verb == Verb::Put { Fault::Answer(fails) } else { Fault::None });
            rig.ask(&tokens, 20);
            rig.idle();
            let asked = store.calls(Verb::Put);
            (0..50).for_each(|_| rig.land());
            assert_eq!((store.calls(Verb::Put), rig.cache.pending()), (asked, 0), "{shape:?}");
            assert!(rig.cache.stats().stored_pages == 0 && store.len() == 0);
            store.plan(|_, _| Fault::None);
            rig.ask(&tokens, 20);
            rig.idle();
            assert_eq!(served(&shape, &store, &tokens), 60, "{shape:?}");
            assert_eq!(rig.cache.tree().in_debt(), 0, "{shape:?}");
            rig.drained();
        }
    }
}

/// The same in batches: no more of them than may be, however long the path.
#[test]
fn a_long_path_is_no_more_batches_than_there_may_be() {
    for shape in kinds_with([1_000, 1_600], [1_000, 1_000], [16, 16]) {
        let shape = Model { queue: 2, writing: writing(Write::Through, Write::Through), ..shape };
        let store = hanging(Verb::Put);
        let mut rig = Mixed::over(&shape, Some(&store));
        let tokens = pages(1, 900);
        rig.ask(&tokens, 900);
        (0..3).for_each(|_| rig.land());
        assert_eq!(rig.cache.in_flight() - rig.cache.copying(), 2, "{shape:?}");
        store.release();
        rig.idle();
        // What is copied of an edge's windows later goes with those before it.
        assert!(store.puts().0 == 1 || !shape.parts.is_empty(), "each page once: {shape:?}");
        assert_eq!(rig.cache.stats().stored_pages, store.puts().1 as u64);
        assert_eq!(served(&shape, &store, &tokens), 900, "{shape:?}");
        rig.drained();
    }
}

/// Questions that nobody answers, or reads that never end: requests come, wait, and leave, by themselves or by their deadline.
/// No more is left of them than is inside of the store, also where ranks take in what they agree on alone.
#[test]
fn prefetches_that_never_end_do_not_add_up() {
    let stored = pages(1, 8);
    for shape in kinds() {
        let shape = Model { deadline: 2.0, host: 300, ..shape };
        for (rule, verb) in ["best_effort", "wait_complete", "timeout"]
            .into_iter()
            .flat_map(|rule| [(rule, Verb::Exists), (rule, Verb::Get)])
        {
            for ranks in [false, true] {
                let store = filled(&shape, 8, std::slice::from_ref(&stored));
                store.plan(move |at, _| if at == verb { Fault::Hang } else { Fault::None });
                let mut rig = Mixed::over(&shape, Some(&store));
                rig.cache.stop_by(StopOptions::named(rule).rule().unwrap());
                let (mut most, mut owned, mut at) = (0, 0, 0.0);
                let poll = |rig: &mut Mixed, at: f64| {
                    rig.drip.finish_all();
                    let limits = ranks.then(|| rig.cache.ready());
                    rig.cache.poll(limits, at).unwrap();
                    rig.books();
                };
                for round in 0..150 {
                    at += 0.5;
                    // Longer than what is stored: three questions.
                    let hit = rig.find(&[&stored[..], &pages(2 + round % 2, 292)[..]].concat());
                    assert!(rig.cache.prefetch(hit).unwrap());
                    poll(&mut rig, at);
                    rig.cache.decide(hit, 0).unwrap();
                    // One of three waits for its deadline.
                    if round % 3 == 0 {
                        at += 2.0;
                        poll(&mut rig, at);
                        assert!(!rig.view(hit).waiting);
                    }
                    rig.load(hit);
                    rig.cache.release(hit, 0).unwrap();
                    poll(&mut rig, at);
                    if round >= 100 {
                        (most, owned) = (most.max(rig.cache.in_flight()), owned.max(rig.reading()));
                    }
                }
                assert!(most <= 24, "{most} under way: {rule} {verb:?} {ranks} {shape:?}");
                assert!(owned <= 150, "{owned} slots: {rule} {verb:?} {ranks} {shape:?}");
                store.release();
                rig.drained();
            }
        }
    }
}

/// Paths that wait for their turn are no more than so many; what is forgotten is stored when it comes again.
#[test]
fn paths_that_wait_are_no_more_than_so_many() {
    let store = hanging(Verb::Put);
    let writing = Writing { clean_reserve: 0.0, ..writing(Write::Through, Write::Through) };
    let shape = Shape { page: 1, device: 5_000, host: 5_000, queue: 1, writing, ..Shape::default() };
    let mut rig = Rig::new(shape, Some(&store));
    let put = |rig: &mut Rig, number: i32| {
        let (tokens, hit) = (path(number, 1), rig.find(&path(number, 1)));
        rig.cache.load(&[hit], None).unwrap();
        if rig.view(hit).device == 0 {
            let slots = rig.cache.allocate(1).unwrap().unwrap();
            rig.memory.write_device(slots[0], &rig.stamp(&tokens, 0));
            rig.cache.insert(hit, Tokens::I32(&tokens), &slots).unwrap();
        }
        rig.cache.release(hit, 0).unwrap();
    };
    for number in 0..4_500 {
        put(&mut rig, number);
        if number % 50 == 49 {
            rig.cache.poll(None, 0.0).unwrap();
            let paths = rig.cache.pending() - rig.cache.in_flight();
            assert!(paths <= 4_096, "{paths} paths wait");
        }
    }
    let forgotten = rig.cache.stats().stores_forgotten;
    assert!((200..=404).contains(&forgotten), "{forgotten}");
    store.release();
    rig.idle();
    assert_eq!(store.len() as u64, 4_500 - forgotten);
    (0..4_500).for_each(|number| put(&mut rig, number));
    rig.idle();
    assert_eq!((store.len(), store.puts().0), (4_500, 1));
    assert_eq!(rig.cache.tree().in_debt(), 0);
    rig.drained();
}
