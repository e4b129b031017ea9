//! What memory lies in: asked of the kernel, and remembered where the answer was "huge pages".
//!
//! A hint: memory that is unmapped and mapped anew may be remembered wrongly, which costs time and nothing else.
//! On error: where the kernel can't be asked (before Linux 6.7; no `/proc`), nothing is known.
#![allow(unsafe_code, reason = "asks the kernel about addresses")]

use super::HUGE;
use std::collections::HashSet;
use std::fs::File;
use std::sync::{PoisonError, RwLock};

/// Most huge pages that are remembered: of 2 TiB.
const MOST: usize = 1 << 20;

/// Who asks.
#[derive(Debug)]
pub struct Sight {
    /// `None`: nobody to ask.
    pages: Option<File>,
    known: RwLock<HashSet<usize>>,
}

impl Sight {
    /// Finds out whether the kernel answers.
    pub fn open() -> Self {
        let word = 0_u64;
        let pages = File::open("/proc/self/pagemap").ok();
        let pages = pages.filter(|pages| system::small(pages, std::ptr::from_ref(&word).addr(), 1).is_some());
        Self { pages, known: RwLock::default() }
    }

    /// Whether the kernel answers.
    pub const fn sees(&self) -> bool {
        self.pages.is_some()
    }

    /// Whether any of this memory is in small pages, or not there at all. `false` where nothing is known.
    pub fn small(&self, at: *const u8, bytes: usize) -> bool {
        let Some(pages) = &self.pages else { return false };
        let (first, end) = (at.addr() / HUGE, (at.addr() + bytes).div_ceil(HUGE));
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if (first..end).all(|page| known.contains(&page)) {
            return false;
        }
        drop(known);
        if system::small(pages, at.addr(), bytes).unwrap_or(false) {
            return true;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() + (end - first) > MOST {
            known.clear();
        }
        known.extend(first..end);
        false
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use std::fs::File;
    use std::os::fd::AsRawFd as _;

    /// `struct pm_scan_arg`.
    #[repr(C)]
    #[derive(Default)]
    struct Scan {
        size: u64,
        flags: u64,
        start: u64,
        end: u64,
        walk_end: u64,
        found: u64,
        found_length: u64,
        most_pages: u64,
        inverted: u64,
        all_of: u64,
        any_of: u64,
        told: u64,
    }

    /// `PAGE_IS_HUGE`.
    const IS_HUGE: u64 = 1 << 6;
    /// `PAGEMAP_SCAN`: `_IOWR('f', 16, struct pm_scan_arg)`.
    const SCAN: u64 = 0xC000_6610 | (size_of::<Scan>() as u64) << 16;
    /// Of any machine that has huge pages of ours, or a multiple of it.
    const PAGE: usize = 64 << 10;

    /// Whether a page of this range isn't in a huge one.
    pub fn small(pages: &File, at: usize, bytes: usize) -> Option<bool> {
        let mut found = [0_u64; 3];
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            start: (at - at % PAGE) as u64,
            end: (at + bytes).next_multiple_of(PAGE) as u64,
            found: found.as_mut_ptr().expose_provenance() as u64,
            found_length: 1,
            most_pages: 1,
            inverted: IS_HUGE,
            all_of: IS_HUGE,
            told: IS_HUGE,
            ..Scan::default()
        };
        // SAFETY: the kernel writes one range to `found`, and to `scan`; it looks at addresses, not at what is there.
        let ranges = unsafe { libc::ioctl(pages.as_raw_fd(), SCAN as _, &raw mut scan) };
        (ranges >= 0).then_some(ranges > 0)
    }
}

#[cfg(any(not(target_os = "linux"), miri))]
mod system {
    pub fn small(_: &std::fs::File, _: usize, _: usize) -> Option<bool> {
        None
    }
}
