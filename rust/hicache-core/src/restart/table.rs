//! The table: what is in each host slot, in a file that outlives the process.
//!
//! ```text
//! words of 8 bytes   0      1       2         6      10     11       512
//! header             magic  format  identity  shape  slots  -        records ...
//! a record           0 digest     4 checksum  5 mark  6 used  7 -
//! ```
//! A process may be killed between any two words: the mark is taken away first and written last, so that what has one
//! is whole. It is a checksum of digest and checksum, so that a damaged record is known for what it is. Words are the
//! machine's own; each is written by one thread at a time, and none is ever read in parts.
//!
//! Knows digests and numbers of slots. On error: nothing here fails but the mapping of the file.
#![allow(unsafe_code, reason = "words of its own mapping")]

use crate::error::{Result, argument};
use crate::hash::Digest;
use memmap2::MmapRaw;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64;

/// Version of header and records.
const FORMAT: u64 = 1;
const MAGIC: u64 = u64::from_le_bytes(*b"HICACHE\x01");
const HEADER: usize = 512;
const RECORD: usize = 8;
const CHECKSUM: usize = 4;
const MARK: usize = 5;
const USED: usize = 6;

/// Whose pages these are, and what their slots are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// The identity's fingerprint.
    pub identity: [u8; 32],
    /// A digest of pools, layout and numbers of slots.
    pub shape: [u8; 32],
    /// Slots of all spaces.
    pub slots: u64,
}

/// What a slot's record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Nothing.
    Empty,
    /// A page is there.
    Whole {
        /// Its name.
        digest: Digest,
        /// Over identity, digest and payload.
        checksum: u64,
        /// More is later. Of pages used at once, those that continue others have less.
        used: u64,
    },
    /// It isn't what was written.
    Damaged,
}

/// A mapped table.
#[derive(Debug)]
pub struct Table {
    map: MmapRaw,
}

impl Table {
    /// Bytes of a table of so many slots.
    pub const fn bytes(slots: u64) -> u64 {
        (RECORD as u64).saturating_mul(slots).saturating_add(HEADER as u64).saturating_mul(8)
    }

    /// Maps a file of that size.
    ///
    /// # Errors
    /// When it can't be mapped.
    pub fn map(file: &File) -> Result<Self> {
        match MmapRaw::map_raw(file) {
            Ok(map) => Ok(Self { map }),
            Err(error) => argument("host restart", format!("its table can't be mapped: {error}")),
        }
    }

    /// What it says of itself; `None` if it isn't a whole table of this version.
    pub fn about(&self) -> Option<About> {
        if self.map.len() < 8 * HEADER {
            return None;
        }
        let [magic, format, slots] = [0, 1, 10].map(|at| self.get(at));
        let about = About { identity: self.four(2), shape: self.four(6), slots };
        (magic == MAGIC && format == FORMAT && Self::bytes(slots) == self.map.len() as u64).then_some(about)
    }

    /// Begins a table, all of whose words are zero.
    pub fn begin(&self, about: &About) {
        self.put_four(2, &about.identity);
        self.put_four(6, &about.shape);
        self.put(10, about.slots);
        self.put(1, FORMAT);
        self.put(0, MAGIC);
    }

    /// What a slot's record says.
    pub fn record(&self, slot: usize) -> Record {
        let at = HEADER + RECORD * slot;
        let (mark, digest, checksum) = (self.get(at + MARK), Digest(self.four(at)), self.get(at + CHECKSUM));
        match mark {
            0 => Record::Empty,
            mark if mark == mark_of(&digest, checksum) => {
                Record::Whole { digest, checksum, used: self.get(at + USED) }
            }
            _ => Record::Damaged,
        }
    }

    /// Nothing is in a slot: this comes before anything is written there.
    pub fn clear(&self, slot: usize) {
        self.put(HEADER + RECORD * slot + MARK, 0);
    }

    /// A page is whole in a slot, whose record is empty.
    pub fn write(&self, slot: usize, digest: &Digest, checksum: u64) {
        let at = HEADER + RECORD * slot;
        self.put_four(at, &digest.0);
        self.put(at + CHECKSUM, checksum);
        self.put(at + MARK, mark_of(digest, checksum));
    }

    /// When a slot's page was used.
    pub fn used(&self, slot: usize, used: u64) {
        self.put(HEADER + RECORD * slot + USED, used);
    }

    fn words(&self) -> &[AtomicU64] {
        #[expect(clippy::cast_ptr_alignment, reason = "a mapping begins at a page of the system")]
        let words = self.map.as_mut_ptr().cast::<AtomicU64>();
        // SAFETY: mapped, as long as `self`, from the start of a page of the system; other threads use it as
        // atomics too, and other processes are kept away by the directory's lock.
        unsafe { std::slice::from_raw_parts(words, self.map.len() / 8) }
    }

    fn get(&self, at: usize) -> u64 {
        self.words()[at].load(Ordering::Acquire)
    }

    /// In order: a later word is never there without an earlier one.
    fn put(&self, at: usize, word: u64) {
        self.words()[at].store(word, Ordering::SeqCst);
    }

    fn four(&self, at: usize) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (word, to) in bytes.chunks_exact_mut(8).enumerate() {
            to.copy_from_slice(&self.get(at + word).to_ne_bytes());
        }
        bytes
    }

    fn put_four(&self, at: usize, bytes: &[u8; 32]) {
        for (word, from) in bytes.chunks_exact(8).enumerate() {
            let mut eight = [0; 8];
            eight.copy_from_slice(from);
            self.put(at + word, u64::from_ne_bytes(eight));
        }
    }
}

fn mark_of(digest: &Digest, checksum: u64) -> u64 {
    let mut bytes = [0; 40];
    bytes[..32].copy_from_slice(&digest.0);
    bytes[32..].copy_from_slice(&checksum.to_ne_bytes());
    xxh3_64(&bytes) | 1
}
