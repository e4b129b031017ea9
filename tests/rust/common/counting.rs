//! An allocator that counts, per thread: what a call costs and what a structure keeps, without a clock.
#![allow(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

pub struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static MADE: Cell<usize> = const { Cell::new(0) };
}

fn count(bytes: usize, sign: isize) {
    let by = sign * isize::try_from(bytes).unwrap_or(0);
    // A thread that ends frees after its counters are gone.
    let _ = LIVE.try_with(|live| live.set(live.get() + by));
    if sign > 0 {
        let _ = MADE.try_with(|made| made.set(made.get() + bytes));
    }
}

// SAFETY: everything is the system's allocator's work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Bytes that this thread keeps allocated.
pub fn live() -> isize {
    LIVE.with(Cell::get)
}

/// Bytes that a call allocates, also those that it frees again.
pub fn made(call: impl FnOnce()) -> usize {
    let before = MADE.with(Cell::get);
    call();
    MADE.with(Cell::get) - before
}
