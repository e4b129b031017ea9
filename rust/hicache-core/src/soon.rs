//! Tells the machine which memory will be needed soon, so that it waits for many places at once.
//!
//! Changes nothing and reads nothing. On other machines than x86-64 it does nothing. On error: nothing here fails.
#![allow(unsafe_code, reason = "the instruction takes an address")]

/// Bytes that memory comes in.
const LINE: usize = 64;

/// Most lines asked for at a time: by then the machine has seen by itself where a longer run goes.
const MOST: usize = 128;

/// An item, of which the first line.
#[inline]
pub(crate) fn item<T>(item: &T) {
    at(std::ptr::from_ref(item).cast());
}

/// Where a vector grows by so many items.
#[inline]
pub(crate) fn growth<T>(items: &Vec<T>, more: usize) {
    let end = items.as_ptr().wrapping_add(items.len()).cast::<u8>();
    run(end, more.min(items.capacity() - items.len()) * size_of::<T>());
}

/// All items of a slice.
#[inline]
pub(crate) fn all<T>(items: &[T]) {
    run(items.as_ptr().cast(), size_of_val(items));
}

#[inline]
fn run(start: *const u8, bytes: usize) {
    (0..bytes.div_ceil(LINE).min(MOST)).for_each(|line| at(start.wrapping_add(line * LINE)));
}

#[inline]
fn at(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which neither reads nor faults, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch(address.cast(), std::arch::x86_64::_MM_HINT_T0);
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = address;
}
