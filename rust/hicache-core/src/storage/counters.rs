//! What a store did so far: counters that any thread may add to.
//!
//! On error: nothing here fails.

use super::{Outcome, Statistics};
use std::sync::atomic::{AtomicU64, Ordering};

/// Of one store. A page is counted once per call, whatever became of it.
#[derive(Debug, Default)]
pub struct Counters {
    counts: [AtomicU64; 12],
}

/// A place in the array.
#[derive(Clone, Copy)]
enum Count {
    ReadPages,
    ReadBytes,
    WrittenPages,
    WrittenBytes,
    Absent,
    Short,
    Corrupt,
    Failed,
    Declined,
    Evicted,
    Expired,
    Unverified,
}

impl Counters {
    fn add(&self, count: Count, number: u64) {
        self.counts[count as usize].fetch_add(number, Ordering::Relaxed);
    }

    /// A page of so many bytes was asked for.
    pub fn read(&self, outcome: Outcome, bytes: usize) {
        if outcome == Outcome::Hit {
            self.add(Count::ReadPages, 1);
            self.add(Count::ReadBytes, bytes as u64);
        } else {
            self.fell_short(outcome);
        }
    }

    /// A page of so many bytes was to be written; `new`: it wasn't there.
    pub fn written(&self, outcome: Outcome, bytes: usize, new: bool) {
        if outcome == Outcome::Hit && new {
            self.add(Count::WrittenPages, 1);
            self.add(Count::WrittenBytes, bytes as u64);
        } else {
            self.fell_short(outcome);
        }
    }

    /// Another way not to be a hit; of a question or a removal, too.
    pub fn fell_short(&self, outcome: Outcome) {
        match outcome {
            Outcome::Absent => self.add(Count::Absent, 1),
            Outcome::Short => self.add(Count::Short, 1),
            Outcome::Corrupt => self.add(Count::Corrupt, 1),
            Outcome::Failed | Outcome::TimedOut => self.add(Count::Failed, 1),
            Outcome::Declined => self.add(Count::Declined, 1),
            Outcome::Hit | Outcome::Cancelled => {}
        }
    }

    /// So many pages were given up to make room.
    pub fn evicted(&self, pages: u64) {
        self.add(Count::Evicted, pages);
    }

    /// So many pages were given up for their age.
    pub fn expired(&self, pages: u64) {
        self.add(Count::Expired, pages);
    }

    /// A page was read of which nobody can know whether it is right.
    pub fn unverified(&self) {
        self.add(Count::Unverified, 1);
    }

    /// All of them, with nothing of what the store holds.
    pub fn statistics(&self) -> Statistics {
        let count = |count: Count| self.counts[count as usize].load(Ordering::Relaxed);
        Statistics {
            read_pages: count(Count::ReadPages),
            read_bytes: count(Count::ReadBytes),
            written_pages: count(Count::WrittenPages),
            written_bytes: count(Count::WrittenBytes),
            absent_pages: count(Count::Absent),
            short_pages: count(Count::Short),
            corrupt_pages: count(Count::Corrupt),
            failed_pages: count(Count::Failed),
            declined_pages: count(Count::Declined),
            evicted_pages: count(Count::Evicted),
            expired_pages: count(Count::Expired),
            unverified_pages: count(Count::Unverified),
            ..Statistics::default()
        }
    }
}
