//! What stores tell of themselves, and pages in unusual order, over every kind of store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::kinds::{BYTES, ID, THEM, each, get, key, put, put_after};
use hicache_core::storage::{Keys, Outcome, PageMut, Statistics};

#[test]
fn a_store_tells_what_it_holds_and_did() {
    each(None, |kind, _, store| {
        put(&*store, &ID, &[1, 2]);
        put(&*store, &THEM, &[3]);
        get(&*store, &ID, &[1, 7]);
        let mut held: Vec<_> =
            store.list().unwrap().into_iter().map(|held| (held.identity, held.digest, held.bytes)).collect();
        held.sort();
        let mut expected =
            [(ID, key(1)), (ID, key(2)), (THEM, key(3))].map(|(id, key)| (id, key, BYTES as u64));
        expected.sort();
        assert_eq!(held, expected, "{}", kind.name);
        let Statistics { pages, read_pages, read_bytes, written_pages, written_bytes, absent_pages, .. } =
            store.statistics();
        let bytes = BYTES as u64;
        assert_eq!((pages, read_pages, read_bytes), (3, 1, bytes), "{}", kind.name);
        assert_eq!((written_pages, written_bytes, absent_pages), (3, 3 * bytes, 1), "{}", kind.name);
        assert!(store.compact().is_ok() && !store.describe().contains('\n'), "{}", kind.name);
        assert_eq!(get(&*store, &ID, &[1, 2]), [Outcome::Hit; 2]);
    });
}

/// A page may come before its parent, and a parent may never come.
#[test]
fn pages_come_in_any_order() {
    each(Some(8), |kind, _, store| {
        assert_eq!(put_after(&*store, &ID, &[1], &[Some(key(0))]), [Outcome::Hit], "{}", kind.name);
        assert_eq!(put_after(&*store, &ID, &[0], &[None]), [Outcome::Hit]);
        assert_eq!(put_after(&*store, &ID, &[5], &[Some(key(5))]), [Outcome::Hit], "its own parent");
        assert_eq!(put_after(&*store, &ID, &[6], &[Some(key(7))]), [Outcome::Hit], "a ring");
        assert_eq!(put_after(&*store, &ID, &[7], &[Some(key(6))]), [Outcome::Hit]);
        for number in 10..40 {
            assert_eq!(put(&*store, &ID, &[number]), [Outcome::Hit], "{}: {number}", kind.name);
        }
        let mut memory = vec![0; BYTES];
        let keys = [key(39)];
        let outcome =
            store.get(Keys { identity: &ID, digests: &keys }, &mut [PageMut::from(&mut memory[..])]);
        assert_eq!(outcome, [Outcome::Hit]);
    });
}
