//! Warm restart of host memory: slabs and a table of what is in them, in files that outlive the process.
//!
//! | file | what |
//! |---|---|
//! | `directory` | whose it is; sized files in it |
//! | `table` | a record for each host slot |
//! | `files` | taken over, or made anew |
//! | `places` | which slot an address is |
//! | `store` | pages in host memory as a store, before the store behind it |
//!
//! A slot's record is cleared before anything may be written to the slot, and written when a whole page is there, with a
//! checksum over identity, digest and payload. So a process may end at any moment: a record that is there tells the
//! truth. The next process finds these pages as **leftovers**: free slots that are handed out last. They are reached like
//! what a store has: `exists` and `get` know them, and a read of one gets the very slot that it is in, where `get`
//! verifies it. No byte moves, and nothing is believed before its checksum was compared.
//!
//! Knows slots, digests and bytes; refuses to know the tree and requests. No token, salt or namespace is written.
//! On error: names `host restart`. What can't be taken over is given up, counted, and said in [`Kept::describe`].

pub mod directory;
mod files;
mod places;
pub mod store;
pub mod table;

use crate::config::Config;
use crate::error::Result;
use crate::executor::HostMemory;
use crate::hash::Digest;
use crate::host::Layout;
use crate::identity::Fingerprint;
use crate::ids::{HostSlot, Slot};
use directory::Directory;
use files::{made, shape, taken_over};
use hashbrown::HashTable;
use places::Places;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use table::{About, Record, Table};

/// Bits of `used` that say how deep a page is.
const DEPTH_BITS: u32 = 24;
const DEEPEST: u32 = (1 << DEPTH_BITS) - 1;

/// Host memory that outlives the process.
#[derive(Debug)]
pub struct Kept {
    table: Table,
    identity: Fingerprint,
    /// Number of each space's first slot, and of all.
    firsts: Vec<usize>,
    /// Leftovers by their digests. What isn't there any more, the table tells.
    index: HashTable<(u64, u32)>,
    places: OnceLock<Places>,
    /// Where something else answers for what isn't here.
    behind: AtomicBool,
    /// Requests' turns to use pages.
    turn: AtomicU64,
    /// How often something was removed. Whoever holds it may write a record.
    removals: Mutex<u64>,
    found: u64,
    corrupt: AtomicU64,
    /// Calls of its store under way, which write to its memory; and whether there will be others.
    busy: AtomicUsize,
    closed: AtomicBool,
    said: String,
    directory: Directory,
}

/// What was opened: files for the pools' memory, in their order, and the leftovers of each space, best first.
#[derive(Debug)]
pub struct Opened {
    /// The table, and what it knows.
    pub kept: Kept,
    /// One for each pool.
    pub slabs: Vec<File>,
    /// For each space.
    pub left: Vec<Vec<Slot>>,
}

impl Kept {
    /// Opens a directory for a configuration whose pools have these layouts on the host. `behind`: whether there is a
    /// store, too.
    ///
    /// # Errors
    /// When the directory can't be had or is another live process's; when there is too little memory.
    pub fn open(path: &Path, config: &Config, layouts: &[Layout], behind: bool) -> Result<Opened> {
        let directory = Directory::open(path)?;
        let firsts = firsts(&config.host_spaces());
        let slots = firsts.last().map_or(0, |&slots| slots as u64);
        let about = About { identity: config.identity.0, shape: shape(config, layouts), slots };
        let (table, slabs, said) = match taken_over(&directory, &about, layouts) {
            Ok((table, slabs)) => (table, slabs, None),
            Err(why) => {
                let (table, slabs) = made(&directory, &about, layouts)?;
                (table, slabs, why)
            }
        };
        let mut kept = Self {
            table,
            identity: config.identity,
            firsts,
            index: HashTable::new(),
            places: OnceLock::new(),
            behind: AtomicBool::new(behind),
            turn: AtomicU64::new(0),
            removals: Mutex::new(0),
            found: 0,
            corrupt: AtomicU64::new(0),
            busy: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            said: said.unwrap_or_default(),
            directory,
        };
        let left = kept.take_stock();
        Ok(Opened { kept, slabs, left })
    }

    /// Looks at all records: which leftovers there are, those first that were used last.
    fn take_stock(&mut self) -> Vec<Vec<Slot>> {
        let (mut turn, mut left) = (0, Vec::new());
        for space in 1..self.firsts.len() {
            let (first, end) = (self.firsts[space - 1], self.firsts[space]);
            let mut pages = Vec::new();
            for slot in first..end {
                match self.table.record(slot) {
                    Record::Whole { digest, used, .. } => pages.push((used, slot, digest)),
                    Record::Damaged => {
                        *self.corrupt.get_mut() += 1;
                        self.table.clear(slot);
                    }
                    Record::Empty => {}
                }
            }
            pages.sort_unstable_by(|one, other| other.cmp(one));
            turn = pages.first().map_or(turn, |page| turn.max(page.0 >> DEPTH_BITS));
            // A page that was evicted and came back is in two slots.
            pages.retain(|&(_, slot, digest)| self.enter(slot, &digest));
            let slot = |slot: usize| Slot(u32::try_from(slot - first).unwrap_or(u32::MAX));
            left.push(pages.into_iter().map(|(_, at, _)| slot(at)).collect());
        }
        self.found = left.iter().map(|pages: &Vec<Slot>| pages.len() as u64).sum();
        *self.turn.get_mut() = turn;
        left
    }

    /// Notes where a page is; if it is known elsewhere, clears this slot's record.
    fn enter(&mut self, slot: usize, digest: &Digest) -> bool {
        if self.known(digest).is_some() {
            self.table.clear(slot);
            return false;
        }
        let entry = (short(digest), u32::try_from(slot).unwrap_or(u32::MAX));
        self.index.insert_unique(entry.0, entry, |entry| entry.0);
        true
    }

    /// The slot, counted over all spaces, that a leftover of this name is in; also if it was claimed.
    fn known(&self, digest: &Digest) -> Option<usize> {
        let is = |slot: u32| matches!(self.table.record(slot as usize), Record::Whole { digest: found, .. } if found == *digest);
        let hash = short(digest);
        self.index.find(hash, |&(other, slot)| other == hash && is(slot)).map(|&(_, slot)| slot as usize)
    }

    /// The slot of a space that a leftover of this name is in, or was before it was claimed.
    pub fn find(&self, space: u8, digest: &Digest) -> Option<Slot> {
        let slots = self.firsts[space as usize]..self.firsts[space as usize + 1];
        let slot = self.known(digest).filter(|slot| slots.contains(slot))?;
        u32::try_from(slot - slots.start).ok().map(Slot)
    }

    /// Before anything may be written to a slot: its record is cleared, unless it says that what is to be read
    /// into it is there already.
    pub fn clear(&self, at: HostSlot, unless: Option<&Digest>) {
        let slot = self.number(at);
        let same = |wanted: &Digest| matches!(self.table.record(slot), Record::Whole { digest, .. } if digest == *wanted);
        if !unless.is_some_and(same) {
            self.table.clear(slot);
        }
    }

    /// Whether a slot's record says that a page is there.
    pub fn is_sealed(&self, at: HostSlot) -> bool {
        matches!(self.table.record(self.number(at)), Record::Whole { .. })
    }

    /// A turn later than all before it.
    pub fn next_turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A page with so many before it was used in a turn. Of one turn's, the deepest are given up first.
    pub fn note(&self, at: HostSlot, turn: u64, depth: u32) {
        self.table.used(self.number(at), turn << DEPTH_BITS | u64::from(DEEPEST - depth.min(DEEPEST)));
    }

    /// Where its pages are, from the memory that was made over its files.
    pub fn place(&self, memory: &HostMemory) {
        // Set once: a second call says the same.
        let _ = self.places.set(Places::of(memory));
    }

    /// Whether something else answers for what isn't here.
    pub fn behind(&self) -> bool {
        self.behind.load(Ordering::Relaxed)
    }

    /// Something else answers from now on for what isn't here, or nothing does.
    pub fn set_behind(&self, behind: bool) {
        self.behind.store(behind, Ordering::Relaxed);
    }

    /// The next process finds nothing here but what is written from now on.
    pub fn forget_all(&self) {
        let mut removals = self.removals();
        *removals += 1;
        (0..self.firsts.last().copied().unwrap_or(0)).for_each(|slot| self.table.clear(slot));
    }

    /// Leftovers that were found, and pages that were not what was written (or their records not).
    pub fn counts(&self) -> [u64; 2] {
        [self.found, self.corrupt.load(Ordering::Relaxed)]
    }

    /// For people: where it is, and what became of what was there.
    pub fn describe(&self) -> String {
        let path = self.directory.path().display();
        if self.said.is_empty() {
            format!("host memory in {path}, {} pages taken over", self.found)
        } else {
            format!("host memory in {path}: {}", self.said)
        }
    }

    /// Others may have the directory from now on, unless a call of its store is still under way: then when that has
    /// ended and all is dropped. No copy is.
    pub fn leave(&self) {
        self.closed.store(true, Ordering::SeqCst);
        if self.busy.load(Ordering::SeqCst) == 0 {
            self.directory.leave();
        }
    }

    fn number(&self, at: HostSlot) -> usize {
        self.firsts[at.space as usize] + at.slot.0 as usize
    }

    fn removals(&self) -> MutexGuard<'_, u64> {
        self.removals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn short(digest: &Digest) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&digest.0[..8]);
    u64::from_ne_bytes(eight)
}

fn firsts(slots: &[u32]) -> Vec<usize> {
    let sum = slots.iter().scan(0, |sum, &slots| {
        *sum += slots as usize;
        Some(*sum)
    });
    std::iter::once(0).chain(sum).collect()
}
