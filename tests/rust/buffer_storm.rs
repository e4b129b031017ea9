//! Buffer-only mode, both ways at once: requests in every state, copies and stores that end in any order or never, over a pool
//! of a few pages. Every page that is served, and every one that is stored, has its stamp; the books are right after each
//! step; at the end no slot is anybody's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::fate;
use common::rig::Shape;
use common::seeds;
use common::staging::{shape, straight};
use common::storm::{Storm, Weather};
use common::writing::WRITES;
use hicache_core::ids::Tier;

/// Pools of two to forty pages, under each policy of storage.
fn of(seed: u64) -> Shape {
    let pick = |from: &[u32], by: u64| from[usize::try_from(seed / by).unwrap() % from.len()];
    let storage = WRITES[usize::try_from(seed % 3).unwrap()];
    let reserve = [0.0, 0.3, 1.0][usize::try_from(seed / 3 % 3).unwrap()];
    shape(straight(storage, reserve), pick(&[16, 24], 2), pick(&[2, 4, 7, 12, 40], 1))
}

/// Requests alone, in any weather; then another cache reads what is stored through as small a pool.
#[test]
fn whatever_happens_bytes_and_books_are_right() {
    let (mut served, mut stored, mut late, mut believed) = (0, 0, 0, 0);
    for seed in seeds(60) {
        let page = [1, 2][usize::try_from(seed % 2).unwrap()];
        let shape = Shape { page, threads: 3, queue: 3, deadline: 3.0, ..of(seed) };
        let faulty = [0, 3, 6][usize::try_from(seed % 3).unwrap()];
        let weather = Weather { late: seed % 2 > 0, tight: false, faulty, patient: seed % 2 == 0 };
        let mut storm = Storm::new(shape, seed, weather);
        for _ in 0..300 {
            storm.step();
            assert_eq!(storm.rig.cache.tree().resident(Tier::Host), 0);
        }
        storm.end();
        storm.made.iter().for_each(|tokens| _ = storm.stored(tokens));
        storm.rig.all_written();
        believed +=
            storm.made.iter().map(|tokens| storm.rig.stored_truly(&storm.store, tokens)).sum::<usize>();
        storm.readable();
        storm.rig.drained();
        assert_eq!(storm.rig.cache.staged(), [0; 2]);
        let stats = *storm.rig.cache.stats();
        served += stats.hit_storage_tokens;
        stored += stats.stored_pages;
        late += stats.deadlines_passed;
    }
    let seen = format!("{served} {stored} {late} {believed}");
    assert!(served > 50 && stored > 400 && late > 0 && believed > 100, "{seen}");
}

/// Stores go and come, memory and storage are cleared, device memory goes, prefixes are warmed.
#[test]
fn whatever_ends_whenever_nothing_leaks() {
    fate::all_ends(seeds(60), of);
}

#[test]
fn closed_at_any_moment() {
    seeds(30).for_each(|seed| fate::closes(seed, of(seed)));
}
