//! What a directory really holds, and room in it.
//!
//! Several processes may fill one directory, and earlier ones have: what counts is what a sweep over its folders finds
//! ([`super::sweep`]), kept up to date by what this store does itself. Pages of others are known from the next sweep
//! on; as much as they brought between two sweeps stays free for them twice. Nobody waits for a sweep but a write into
//! a directory that hasn't been swept once.
//! On error: a page that can't be removed is tried again later; room that can't be had is declined.

use super::options::{Limits, Step, Steps};
use super::page::HEADER;
use super::place::Name;
use crate::storage::counters::Counters;
use crate::storage::ledger::{Entry, Ledger};
use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// How long a write waits for the first sweep before it is declined.
const PATIENCE: Duration = Duration::from_secs(5);
/// A sweep is due when this store has written so much of the limit since the last one.
const SWEEP_AFTER: u64 = 16;
/// Pages that can't be removed before the others are left for later.
const MOST_STUBBORN: usize = 16;

/// What is known of a directory.
#[derive(Debug)]
pub struct Usage {
    pub(super) root: PathBuf,
    pub(super) limits: Limits,
    steps: Steps,
    state: Mutex<State>,
    changed: Condvar,
}

/// Behind the mutex.
#[derive(Debug, Default)]
pub(super) struct State {
    /// All pages, where some are given up to make room; else they are only counted.
    pub ledger: Ledger<Name>,
    pub counted: (u64, u64),
    /// Bytes of writes that have room and haven't ended, and their names: a sweep may find them first.
    reserved: u64,
    pub pending: Vec<Name>,
    /// Written by this store since the last sweep began.
    written: u64,
    /// What others brought between the last two sweeps.
    pub others: u64,
    /// Written, and gone, since the sweep that is under way began: what it read before may be older.
    pub fresh: HashSet<Name>,
    pub gone: HashSet<Name>,
    pub swept: bool,
    pub closing: bool,
    /// The last time that was given.
    clock: u64,
}

/// Room for a write that has not ended.
#[derive(Debug)]
pub struct Reserved<'a> {
    usage: &'a Usage,
    name: Name,
    bytes: u64,
}

impl Reserved<'_> {
    /// The page was written.
    pub fn stored(&mut self, parent: Option<Name>) {
        let (usage, name, bytes) = (self.usage, self.name, std::mem::take(&mut self.bytes));
        let mut state = usage.lock();
        state.reserved -= bytes;
        state.gone.remove(&name);
        if !state.swept || usage.limits.bounded() {
            state.fresh.insert(name);
        }
        if usage.limits.bounded() {
            let used = state.now();
            state.ledger.insert(name, Entry { bytes, used, parent });
        } else {
            state.counted = (state.counted.0 + 1, state.counted.1 + bytes);
        }
        state.written += bytes;
        if usage.sweep_due(&state) {
            usage.changed.notify_all();
        }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut state = self.usage.lock();
        state.reserved -= self.bytes;
        if let Some(at) = state.pending.iter().position(|name| *name == self.name) {
            state.pending.swap_remove(at);
        }
    }
}

impl Usage {
    /// Nothing is known yet.
    pub fn new(root: PathBuf, limits: Limits, steps: Steps) -> Self {
        Self { root, limits, steps, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Pages and bytes.
    pub fn totals(&self) -> (u64, u64) {
        let state = self.lock();
        if self.limits.bounded() {
            (state.ledger.pages() as u64, state.ledger.bytes())
        } else {
            state.counted
        }
    }

    /// Room for a write of a page of so many bytes; pages are given up for it, none of which is `spared`. None: there is none.
    pub fn reserve(
        &self,
        name: Name,
        bytes: u64,
        counters: &Counters,
        spared: impl Fn(&Name) -> bool,
    ) -> Option<Reserved<'_>> {
        let mut state = if self.limits.bounded() { self.wait_for_sweep(PATIENCE) } else { self.lock() };
        if self.limits.bounded() && !(state.swept && self.make_room(&mut state, bytes, counters, spared)) {
            return None;
        }
        state.reserved += bytes;
        state.pending.push(name);
        Some(Reserved { usage: self, name, bytes })
    }

    /// A page was read, or found written already.
    pub fn used(&self, name: &Name) {
        if self.limits.bounded() {
            let mut state = self.lock();
            let now = state.now();
            state.ledger.touch(name, now);
        }
    }

    /// A page is not there any more: one of so many bytes was removed, or it was gone already.
    pub fn gone(&self, name: Name, removed: Option<u64>) {
        let mut state = self.lock();
        state.forget(name);
        if let Some(bytes) = removed.filter(|_| !self.limits.bounded()) {
            state.counted = (state.counted.0.saturating_sub(1), state.counted.1.saturating_sub(bytes));
        }
    }

    /// A sweep removed a page of so many bytes, which the first one doesn't count before.
    pub(super) fn swept_away(&self, name: Name, bytes: u64) {
        let mut state = self.lock();
        state.forget(name);
        if !self.limits.bounded() && state.swept && bytes >= HEADER as u64 {
            state.counted = (state.counted.0.saturating_sub(1), state.counted.1.saturating_sub(bytes));
        }
    }

    /// Gives up pages until the limits hold for what is there.
    pub(super) fn keep_limits(&self, counters: &Counters) {
        if self.limits.bounded() {
            self.make_room(&mut self.lock(), 0, counters, |_| false);
        }
    }

    /// Whether a sweep should begin before its time.
    pub(super) fn sweep_due(&self, state: &State) -> bool {
        self.limits.size.is_some_and(|size| state.written > size / SWEEP_AFTER)
    }

    pub(super) fn begin_sweep(&self) {
        let mut state = self.lock();
        (state.written, state.fresh, state.gone) = (0, HashSet::new(), HashSet::new());
    }

    pub(super) fn end_sweep(&self) {
        let mut state = self.lock();
        state.swept = true;
        (state.fresh, state.gone) = (HashSet::new(), HashSet::new());
        self.changed.notify_all();
    }

    /// Waits at most so long for the first sweep.
    pub fn wait_for_sweep(&self, most: Duration) -> MutexGuard<'_, State> {
        let waited =
            self.changed.wait_timeout_while(self.lock(), most, |state| !state.swept && !state.closing);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until a sweep is due, the store closes, or so long.
    pub(super) fn rest(&self, most: Duration) -> bool {
        let busy = |state: &mut State| !state.closing && !self.sweep_due(state);
        let waited = self.changed.wait_timeout_while(self.lock(), most, busy);
        !waited.unwrap_or_else(PoisonError::into_inner).0.closing
    }

    /// Waits so long, whatever is due; false if the store closed.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), time, |state| !state.closing);
        !waited.unwrap_or_else(PoisonError::into_inner).0.closing
    }

    /// Nobody waits any more.
    pub fn close(&self) {
        self.lock().closing = true;
        self.changed.notify_all();
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked here would have left books that the next sweep mends.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_room(
        &self,
        state: &mut State,
        incoming: u64,
        counters: &Counters,
        spared: impl Fn(&Name) -> bool,
    ) -> bool {
        let coming = incoming + state.reserved;
        // What others are likely to bring before they are known, and at most a quarter.
        let limit = self.limits.size.map(|size| size - state.others.saturating_mul(2).min(size / 4));
        if self.limits.size.is_some_and(|size| incoming > size) {
            return false;
        }
        let (short, mut freed, mut stubborn) = (self.short_of_space(coming), 0, 0);
        while limit.is_some_and(|limit| state.ledger.bytes() + coming > limit) || freed < short {
            let Some(name) = state.ledger.next(&spared) else {
                // What others may bring is a wish; the size is a promise.
                return freed >= short
                    && self.limits.size.is_none_or(|size| state.ledger.bytes() + coming <= size);
            };
            let path = name.path(&self.root);
            match self.steps.before(Step::Remove, &path).and_then(|()| fs::remove_file(&path)) {
                Ok(()) => {
                    freed += state.ledger.get(&name).map_or(0, |page| page.bytes);
                    counters.evicted(1);
                }
                // Others evict too.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(_) if stubborn < MOST_STUBBORN => {
                    stubborn += 1;
                    let now = state.now();
                    state.ledger.touch(&name, now);
                    continue;
                }
                Err(_) => return false,
            }
            state.forget(name);
        }
        true
    }

    /// Bytes that the file system has too few, with so many coming.
    fn short_of_space(&self, coming: u64) -> u64 {
        let Some(free) = self.limits.free else { return 0 };
        let Ok(space) = rustix::fs::statvfs(&self.root) else { return 0 };
        let (whole, left) = (space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize);
        (free.of(whole) + coming).saturating_sub(left)
    }
}

impl State {
    /// Later than all times before, and about what other processes call now.
    pub fn now(&mut self) -> u64 {
        self.clock = nanoseconds(SystemTime::now()).max(self.clock + 1);
        self.clock
    }

    pub fn forget(&mut self, name: Name) {
        self.ledger.remove(&name);
        self.fresh.remove(&name);
        self.gone.insert(name);
    }
}

/// Since 1970, of a time that a file may have.
pub(super) fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX / 2)
}
