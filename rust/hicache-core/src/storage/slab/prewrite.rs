//! The thread that writes zeros to what of the extents nobody has written yet, and keeps one extent spare.
//!
//! Only when the disk has nothing else to do: a page written where nothing was before costs less than zeros
//! and then the page. What it wrote is handed out once it is durable.
//! May assume that what it has claimed is nobody else's.
//! On error: the claim stays unwritten, the fault is noted, and after a while it tries again.

use super::state::{Shared, State};
use crate::storage::disk::{DataFile, Op};
use memmap2::MmapMut;
use std::io;
use std::ops::Range;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of one write.
const STEP: usize = 2 << 20;
/// Bytes between two flushes.
const STRIDE: u64 = 64 << 20;
/// Until it looks again whether the disk is idle.
const PAUSE: Duration = Duration::from_millis(5);
/// Until it looks for a full file system, or tries again what failed.
const WATCH: Duration = Duration::from_secs(5);

/// Works until it is closed.
pub(super) fn work(shared: &Shared) {
    let zeros = match MmapMut::map_anon(STEP) {
        Ok(zeros) => zeros,
        Err(error) => {
            shared.state().fault = Some(format!("nothing is prewritten: {error}"));
            return;
        }
    };
    while !shared.state().closed {
        let pause = turn(shared, &zeros);
        let state = shared.state();
        if let Some(pause) = pause.filter(|_| !state.closed) {
            sleep(shared, state, pause);
        }
    }
}

/// One stride, one extent made or given back; how long to wait where there is nothing to do.
fn turn(shared: &Shared, zeros: &[u8]) -> Option<Duration> {
    if shared.short() {
        let spare = shared.state().spare.first().copied();
        return spare.filter(|&number| shared.remove(number)).map_or(Some(WATCH), |_| None);
    }
    if shared.disk.busy() {
        return Some(PAUSE);
    }
    match stride(shared, zeros) {
        Some(Ok(())) => None,
        Some(Err(error)) => {
            shared.state().fault = Some(format!("can't be prewritten: {error}"));
            Some(WATCH)
        }
        // Everything is written; the next extent is there before it is needed.
        None if shared.state().wants_spare() => shared.make().map_or(Some(WATCH), |()| None),
        None => Some(WATCH),
    }
}

/// Writes up to a stride of one extent, less if others need the disk; `None` if there is nothing to write.
fn stride(shared: &Shared, zeros: &[u8]) -> Option<io::Result<()>> {
    let (number, file) = {
        let mut state = shared.state();
        let number = state.next()?;
        let extent = state.extents.get_mut(&number)?;
        extent.writing = true;
        (number, Arc::clone(&extent.file))
    };
    let mut written = Vec::new();
    let mut result = Ok(());
    let mut bytes = 0;
    while result.is_ok() && bytes < STRIDE && (bytes == 0 || !shared.disk.busy()) {
        let Some(range) = shared.claim(number, &file) else { break };
        result = zero(shared, &file, &range, zeros);
        bytes += range.end - range.start;
        written.push(range);
    }
    let result = result.and_then(|()| file.sync());
    shared.settle(number, &file, written, result.is_ok());
    Some(result)
}

fn zero(shared: &Shared, file: &Arc<DataFile>, range: &Range<u64>, zeros: &[u8]) -> io::Result<()> {
    let mut at = range.start;
    let mut result = Ok(());
    let next = || {
        let bytes = zeros.len().min(usize::try_from(range.end - at).ok()?);
        let op = Op::write(0, Arc::clone(file), at, [&zeros[..bytes]]);
        at += bytes as u64;
        (bytes > 0).then_some(op)
    };
    shared.disk.run_behind(2, next, |_, done| {
        if let Err(error) = done {
            result = Err(error);
        }
    });
    result
}

fn sleep(shared: &Shared, state: MutexGuard<'_, State>, pause: Duration) {
    drop(shared.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner));
}

impl State {
    /// Which extent has something to write: one with a class first, that a page may go to.
    fn next(&self) -> Option<u32> {
        let todo = self.extents.iter().filter(|(_, extent)| extent.supply.has(false));
        todo.min_by_key(|(_, extent)| extent.slot == 0).map(|(&number, _)| number)
    }

    /// Whether there is no spare extent, and one would be of use.
    fn wants_spare(&self) -> bool {
        self.spare.is_empty() && self.files() < self.asked
    }
}

impl Shared {
    fn short(&self) -> bool {
        self.available().is_ok_and(|bytes| bytes < self.options.free / 2)
    }

    /// The next part to write of this extent, if it still is that one.
    fn claim(&self, number: u32, file: &Arc<DataFile>) -> Option<Range<u64>> {
        let mut state = self.state();
        if state.closed || state.waiting > 0 {
            return None;
        }
        let extent = state.extents.get_mut(&number).filter(|extent| Arc::ptr_eq(&extent.file, file))?;
        let unit = if extent.slot > 0 { extent.slot } else { STEP as u64 };
        let range = extent.supply.claim(unit, STEP as u64)?;
        extent.claimed += range.end - range.start;
        state.claiming = Some(number);
        state.file(number);
        Some(range)
    }

    /// Gives back what was claimed.
    fn settle(&self, number: u32, file: &Arc<DataFile>, ranges: Vec<Range<u64>>, written: bool) {
        let mut state = self.state();
        state.claiming = None;
        if let Some(extent) = state.extents.get_mut(&number).filter(|extent| Arc::ptr_eq(&extent.file, file))
        {
            extent.writing = false;
            let bytes = std::mem::take(&mut extent.claimed);
            ranges.into_iter().for_each(|range| extent.supply.give(range, written));
            state.prewritten += if written { bytes } else { 0 };
            state.file(number);
        }
        drop(state);
        self.changed.notify_all();
    }
}
