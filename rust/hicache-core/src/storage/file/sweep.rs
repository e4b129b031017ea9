//! Looks at all that is in the directory, folder by folder, on a thread of its own: once where nothing is ever given up,
//! else again and again. It takes what it finds for the truth, except where this store was quicker.
//!
//! On error: a folder or a file that can't be read isn't there.

use super::page::HEADER;
use super::pages::peeked;
use super::place::{Folder, Name, folders};
use super::usage::{State, Usage, nanoseconds};
use crate::storage::Outcome;
use crate::storage::attempts::Attempts;
use crate::storage::counters::Counters;
use crate::storage::ledger::Entry;
use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Between two sweeps at least; and the longer they take, the rarer they are.
const REST: Duration = Duration::from_secs(10);
const REST_TIMES: u32 = 20;
/// However much is written, most of the time no sweep is under way.
const LEAST_TIMES: u32 = 3;
/// How much of the time that pages may live passes between two looks for those that are too old.
const SWEEPS_PER_TTL: u32 = 8;

/// Everything that a sweep needs.
#[derive(Debug)]
pub struct Sweeper {
    pub usage: Arc<Usage>,
    pub attempts: Arc<Attempts<Name>>,
    pub counters: Arc<Counters>,
}

impl Sweeper {
    /// Until the store closes.
    pub fn work(&self) {
        loop {
            let began = Instant::now();
            if !self.sweep() {
                return;
            }
            self.usage.keep_limits(&self.counters);
            let limits = self.usage.limits;
            if !limits.bounded() && limits.ttl.is_none() {
                return;
            }
            let rest = REST.max(began.elapsed() * REST_TIMES);
            // A busy store may ask earlier, but not so that nothing but sweeps goes on.
            let least = began.elapsed() * LEAST_TIMES;
            let rest = limits.ttl.map_or(rest, |ttl| rest.min(ttl / SWEEPS_PER_TTL)).max(least);
            if !self.usage.pause(least) || !self.usage.rest(rest) {
                return;
            }
        }
    }

    /// One sweep; false if the store closed meanwhile.
    fn sweep(&self) -> bool {
        self.usage.begin_sweep();
        let (mut seen, mut others) = (HashSet::new(), 0);
        for folder in folders(&self.usage.root, None) {
            if self.usage.lock().closing {
                return false;
            }
            seen.insert((folder.identity, folder.first));
            others += self.visit(&folder);
        }
        if self.usage.limits.bounded() {
            self.forget_folders(&seen);
        }
        let mut state = self.usage.lock();
        state.others = if state.swept { others } else { 0 };
        drop(state);
        self.usage.end_sweep();
        true
    }

    /// Bytes that others brought into a folder.
    fn visit(&self, folder: &Folder) -> u64 {
        let bounded = self.usage.limits.bounded();
        let known: HashSet<Name> = if bounded {
            self.usage
                .lock()
                .ledger
                .range(names(folder.identity, folder.first))
                .map(|(name, _)| *name)
                .collect()
        } else {
            HashSet::new()
        };
        let mut found = Vec::new();
        for (name, file) in folder.pages() {
            let Ok(data) = file.metadata() else { continue };
            if !data.is_file() || self.expired(&name, &data) || self.empty(&name, &data) {
                continue;
            }
            // The parent is in the header: worth reading only where pages are given up, and once.
            let read = bounded && !known.contains(&name);
            let parent = if read { peeked(&file.path()) } else { None };
            found.push((name, data, parent.and_then(|header| header.parent).map(|key| name.sibling(key))));
        }
        let mut state = self.usage.lock();
        if bounded { reconcile(&mut state, &known, &found) } else { count(&mut state, &found) }
    }

    /// Pages of folders that are no more.
    fn forget_folders(&self, seen: &HashSet<([u8; 16], u8)>) {
        let mut state = self.usage.lock();
        let folders: HashSet<_> = state
            .ledger
            .range(names([0; 16], 0).start().to_owned()..=last())
            .map(|(name, _)| (name.identity, name.key[0]))
            .collect();
        for (identity, first) in folders.difference(seen).copied() {
            let left: Vec<Name> = state.ledger.range(names(identity, first)).map(|(name, _)| *name).collect();
            for name in left {
                if !state.fresh.contains(&name) {
                    state.ledger.remove(&name);
                }
            }
        }
    }

    /// Removes a page that is too old; whether it was.
    fn expired(&self, name: &Name, data: &Metadata) -> bool {
        let Some(ttl) = self.usage.limits.ttl else { return false };
        let old = |data: &Metadata| older(data, ttl);
        self.remove_if(name, data, old, || self.counters.expired(1))
    }

    /// Removes a file that has not even a whole header, such as a loss of power leaves; whether it is one.
    fn empty(&self, name: &Name, data: &Metadata) -> bool {
        self.remove_if(
            name,
            data,
            |data| data.len() < HEADER as u64,
            || self.counters.fell_short(Outcome::Short),
        )
    }

    fn remove_if(
        &self,
        name: &Name,
        data: &Metadata,
        is: impl Fn(&Metadata) -> bool,
        removed: impl FnOnce(),
    ) -> bool {
        if !is(data) {
            return false;
        }
        let path = name.path(&self.usage.root);
        self.attempts.remove(name, || {
            // It may have been written anew since.
            if fs::metadata(&path).is_ok_and(|data| is(&data)) && fs::remove_file(&path).is_ok() {
                removed();
                self.usage.swept_away(*name, data.len());
            }
        });
        true
    }
}

/// Whether a page was written longer ago than that.
pub fn older(data: &Metadata, ttl: Duration) -> bool {
    data.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok()).is_some_and(|age| age > ttl)
}

type Found = [(Name, Metadata, Option<Name>)];

fn reconcile(state: &mut State, known: &HashSet<Name>, found: &Found) -> u64 {
    let mut others = 0;
    for (name, data, parent) in found {
        let times = [data.modified(), data.accessed()].map(|time| time.map_or(0, nanoseconds));
        let used = times[0].max(times[1]);
        if state.ledger.touch(name, used) || state.gone.contains(name) {
            continue;
        }
        state.ledger.insert(*name, Entry { bytes: data.len(), used, parent: *parent });
        if !state.pending.contains(name) {
            others += data.len();
        }
    }
    let found: HashSet<Name> = found.iter().map(|(name, ..)| *name).collect();
    for name in known.difference(&found) {
        if !state.fresh.contains(name) {
            state.ledger.remove(name);
        }
    }
    others
}

fn count(state: &mut State, found: &Found) -> u64 {
    if !state.swept {
        for (_, data, _) in
            found.iter().filter(|(name, ..)| !state.fresh.contains(name) && !state.gone.contains(name))
        {
            state.counted = (state.counted.0 + 1, state.counted.1 + data.len());
        }
    }
    0
}

/// All names of a folder.
const fn names(identity: [u8; 16], first: u8) -> std::ops::RangeInclusive<Name> {
    let (mut start, mut end) = ([0; 32], [u8::MAX; 32]);
    (start[0], end[0]) = (first, first);
    Name { identity, key: start }..=Name { identity, key: end }
}

const fn last() -> Name {
    Name { identity: [u8::MAX; 16], key: [u8::MAX; 32] }
}
