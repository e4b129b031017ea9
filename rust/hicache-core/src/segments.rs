//! A vector in segments: growing never moves what is there, so that no call pays for all of it.
//!
//! Knows nothing of its items. Counts, in debug builds and for tests, how many were looked at: what a call costs,
//! without a clock. On error: an index that was never pushed is a bug and panics, as in a vector.

use crate::soon;
#[cfg(debug_assertions)]
use std::cell::Cell;
use std::ops::{Index, IndexMut};

const BITS: u32 = 10;
const SEGMENT: usize = 1 << BITS;

#[cfg(debug_assertions)]
thread_local! {
    static LOOKED_AT: Cell<u64> = const { Cell::new(0) };
}

/// Items that this thread looked at so far, of all vectors. Debug builds only.
#[cfg(debug_assertions)]
pub fn looked_at() -> u64 {
    LOOKED_AT.with(Cell::get)
}

/// One item more was looked at.
#[inline]
fn look() {
    #[cfg(debug_assertions)]
    LOOKED_AT.with(|count| count.set(count.get() + 1));
}

/// Items by number, from 0 on.
#[derive(Debug)]
pub(crate) struct Segments<T> {
    /// Where items are pushed, all but the last are full.
    segments: Vec<Vec<T>>,
}

impl<T> Default for Segments<T> {
    fn default() -> Self {
        Self { segments: Vec::new() }
    }
}

impl<T> Segments<T> {
    /// Appends an item and returns its number.
    #[expect(clippy::cast_possible_truncation, reason = "2^32 items would not fit in memory")]
    pub fn push(&mut self, item: T) -> u32 {
        if self.segments.last().is_none_or(|last| last.len() == SEGMENT) {
            // The first one grows as it must: most caches of a test are small.
            let room = if self.segments.is_empty() { 0 } else { SEGMENT };
            self.segments.push(Vec::with_capacity(room));
        }
        let before = (self.segments.len() - 1) * SEGMENT;
        let last = self.segments.len() - 1;
        self.segments[last].push(item);
        (before + self.segments[last].len() - 1) as u32
    }

    /// An item will be pushed.
    pub fn will_grow(&self) {
        self.segments.last().into_iter().for_each(|last| soon::growth(last, 1));
    }

    /// Makes an item under a number where there is none, and others around it: of what lies between segments
    /// in use, nothing.
    pub fn cover(&mut self, at: u32, blank: T)
    where
        T: Clone,
    {
        let segment = (at >> BITS) as usize;
        if self.segments.len() <= segment {
            self.segments.resize_with(segment + 1, Vec::new);
        }
        let items = &mut self.segments[segment];
        if items.len() <= at as usize % SEGMENT {
            // The first one grows as it must: most caches of a test are small.
            let len = if segment == 0 { (at as usize + 1).next_power_of_two() } else { SEGMENT };
            items.resize(len, blank);
        }
    }

    /// Items with their numbers, in order.
    pub fn numbered(&self) -> impl Iterator<Item = (u32, &T)> {
        let segments = (0u32..).step_by(SEGMENT).zip(&self.segments);
        segments.flat_map(|(first, items)| (first..).zip(items)).inspect(|_| look())
    }

    pub fn len(&self) -> usize {
        self.segments.last().map_or(0, |last| (self.segments.len() - 1) * SEGMENT + last.len())
    }

    pub fn get(&self, at: u32) -> Option<&T> {
        look();
        self.segments.get((at >> BITS) as usize)?.get(at as usize % SEGMENT)
    }

    pub fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        look();
        self.segments.get_mut((at >> BITS) as usize)?.get_mut(at as usize % SEGMENT)
    }

    /// In order, where all were pushed.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.segments.iter().flatten().inspect(|_| look())
    }
}

impl<T> Index<u32> for Segments<T> {
    type Output = T;
    fn index(&self, at: u32) -> &T {
        look();
        &self.segments[(at >> BITS) as usize][at as usize % SEGMENT]
    }
}

impl<T> IndexMut<u32> for Segments<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        look();
        &mut self.segments[(at >> BITS) as usize][at as usize % SEGMENT]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_stay_where_they_are() {
        const FIRST: u32 = 1 << BITS;
        let mut items = Segments::default();
        for n in 0..=FIRST {
            assert_eq!(items.push(n), n);
        }
        let place = std::ptr::from_ref(&items[FIRST]);
        (0..FIRST).for_each(|n| _ = items.push(n));
        assert_eq!(place, std::ptr::from_ref(&items[FIRST]));
        assert_eq!(items.len(), 2 * SEGMENT + 1);
        assert_eq!((items.get(2), items.get(2 * FIRST + 1)), (Some(&2), None));
        let mut sparse = Segments::default();
        sparse.cover(5 * FIRST + 3, 0);
        sparse[5 * FIRST + 3] = 7;
        sparse.cover(2, 0);
        assert_eq!((sparse.get(3 * FIRST), sparse.get(5 * FIRST + 4)), (None, Some(&0)));
        assert_eq!(
            sparse.numbered().filter(|(_, item)| **item != 0).collect::<Vec<_>>(),
            [(5 * FIRST + 3, &7)]
        );
        items[5] = 9;
        assert_eq!(items.iter().take(7).copied().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 9, 6]);
    }
}
