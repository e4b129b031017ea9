//! A hash table with one writer and any number of readers, of which none waits.
//!
//! An entry is one atomic word: 62 bits of fingerprint and 2 bits of tiers. The word 0 is an entry that was
//! never used; an entry whose tiers are 0 is a page that left, and may become another one's. A page's entry
//! is never moved, so that a reader that passes over it can't miss it.
//!
//! Linear probing, at most 3/4 used (the publisher sees to that). Orders: the writer stores with Release
//! and readers load with Acquire; since an entry is one word, that is all there is to tear.
//!
//! This file depends on nothing of the crate: with the feature `loom` its atomics are loom's.

#[cfg(feature = "loom")]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(feature = "loom"))]
use std::sync::atomic::{AtomicU64, Ordering};

const TIERS: u64 = 3;

/// A fixed number of entries.
#[derive(Debug)]
pub struct Table {
    entries: Box<[AtomicU64]>,
}

impl Table {
    /// An empty table of 2^`bits` entries.
    #[must_use]
    pub fn new(bits: u32) -> Self {
        Self { entries: (0..1usize << bits).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Number of entries, used or not.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// The tiers of a page: bit 0 device, bit 1 host; 0 where it is in neither. Any thread.
    #[must_use]
    pub fn get(&self, print: u64) -> u64 {
        let print = print & !TIERS;
        for at in self.probe(print) {
            let word = self.entries[at].load(Ordering::Acquire);
            if word & !TIERS == print && word != 0 {
                return word & TIERS;
            }
            if word == 0 {
                return 0;
            }
        }
        0
    }

    /// Sets a page's tiers; true if that took an entry that was never used. One thread only. A table
    /// without room forgets the page: the publisher makes a larger one before that.
    pub fn set(&self, print: u64, tiers: u64) -> bool {
        let print = print & !TIERS;
        let mut left_by_another = None;
        for at in self.probe(print) {
            let word = self.entries[at].load(Ordering::Relaxed);
            if word & !TIERS == print && word != 0 {
                self.entries[at].store(print | tiers, Ordering::Release);
                return false;
            }
            if word != 0 {
                if word & TIERS == 0 {
                    left_by_another = left_by_another.or(Some(at));
                }
                continue;
            }
            if tiers == 0 {
                return false;
            }
            self.entries[left_by_another.unwrap_or(at)].store(print | tiers, Ordering::Release);
            return left_by_another.is_none();
        }
        if let Some(at) = left_by_another.filter(|_| tiers != 0) {
            self.entries[at].store(print | tiers, Ordering::Release);
        }
        false
    }

    /// Pages that are somewhere, as (fingerprint, tiers). The writer's thread only.
    pub fn live(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let words = self.entries.iter().map(|entry| entry.load(Ordering::Relaxed));
        words.filter(|word| word & TIERS != 0).map(|word| (word & !TIERS, word & TIERS))
    }

    /// Entries in the order in which a fingerprint looks at them.
    fn probe(&self, print: u64) -> impl Iterator<Item = usize> + use<> {
        let mask = self.entries.len() - 1;
        // The upper half decides where to begin; the lower bits hold the tiers.
        let first = (print >> 32) as usize & mask;
        (0..=mask).map(move |step| (first + step) & mask)
    }
}
