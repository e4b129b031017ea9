//! What a store says of itself, for an engine that must not wait for it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::filed::{US, key};
use common::rig::{Rig, Shape};
use common::store::{Fault, FaultStore, Verb};
use hicache_core::storage::about::Board;
use hicache_core::storage::memory::MemoryStore;
use hicache_core::storage::{Keys, Outcome, PageRef, Statistics, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const TOKENS: [i32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

fn pages(rig: &Rig) -> u64 {
    rig.cache.about_store().unwrap().statistics.pages
}

#[test]
fn what_has_ended_is_counted_and_nobody_waits_for_what_has_not() {
    assert_eq!(Rig::new(Shape::default(), None).cache.about_store(), None);
    let store = Arc::new(FaultStore::default());
    let mut rig = Rig::new(Shape { threads: 1, ..Shape::default() }, Some(&store));
    let about = rig.cache.about_store().unwrap();
    assert_eq!(about.statistics, Statistics::default());
    assert_eq!(about.description, "a store that fails as it is told to");
    rig.serve(&TOKENS);
    rig.settle();
    assert_eq!(pages(&rig), 6);
    store.plan(|_, _| Fault::Hang);
    rig.serve(&[7, 7]);
    rig.until("the write", |_| store.calls(Verb::Put) == 2);
    assert_eq!(pages(&rig), 6, "a call is under way");
    store.release();
    rig.settle();
    assert_eq!(pages(&rig), 7);
    rig.cache.close(Duration::from_secs(5));
    assert_eq!(pages(&rig), 7, "its last word");
}

/// A store that can be made to panic when it is asked what it holds, or to wait there.
#[derive(Debug)]
struct Shy {
    inner: MemoryStore,
    panics: AtomicBool,
    asked: AtomicU64,
    slow: AtomicU64,
}

impl Shy {
    fn of(inner: MemoryStore) -> Self {
        Self {
            inner,
            panics: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            slow: AtomicU64::new(u64::MAX),
        }
    }

    fn put(&self, number: i32) {
        let keys = [key(number)];
        let keys = Keys { identity: &US, digests: &keys };
        assert_eq!(self.inner.put(keys, &[None], &[PageRef::from(&[1; 8][..])]), [Outcome::Hit]);
    }
}

impl Store for Shy {
    fn exists(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.inner.exists(keys)
    }
    fn get(&self, keys: Keys<'_>, pages: &mut [hicache_core::storage::PageMut<'_>]) -> Vec<Outcome> {
        self.inner.get(keys, pages)
    }
    fn put(
        &self,
        keys: Keys<'_>,
        parents: &[Option<hicache_core::hash::Digest>],
        pages: &[PageRef<'_>],
    ) -> Vec<Outcome> {
        self.inner.put(keys, parents, pages)
    }
    fn remove(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.inner.remove(keys)
    }
    fn clear(&self, identity: &hicache_core::identity::Fingerprint) -> hicache_core::Result<u64> {
        self.inner.clear(identity)
    }
    fn statistics(&self) -> Statistics {
        assert!(!self.panics.load(Ordering::SeqCst), "a store that panics, on purpose");
        let said = self.inner.statistics();
        self.asked.fetch_add(1, Ordering::SeqCst);
        while self.slow.load(Ordering::SeqCst) == said.pages {
            std::thread::yield_now();
        }
        said
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
    fn close(&self) {}
}

#[test]
fn a_store_that_panics_when_it_is_asked_has_said_what_it_said() {
    let store = Shy::of(MemoryStore::new(1 << 20));
    store.put(1);
    let board = Board::of(&store);
    store.put(2);
    store.panics.store(true, Ordering::SeqCst);
    board.ask(&store);
    assert_eq!(board.read().statistics.pages, 1);
    store.panics.store(false, Ordering::SeqCst);
    board.ask(&store);
    assert_eq!(board.read().statistics.pages, 2);
}

/// An answer that comes late doesn't take the place of one to a later question.
#[test]
fn what_was_asked_last_stays() {
    let store = Shy::of(MemoryStore::new(1 << 20));
    let board = Board::of(&store);
    store.put(1);
    store.slow.store(1, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let late = scope.spawn(|| board.ask(&store));
        while store.asked.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
        store.put(2);
        board.ask(&store);
        assert_eq!(board.read().statistics.pages, 2);
        store.slow.store(u64::MAX, Ordering::SeqCst);
        late.join().unwrap();
    });
    assert_eq!(board.read().statistics.pages, 2);
}
