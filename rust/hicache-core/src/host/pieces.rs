//! A slab in pieces for pinning: as large as allowed, and none ends inside of a page of the cache.
//!
//! One copy must not span two pinned pieces, so a page that did could not be copied whole.
//! Pure arithmetic. On error: nothing here fails; where no end is allowed, a piece is larger than asked.

use super::layout::Region;
use std::ops::Range;

/// Memory is pinned in pages of the system.
const SYSTEM_PAGE: usize = 4096;

/// Ranges that cover `bytes` bytes in order, of at most `most` bytes each where that is possible.
pub fn pieces(regions: &[Region], bytes: usize, most: usize) -> Vec<Range<usize>> {
    let mut pieces: Vec<Range<usize>> = Vec::new();
    let mut start = 0;
    while start < bytes {
        let end = match start.checked_add(most).filter(|&end| end < bytes) {
            None => bytes,
            Some(wanted) => {
                last_end(regions, start, wanted).or_else(|| first_end(regions, wanted)).unwrap_or(bytes)
            }
        };
        pieces.push(start..end);
        start = end;
    }
    pieces
}

/// The last allowed end after `start` up to `wanted`.
fn last_end(regions: &[Region], start: usize, wanted: usize) -> Option<usize> {
    let ends = regions.iter().filter_map(|region| ends(region)?.last_up_to(wanted));
    ends.filter(|&end| end > start).max()
}

/// The first allowed end after `wanted`.
fn first_end(regions: &[Region], wanted: usize) -> Option<usize> {
    regions.iter().filter_map(|region| ends(region)?.first_after(wanted)).min()
}

/// Where pieces may end in a region: first, last, and how far apart.
struct Ends {
    first: usize,
    last: usize,
    step: usize,
}

/// `None` if no page of it ends with a page of the system.
fn ends(region: &Region) -> Option<Ends> {
    let end = |pages: usize| region.start + pages * region.page;
    let first = (0..=SYSTEM_PAGE.min(region.pages)).find(|&pages| end(pages).is_multiple_of(SYSTEM_PAGE))?;
    // From there on, whenever so many pages are whole pages of the system.
    let step = SYSTEM_PAGE >> region.page.trailing_zeros().min(SYSTEM_PAGE.trailing_zeros());
    let last = first + (region.pages - first) / step * step;
    Some(Ends { first: end(first), last: end(last), step: step * region.page })
}

impl Ends {
    fn last_up_to(&self, wanted: usize) -> Option<usize> {
        let wanted = wanted.min(self.last);
        Some(self.first + wanted.checked_sub(self.first)? / self.step * self.step)
    }

    fn first_after(&self, wanted: usize) -> Option<usize> {
        let next = match (wanted + 1).checked_sub(self.first) {
            Some(beyond) => self.first + beyond.div_ceil(self.step) * self.step,
            None => self.first,
        };
        Some(next).filter(|&next| next <= self.last)
    }
}
