//! Windows and states while shapes change: splits, evictions, aborts and the same pages inserted again, with copies
//! under way that land page by page. Every page, window and state that is served carries the stamp of exactly its
//! prefix; nothing is lost and every reference comes back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::models::{Shape, shapes};
use common::seeds;
use common::squall::Squall;
use common::store::FaultStore;
use std::sync::Arc;

#[test]
fn what_is_served_is_exactly_its_prefix() {
    for shape in shapes() {
        let (mut brought, mut loaded, mut backed_up, mut no_room) = ([0; 2], 0, 0, 0);
        for seed in seeds(60) {
            let (page, cap) = ([1, 2][(seed % 2) as usize], [0, 0, 1, 2][(seed / 2 % 4) as usize]);
            let writing = common::writing::either(seed / 4);
            let mut squall = Squall::new(&Shape { page, cap, writing, ..shape.clone() }, seed);
            for _ in 0..400 {
                squall.step();
            }
            squall.end();
            squall.rig.drained();
            brought = [brought[0] + squall.brought[0], brought[1] + squall.brought[1]];
            for part in 0..shape.parts.len() {
                let stats = squall.rig.cache.part_stats(part).unwrap();
                loaded += stats.loaded;
                backed_up += stats.backed_up;
                no_room += stats.backup_no_room + stats.load_no_room;
            }
        }
        // A state that is never on the host leaves little to load.
        let some = if shape.parts.iter().all(|part| part.2 > 0) { 100 } else { 0 };
        let seen = format!("{brought:?} {loaded} {backed_up} {no_room}: {shape:?}");
        assert!(brought[0] > 100 && loaded > some && backed_up > 100 && no_room > 10, "it happens: {seen}");
    }
}

/// The same over a store whose calls end in any order, late or never, and fail now and then; afterwards another cache
/// finds in it what its definition says, and every byte is right.
#[test]
fn what_was_stored_is_exactly_its_prefix() {
    for shape in shapes() {
        let (mut fetched, mut full, mut usable) = (0, 0, 0);
        for seed in seeds(24) {
            let (page, roomy) = ([1, 2][(seed % 2) as usize], seed % 4 == 0);
            let parts = shape.parts.iter().map(|&(n, d, h)| (n, d, if roomy { 10 * h } else { h })).collect();
            let host = if roomy { 260 } else { 26 };
            let writing = common::writing::either(seed / 2);
            let shape = Shape { page, host, parts, deadline: 3.0, writing, ..shape.clone() };
            let store = Arc::new(FaultStore::default());
            // What is in the store from an earlier time.
            let mut squall = Squall::over(&shape, &store, seed, 0);
            (0..200).for_each(|_| squall.step());
            squall.end();
            squall.rig.drained();
            let made = std::mem::take(&mut squall.made);
            let mut squall =
                Squall::over(&shape, &store, seed + 1_000_000, [0, 0, 3, 5][(seed % 4) as usize]);
            squall.made = made;
            squall.late = seed % 3 > 0;
            (0..300).for_each(|_| squall.step());
            squall.end();
            squall.rig.drained();
            usable += squall.readable(&shape);
            full += squall.rig.cache.stats().prefetched_pages;
            let parts =
                (0..shape.parts.len()).map(|part| squall.rig.cache.part_stats(part).unwrap().prefetched);
            fetched += parts.sum::<u64>();
        }
        let never = shape.parts.iter().any(|part| part.2 == 0);
        let seen = format!("{full} {fetched} {usable}: {shape:?}");
        println!("{seen}");
        assert!(never || (full > 20 && fetched > 50 && usable > 50), "it happens: {seen}");
    }
}
