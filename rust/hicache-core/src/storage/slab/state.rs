//! What is known of all extents, and who may wait for whom.
//!
//! One mutex, never held over I/O; nothing of anybody else's is called under it.
//! On error: what can't be made is noted as the fault, for people.

use super::extents::ExtentOptions;
use super::files;
use super::media::Media;
use super::supply::Supply;
use crate::storage::disk::{DataFile, Disk};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a put waits for an extent that zeros are being written to.
const PATIENCE: Duration = Duration::from_secs(1);

/// What its thread sees, too.
pub(super) struct Shared {
    pub(super) disk: Arc<Disk>,
    media: Arc<dyn Media>,
    dir: PathBuf,
    pub(super) options: ExtentOptions,
    state: Mutex<State>,
    /// Something for the thread to do, or done by it.
    pub(super) changed: Condvar,
}

/// Figures, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtentStats {
    /// Extents that there are.
    pub extents: u32,
    /// Those of them without a class.
    pub spare: u32,
    /// Bytes of free slots, and of spare extents, that were written before.
    pub ready_bytes: u64,
    /// Bytes of free slots, and of spare extents, that weren't.
    pub unwritten_bytes: u64,
    /// Bytes of zeros written in advance since it was opened.
    pub prewritten_bytes: u64,
    /// Bytes of slots handed out that weren't written before, since it was opened.
    pub first_written_bytes: u64,
    /// What last kept it from making or prewriting an extent.
    pub fault: Option<String>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) extents: BTreeMap<u32, Extent>,
    /// Those of them without a class.
    pub(super) spare: BTreeSet<u32>,
    /// How many files there may be.
    pub(super) most: u32,
    /// How many there could have been for the last one who wanted an extent: a spare one beyond that is no use.
    pub(super) asked: u32,
    /// Numbers of extents that are just being made, or whose files are being removed.
    making: BTreeSet<u32>,
    pub(super) classes: BTreeMap<u64, Class>,
    pub(super) closed: bool,
    /// Who wants an extent that the thread is writing to.
    pub(super) waiting: usize,
    /// The extent that the thread has claimed slots of, to write zeros to them.
    pub(super) claiming: Option<u32>,
    pub(super) prewritten: u64,
    pub(super) first_written: u64,
    pub(super) fault: Option<String>,
}

/// Extents of a class that have free slots, by whether these were written before.
#[derive(Default)]
pub(super) struct Class {
    pub(super) ready: BTreeSet<u32>,
    pub(super) todo: BTreeSet<u32>,
}

pub(super) struct Extent {
    pub(super) file: Arc<DataFile>,
    /// Bytes of a slot; 0 without a class.
    pub(super) slot: u64,
    pub(super) supply: Supply,
    /// The thread is at it.
    pub(super) writing: bool,
    /// Bytes that are with the thread.
    pub(super) claimed: u64,
    /// Slots in use that nobody has written, as the file system has it: a loss of power took their bytes.
    blank: BTreeSet<u32>,
}

impl Extent {
    pub(super) const fn new(file: Arc<DataFile>, supply: Supply) -> Self {
        Self { file, slot: 0, supply, writing: false, claimed: 0, blank: BTreeSet::new() }
    }

    /// Cuts it into slots, of which these are in use.
    pub(super) fn adopt(&mut self, slot: u64, slots: u32, used: Vec<u32>) {
        self.supply.order();
        self.blank = used.iter().copied().filter(|&n| !self.supply.wrote(slot, n)).collect();
        self.supply.cut(slot, slots, used);
        self.slot = slot;
    }

    /// Takes a slot back.
    pub(super) fn give(&mut self, slot: u32, written: bool) {
        let start = u64::from(slot) * self.slot;
        let blank = self.blank.remove(&slot);
        self.supply.give(start..start + self.slot, written && !blank);
    }
}

impl State {
    /// How many files there are.
    pub(super) fn files(&self) -> u32 {
        u32::try_from(self.extents.len() + self.making.len()).unwrap_or(u32::MAX)
    }

    /// Whether some are being made or removed.
    pub(super) fn is_busy_with_files(&self) -> bool {
        !self.making.is_empty()
    }

    /// Whether zeros are being written to slots of this size.
    pub(super) fn claims_of(&self, slot: u64) -> bool {
        self.claiming.and_then(|number| self.extents.get(&number)).is_some_and(|extent| extent.slot == slot)
    }

    /// Gives a spare extent to a class.
    pub(super) fn give(&mut self, number: u32, slot: u64, slots: u32) {
        let Some(extent) = self.extents.get_mut(&number) else { return };
        extent.supply.cut(slot, slots, []);
        extent.slot = slot;
        self.spare.remove(&number);
        self.file(number);
    }

    /// Notes what of an extent's is free.
    pub(super) fn file(&mut self, number: u32) {
        let Some(extent) = self.extents.get(&number).filter(|extent| extent.slot > 0) else { return };
        let class = self.classes.entry(extent.slot).or_default();
        for (set, written) in [(&mut class.ready, true), (&mut class.todo, false)] {
            if extent.supply.has(written) {
                set.insert(number);
            } else {
                set.remove(&number);
            }
        }
    }

    pub(super) fn unfile(&mut self, slot: u64, number: u32) {
        if let Some(class) = self.classes.get_mut(&slot) {
            class.ready.remove(&number);
            class.todo.remove(&number);
        }
    }
}

impl Shared {
    pub(super) fn new(
        disk: Arc<Disk>,
        media: Arc<dyn Media>,
        dir: &Path,
        options: ExtentOptions,
        mut state: State,
    ) -> Self {
        (state.most, state.asked) = (options.most, options.most);
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Self { disk, media, dir: dir.to_owned(), options, state, changed }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the thread has ended its step, which it does at once; not for ever, should the disk hang: whether it
    /// has.
    pub(super) fn wait(&self, mut state: MutexGuard<'_, State>) -> bool {
        state.waiting += 1;
        let (mut state, late) =
            self.changed.wait_timeout(state, PATIENCE).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        !late.timed_out()
    }

    /// Makes one more extent, if there may be one; without I/O while others wait.
    pub(super) fn make(&self) -> Option<()> {
        let mut state = self.state();
        if state.files() >= state.most {
            return None;
        }
        let taken = |number: &u32| state.extents.contains_key(number) || state.making.contains(number);
        let number = (0..self.options.most).find(|number| !taken(number))?;
        state.making.insert(number);
        drop(state);
        let made = files::make(&self.disk, &*self.media, &self.dir, number, self.options);
        let mut state = self.state();
        state.making.remove(&number);
        match made {
            Ok(file) => {
                let supply = Supply::of(&[], self.options.bytes);
                state.extents.insert(number, Extent::new(file, supply));
                state.spare.insert(number);
                drop(state);
                self.changed.notify_all();
                Some(())
            }
            Err(error) => {
                state.fault = Some(format!("no extent {number}: {error}"));
                drop(state);
                self.changed.notify_all();
                None
            }
        }
    }

    /// Removes a spare extent and its file; whether there was one.
    pub(super) fn remove(&self, number: u32) -> bool {
        let mut state = self.state();
        if !state.spare.remove(&number) {
            return false;
        }
        state.extents.remove(&number);
        // Nobody makes one of this number before the file is gone.
        state.making.insert(number);
        drop(state);
        let removed = files::remove(&*self.media, &self.dir, number);
        let mut state = self.state();
        state.making.remove(&number);
        if let Err(error) = removed {
            state.fault = Some(format!("extent {number} can't be removed: {error}"));
        }
        drop(state);
        self.changed.notify_all();
        true
    }

    pub(super) fn available(&self) -> io::Result<u64> {
        files::available(&self.dir)
    }
}
