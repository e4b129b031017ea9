//! What fails in a batch is tried once more, page by page; nothing else is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::filed::{US, key};
use hicache_core::Result;
use hicache_core::hash::Digest;
use hicache_core::identity::Fingerprint;
use hicache_core::storage::memory::MemoryStore;
use hicache_core::storage::{Batch, Keys, Outcome, Page, PageMut, PageRef, Statistics, Store, Work, Workers};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Keys and parents of one call.
type Asked = Vec<(Digest, Option<Digest>)>;

/// A store that fails single pages as often as it is told to, and remembers what was put with which parent.
struct Picky {
    inner: MemoryStore,
    /// What to answer, and how often.
    fails: Mutex<HashMap<Digest, (Outcome, usize)>>,
    asked: Mutex<Vec<Asked>>,
}

impl Picky {
    fn fate(&self, key: &Digest) -> Option<Outcome> {
        let mut fails = self.fails.lock().unwrap();
        let (outcome, left) = fails.get_mut(key).filter(|(_, left)| *left > 0)?;
        *left -= 1;
        Some(*outcome)
    }
}

impl Store for Picky {
    fn exists(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.inner.exists(keys)
    }
    fn get(&self, keys: Keys<'_>, pages: &mut [PageMut<'_>]) -> Vec<Outcome> {
        self.inner.get(keys, pages)
    }
    fn put(&self, keys: Keys<'_>, parents: &[Option<Digest>], pages: &[PageRef<'_>]) -> Vec<Outcome> {
        let asked = keys.digests.iter().copied().zip(parents.iter().copied()).collect();
        self.asked.lock().unwrap().push(asked);
        let one = |((digest, parent), page): ((&Digest, &Option<Digest>), &PageRef<'_>)| {
            let keys = Keys { identity: keys.identity, digests: std::slice::from_ref(digest) };
            self.fate(digest)
                .unwrap_or_else(|| self.inner.put(keys, &[*parent], std::slice::from_ref(page))[0])
        };
        keys.digests.iter().zip(parents).zip(pages).map(one).collect()
    }
    fn remove(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.inner.remove(keys)
    }
    fn clear(&self, identity: &Fingerprint) -> Result<u64> {
        self.inner.clear(identity)
    }
    fn statistics(&self) -> Statistics {
        self.inner.statistics()
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
    fn close(&self) {}
}

fn payload(number: i32) -> Vec<u8> {
    key(number).0.repeat(3)
}

/// Puts pages 0 to 7, each behind the one before it; outcomes, and what the store was asked, call by call.
fn put(fails: &[(i32, Outcome, usize)]) -> (Vec<Outcome>, Vec<Vec<i32>>, usize) {
    let fails = fails.iter().map(|&(number, outcome, times)| (key(number), (outcome, times))).collect();
    let inner = MemoryStore::new(1 << 20);
    let store = Arc::new(Picky { inner, fails: Mutex::new(fails), asked: Mutex::default() });
    let mut workers = Workers::start(&(Arc::clone(&store) as Arc<dyn Store>), 1, 4).unwrap();
    let mut memory: Vec<Vec<u8>> = (0..8).map(payload).collect();
    let pages = memory.iter_mut().map(|page| Page(vec![(page.as_mut_ptr(), page.len())])).collect();
    let keys: Vec<Digest> = (0..8).map(key).collect();
    let parents: Vec<Option<Digest>> = (0..8).map(|number| (number > 0).then(|| key(number - 1))).collect();
    let batch =
        Batch::new(1, US, keys.clone(), Work::Put(pages, parents.clone()), Arc::default(), Arc::new(()));
    assert!(workers.submit(batch).is_none());
    let end = Instant::now() + Duration::from_secs(20);
    let outcomes = loop {
        if let Some(done) = workers.completed() {
            break done.outcomes;
        }
        assert!(Instant::now() < end, "the batch never ends");
        std::thread::yield_now();
    };
    workers.close(Duration::from_secs(20));
    let asked = store.asked.lock().unwrap();
    let number = |digest: &Digest| keys.iter().position(|key| key == digest).unwrap();
    assert!(asked.iter().flatten().all(|(digest, parent)| *parent == parents[number(digest)]));
    let numbers =
        |call: &Asked| call.iter().map(|(digest, _)| i32::try_from(number(digest)).unwrap()).collect();
    let asked = asked.iter().map(numbers).collect();
    // What is acknowledged is there, with its own bytes.
    for (number, outcome) in (0..8).zip(&outcomes) {
        let (mut page, digests) = (vec![0; 96], [key(number)]);
        let keys = Keys { identity: &US, digests: &digests };
        let found = store.inner.get(keys, &mut [PageMut::from(&mut page[..])])[0];
        assert_eq!(found == Outcome::Hit, *outcome == Outcome::Hit, "page {number}");
        assert!(found != Outcome::Hit || page == payload(number), "page {number}");
    }
    let pages = usize::try_from(store.statistics().pages).unwrap();
    (outcomes, asked, pages)
}

#[test]
fn two_of_eight_fail_once() {
    let (outcomes, asked, stored) = put(&[(3, Outcome::TimedOut, 1), (5, Outcome::Failed, 1)]);
    assert_eq!((outcomes, stored), (vec![Outcome::Hit; 8], 8));
    assert_eq!(asked, [(0..8).collect(), vec![3, 5]], "ten puts in all");
}

/// However many fail, each is tried again, and no more than once.
#[test]
fn most_of_them_fail_and_one_for_good() {
    let mut fails: Vec<_> = (1..8).map(|number| (number, Outcome::Failed, 1)).collect();
    fails[2].2 = usize::MAX;
    let (outcomes, asked, stored) = put(&fails);
    let expected: Vec<_> =
        (0..8).map(|number| if number == 3 { Outcome::Failed } else { Outcome::Hit }).collect();
    assert_eq!((outcomes, stored), (expected, 7));
    assert_eq!(asked, [(0..8).collect(), (1..8).collect::<Vec<_>>()]);
}

/// What isn't a fault, or won't be mended by another try, isn't tried again.
#[test]
fn a_refusal_is_not_tried_again() {
    let (outcomes, asked, stored) = put(&[(3, Outcome::Declined, 9), (5, Outcome::Cancelled, 9)]);
    assert_eq!((outcomes[3], outcomes[5], stored), (Outcome::Declined, Outcome::Cancelled, 6));
    assert_eq!(asked, [(0..8).collect::<Vec<_>>()]);
}
