//! Walks nests of runs over pages.
//!
//! On error: nothing here fails.
#![allow(unsafe_code, reason = "copies between raw addresses that a job owns")]

use super::nontemporal::{CopyRuns, Level};
use super::route::Nest;
use crate::ids::Slot;
use crate::transfer::Direction;
use crate::transfer::plan::spans;

/// Copies some pages (device slot, host slot) of a nest's planes.
///
/// # Safety
/// Both sides' memory must hold those slots, source and target must not overlap, and nobody else may write
/// to either or read the target meanwhile.
pub(super) unsafe fn pages(nest: &Nest, direction: Direction, pages: &[(Slot, Slot)], copy: CopyRuns) {
    for span in spans(pages) {
        let (from, to) = match direction {
            Direction::In => (span.host.0 as usize, span.device.0 as usize),
            Direction::Out => (span.device.0 as usize, span.host.0 as usize),
        };
        let (times, run) =
            if nest.dense { (1, nest.run * span.pages as usize) } else { (span.pages, nest.run) };
        for page in 0..times as usize {
            let from = nest.from.wrapping_add((from + page).wrapping_mul(nest.from_page));
            let to = nest.to.wrapping_add((to + page).wrapping_mul(nest.to_page));
            let (from, to) =
                (std::ptr::with_exposed_provenance(from), std::ptr::with_exposed_provenance_mut(to));
            // SAFETY: the caller's, for all of these slots' runs.
            unsafe { level(&nest.levels, from, to, run, copy) };
        }
    }
}

/// # Safety
/// As for `copy`, for every run of the levels.
unsafe fn level(levels: &[Level], from: *const u8, to: *mut u8, run: usize, copy: CopyRuns) {
    match levels {
        // SAFETY: the caller's.
        [last] => unsafe { copy(last, from, to, run) },
        [Level::Even { extent, from: source, to: target }, inner @ ..] => {
            for at in 0..*extent {
                let (from, to) = (from.wrapping_add(at * source), to.wrapping_add(at * target));
                // SAFETY: the caller's.
                unsafe { level(inner, from, to, run, copy) };
            }
        }
        [Level::Each(places), inner @ ..] => {
            for (source, target) in places {
                let (from, to) = (from.wrapping_add(*source), to.wrapping_add(*target));
                // SAFETY: the caller's.
                unsafe { level(inner, from, to, run, copy) };
            }
        }
        [] => {}
    }
}
