//! Copies of many runs with stores that pass the caches by: what is written won't be read soon, and reading
//! the lines that are written would cost half as much again.
//!
//! Whole lines of 64 bytes go past the caches; what begins or ends inside of a line goes through them. Stores
//! that pass the caches are not ordered with others: [`fence`] before anyone is told.
//! Where the machine has no such stores, and under Miri, copies are plain. On error: nothing here fails.
#![allow(unsafe_code, reason = "copies between raw addresses that a job owns")]

/// Runs to copy: how many, from one to the next on either side.
#[derive(Clone, Debug)]
pub(super) enum Level {
    /// At equal distances.
    Even {
        /// How many.
        extent: usize,
        /// Bytes between two of them at the source.
        from: usize,
        /// And at the target.
        to: usize,
    },
    /// At these distances from the first, source and target. They wrap: planes lie in any order.
    Each(Vec<(usize, usize)>),
}

/// Copies the runs of a level.
///
/// # Safety
/// As for `copy_nonoverlapping`, for every run of the level.
pub(super) type CopyRuns = unsafe fn(&Level, from: *const u8, to: *mut u8, run: usize);

/// Copies through the caches: for what is read again at once.
pub(super) const PLAIN: CopyRuns = plain;

/// Copies past the caches, where the machine can.
pub(super) fn past_caches() -> CopyRuns {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::arch::is_x86_feature_detected!("avx") {
        return x86::runs;
    }
    plain
}

/// Orders all stores before it with all after it, those past the caches too.
pub(super) fn fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 has this instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// See [`CopyRuns`].
unsafe fn plain(level: &Level, from: *const u8, to: *mut u8, run: usize) {
    each(level, from, to, |from, to| {
        // SAFETY: the caller's.
        unsafe { std::ptr::copy_nonoverlapping(from, to, run) };
    });
}

/// Calls `copy` with both addresses of every run.
#[inline(always)]
#[allow(clippy::inline_always, reason = "into functions that are compiled for wider registers")]
fn each(level: &Level, from: *const u8, to: *mut u8, mut copy: impl FnMut(*const u8, *mut u8)) {
    match level {
        Level::Even { extent, from: source, to: target } => {
            for at in 0..*extent {
                copy(from.wrapping_add(at * source), to.wrapping_add(at * target));
            }
        }
        Level::Each(places) => {
            for (source, target) in places {
                copy(from.wrapping_add(*source), to.wrapping_add(*target));
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use super::{Level, each};
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_stream_si256};

    const LINE: usize = 64;

    /// See [`super::CopyRuns`]; the machine must have AVX.
    #[target_feature(enable = "avx")]
    pub unsafe fn runs(level: &Level, from: *const u8, to: *mut u8, run: usize) {
        if run.is_multiple_of(LINE) && lines_apart(level, to) {
            // SAFETY: the caller's; every run is whole lines.
            return each(level, from, to, |from, to| unsafe { whole_lines(from, to, run) });
        }
        each(level, from, to, |from, to| {
            let head = to.align_offset(LINE).min(run);
            let lines = (run - head) / LINE * LINE;
            let tail = run - head - lines;
            // SAFETY: the three parts are the run, which the caller vouches for; the middle begins with a line.
            unsafe { part(from, to, head) };
            // SAFETY: as above.
            unsafe { whole_lines(from.wrapping_add(head), to.wrapping_add(head), lines) };
            // SAFETY: as above.
            unsafe { part(from.wrapping_add(head + lines), to.wrapping_add(head + lines), tail) };
        });
    }

    /// Whether every run of a level begins a line at the target.
    fn lines_apart(level: &Level, to: *mut u8) -> bool {
        let apart = match level {
            Level::Even { to, .. } => to.is_multiple_of(LINE),
            Level::Each(places) => places.iter().all(|place| place.1.is_multiple_of(LINE)),
        };
        apart && to.addr().is_multiple_of(LINE)
    }

    #[inline]
    unsafe fn part(from: *const u8, to: *mut u8, bytes: usize) {
        if bytes > 0 {
            // SAFETY: the caller's.
            unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
        }
    }

    /// `bytes` is a multiple of a line, and `to` begins one.
    #[inline]
    #[target_feature(enable = "avx")]
    unsafe fn whole_lines(from: *const u8, to: *mut u8, bytes: usize) {
        let pairs = bytes / (2 * LINE) * (2 * LINE);
        for at in (0..pairs).step_by(2 * LINE) {
            // SAFETY: two lines inside of both sides.
            unsafe { lines::<4>(from.wrapping_add(at), to.wrapping_add(at)) };
        }
        if bytes > pairs {
            // SAFETY: the last line.
            unsafe { lines::<2>(from.wrapping_add(pairs), to.wrapping_add(pairs)) };
        }
    }

    /// `N` halves of lines: all are read before any is written.
    #[inline]
    #[target_feature(enable = "avx")]
    unsafe fn lines<const N: usize>(from: *const u8, to: *mut u8) {
        #[allow(clippy::cast_ptr_alignment, reason = "loads are unaligned ones; the target begins a line")]
        let (from, to) = (from.cast::<__m256i>(), to.cast::<__m256i>());
        // SAFETY: inside the source.
        let halves: [__m256i; N] =
            std::array::from_fn(|at| unsafe { _mm256_loadu_si256(from.wrapping_add(at)) });
        for (at, half) in halves.into_iter().enumerate() {
            // SAFETY: inside the target, on a multiple of 32.
            unsafe { _mm256_stream_si256(to.wrapping_add(at), half) };
        }
    }
}
