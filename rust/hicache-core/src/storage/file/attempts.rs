//! Writes under way, so that a removal wins over each that began before it.
//!
//! A write has an attempt; a removal of the page ends all attempts that are known then, and who publishes looks first
//! whether its own still is. Publishing and removing a page exclude one another. Of this store only: another process's
//! write that is under way is published after our removal.
//! On error: nothing here fails.

use super::place::Name;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So that writes of different pages don't wait for one another's publishing.
const SHARDS: usize = 64;

type Live = HashMap<Name, Vec<u64>>;

/// The attempts of one store.
#[derive(Debug)]
pub struct Attempts {
    shards: [Mutex<Live>; SHARDS],
    next: AtomicU64,
}

/// A write under way; dropped when it has ended.
#[derive(Debug)]
pub struct Attempt<'a> {
    all: &'a Attempts,
    name: Name,
    number: u64,
}

impl Default for Attempts {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), next: AtomicU64::new(0) }
    }
}

impl Attempts {
    /// A write begins.
    pub fn begin(&self, name: Name) -> Attempt<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.shard(&name).entry(name).or_default().push(number);
        Attempt { all: self, name, number }
    }

    /// Takes a page away: none of the writes that began before publishes it.
    pub fn remove<T>(&self, name: &Name, act: impl FnOnce() -> T) -> T {
        let mut live = self.shard(name);
        live.remove(name);
        act()
    }

    /// None of the writes of an identity that began before publishes anything.
    pub fn clear(&self, identity: &[u8; 16]) {
        for shard in &self.shards {
            lock(shard).retain(|name, _| name.identity != *identity);
        }
    }

    fn shard(&self, name: &Name) -> MutexGuard<'_, Live> {
        lock(&self.shards[usize::from(name.key[31]) % SHARDS])
    }
}

impl Attempt<'_> {
    /// Puts the page in its place; None if it was removed since the write began.
    pub fn publish<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let live = self.all.shard(&self.name);
        let mine = live.get(&self.name).is_some_and(|attempts| attempts.contains(&self.number));
        mine.then(act)
    }
}

impl Drop for Attempt<'_> {
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
fn lock(shard: &Mutex<Live>) -> MutexGuard<'_, Live> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
