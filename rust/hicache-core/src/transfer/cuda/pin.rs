//! Host memory for the GPU: pinned in pieces, smaller ones where the system refuses large ones.
//!
//! How much one registration may have differs (4, 32, 512 GiB have been seen) and nobody can be asked. Assumes that
//! what fails as a whole and works in its first piece is short of memory in all: then smaller pieces don't help.
//! On error: names how much was to be pinned; nothing stays pinned.
#![allow(unsafe_code, reason = "hands host memory to the engine")]

use super::answer::{CudaError, CudaResult};
use super::engine::Engine;
use crate::host::layout::Region;
use crate::host::pieces;

/// Smaller pieces than that are not tried: what one registration may have was never less.
const LEAST: usize = 64 << 20;

/// Host memory to pin: an address, and pieces one behind another, in bytes. None should end inside of a page.
#[derive(Clone, Debug)]
pub struct Pinned {
    /// A multiple of 4096.
    pub base: *mut u8,
    /// All but the last are multiples of 4096.
    pub pieces: Vec<u64>,
    /// The pages in it: where smaller pieces may end. None: there are no smaller ones.
    pub regions: Vec<Region>,
}

impl Pinned {
    /// In pieces of at most `most` bytes, as far as pages allow.
    pub fn of(base: *mut u8, regions: Vec<Region>, bytes: usize, most: usize) -> Self {
        let pieces = pieces(&regions, bytes, most).into_iter().map(|piece| piece.len() as u64).collect();
        Self { base, pieces, regions }
    }

    /// Of all pieces.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().sum()
    }

    /// In pieces of at most half the largest one, if that makes any difference.
    fn smaller(&self) -> Option<Self> {
        let size = |bytes: u64| usize::try_from(bytes).ok();
        let most = size(*self.pieces.iter().max()?)? / 2;
        let other = Self::of(self.base, self.regions.clone(), size(self.bytes())?, most);
        (most >= LEAST && !self.regions.is_empty() && other.pieces.len() > self.pieces.len()).then_some(other)
    }
}

/// Pins all of it.
///
/// # Errors
/// What CUDA refused, also of small pieces.
///
/// # Safety
/// The memory must stay mapped until the engine is dropped.
pub unsafe fn pin(engine: &mut Engine, memory: &Pinned) -> CudaResult<()> {
    let mut now = memory.clone();
    loop {
        // SAFETY: the caller's promise.
        let fault = match unsafe { engine.register(now.base, &now.pieces) } {
            Err(CudaError::Cuda { code, name, .. }) => CudaError::Pinning { bytes: now.bytes(), code, name },
            done => return done,
        };
        let Some(smaller) = now.smaller() else { return Err(fault) };
        // SAFETY: the caller's promise.
        if unsafe { engine.register(now.base, &now.pieces[..1]) }.is_ok() {
            engine.unregister(now.base)?;
            return Err(fault);
        }
        now = smaller;
    }
}
