//! Windows and states under every combination of write policies: shapes change while copies land page by page, host copies
//! give way, and states leave the device before and after they were copied. Every page, window and state that is served
//! carries the stamp of exactly its prefix; nothing is lost and every reference comes back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::models::{Shape, shapes, unified_shapes};
use common::seeds;
use common::squall::Squall;
use common::store::FaultStore;
use common::writing::{COPIES, WRITES};
use hicache_core::policy::{Write, Writing};
use std::sync::Arc;

fn writings(storage: Write) -> impl Iterator<Item = Writing> {
    let all = WRITES.into_iter().flat_map(|host| COPIES.map(|host_copies| (host, host_copies)));
    all.flat_map(move |(host, host_copies)| {
        [0.2, 1.0].map(|clean_reserve| Writing { host, storage, host_copies, clean_reserve })
    })
}

#[test]
fn what_is_served_is_exactly_its_prefix() {
    for shape in shapes() {
        for writing in writings(Write::Through) {
            let (mut loaded, mut backed_up) = (0, 0);
            for seed in seeds(6) {
                let (page, cap) = ([1, 2][(seed % 2) as usize], [0, 1, 2][(seed % 3) as usize]);
                let mut squall = Squall::new(&Shape { page, cap, writing, ..shape.clone() }, seed);
                (0..300).for_each(|_| squall.step());
                squall.end();
                squall.rig.drained();
                for part in 0..shape.parts.len() {
                    let stats = squall.rig.cache.part_stats(part).unwrap();
                    loaded += stats.loaded;
                    backed_up += stats.backed_up;
                }
            }
            let some = shape.parts.iter().all(|part| part.2 > 0);
            assert!(
                !some || (loaded > 0 && backed_up > 0),
                "it happens: {loaded} {backed_up} {shape:?} {writing:?}"
            );
        }
    }
}

/// One buffer for both kinds of state: pages move while they wait for their copies.
#[test]
fn one_buffer_serves_exactly_its_prefix() {
    for shape in unified_shapes() {
        for writing in writings(Write::Through) {
            for seed in seeds(3) {
                let mut squall = Squall::new(&Shape { writing, ..shape.clone() }, seed);
                (0..300).for_each(|_| squall.step());
                squall.end();
                squall.rig.drained();
            }
        }
    }
}

/// Copies that are done as soon as they are submitted: what they copy must have moved to where it is said to be.
#[test]
fn what_moves_has_moved_when_it_is_copied() {
    for shape in unified_shapes() {
        for host in [Write::Selective, Write::Back] {
            for seed in seeds(30) {
                let writing = Writing { host, clean_reserve: 0.2, ..Writing::default() };
                let mut squall = Squall::new(&Shape { writing, ..shape.clone() }, seed);
                squall.rig.drip.hurry();
                (0..300).for_each(|_| squall.step());
                squall.end();
                squall.rig.drained();
            }
        }
    }
}

/// Over a store that fails now and then and answers late: another cache finds nothing but what is right.
#[test]
fn what_was_stored_is_exactly_its_prefix() {
    for shape in shapes() {
        for writing in WRITES.into_iter().flat_map(writings) {
            for seed in seeds(1) {
                let shape = Shape { page: 1, deadline: 3.0, writing, ..shape.clone() };
                let store = Arc::new(FaultStore::default());
                let mut squall = Squall::over(&shape, &store, seed, [0, 3, 5][(seed % 3) as usize]);
                squall.late = seed % 2 > 0;
                (0..300).for_each(|_| squall.step());
                squall.end();
                squall.rig.drained();
                squall.readable(&shape);
            }
        }
    }
}
