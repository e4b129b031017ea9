//! Windows and states while an engine's own policy says of each request what is written, how much is loaded and who
//! waits, and prefixes are warmed beside them: over copies that land page by page and stores that fail. Every page, window
//! and state that is served carries the stamp of exactly its prefix; nothing is lost and every reference comes back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::models::{Shape, shapes};
use common::squall::Squall;
use common::store::FaultStore;
use common::writing::either;
use common::{Seeded, seeds};
use std::sync::Arc;

fn run(squall: &mut Squall, steps: usize, random: &mut Seeded) {
    squall.rig.cache.ask_outside("wild".to_owned(), true);
    for _ in 0..steps {
        squall.step();
        match random.below(4) {
            0 | 1 => _ = squall.decide(random),
            2 => squall.warm(random),
            _ => {}
        }
    }
    squall.cool();
    squall.end();
    squall.rig.drained();
}

#[test]
fn what_is_served_is_exactly_its_prefix() {
    let mut warmed = 0;
    for shape in shapes() {
        let (mut declined, mut backed_up) = (0, 0);
        for seed in seeds(12) {
            let (page, cap) = ([1, 2][(seed % 2) as usize], [0, 0, 1, 2][(seed / 2 % 4) as usize]);
            let shape = Shape { page, cap, writing: either(seed / 4), ..shape.clone() };
            let mut squall = Squall::new(&shape, seed);
            run(&mut squall, 400, &mut Seeded(seed + 77));
            let stats = squall.rig.cache.stats();
            declined += stats.load_declined_pages;
            warmed += stats.warmed_device_pages;
            backed_up += stats.backed_up_pages;
        }
        let seen = format!("{declined} {backed_up}: {shape:?}");
        let some = shape.parts.iter().all(|part| part.2 > 0);
        assert!(!some || (declined > 3 && backed_up > 100), "it happens: {seen}");
    }
    assert!(warmed > 20, "it happens: {warmed}");
}

/// Over a store whose calls fail now and then and end late: another cache finds nothing but what is right.
#[test]
fn what_was_stored_is_exactly_its_prefix() {
    for shape in shapes() {
        let (mut stored, mut fetched) = (0, 0);
        for seed in seeds(8) {
            let page = [1, 2][(seed % 2) as usize];
            let shape = Shape { page, deadline: 3.0, writing: either(seed / 2), ..shape.clone() };
            let store = Arc::new(FaultStore::default());
            let mut made = Vec::new();
            for (turn, faulty) in [0, [0, 3, 5][(seed % 3) as usize]].into_iter().enumerate() {
                let seed = seed + 1_000_000 * turn as u64;
                let mut squall = Squall::over(&shape, &store, seed, faulty);
                squall.made = std::mem::take(&mut made);
                squall.late = !seed.is_multiple_of(3);
                run(&mut squall, 250, &mut Seeded(seed + 77));
                squall.readable(&shape);
                made = std::mem::take(&mut squall.made);
                let stats = squall.rig.cache.stats();
                stored += stats.stored_pages;
                fetched += stats.prefetched_pages;
            }
        }
        let some = shape.parts.iter().all(|part| part.2 > 0);
        assert!(!some || (stored > 100 && fetched > 20), "it happens: {stored} {fetched} {shape:?}");
    }
}
