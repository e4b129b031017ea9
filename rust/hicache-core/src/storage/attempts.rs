//! Writes under way, so that a removal wins over each that began before it.
//!
//! A write has an attempt; a removal of the page ends all attempts that are known then, and who publishes looks first
//! whether its own still is. Publishing and removing a page exclude one another. Of one store object only: another process's
//! write that is under way is published after our removal.
//! On error: nothing here fails.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So that writes of different pages don't wait for one another's publishing.
const SHARDS: usize = 64;

type Live<N> = HashMap<N, Vec<u64>>;

/// The attempts of one store, by name of the page.
#[derive(Debug)]
pub struct Attempts<N> {
    shards: [Mutex<Live<N>>; SHARDS],
    hasher: foldhash::fast::RandomState,
    next: AtomicU64,
}

/// A write under way; dropped when it has ended.
#[derive(Debug)]
pub struct Attempt<'a, N: Copy + Eq + Hash> {
    all: &'a Attempts<N>,
    name: N,
    number: u64,
}

impl<N> Default for Attempts<N> {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::new(HashMap::new())),
            hasher: foldhash::fast::RandomState::default(),
            next: AtomicU64::new(0),
        }
    }
}

impl<N: Copy + Eq + Hash> Attempts<N> {
    /// A write begins.
    pub fn begin(&self, name: N) -> Attempt<'_, N> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.shard(&name).entry(name).or_default().push(number);
        Attempt { all: self, name, number }
    }

    /// Takes a page away: none of the writes that began before publishes it.
    pub fn remove<T>(&self, name: &N, act: impl FnOnce() -> T) -> T {
        let mut live = self.shard(name);
        live.remove(name);
        act()
    }

    /// None of the writes of such pages that began before publishes anything.
    pub fn clear(&self, such: impl Fn(&N) -> bool) {
        for shard in &self.shards {
            lock(shard).retain(|name, _| !such(name));
        }
    }

    fn shard(&self, name: &N) -> MutexGuard<'_, Live<N>> {
        #[allow(clippy::cast_possible_truncation, reason = "any bits will do")]
        lock(&self.shards[self.hasher.hash_one(name) as usize % SHARDS])
    }
}

impl<N: Copy + Eq + Hash> Attempt<'_, N> {
    /// Puts the page in its place; None if it was removed since the write began.
    pub fn publish<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let live = self.all.shard(&self.name);
        let mine = live.get(&self.name).is_some_and(|attempts| attempts.contains(&self.number));
        mine.then(act)
    }
}

impl<N: Copy + Eq + Hash> Drop for Attempt<'_, N> {
    fn drop(&mut self) {
        let mut live = self.all.shard(&self.name);
        if let Some(attempts) = live.get_mut(&self.name) {
            attempts.retain(|number| *number != self.number);
            if attempts.is_empty() {
                live.remove(&self.name);
            }
        }
    }
}

/// A thread that panicked left the map as it was between two calls of its own: whole.
fn lock<N>(shard: &Mutex<Live<N>>) -> MutexGuard<'_, Live<N>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
