//! Places that something is still to be done about, when there is room: each once, the oldest first, no more than so many.
//!
//! Holds nothing: a place may be gone when its turn comes. On error: nothing here fails.

use crate::ids::Cursor;
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use std::collections::VecDeque;

/// Places that are remembered, `MOST` at most.
#[derive(Debug, Default)]
pub(crate) struct Remembered<const MOST: usize> {
    order: VecDeque<Cursor>,
    known: HashSet<Cursor, FixedState>,
}

impl<const MOST: usize> Remembered<MOST> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Remembers a place; one that is known keeps its turn. Returns the one that had to be forgotten for it.
    pub fn add(&mut self, place: Cursor) -> Option<Cursor> {
        if !self.known.insert(place) {
            return None;
        }
        let forgotten = if self.len() == MOST { self.next() } else { None };
        self.order.push_back(place);
        forgotten
    }

    /// Whose turn it is: it is remembered no more.
    pub fn next(&mut self) -> Option<Cursor> {
        let place = self.order.pop_front()?;
        self.known.remove(&place);
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(depth: u32) -> Cursor {
        Cursor { node: None, depth, cache: None }
    }

    #[test]
    fn each_once_in_turn_and_no_more_than_so_many() {
        let mut places = Remembered::<3>::default();
        let added = [1, 2, 1, 3, 2, 4, 5].map(|depth| places.add(place(depth)).map(|place| place.depth));
        assert_eq!(added, [None, None, None, None, None, Some(1), Some(2)]);
        assert_eq!((places.len(), places.is_empty()), (3, false));
        // Whoever had its turn, or was forgotten, may come again.
        assert_eq!(places.next(), Some(place(3)));
        assert_eq!((places.add(place(3)), places.add(place(1))), (None, Some(place(4))));
        let rest: Vec<u32> = std::iter::from_fn(|| places.next()).map(|place| place.depth).collect();
        assert_eq!((rest, places.is_empty(), places.next()), (vec![5, 3, 1], true, None));
    }
}
