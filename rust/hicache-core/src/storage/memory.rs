//! Pages in this process's memory: for tests, and where a store is wanted that nothing outlives.
//!
//! Bounded by `size`; the pages used longest ago go first, none before its children. What is read is verified, as from
//! a disk. On error: outcomes; opening without a size is refused.

use super::attempts::Attempts;
use super::counters::Counters;
use super::ledger::{Entry, Ledger};
use super::{Client, Held, Keys, Outcome, PageMut, PageRef, Statistics, Store, Url};
use crate::error::{Result, argument};
use crate::hash::Digest;
use crate::identity::Fingerprint;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

/// Whose page, and which.
type Name = (Fingerprint, Digest);

/// A store in memory.
#[derive(Debug)]
pub struct MemoryStore {
    capacity: u64,
    state: Mutex<State>,
    attempts: Attempts<Name>,
    counters: Counters,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    pages: HashMap<Name, Kept>,
    ledger: Ledger<Name>,
    clock: u64,
}

#[derive(Clone, Debug)]
struct Kept {
    payload: Arc<[u8]>,
    checksum: u64,
    written: Instant,
}

impl MemoryStore {
    /// Of so many bytes.
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity,
            state: Mutex::default(),
            attempts: Attempts::default(),
            counters: Counters::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// Of `memory://?size=`; ranks of one process each have one of their own.
    ///
    /// # Errors
    /// Without a size, or with anything else.
    pub fn from_url(mut url: Url, _client: &Client) -> Result<Self> {
        url.no_directory()?;
        let size = url.take_size("size")?;
        url.finish(&["size"])?;
        size.map_or_else(
            || argument("storage", "memory needs a size: memory://?size=4GiB"),
            |size| Ok(Self::new(size)),
        )
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole before anything in it could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn each(&self, keys: Keys<'_>, mut act: impl FnMut(usize, Name) -> Outcome) -> Vec<Outcome> {
        if self.closed.load(Ordering::Relaxed) {
            return vec![Outcome::Failed; keys.len()];
        }
        keys.digests.iter().enumerate().map(|(at, key)| act(at, (*keys.identity, *key))).collect()
    }

    fn read(&self, name: &Name, page: &mut PageMut<'_>) -> Outcome {
        let kept = {
            let mut state = self.state();
            state.touch(name);
            state.pages.get(name).cloned()
        };
        let Some(kept) = kept else { return Outcome::Absent };
        let outcome = match kept.payload.len().cmp(&page.bytes()) {
            std::cmp::Ordering::Less => Outcome::Short,
            std::cmp::Ordering::Greater => Outcome::Corrupt,
            std::cmp::Ordering::Equal if xxh3_64(&kept.payload) != kept.checksum => Outcome::Corrupt,
            std::cmp::Ordering::Equal if page.fill_from(&kept.payload) => return Outcome::Hit,
            std::cmp::Ordering::Equal => Outcome::Failed,
        };
        self.state().forget(name);
        outcome
    }

    /// Writes a page, unless it is there; and whether it was new.
    fn write(
        &self,
        name: Name,
        parent: Option<Digest>,
        page: &PageRef<'_>,
        spared: &HashSet<Name>,
    ) -> (Outcome, bool) {
        if self.state().touch(&name) {
            return (Outcome::Hit, false);
        }
        if page.bytes() as u64 > self.capacity {
            // Not even copied.
            return (Outcome::Declined, false);
        }
        let attempt = self.attempts.begin(name);
        let payload: Arc<[u8]> = page.to_vec().into();
        let kept = Kept { checksum: xxh3_64(&payload), payload, written: Instant::now() };
        let mut twice = false;
        let outcome = attempt.publish(|| {
            let mut state = self.state();
            if state.touch(&name) {
                // Others were writing it too, and were quicker.
                twice = true;
                return Outcome::Hit;
            }
            let bytes = kept.payload.len() as u64;
            while state.ledger.bytes() + bytes > self.capacity {
                let Some(next) = state.ledger.next(|name| spared.contains(name)) else {
                    return Outcome::Declined;
                };
                state.forget(&next);
                self.counters.evicted(1);
            }
            let used = state.tick();
            let parent = parent.map(|parent| (name.0, parent));
            state.ledger.insert(name, Entry { bytes, used, parent });
            state.pages.insert(name, kept);
            Outcome::Hit
        });
        (outcome.unwrap_or(Outcome::Cancelled), !twice)
    }
}

impl State {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn touch(&mut self, name: &Name) -> bool {
        let now = self.tick();
        self.ledger.touch(name, now)
    }

    fn forget(&mut self, name: &Name) -> bool {
        self.ledger.remove(name);
        self.pages.remove(name).is_some()
    }
}

impl Store for MemoryStore {
    fn exists(&self, keys: Keys<'_>) -> Vec<Outcome> {
        let state = self.state();
        self.each(
            keys,
            |_, name| if state.pages.contains_key(&name) { Outcome::Hit } else { Outcome::Absent },
        )
    }

    fn get(&self, keys: Keys<'_>, pages: &mut [PageMut<'_>]) -> Vec<Outcome> {
        self.each(keys, |at, name| {
            let outcome = self.read(&name, &mut pages[at]);
            self.counters.read(outcome, pages[at].bytes());
            outcome
        })
    }

    fn put(&self, keys: Keys<'_>, parents: &[Option<Digest>], pages: &[PageRef<'_>]) -> Vec<Outcome> {
        let names = keys.digests.iter().chain(parents.iter().flatten());
        let spared: HashSet<Name> = names.map(|key| (*keys.identity, *key)).collect();
        let mut declined = HashSet::new();
        self.each(keys, |at, name| {
            // What continues a page that isn't taken is worth nothing, and would take the place of something.
            let alone = parents[at].is_some_and(|parent| declined.contains(&parent));
            let (outcome, new) = if alone {
                (Outcome::Declined, false)
            } else {
                self.write(name, parents[at], &pages[at], &spared)
            };
            if outcome == Outcome::Declined {
                declined.insert(name.1);
            }
            self.counters.written(outcome, pages[at].bytes(), new);
            outcome
        })
    }

    fn remove(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.each(keys, |_, name| {
            let removed = self.attempts.remove(&name, || self.state().forget(&name));
            if removed { Outcome::Hit } else { Outcome::Absent }
        })
    }

    fn clear(&self, identity: &Fingerprint) -> Result<u64> {
        self.attempts.clear(|name| name.0 == *identity);
        let mut state = self.state();
        let names: Vec<Name> = state.pages.keys().filter(|name| name.0 == *identity).copied().collect();
        for name in &names {
            state.forget(name);
        }
        Ok(names.len() as u64)
    }

    fn statistics(&self) -> Statistics {
        let state = self.state();
        let (pages, bytes) = (state.ledger.pages() as u64, state.ledger.bytes());
        Statistics { pages, bytes, capacity: Some(self.capacity), ..self.counters.statistics() }
    }

    fn describe(&self) -> String {
        format!("memory of this process, at most {} bytes", self.capacity)
    }

    fn list(&self) -> Result<Vec<Held>> {
        let state = self.state();
        let held = |(&(identity, digest), kept): (&Name, &Kept)| {
            let (bytes, age) = (kept.payload.len() as u64, kept.written.elapsed().as_secs());
            Held { identity, digest, bytes, age }
        };
        let mut held: Vec<Held> = state.pages.iter().map(held).collect();
        held.sort_by_key(|held| (held.identity, held.digest));
        Ok(held)
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        *self.state() = State::default();
    }
}
