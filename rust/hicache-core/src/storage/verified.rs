//! A store around another one that isn't trusted with bytes: it can lose pages, never serve wrong ones.
//!
//! Every page goes in with a [`seal`] before its payload, and comes out only behind the very same seal. What fails is
//! `Corrupt`, counted, and removed, so that a later put mends it. What the other one says of its own (absent, short, failed)
//! is passed on. On error: outcomes, as of any store.

use super::{Held, Keys, Outcome, PageMut, PageRef, Statistics, Store, seal};
use crate::error::Result;
use crate::hash::Digest;
use crate::identity::Fingerprint;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A store whose pages are sealed.
pub struct Verified {
    inner: Arc<dyn Store>,
    /// Pages that came back other than they went in, and their bytes with seals.
    rejected: [AtomicU64; 2],
}

impl Verified {
    /// Around a store; all that is in it must have been put through one of these.
    pub const fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, rejected: [AtomicU64::new(0), AtomicU64::new(0)] }
    }

    /// The outcome of a page that came with a seal.
    fn judge(
        &self,
        keys: Keys<'_>,
        at: usize,
        outcome: Outcome,
        found: &[u8],
        page: &PageMut<'_>,
    ) -> Outcome {
        if outcome != Outcome::Hit {
            return outcome;
        }
        if found == seal::of(keys.identity, &keys.digests[at], &page.view()) {
            return Outcome::Hit;
        }
        self.rejected[0].fetch_add(1, Ordering::Relaxed);
        self.rejected[1].fetch_add((page.bytes() + seal::BYTES) as u64, Ordering::Relaxed);
        Outcome::Corrupt
    }
}

/// Puts the bytes of a seal before a page's.
fn sealed<'a>(seal: &'a mut [u8; seal::BYTES], page: &'a mut PageMut<'_>) -> PageMut<'a> {
    let payload = page.runs().iter_mut().map(|run| &mut **run);
    PageMut::new(std::iter::once(&mut seal[..]).chain(payload).collect())
}

impl Store for Verified {
    fn exists(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.inner.exists(keys)
    }

    fn get(&self, keys: Keys<'_>, pages: &mut [PageMut<'_>]) -> Vec<Outcome> {
        let mut seals = vec![[0; seal::BYTES]; pages.len()];
        let mut views: Vec<_> =
            seals.iter_mut().zip(pages.iter_mut()).map(|(s, page)| sealed(s, page)).collect();
        let answers = self.inner.get(keys, &mut views);
        drop(views);
        if answers.len() != keys.len() {
            return vec![Outcome::Failed; keys.len()];
        }
        let judged = answers.iter().zip(&seals).zip(pages.iter()).enumerate();
        let outcomes: Vec<Outcome> = judged
            .map(|(at, ((&outcome, found), page))| self.judge(keys, at, outcome, found, page))
            .collect();
        let bad = |outcome: &Outcome| matches!(outcome, Outcome::Corrupt | Outcome::Short);
        let digests: Vec<Digest> = outcomes
            .iter()
            .zip(keys.digests)
            .filter(|(outcome, _)| bad(outcome))
            .map(|(_, key)| *key)
            .collect();
        if !digests.is_empty() {
            // What can't be removed now is found to be corrupt again.
            let _ = self.inner.remove(Keys { identity: keys.identity, digests: &digests });
        }
        outcomes
    }

    fn put(&self, keys: Keys<'_>, parents: &[Option<Digest>], pages: &[PageRef<'_>]) -> Vec<Outcome> {
        let seals: Vec<_> =
            keys.digests.iter().zip(pages).map(|(key, page)| seal::of(keys.identity, key, page)).collect();
        let sealed = seals.iter().zip(pages).map(|(seal, page)| {
            PageRef::new(std::iter::once(&seal[..]).chain(page.runs().iter().copied()).collect())
        });
        self.inner.put(keys, parents, &sealed.collect::<Vec<_>>())
    }

    fn remove(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.inner.remove(keys)
    }

    fn clear(&self, identity: &Fingerprint) -> Result<u64> {
        self.inner.clear(identity)
    }

    /// The other one's, of which what was rejected is no page read; bytes are with their seals.
    fn statistics(&self) -> Statistics {
        let [pages, bytes] = self.rejected.each_ref().map(|count| count.load(Ordering::Relaxed));
        let inner = self.inner.statistics();
        Statistics {
            read_pages: inner.read_pages.saturating_sub(pages),
            read_bytes: inner.read_bytes.saturating_sub(bytes),
            corrupt_pages: inner.corrupt_pages + pages,
            ..inner
        }
    }

    fn register(&self, memory: &[(*mut u8, usize)]) {
        self.inner.register(memory);
    }

    fn describe(&self) -> String {
        format!("{}, every page verified", self.inner.describe())
    }

    /// With the sizes of their payloads.
    fn list(&self) -> Result<Vec<Held>> {
        let payload = |held: Held| Held { bytes: held.bytes.saturating_sub(seal::BYTES as u64), ..held };
        Ok(self.inner.list()?.into_iter().map(payload).collect())
    }

    fn compact(&self) -> Result<u64> {
        self.inner.compact()
    }

    fn close(&self) {
        self.inner.close();
    }
}
