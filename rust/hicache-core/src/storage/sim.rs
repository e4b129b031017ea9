//! How long a store would take, without one: keys only, for planning and benchmarks.
//!
//! What is read is zeros, and counted as unverified: nothing that computes may use it. Each direction is one pipe that
//! all threads share. On error: outcomes, as any store.

use super::counters::Counters;
use super::ledger::{Entry, Ledger};
use super::{Client, Keys, Outcome, PageMut, PageRef, Statistics, Store, Url};
use crate::error::Result;
use crate::hash::Digest;
use crate::identity::Fingerprint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

type Name = (Fingerprint, Digest);

/// A store that only takes time.
#[derive(Debug)]
pub struct SimStore {
    options: SimOptions,
    state: Mutex<(Ledger<Name>, u64)>,
    /// When each direction is free again: reads, writes.
    pipes: [Mutex<Option<Instant>>; 2],
    counters: Counters,
    closed: AtomicBool,
}

/// How fast it would be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimOptions {
    /// Of each call.
    pub latency: Duration,
    /// 10^9 bytes a second; 0: no limit.
    pub read_gbps: f64,
    /// The same of writes.
    pub write_gbps: f64,
    /// Most bytes that it would hold.
    pub size: Option<u64>,
}

impl SimStore {
    /// # Errors
    /// None.
    pub fn new(options: SimOptions) -> Self {
        Self {
            options,
            state: Mutex::default(),
            pipes: Default::default(),
            counters: Counters::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// Of `sim://?latency_us=100&write_gbps=5&read_gbps=5&size=`: these are the defaults; reads are as fast as writes.
    ///
    /// # Errors
    /// For anything else.
    pub fn from_url(mut url: Url, _client: &Client) -> Result<Self> {
        url.no_directory()?;
        let latency = url.take_real("latency_us")?.unwrap_or(100.0);
        let write_gbps = url.take_real("write_gbps")?.unwrap_or(5.0);
        let read_gbps = url.take_real("read_gbps")?.unwrap_or(write_gbps);
        let size = url.take_size("size")?;
        url.finish(&["latency_us", "read_gbps", "write_gbps", "size"])?;
        let latency = Duration::from_secs_f64((latency / 1e6).min(1e6));
        Ok(Self::new(SimOptions { latency, read_gbps, write_gbps, size }))
    }

    fn state(&self) -> MutexGuard<'_, (Ledger<Name>, u64)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes as long as a call that moves so many bytes.
    #[allow(clippy::cast_precision_loss, reason = "of a time")]
    fn take_time(&self, pipe: usize, gbps: f64, bytes: usize) {
        let now = Instant::now();
        let mut end = now;
        if gbps > 0.0 && bytes > 0 {
            let mut free = self.pipes[pipe].lock().unwrap_or_else(PoisonError::into_inner);
            end = free.unwrap_or(now).max(now) + Duration::from_secs_f64(bytes as f64 / (gbps * 1e9));
            *free = Some(end);
        }
        std::thread::sleep((end + self.options.latency).saturating_duration_since(Instant::now()));
    }

    fn each(&self, keys: Keys<'_>, mut act: impl FnMut(usize, Name) -> Outcome) -> Vec<Outcome> {
        if self.closed.load(Ordering::Relaxed) {
            return vec![Outcome::Failed; keys.len()];
        }
        keys.digests.iter().enumerate().map(|(at, key)| act(at, (*keys.identity, *key))).collect()
    }

    fn take(&self, name: Name, parent: Option<Digest>, bytes: usize) -> (Outcome, bool) {
        let mut state = self.state();
        let (ledger, clock) = &mut *state;
        *clock += 1;
        if ledger.touch(&name, *clock) {
            return (Outcome::Hit, false);
        }
        let parent = parent.map(|parent| (name.0, parent));
        let size = self.options.size.unwrap_or(u64::MAX);
        if bytes as u64 > size {
            return (Outcome::Declined, false);
        }
        while ledger.bytes() + bytes as u64 > size {
            let Some(next) = ledger.next(|name| Some(*name) == parent) else {
                return (Outcome::Declined, false);
            };
            ledger.remove(&next);
            self.counters.evicted(1);
        }
        ledger.insert(name, Entry { bytes: bytes as u64, used: *clock, parent });
        (Outcome::Hit, true)
    }
}

impl Store for SimStore {
    fn exists(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.take_time(0, 0.0, 0);
        let state = self.state();
        self.each(keys, |_, name| if state.0.get(&name).is_some() { Outcome::Hit } else { Outcome::Absent })
    }

    fn get(&self, keys: Keys<'_>, pages: &mut [PageMut<'_>]) -> Vec<Outcome> {
        let outcomes = self.each(keys, |at, name| {
            let mut state = self.state();
            let (ledger, clock) = &mut *state;
            *clock += 1;
            let outcome = if ledger.touch(&name, *clock) { Outcome::Hit } else { Outcome::Absent };
            drop(state);
            if outcome == Outcome::Hit {
                pages[at].runs().iter_mut().for_each(|run| run.fill(0));
                self.counters.unverified();
            }
            self.counters.read(outcome, pages[at].bytes());
            outcome
        });
        let hits = outcomes.iter().zip(pages.iter()).filter(|(outcome, _)| **outcome == Outcome::Hit);
        self.take_time(0, self.options.read_gbps, hits.map(|(_, page)| page.bytes()).sum());
        outcomes
    }

    fn put(&self, keys: Keys<'_>, parents: &[Option<Digest>], pages: &[PageRef<'_>]) -> Vec<Outcome> {
        let mut written = 0;
        let outcomes = self.each(keys, |at, name| {
            let (outcome, new) = self.take(name, parents[at], pages[at].bytes());
            written += if new { pages[at].bytes() } else { 0 };
            self.counters.written(outcome, pages[at].bytes(), new);
            outcome
        });
        self.take_time(1, self.options.write_gbps, written);
        outcomes
    }

    fn remove(&self, keys: Keys<'_>) -> Vec<Outcome> {
        let remove = |name| self.state().0.remove(&name).map_or(Outcome::Absent, |_| Outcome::Hit);
        self.each(keys, |_, name| remove(name))
    }

    fn clear(&self, identity: &Fingerprint) -> Result<u64> {
        let mut state = self.state();
        let (first, last) = ((*identity, Digest([0; 32])), (*identity, Digest([u8::MAX; 32])));
        let names: Vec<Name> = state.0.range(first..=last).map(|(name, _)| *name).collect();
        for name in &names {
            state.0.remove(name);
        }
        Ok(names.len() as u64)
    }

    fn statistics(&self) -> Statistics {
        let state = self.state();
        let (pages, bytes, capacity) = (state.0.pages() as u64, state.0.bytes(), self.options.size);
        Statistics { pages, bytes, capacity, ..self.counters.statistics() }
    }

    fn describe(&self) -> String {
        let SimOptions { latency, read_gbps, write_gbps, .. } = self.options;
        format!(
            "simulation: keys without bytes, which computes nonsense; {latency:?} a call, {read_gbps} GB/s read, \
             {write_gbps} GB/s written (0: no limit)"
        )
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}
