//! Sizes beyond 4 GiB: none is cut to 32 bits, and nothing so large is ever held in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::filed::{HEADER, US, client, exists, file, get, key, page, put};
use common::plain::Plain;
use hicache_core::storage::file::FileStore;
use hicache_core::storage::file::options::{Limits, Steps};
use hicache_core::storage::memory::MemoryStore;
use hicache_core::storage::sim::{SimOptions, SimStore};
use hicache_core::storage::{Keys, Outcome, PageRef, Store};
use std::fs;
use std::path::Path;
use std::time::Duration;

const FOUR_GIB: u64 = 1 << 32;
const PAGE: u64 = HEADER as u64 + 200;

fn opened(dir: &Path, size: Option<u64>) -> FileStore {
    let limits = Limits { size, ..Limits::default() };
    FileStore::open_with(dir, limits, &client(), Steps::default()).unwrap()
}

/// The file of page 1, longer by this: a sparse one. Its first bytes are a page.
fn grown(dir: &Path, by: u64) {
    let path = file(dir, 1);
    let long = fs::File::options().write(true).open(&path).unwrap();
    long.set_len(PAGE + by).unwrap();
}

#[test]
fn a_file_that_has_its_pages_length_but_for_four_gib_is_no_page() {
    for by in [FOUR_GIB, FOUR_GIB + (1 << 30), 1 << 33] {
        let dir = tempfile::tempdir().unwrap();
        let store = opened(dir.path(), None);
        assert_eq!((put(&store, 1), put(&store, 2)), (Outcome::Hit, Outcome::Hit));
        grown(dir.path(), by);
        drop(store);
        // What a sweep finds is counted whole.
        let store = opened(dir.path(), None);
        assert_eq!((store.statistics().pages, store.statistics().bytes), (2, 2 * PAGE + by));
        assert_eq!((get(&store, 1), get(&store, 2)), (Outcome::Corrupt, Outcome::Hit), "{by}");
        assert_eq!((exists(&store, 1), store.statistics().bytes), (Outcome::Absent, PAGE));
        assert_eq!((put(&store, 1), get(&store, 1)), (Outcome::Hit, Outcome::Hit));
        // A put sees that it isn't there yet, too.
        grown(dir.path(), by);
        assert_eq!((put(&store, 1), get(&store, 1)), (Outcome::Hit, Outcome::Hit));
    }
}

#[test]
fn limits_count_beyond_four_gib() {
    let dir = tempfile::tempdir().unwrap();
    let store = opened(dir.path(), None);
    (1..4).for_each(|number| assert_eq!(put(&store, number), Outcome::Hit));
    grown(dir.path(), FOUR_GIB);
    drop(store);
    // Of 32 bits it would be what there is room for.
    let store = opened(dir.path(), Some(4 * PAGE));
    assert_eq!(put(&store, 4), Outcome::Hit);
    assert!(!file(dir.path(), 1).exists(), "the one that is larger than all there may be");
    let roomy = opened(dir.path(), Some(FOUR_GIB + 4 * PAGE));
    assert_eq!(roomy.statistics().capacity, Some(FOUR_GIB + 4 * PAGE));
    assert_eq!(put(&roomy, 5), Outcome::Hit);
    assert_eq!(roomy.statistics().evicted_pages, 0);
}

/// A page of 5 GiB: the same mebibyte again and again.
fn put_huge(store: &dyn Store) -> Outcome {
    let (mebibyte, digests) = (vec![7; 1 << 20], [key(9)]);
    let huge = PageRef::new(vec![&mebibyte[..]; 5 << 10]);
    assert_eq!(huge.bytes() as u64, 5 << 30);
    store.put(Keys { identity: &US, digests: &digests }, &[None], &[huge])[0]
}

#[test]
fn a_page_of_five_gib_finds_no_room() {
    let dir = tempfile::tempdir().unwrap();
    let files = opened(dir.path(), Some((1 << 30) + PAGE));
    let sim = SimOptions { latency: Duration::ZERO, read_gbps: 0.0, write_gbps: 0.0, size: Some(2 << 30) };
    let (memory, sim) = (MemoryStore::new(2 << 30), SimStore::new(sim));
    for store in [&files as &dyn Store, &memory, &sim] {
        assert_eq!(put(store, 1), Outcome::Hit);
        assert_eq!(put_huge(store), Outcome::Declined, "{}", store.describe());
        assert_eq!(exists(store, 1), Outcome::Hit, "{}: it cost another page its place", store.describe());
        assert!(store.statistics().bytes <= PAGE);
    }
    assert_eq!(fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0);
    // Counts of bytes go on, too.
    let sim =
        SimStore::new(SimOptions { size: None, latency: Duration::ZERO, read_gbps: 0.0, write_gbps: 0.0 });
    assert_eq!(put_huge(&sim), Outcome::Hit);
    assert_eq!((sim.statistics().written_bytes, sim.statistics().bytes), (5 << 30, 5 << 30));
    assert_eq!(Plain(&files, US).put(&[key(1)], &[&page(1)]), [Outcome::Hit]);
}
