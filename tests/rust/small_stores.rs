//! The stores that only take time or keep nothing, and memory's own rules.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]
#![allow(unsafe_code, reason = "a cache over plain memory takes addresses")]

mod common;

use common::filed::{client, exists, get, key, page, put, put_after};
use common::over::over_store;
use common::rig::{self, Shape};
use hicache_core::storage::ledger::{Entry, Ledger};
use hicache_core::storage::sim::{SimOptions, SimStore};
use hicache_core::storage::{Keys, Outcome, PageMut, open};
use proptest::prelude::*;
use std::time::{Duration, Instant};

#[test]
fn nothing_is_kept_by_null_and_shm() {
    for url in ["null://", "shm://"] {
        let store = open(url, &client()).unwrap();
        assert_eq!(
            (put(&*store, 1), exists(&*store, 1), get(&*store, 1)),
            (Outcome::Hit, Outcome::Absent, Outcome::Absent)
        );
        let seen = store.statistics();
        assert_eq!((seen.written_pages, seen.written_bytes, seen.evicted_pages, seen.pages), (1, 200, 1, 0));
        assert_eq!(store.needs_shared_memory(), url == "shm://");
        store.close();
        assert_eq!(put(&*store, 1), Outcome::Failed);
    }
}

#[test]
fn shm_needs_memory_that_others_can_map() {
    let mut config = rig::config(Shape::default());
    // SAFETY: there is no device memory.
    let error = unsafe { over_store(config.clone(), None, "shm://") }.err().unwrap().to_string();
    assert!(error.starts_with("host shared: "), "{error}");
    config.memory.shared = true;
    // SAFETY: as above.
    unsafe { over_store(config, None, "shm://") }.unwrap();
}

#[test]
fn a_simulation_takes_the_time_that_it_says() {
    let options =
        SimOptions { latency: Duration::from_millis(5), read_gbps: 0.0, write_gbps: 2e-5, size: Some(600) };
    let store = SimStore::new(options);
    let began = Instant::now();
    assert_eq!(put(&store, 1), Outcome::Hit);
    // 200 bytes at 20,000 bytes a second, and the latency: at least.
    assert!(began.elapsed() >= Duration::from_millis(15), "{:?}", began.elapsed());
    let mut bytes = [7; 200];
    let keys = [key(1)];
    let keys = Keys { identity: &common::filed::US, digests: &keys };
    let read = hicache_core::storage::Store::get(&store, keys, &mut [PageMut::from(&mut bytes[..])]);
    assert_eq!((read, bytes), (vec![Outcome::Hit], [0; 200]));
    let began = Instant::now();
    assert_eq!([2, 3, 4].map(|number| put(&store, number)), [Outcome::Hit; 3]);
    assert!(began.elapsed() >= Duration::from_millis(45));
    assert_eq!([1, 2, 3, 4].map(|number| exists(&store, number) == Outcome::Hit), [false, true, true, true]);
    use hicache_core::storage::Store as _;
    let seen = store.statistics();
    assert_eq!((seen.pages, seen.evicted_pages, seen.unverified_pages), (3, 1, 1));
    assert!(open("sim://?latency_us=1&read_gbps=3&write_gbps=2&size=1GiB", &client()).is_ok());
}

#[test]
fn memory_is_bounded_and_needs_a_size() {
    for url in ["memory://", "memory:///path?size=1GiB", "memory://?size=0"] {
        assert!(open(url, &client()).is_err(), "{url}");
    }
    let store = open("memory://?size=600", &client()).unwrap();
    assert_eq!(
        [0, 1, 2].map(|number| put_after(&*store, number, (number > 0).then(|| number - 1))),
        [Outcome::Hit; 3]
    );
    assert_eq!(
        (put(&*store, 9), exists(&*store, 2), exists(&*store, 1)),
        (Outcome::Hit, Outcome::Absent, Outcome::Hit)
    );
    assert_eq!(page(9).len() as u64 * 3, store.statistics().bytes);
}

proptest! {
    /// The ledger's books against those that are computed anew, and never a page before its children.
    #[test]
    fn ledgers_keep_their_books(steps in prop::collection::vec((0..5u8, 0..12u8, prop::option::of(0..12u8), 1..9u64), 1..200)) {
        let mut ledger: Ledger<u8> = Ledger::default();
        for (at, (what, name, parent, bytes)) in steps.into_iter().enumerate() {
            match what {
                0..2 => ledger.insert(name, Entry { bytes, used: at as u64, parent }),
                2 => drop(ledger.touch(&name, at as u64).then_some(())),
                3 => drop(ledger.remove(&name)),
                _ => {
                    let oldest = ledger.next(|other| *other == name);
                    prop_assert!(oldest != Some(name));
                    if let Some(next) = oldest {
                        let children = |page: &Entry<u8>| page.parent == Some(next);
                        let has = ledger.range(0..=u8::MAX).any(|(_, page)| children(page));
                        let leafless = ledger.range(0..=u8::MAX).all(|(leaf, _)| {
                            ledger.range(0..=u8::MAX).any(|(_, page)| page.parent == Some(*leaf))
                        });
                        prop_assert!(!has || leafless, "{next} has children");
                        ledger.remove(&next);
                    }
                }
            }
            prop_assert!(ledger.holds());
        }
    }
}
