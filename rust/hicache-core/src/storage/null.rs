//! Stores that keep nothing: `null://`, to see what storage costs without one, and `shm://`, where another process has
//! the host's memory mapped and does the keeping.
//!
//! Each page is taken and given up at once, which is counted as an eviction; nothing is ever there.
//! On error: nothing here fails before `close`.

use super::counters::Counters;
use super::{Client, Held, Keys, Outcome, PageMut, PageRef, Statistics, Store, Url};
use crate::error::Result;
use crate::hash::Digest;
use crate::identity::Fingerprint;
use std::sync::atomic::{AtomicBool, Ordering};

/// A store that keeps nothing.
#[derive(Debug, Default)]
pub struct NullStore {
    shared: bool,
    counters: Counters,
    closed: AtomicBool,
}

impl NullStore {
    /// Of `null://`.
    ///
    /// # Errors
    /// For options or a path.
    pub fn from_url(url: &Url, _client: &Client) -> Result<Self> {
        url.no_directory()?;
        url.finish(&[])?;
        Ok(Self::default())
    }

    /// Of `shm://`: needs host memory that other processes can map.
    ///
    /// # Errors
    /// For options or a path.
    pub fn shared_from_url(url: &Url, client: &Client) -> Result<Self> {
        Ok(Self { shared: true, ..Self::from_url(url, client)? })
    }

    fn all(&self, keys: Keys<'_>, outcome: Outcome) -> Vec<Outcome> {
        let closed = self.closed.load(Ordering::Relaxed);
        vec![if closed { Outcome::Failed } else { outcome }; keys.len()]
    }
}

impl Store for NullStore {
    fn exists(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.all(keys, Outcome::Absent)
    }

    fn get(&self, keys: Keys<'_>, pages: &mut [PageMut<'_>]) -> Vec<Outcome> {
        let outcomes = self.all(keys, Outcome::Absent);
        outcomes
            .iter()
            .zip(pages.iter())
            .for_each(|(outcome, page)| self.counters.read(*outcome, page.bytes()));
        outcomes
    }

    fn put(&self, keys: Keys<'_>, _parents: &[Option<Digest>], pages: &[PageRef<'_>]) -> Vec<Outcome> {
        let outcomes = self.all(keys, Outcome::Hit);
        for (outcome, page) in outcomes.iter().zip(pages) {
            self.counters.written(*outcome, page.bytes(), true);
            self.counters.evicted(u64::from(*outcome == Outcome::Hit));
        }
        outcomes
    }

    fn remove(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.all(keys, Outcome::Absent)
    }

    fn clear(&self, _identity: &Fingerprint) -> Result<u64> {
        Ok(0)
    }

    fn statistics(&self) -> Statistics {
        Statistics { capacity: Some(0), ..self.counters.statistics() }
    }

    fn describe(&self) -> String {
        String::from(if self.shared {
            "nothing is kept here: another process keeps the host's shared memory"
        } else {
            "nothing is kept"
        })
    }

    fn needs_shared_memory(&self) -> bool {
        self.shared
    }

    fn list(&self) -> Result<Vec<Held>> {
        Ok(Vec::new())
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}
