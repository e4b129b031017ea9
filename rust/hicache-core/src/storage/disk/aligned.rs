//! Buffers for memory that direct I/O can't use as it lies: copied on the way.
//!
//! Kept for the next one, up to a bound. May assume that a buffer's user waits for its transfer.
//! On error: the kernel's, when it has no memory.
#![allow(unsafe_code, reason = "copies between its buffers and an operation's runs")]

use super::Run;
use memmap2::MmapMut;
use std::io;
use std::sync::{Mutex, PoisonError};

/// What is kept in all, in bytes: a batch at depth 32 of pages of 2 MiB.
const KEPT: usize = 64 << 20;
/// The smallest buffer: so that a few sizes serve all.
const LEAST: usize = 64 << 10;

/// Buffers that nobody uses just now.
#[derive(Debug, Default)]
pub struct Bounces(Mutex<Vec<MmapMut>>);

impl Bounces {
    /// A buffer of at least so many bytes, on a page boundary.
    pub fn take(&self, bytes: usize) -> io::Result<Bounce> {
        let size = bytes.next_power_of_two().max(LEAST);
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = free.iter().position(|map| map.len() == size) {
            return Ok(Bounce { map: free.swap_remove(at), bytes });
        }
        drop(free);
        Ok(Bounce { map: MmapMut::map_anon(size)?, bytes })
    }

    /// Takes one back whose transfer has ended.
    pub fn give(&self, bounce: Bounce) {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if free.iter().map(|map| map.len()).sum::<usize>() + bounce.map.len() <= KEPT {
            free.push(bounce.map);
        }
    }
}

/// An aligned buffer, in use.
#[derive(Debug)]
pub struct Bounce {
    map: MmapMut,
    bytes: usize,
}

impl Bounce {
    /// All of it, for the kernel.
    pub fn run(&mut self) -> Run {
        Run { at: self.map.as_mut_ptr(), bytes: self.bytes }
    }

    /// Copies runs in, zeros behind them.
    pub fn fill(&mut self, runs: &[Run]) {
        let mut at = 0;
        for run in runs {
            // SAFETY: the operation that carries the run has its memory.
            let bytes = unsafe { std::slice::from_raw_parts(run.at, run.bytes) };
            self.map[at..at + run.bytes].copy_from_slice(bytes);
            at += run.bytes;
        }
        self.map[at..self.bytes].fill(0);
    }

    /// Copies runs out.
    pub fn spill(&self, runs: &[Run]) {
        let mut at = 0;
        for run in runs {
            // SAFETY: the operation that carries the run has its memory, and reads into it.
            let bytes = unsafe { std::slice::from_raw_parts_mut(run.at, run.bytes) };
            bytes.copy_from_slice(&self.map[at..at + run.bytes]);
            at += run.bytes;
        }
    }
}
