//! The region of CPU memory that holds one pool's host pages.
//!
//! Anonymous memory, zeroed by the kernel on first use, with huge pages where the kernel has them.
//! A slab hands out raw addresses; who may use which is settled by slots: one owner at a time.
#![allow(unsafe_code, reason = "hands out addresses into its own mapping")]

use crate::error::{Result, argument};
use std::ops::Range;

/// One pool's host memory.
#[derive(Debug)]
pub struct Slab {
    base: *mut u8,
    bytes: usize,
    /// Owns the memory at `base`.
    _map: Option<memmap2::MmapMut>,
}

// SAFETY: the slab never reads or writes its memory itself; owners of slots do, each its own bytes.
unsafe impl Send for Slab {}
// SAFETY: as above; all methods take addresses only.
unsafe impl Sync for Slab {}

impl Slab {
    /// # Errors
    /// When the kernel refuses so much memory.
    pub fn new(bytes: usize) -> Result<Self> {
        if bytes == 0 {
            return Ok(Self { base: std::ptr::NonNull::dangling().as_ptr(), bytes, _map: None });
        }
        let mut map = match memmap2::MmapMut::map_anon(bytes) {
            Ok(map) => map,
            Err(error) => return argument("host", format!("no memory for a slab of {bytes} bytes: {error}")),
        };
        // Advice only: a kernel without huge pages serves small ones.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self { base: map.as_mut_ptr(), bytes, _map: Some(map) })
    }

    /// Address of a run of bytes; `None` if it isn't inside the slab.
    pub fn address(&self, run: Range<usize>) -> Option<*mut u8> {
        if run.start > run.end || run.end > self.bytes {
            return None;
        }
        // SAFETY: `run.start <= self.bytes`, checked above: inside the mapping or one past its end.
        Some(unsafe { self.base.add(run.start) })
    }
}
