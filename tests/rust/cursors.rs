//! Cursors and namespaces: a place is used by whoever may, as long as it is there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use common::store::FaultStore;
use hicache_core::hash::Namespace;
use hicache_core::ids::Tier;
use std::sync::Arc;

const TOKENS: [i32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

/// The next turn passes only what follows, and finds the same place as with all tokens.
#[test]
fn a_cursor_continues_where_the_hit_ended() {
    let mut rig = Rig::new(Shape::default(), None);
    rig.serve(&TOKENS[..8]);
    let hit = rig.find(&TOKENS[..8]);
    let cursor = rig.cache.release(hit, 0).unwrap();
    assert_eq!(cursor.depth, 4);
    rig.serve(&TOKENS);
    // A split of the edge that the place is on changes nothing.
    rig.serve(&[1, 2, 3, 4, 90, 91]);
    let hit = rig.find_after(&TOKENS[8..], Some(cursor)).unwrap();
    assert_eq!(rig.view(hit).device, 6);
    rig.load(hit);
    rig.verify(hit, &TOKENS);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// Same tokens, other namespace: nothing is shared, also not by continuing at another's place.
#[test]
fn namespaces_do_not_share_by_cursors() {
    let store = Arc::new(FaultStore::default());
    let mut rig = Rig::new(Shape::default(), Some(&store));
    rig.serve(&TOKENS[..8]);
    let hit = rig.find(&TOKENS[..8]);
    let cursor = rig.cache.release(hit, 0).unwrap();
    rig.settle();
    rig.namespace = Namespace { salt: Some("other".into()), ..Namespace::default() };
    let error = rig.find_after(&TOKENS[8..], Some(cursor)).unwrap_err().to_string();
    assert!(error.contains("namespace"), "{error}");
    let hit = rig.fetch(&TOKENS);
    assert_eq!(rig.view(hit).usable, 0, "nor by storage");
    rig.load(hit);
    assert!(rig.compute(hit, &TOKENS));
    rig.verify(hit, &TOKENS);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// A cursor whose place was evicted is refused, also after other pages took its node's number.
#[test]
fn a_cursor_of_an_evicted_place_is_stale() {
    let mut rig = Rig::new(Shape::default(), None);
    rig.serve(&TOKENS[..8]);
    rig.settle();
    let hit = rig.find(&TOKENS[..8]);
    let cursor = rig.cache.release(hit, 0).unwrap();
    Tier::ALL.into_iter().for_each(|tier| drop(rig.evict(tier, 1)));
    assert_eq!(rig.find_after(&TOKENS[8..], Some(cursor)).unwrap_err(), hicache_core::Error::Stale);
    Tier::ALL.into_iter().for_each(|tier| drop(rig.evict(tier, 9)));
    rig.serve(&[30, 31, 32, 33, 34, 35, 36, 37]);
    assert_eq!(rig.find_after(&TOKENS[8..], Some(cursor)).unwrap_err(), hicache_core::Error::Stale);
    rig.drained();
}

/// Another cache's cursor names nothing here, whatever lives under the same number.
#[test]
fn a_cursor_of_another_cache_is_refused() {
    let (mut rig, mut other) = (Rig::new(Shape::default(), None), Rig::new(Shape::default(), None));
    rig.serve(&TOKENS[..8]);
    other.serve(&[40, 41, 42, 43, 44, 45, 46, 47]);
    let hit = rig.find(&TOKENS[..8]);
    let cursor = rig.cache.release(hit, 0).unwrap();
    assert!(other.find_after(&TOKENS[8..], Some(cursor)).is_err());
}
