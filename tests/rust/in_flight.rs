//! Shapes change while backups, loads, reads and writes of the same pages are under way: splits, evictions,
//! requests that leave in any state, the same pages inserted again; landings in any order, any number of times.
//! Afterwards nothing was stored twice, nothing is lost, and every reference came back.
//!
//! Storage has threads, so that a failing run may not fail the same way again: each is short, so that what led
//! to it can be read.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{MIRRORED, Rig, Shape};
use common::seeds;
use common::store::{Fault, FaultStore, Verb};
use common::storm::{Storm, Weather};
use common::writing::either;
use hicache_core::ids::Tier;
use hicache_core::policy::Writing;
use hicache_core::storage::Outcome;
use std::sync::Arc;

fn blown(seed: u64, shape: Shape, weather: Weather) -> Storm {
    let page = [1, 2][(seed % 2) as usize];
    let mut storm = Storm::new(Shape { page, threads: 3, ..shape }, seed, weather);
    for _ in 0..300 {
        storm.step();
    }
    storm.end();
    storm
}

/// Where the host keeps everything, each page that was ever computed is stored, and never twice.
#[test]
fn every_page_is_stored_and_none_twice() {
    let mut fetched = 0;
    for seed in seeds(60) {
        let shape = Shape { device: 24, host: 2_000, queue: 2_000, ..Shape::default() };
        let mut storm = blown(seed, shape, Weather::default());
        for tokens in &storm.made {
            assert_eq!(storm.stored(tokens), tokens.len() / storm.rig.size(), "all of it is stored");
        }
        let (most, all) = storm.store.puts();
        assert!(most <= 1, "stored twice");
        let stats = *storm.rig.cache.stats();
        assert_eq!((stats.stored_pages, stats.backed_up_pages), (all as u64, all as u64));
        fetched += stats.prefetched_pages;
        storm.readable();
        storm.rig.drained();
    }
    assert!(fetched > 0, "reads were under way too");
}

/// Where both tiers are short of room and deadlines pass, whatever was backed up is stored once for each time
/// that it was or, where storage can't keep up, counted as lost to it; and is read back right.
#[test]
fn what_was_backed_up_is_stored_once_each_time() {
    for seed in seeds(60) {
        let (host, writing) = (20, either(seed));
        let shape = Shape { device: 16, host, queue: 3, deadline: 3.0, writing, ..Shape::default() };
        let mut storm = blown(seed, shape, Weather { late: seed % 3 > 0, tight: true, ..Weather::default() });
        storm.readable();
        storm.rig.drained();
        is_stored_or_lost(&storm, writing);
    }
}

/// When nothing is left in memory, each page that was backed up was stored since, or is counted as lost. A copy that had
/// given way may have been made again.
fn is_stored_or_lost(storm: &Storm, writing: Writing) {
    let stats = *storm.rig.cache.stats();
    assert_eq!(stats.stored_pages, storm.store.puts().1 as u64);
    let known = stats.stored_pages + stats.dropped_unstored_pages;
    assert!(stats.backed_up_pages >= known, "{stats:?}");
    assert!(writing != MIRRORED || stats.backed_up_pages == known, "{stats:?}");
    assert_eq!(storm.rig.cache.tree().in_debt(), 0);
}

/// With a store that fails now and then nothing leaks and nothing is believed stored that isn't.
#[test]
fn what_is_believed_stored_is_stored() {
    let mut failed = 0;
    for seed in seeds(60) {
        let (host, writing) = (20, either(seed));
        let shape = Shape { device: 16, host, queue: 3, deadline: 3.0, writing, ..Shape::default() };
        let weather = Weather { late: seed % 2 > 0, tight: true, faulty: 2 + seed % 4, ..Weather::default() };
        let mut storm = blown(seed, shape, weather);
        failed += storm.rig.cache.stats().store_failed_pages;
        storm.readable();
        storm.rig.drained();
        is_stored_or_lost(&storm, writing);
    }
    assert!(failed > 0, "some failed twice");
}

const TOKENS: [i32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

/// What a read is to be hung below leaves after all else. Where it must go all the same, its node's ancestors
/// stay for those who wait, and the read is given up when it lands: no page hangs in the air.
#[test]
fn a_read_whose_beginning_was_evicted_is_given_up() {
    for gone in 0..=4 {
        let store = Arc::new(FaultStore::default());
        let shape = Shape { host: 8, ..Shape::default() };
        let mut writer = Rig::new(shape, Some(&store));
        writer.serve(&TOKENS);
        writer.settle();
        let mut rig = Rig::new(shape, Some(&store));
        rig.serve(&TOKENS[..4]);
        rig.settle();
        let hit = rig.find(&TOKENS);
        rig.serve(&[50, 51, 52, 53]);
        rig.settle();
        store.plan(|verb, _| if verb == Verb::Get { Fault::Gated } else { Fault::None });
        assert!(rig.cache.prefetch(hit).unwrap());
        rig.until("the read", |_| store.waiting() == 1);
        rig.evict(Tier::Device, usize::MAX);
        assert_eq!(rig.evict(Tier::Host, gone).len(), gone);
        let left = 4_u32.saturating_sub(u32::try_from(gone).unwrap()).min(2);
        assert_eq!(rig.view(hit).usable, left, "the waiting one's pages leave last");
        assert!(rig.view(hit).waiting);
        assert!(store.pass(0));
        rig.until("its end", |rig| !rig.view(hit).waiting);
        assert_eq!(rig.view(hit).usable, if left == 2 { 6 } else { left });
        rig.load(hit);
        rig.settle();
        rig.verify(hit, &TOKENS);
        rig.cache.release(hit, 0).unwrap();
        rig.drained();
    }
}

/// A hundred requests that leave in each state that there is: nothing is missing afterwards, and the same prompt
/// works.
#[test]
fn requests_that_leave_in_any_state_leave_nothing_behind() {
    for page in [1, 2] {
        let store = Arc::new(FaultStore::default());
        let mut rig = Rig::new(Shape { page, device: 16, host: 16, ..Shape::default() }, Some(&store));
        for round in 0..100 {
            let state = round % 5;
            let hit = rig.find(&TOKENS);
            if state >= 1 {
                rig.cache.prefetch(hit).unwrap();
            }
            if state >= 2 {
                rig.load(hit);
            }
            if state >= 3 {
                let slots = rig.cache.allocate(2).unwrap().expect("nothing was lost so far");
                rig.cache.free(&slots).unwrap();
            }
            if state >= 4 {
                let pages = rig.view(hit).device as usize;
                assert!(rig.compute(hit, &TOKENS[..(pages + 1).min(12 / page as usize) * page as usize]));
            }
            rig.cache.release(hit, 0).unwrap();
            rig.books();
        }
        rig.drained();
        rig.serve(&TOKENS);
        assert_eq!(rig.serve(&TOKENS).device as usize, TOKENS.len() / page as usize);
        rig.drained();
    }
}

/// However little room the host has, what is there of a path begins at its beginning; what found none is
/// backed up with the next turn, parents first; and a read never hangs below pages that are on the device alone.
#[test]
fn what_a_host_has_of_a_path_begins_at_its_beginning() {
    for room in 0..=6 {
        let store = Arc::new(FaultStore::default());
        let mut writer = Rig::new(Shape { page: 1, ..Shape::default() }, Some(&store));
        writer.serve(&TOKENS);
        writer.settle();
        let mut rig = Rig::new(Shape { page: 1, device: 32, host: 12, ..Shape::default() }, Some(&store));
        // Others hold the rest of the host: it mirrors the device.
        let others: Vec<i32> = (100..112 - room).collect();
        rig.serve(&others);
        for end in [2, 4, 6] {
            rig.serve(&TOKENS[..end]);
        }
        rig.settle();
        let hit = rig.find(&TOKENS);
        let on_host = rig.cache.tree().resident(Tier::Host) - others.len();
        assert_eq!(on_host, room.unsigned_abs() as usize);
        assert_eq!(rig.cache.prefetch(hit).unwrap(), room == 6, "below what is not on the host");
        rig.until("its end", |rig| !rig.view(hit).waiting);
        rig.cache.release(hit, 0).unwrap();
        // The others leave the device, and may leave the host then.
        let lost = rig.evict(Tier::Device, others.len());
        assert_eq!(lost.len(), others.len());
        let found = rig.serve(&TOKENS);
        assert!(found.usable >= 6 && rig.cache.tree().resident(Tier::Host) == 12);
        rig.settle();
        rig.evict(Tier::Device, usize::MAX);
        let hit = rig.find(&TOKENS);
        assert_eq!(rig.view(hit).usable, 12, "all of it was backed up in the end");
        rig.load(hit);
        rig.settle();
        rig.verify(hit, &TOKENS);
        rig.cache.release(hit, 0).unwrap();
        rig.drained();
    }
}

/// A write in several batches, of which the first ones fail: the rest is written all the same, and what failed
/// once is tried again.
#[test]
fn a_batch_that_fails_does_not_stop_those_behind_it() {
    let tokens: Vec<i32> = (0..300).collect();
    for fails in 1..=4 {
        let store = Arc::new(FaultStore::default());
        store.plan(move |verb, call| match verb {
            Verb::Put if call <= fails => Fault::Answer(Outcome::Failed),
            _ => Fault::None,
        });
        let shape = Shape { page: 1, device: 300, host: 300, threads: 1, ..Shape::default() };
        let mut rig = Rig::new(shape, Some(&store));
        rig.serve(&tokens);
        rig.settle();
        let stats = *rig.cache.stats();
        assert_eq!(stats.stored_pages + stats.store_failed_pages, 300);
        assert_eq!(stats.stored_pages, store.len() as u64);
        assert!(fails > 1 || stats.store_failed_pages == 0, "once is tried again");
        assert!(store.len() >= 44, "the last batch is stored, whatever became of the first");
        rig.drained();
    }
}

/// The host has more of a path than the store; the next turn is stored with what is missing in the middle.
#[test]
fn a_store_may_lack_what_the_host_has() {
    let store = Arc::new(FaultStore::default());
    let shape = Shape { page: 1, ..Shape::default() };
    let mut rig = Rig::new(shape, Some(&store));
    rig.serve(&TOKENS[..4]);
    rig.settle();
    store.plan(|verb, _| if verb == Verb::Put { Fault::Answer(Outcome::Failed) } else { Fault::None });
    rig.serve(&TOKENS[..6]);
    rig.settle();
    store.plan(|_, _| Fault::None);
    rig.serve(&TOKENS[..8]);
    rig.settle();
    assert_eq!((rig.cache.tree().resident(Tier::Host), store.len()), (8, 8));
    let mut fresh = Rig::new(shape, Some(&store));
    let hit = fresh.fetch(&TOKENS);
    assert_eq!(fresh.load(hit).device, 8);
    fresh.verify(hit, &TOKENS);
    fresh.cache.release(hit, 0).unwrap();
    Tier::ALL.into_iter().for_each(|tier| drop(rig.evict(tier, 8)));
    rig.serve(&TOKENS[..8]);
    rig.settle();
    assert_eq!(store.len(), 8);
    fresh.drained();
    rig.drained();
}
