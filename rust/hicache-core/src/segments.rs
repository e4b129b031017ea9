//! A vector in segments: growing never moves what is there, so that no call pays for all of it.
//!
//! Knows nothing of its items. On error: an index that was never pushed is a bug and panics, as in a vector.

use std::ops::{Index, IndexMut};

const BITS: u32 = 10;
const SEGMENT: usize = 1 << BITS;

/// Items by number, from 0 on.
#[derive(Debug)]
pub(crate) struct Segments<T> {
    /// All but the last are full.
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

    pub fn len(&self) -> usize {
        self.segments.last().map_or(0, |last| (self.segments.len() - 1) * SEGMENT + last.len())
    }

    pub fn get(&self, at: u32) -> Option<&T> {
        self.segments.get((at >> BITS) as usize)?.get(at as usize % SEGMENT)
    }

    pub fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.segments.get_mut((at >> BITS) as usize)?.get_mut(at as usize % SEGMENT)
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.segments.iter().flatten()
    }
}

impl<T> Index<u32> for Segments<T> {
    type Output = T;
    fn index(&self, at: u32) -> &T {
        &self.segments[(at >> BITS) as usize][at as usize % SEGMENT]
    }
}

impl<T> IndexMut<u32> for Segments<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
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
        items[5] = 9;
        assert_eq!(items.iter().take(7).copied().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 9, 6]);
    }
}
