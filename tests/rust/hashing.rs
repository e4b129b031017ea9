//! No page's digest is computed twice while somebody knows it: not by a match of what is cached, not by a
//! prefetch and then by what it brings or by an insert of what it didn't.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use common::store::FaultStore;
use hicache_core::ids::Tier;
use std::sync::Arc;

const TOKENS: [i32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

/// A fresh cache over a store with the pages of `tokens`.
fn over_store_of(tokens: &[i32]) -> Rig {
    let store = Arc::new(FaultStore::default());
    let mut writer = Rig::new(Shape::default(), Some(&store));
    writer.serve(tokens);
    writer.settle();
    Rig::new(Shape::default(), Some(&store))
}

fn hashed(rig: &Rig) -> u64 {
    rig.cache.stats().hashed_pages
}

#[test]
fn what_is_cached_is_hashed_once_whatever_happens_to_it() {
    let mut rig = over_store_of(&[]);
    rig.serve(&TOKENS[..8]);
    assert_eq!(hashed(&rig), 4);
    rig.serve(&TOKENS);
    rig.serve(&TOKENS);
    assert_eq!(hashed(&rig), 6);
    // A fork, and the device's copies gone and loaded again.
    rig.serve(&[1, 2, 3, 4, 9, 9]);
    assert_eq!(hashed(&rig), 7);
    rig.settle();
    rig.evict(Tier::Device, usize::MAX);
    assert_eq!(rig.serve(&TOKENS).copied, 6);
    assert_eq!(hashed(&rig), 7);
    rig.drained();
}

#[test]
fn a_continued_prefix_is_not_hashed_again() {
    let mut rig = over_store_of(&[]);
    let hit = rig.find(&TOKENS[..8]);
    rig.load(hit);
    rig.compute(hit, &TOKENS[..8]);
    let place = rig.cache.release(hit, 0).unwrap();
    let hit = rig.find_after(&TOKENS[8..], Some(place)).unwrap();
    rig.load(hit);
    rig.compute(hit, &TOKENS);
    assert_eq!(hashed(&rig), 6);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

#[test]
fn a_prefetch_hashes_for_itself_for_what_it_brings_and_for_what_is_computed() {
    for stored in [0, 3, 6] {
        let mut rig = over_store_of(&TOKENS[..2 * stored]);
        let hit = rig.fetch(&TOKENS);
        assert_eq!((rig.view(hit).stored as usize, hashed(&rig)), (stored, 6));
        // Asking again for what didn't come costs nothing either.
        rig.cache.prefetch(hit).unwrap();
        rig.settle();
        rig.load(hit);
        // In two parts, as a long prompt is computed.
        rig.compute(hit, &TOKENS[..2 * stored.max(4)]);
        rig.compute(hit, &TOKENS);
        assert_eq!(hashed(&rig), 6);
        rig.cache.release(hit, 0).unwrap();
        rig.drained();
    }
}

/// Digests that were computed for other tokens than those inserted don't count: `books` compares them all.
#[test]
fn what_is_inserted_instead_is_hashed_by_itself() {
    for differ in 0..12 {
        let mut rig = over_store_of(&[]);
        let hit = rig.fetch(&TOKENS);
        rig.load(hit);
        let mut others = TOKENS;
        others[differ] = 99;
        rig.compute(hit, &others);
        assert_eq!(hashed(&rig), 6 + 6 - differ as u64 / 2);
        rig.cache.release(hit, 0).unwrap();
        rig.drained();
    }
}

/// The pages behind a difference may be those that were asked for; their digests are not.
#[test]
fn equal_pages_behind_other_ones_are_other_pages() {
    let mut rig = over_store_of(&[]);
    let hit = rig.fetch(&TOKENS);
    rig.load(hit);
    let mut others = TOKENS;
    others[0] = 99;
    rig.compute(hit, &others[..4]);
    rig.compute(hit, &others);
    assert_eq!(hashed(&rig), 12);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}
