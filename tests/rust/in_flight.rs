//! Shapes change while backups, loads, reads and writes of the same pages are under way: splits, evictions,
//! requests that leave in any state, the same pages inserted again; landings in any order, any number of times.
//! Afterwards nothing was stored twice, nothing is lost, and every reference came back.
//!
//! Storage has threads, so that a failing run may not fail the same way again: each is short, so that what led
//! to it can be read. `PROPTEST_CASES` asks for another number of runs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::Shape;
use common::storm::{Storm, Weather};

fn cases() -> u64 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(60)
}

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
    for seed in 0..cases() {
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
/// that it was, and is read back right.
#[test]
fn what_was_backed_up_is_stored_once_each_time() {
    for seed in 0..cases() {
        let shape = Shape { device: 16, host: 20, queue: 3, deadline: 3.0, ..Shape::default() };
        let mut storm = blown(seed, shape, Weather { late: seed % 3 > 0, tight: true, faulty: 0 });
        let stats = *storm.rig.cache.stats();
        let (_, all) = storm.store.puts();
        assert_eq!((stats.stored_pages, stats.backed_up_pages), (all as u64, all as u64));
        storm.readable();
        storm.rig.drained();
    }
}

/// With a store that fails now and then nothing leaks and nothing is believed stored that isn't.
#[test]
fn what_is_believed_stored_is_stored() {
    let mut failed = 0;
    for seed in 0..cases() {
        let shape = Shape { device: 16, host: 20, queue: 3, deadline: 3.0, ..Shape::default() };
        let weather = Weather { late: seed % 2 > 0, tight: true, faulty: 2 + (seed % 4) as usize };
        let mut storm = blown(seed, shape, weather);
        let stats = *storm.rig.cache.stats();
        let (_, all) = storm.store.puts();
        assert_eq!(stats.stored_pages, all as u64);
        assert_eq!(stats.stored_pages + stats.store_failed_pages, stats.backed_up_pages);
        failed += stats.store_failed_pages;
        storm.readable();
        storm.rig.drained();
    }
    assert!(failed > 0, "some failed twice");
}
