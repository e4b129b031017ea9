//! Extents: the data files, of one size each, and which of their slots are free.
//!
//! An extent belongs to one class of pages, whose slots have one size, or to none: those are spare. Every
//! extent is allocated whole; a thread of its own writes zeros to what nobody has written before
//! (`prewrite`), so that pages land where nothing but their bytes has to change.
//!
//! ```text
//! dir/data-00000   class 64 KiB   | slot 0 | slot 1 | ...
//! dir/data-00001   spare          | written so far |                 |
//! ```
//! May assume that a slot's owner gives it back once, and that nobody else writes in the directory.
//! Refuses to know pages, keys and what is evicted.
//! On error: opening and adopting name `storage`; the reason for an extent that is missing later is in `stats`.

use super::media::Media;
pub use super::state::ExtentStats;
use super::state::{Extent, Shared, State};
use super::supply::Supply;
use super::{files, prewrite};
use crate::error::{Result, argument};
use crate::storage::disk::{ALIGN, DataFile, Disk};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Sizes and bounds.
#[derive(Clone, Copy, Debug)]
pub struct ExtentOptions {
    /// Size of each, in bytes: a multiple of [`ALIGN`].
    pub bytes: u64,
    /// How many there may be.
    pub most: u32,
    /// Bytes of the file system that are left free: no extent is made that would take from them.
    pub free: u64,
}

/// A slot of an extent.
#[derive(Clone, Debug)]
pub struct Place {
    /// The extent's number.
    pub extent: u32,
    /// The slot's, in it.
    pub slot: u32,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Whether all of it was written before, durably.
    pub written: bool,
    /// The extent's file.
    pub file: Arc<DataFile>,
}

/// All extents of a directory.
pub struct Extents {
    pub(super) shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Extents {
    /// Looks at what is there. Neither changes a file nor starts the thread: see [`adopt`](Self::adopt) and
    /// [`start`](Self::start).
    ///
    /// # Errors
    /// Names `storage`: a file of another size, or that can't be opened.
    pub fn open(disk: Arc<Disk>, media: Arc<dyn Media>, dir: &Path, options: ExtentOptions) -> Result<Self> {
        let (bytes, most) = (options.bytes, options.most);
        if bytes == 0 || !bytes.is_multiple_of(ALIGN) || most == 0 {
            let reason =
                format!("need extents of a multiple of {ALIGN} bytes, one at least; got {most} of {bytes}");
            return argument("storage", reason);
        }
        let found = files::found(&disk, dir, bytes)
            .or_else(|error| argument("storage", format!("{}: {error}", dir.display())))?;
        let mut state = State::default();
        for (number, file, written) in found {
            let supply = Supply::of(&written, bytes);
            state.extents.insert(number, Extent::new(file, supply));
            state.spare.insert(number);
        }
        let shared = Arc::new(Shared::new(disk, media, dir, options, state));
        Ok(Self { shared, thread: Mutex::new(None) })
    }

    /// Numbers of the extents that there are, ascending.
    pub fn found(&self) -> Vec<u32> {
        self.shared.state().extents.keys().copied().collect()
    }

    /// Tells that an extent belongs to a class, and which of its slots are in use (ascending). All others are
    /// free. For what a log says, before [`start`](Self::start).
    ///
    /// # Errors
    /// Names `storage`: no such extent, one that has a class, slots that can't be.
    pub fn adopt(&self, extent: u32, slot_bytes: u32, used: impl IntoIterator<Item = u32>) -> Result<()> {
        let mut state = self.shared.state();
        let (slots, slot) = (self.slots(slot_bytes), u64::from(slot_bytes));
        let used: Vec<u32> = used.into_iter().collect();
        if !used.is_sorted_by(|one, other| one < other) || used.last().is_some_and(|&last| last >= slots) {
            return argument("storage", format!("extent {extent} of {slots} slots can't have these in use"));
        }
        match state.extents.get_mut(&extent) {
            Some(found) if found.slot == 0 && slots > 0 => {
                found.adopt(slot, slots, used);
                state.spare.remove(&extent);
                state.file(extent);
                Ok(())
            }
            Some(found) => argument(
                "storage",
                format!("extent {extent} with slots of {}: can't have {slot_bytes}", found.slot),
            ),
            None => argument("storage", format!("extent {extent} is not there")),
        }
    }

    /// Starts the thread that writes in advance, and makes a spare extent where there is none.
    ///
    /// # Errors
    /// Names `storage` when the system has no thread to give.
    pub fn start(&self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("hicache-prewrite".into());
        let thread = thread
            .spawn(move || prewrite::work(&shared))
            .or_else(|error| argument("storage", format!("no thread to be had: {error}")))?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// How many slots of this size (a multiple of [`ALIGN`]) an extent has.
    pub fn slots(&self, slot_bytes: u32) -> u32 {
        let slot = u64::from(slot_bytes);
        if slot == 0 || !slot.is_multiple_of(ALIGN) {
            return 0;
        }
        u32::try_from(self.shared.options.bytes / slot).unwrap_or(u32::MAX)
    }

    /// Gives a slot back; `written` if it was when it was taken, or a write to all of it ended well since and
    /// its file was synced. Not while anybody reads or writes it.
    pub fn free(&self, extent: u32, slot: u32, written: bool) {
        let mut state = self.shared.state();
        let Some(found) = state.extents.get_mut(&extent) else { return };
        found.give(slot, written);
        state.file(extent);
        drop(state);
        if !written {
            self.shared.changed.notify_all();
        }
    }

    /// A slot that is in use.
    pub fn place(&self, extent: u32, slot: u32) -> Option<Place> {
        let state = self.shared.state();
        let found = state.extents.get(&extent).filter(|found| found.slot > 0)?;
        let offset = u64::from(slot) * found.slot;
        Some(Place { extent, slot, offset, written: true, file: Arc::clone(&found.file) })
    }

    /// Takes an extent, all of whose slots are free, from its class: it is spare. False, and nothing is done, if
    /// there is no such extent, or a slot of it is in use.
    pub fn release(&self, extent: u32) -> bool {
        let mut state = self.shared.state();
        let bytes = self.shared.options.bytes;
        let Some(found) = state.extents.get_mut(&extent).filter(|found| found.slot > 0) else { return false };
        let (ready, unwritten) = found.supply.bytes();
        let whole = bytes / found.slot * found.slot;
        if ready + unwritten + found.claimed != whole {
            return false;
        }
        let slot = std::mem::take(&mut found.slot);
        found.supply.give(whole..bytes, false);
        found.supply.order();
        state.unfile(slot, extent);
        state.spare.insert(extent);
        drop(state);
        self.shared.changed.notify_all();
        true
    }

    /// Removes a spare one; its file goes once nobody reads it any more. False if it has a class. Does I/O.
    pub fn give_back(&self, extent: u32) -> bool {
        self.shared.remove(extent)
    }

    /// How many files there are, those included that are being made or removed.
    pub fn files(&self) -> u32 {
        self.shared.state().files()
    }

    /// How many there may be from now on, at most as many as the options say.
    pub fn allow(&self, most: u32) {
        self.shared.state().most = most.min(self.shared.options.most);
    }

    /// A spare one, and how many there are.
    pub fn spare(&self) -> (Option<u32>, usize) {
        let state = self.shared.state();
        (state.spare.first().copied(), state.spare.len())
    }

    /// Whether the file system has less free than half of what is to be left: give an extent back.
    pub fn short_of_space(&self) -> bool {
        self.shared.available().is_ok_and(|bytes| bytes < self.shared.options.free / 2)
    }

    /// Figures.
    pub fn stats(&self) -> ExtentStats {
        let state = self.shared.state();
        let mut figures = ExtentStats {
            extents: u32::try_from(state.extents.len()).unwrap_or(u32::MAX),
            spare: u32::try_from(state.spare.len()).unwrap_or(u32::MAX),
            prewritten_bytes: state.prewritten,
            first_written_bytes: state.first_written,
            fault: state.fault.clone(),
            ..ExtentStats::default()
        };
        for extent in state.extents.values() {
            let (ready, unwritten) = extent.supply.bytes();
            figures.ready_bytes += ready;
            figures.unwritten_bytes += unwritten + extent.claimed;
        }
        figures
    }
}

impl Drop for Extents {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.changed.notify_all();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            let _ = thread.join();
        }
    }
}
