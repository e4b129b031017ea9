//! Buffers for memory that the disk can't use as it lies, or would take much longer to: copied on the way.
//!
//! Direct I/O needs aligned memory, and moves it piece by piece: from 4-KiB pages it reaches about half of what it does
//! from huge ones, while a copy costs a fraction of that and is made while others move. The buffers are in huge pages;
//! a few are used again and again, so that mostly they are in the processor's caches.
//!
//! Kept for the next one, up to a bound. May assume that a buffer's user waits for its transfer.
//! On error: the kernel's, when it has no memory. Without huge pages nothing is copied for want of them.
#![allow(unsafe_code, reason = "copies between its buffers and an operation's runs")]

use super::Run;
use crate::huge::{HUGE, Mapping, Sight};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What is kept in all, in bytes: four batches' worth.
const KEPT: usize = 4 * MOST;
/// What a batch has in use, in bytes: enough under way for a disk, and little enough to be kept.
pub const MOST: usize = 16 << 20;
/// The smallest buffer: so that a few sizes serve all.
const LEAST: usize = 64 << 10;
/// In so many pieces memory is used as it lies: below, a copy costs more than it saves.
const PIECES: usize = 8;
const SMALL: usize = 4096;
/// To look for a huge page in vain takes as long as many transfers.
const PATIENCE: usize = 4096;

/// Buffers that nobody uses just now.
#[derive(Debug)]
pub struct Bounces {
    free: Mutex<Vec<Buffer>>,
    sight: Sight,
    /// There was no huge page for a buffer: how many go without one before the next try.
    lacking: AtomicUsize,
    copied: AtomicU64,
}

impl Bounces {
    /// Finds out whether there are huge pages for buffers.
    pub fn new() -> Self {
        let all = Self {
            free: Mutex::default(),
            sight: Sight::open(),
            lacking: AtomicUsize::new(0),
            copied: AtomicU64::new(0),
        };
        if all.sight.sees()
            && let Some(first) = all.huge(HUGE)
        {
            all.give(first);
        }
        all
    }

    /// A buffer of at least so many bytes, on a page boundary.
    pub fn take(&self, bytes: usize) -> io::Result<Bounce> {
        let size = size_for(bytes);
        let buffer = self.kept(size, false).map_or_else(|| self.make(size), Ok)?;
        Ok(Bounce { buffer, bytes })
    }

    /// A buffer in huge pages for runs in so many small ones that a copy is faster.
    pub fn take_for(&self, runs: &[Run]) -> Option<Bounce> {
        let bytes: usize = runs.iter().map(|run| run.bytes).sum();
        let enough = bytes > PIECES * SMALL || runs.len() > PIECES;
        if !enough || bytes > MOST || !self.sight.sees() || self.pieces(runs) <= PIECES {
            return None;
        }
        let bounce = self.huge(bytes)?;
        self.copied.fetch_add(bytes as u64, Ordering::Relaxed);
        Some(bounce)
    }

    /// A buffer in huge pages, if there are any.
    fn huge(&self, bytes: usize) -> Option<Bounce> {
        let size = size_for(bytes);
        if let Some(buffer) = self.kept(size, true) {
            return Some(Bounce { buffer, bytes });
        }
        let waits = |left: usize| left.checked_sub(1);
        if self.lacking.fetch_update(Ordering::Relaxed, Ordering::Relaxed, waits).is_ok() {
            return None;
        }
        let buffer = self.make(size).ok().filter(|buffer| buffer.huge);
        if buffer.is_none() {
            self.lacking.store(PATIENCE, Ordering::Relaxed);
        }
        Some(Bounce { buffer: buffer?, bytes })
    }

    /// A new one, or a part of one that is kept.
    fn make(&self, size: usize) -> io::Result<Buffer> {
        let kept = if size < HUGE { self.kept(HUGE, true) } else { None };
        let whole = kept.map_or_else(|| self.mapped(size.max(HUGE)), Ok)?;
        let part = |start| Buffer {
            map: Arc::clone(&whole.map),
            start: whole.start + start,
            size,
            huge: whole.huge,
        };
        if whole.huge {
            let rest = (size..whole.size).step_by(size).map(part);
            self.free.lock().unwrap_or_else(PoisonError::into_inner).extend(rest);
        }
        Ok(part(0))
    }

    fn mapped(&self, size: usize) -> io::Result<Buffer> {
        let map = Mapping::anonymous(size)?;
        map.touch(1)?;
        let huge = self.sight.sees() && !self.sight.small(map.base(), map.bytes());
        Ok(Buffer { map: Arc::new(map), start: 0, size, huge })
    }

    /// In how many pieces memory is, at most.
    fn pieces(&self, runs: &[Run]) -> usize {
        let of = |run: &Run| if self.sight.small(run.at, run.bytes) { run.bytes.div_ceil(SMALL) } else { 1 };
        runs.iter().map(of).sum()
    }

    /// What was given back last is in the processor's caches.
    fn kept(&self, size: usize, huge: bool) -> Option<Buffer> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let at = free.iter().rposition(|buffer| buffer.size == size && buffer.huge >= huge)?;
        Some(free.remove(at))
    }

    /// Takes one back whose transfer has ended.
    pub fn give(&self, bounce: Bounce) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        // In order of their last use: where pages of another size are moved now, those of before go.
        let mut all = free.iter().map(|buffer| buffer.size).sum::<usize>() + bounce.buffer.size;
        while all > KEPT && !free.is_empty() {
            all -= free.remove(0).size;
        }
        if all <= KEPT {
            free.push(bounce.buffer);
        }
    }

    /// For people: what becomes of memory in small pages.
    pub fn describe(&self) -> String {
        if !self.sight.sees() {
            return "memory used as it lies (the kernel doesn't tell in which pages)".into();
        }
        let copied = self.copied.load(Ordering::Relaxed) >> 20;
        let lacking =
            if self.lacking.load(Ordering::Relaxed) > 0 { ", of which there are too few" } else { "" };
        format!("memory in small pages copied through huge ones{lacking} ({copied} MiB so far)")
    }
}

/// A part of a mapping.
#[derive(Debug)]
struct Buffer {
    map: Arc<Mapping>,
    start: usize,
    size: usize,
    huge: bool,
}

fn size_for(bytes: usize) -> usize {
    bytes.next_power_of_two().max(LEAST)
}

/// An aligned buffer, in use.
#[derive(Debug)]
pub struct Bounce {
    buffer: Buffer,
    bytes: usize,
}

impl Bounce {
    /// All of it, for the kernel.
    pub fn run(&self) -> Run {
        Run { at: self.buffer.map.base().wrapping_add(self.buffer.start), bytes: self.bytes }
    }

    /// How large it is.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies runs in, zeros behind them.
    pub fn fill(&mut self, runs: &[Run]) {
        let mut rest = self.run();
        for run in runs {
            assert!(run.bytes <= rest.bytes, "a buffer for all runs");
            // SAFETY: the operation that carries the run has its memory; the buffer is ours and has the room.
            unsafe { std::ptr::copy_nonoverlapping(run.at, rest.at, run.bytes) };
            rest = Run { at: rest.at.wrapping_add(run.bytes), bytes: rest.bytes - run.bytes };
        }
        // SAFETY: what is left of the buffer.
        unsafe { std::ptr::write_bytes(rest.at, 0, rest.bytes) };
    }

    /// Copies runs out.
    pub fn spill(&self, runs: &[Run]) {
        let mut rest = self.run();
        for run in runs {
            assert!(run.bytes <= rest.bytes, "a buffer for all runs");
            // SAFETY: the operation that carries the run has its memory, and reads into it; the buffer has as much.
            unsafe { std::ptr::copy_nonoverlapping(rest.at, run.at, run.bytes) };
            rest = Run { at: rest.at.wrapping_add(run.bytes), bytes: rest.bytes - run.bytes };
        }
    }
}
