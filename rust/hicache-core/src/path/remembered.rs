//! Places that something is still to be done about, when there is room: each once, the oldest first, no more than so many.
//!
//! Holds nothing: a place may be gone when its turn comes. On error: nothing here fails.

use crate::ids::Cursor;
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use std::collections::VecDeque;

/// Places that are remembered, `MOST` at most, each with what is known of what is to be done.
#[derive(Debug)]
pub(crate) struct Remembered<With, const MOST: usize> {
    order: VecDeque<(Cursor, With)>,
    known: HashSet<Cursor, FixedState>,
}

impl<With, const MOST: usize> Default for Remembered<With, MOST> {
    fn default() -> Self {
        Self { order: VecDeque::new(), known: HashSet::default() }
    }
}

impl<With, const MOST: usize> Remembered<With, MOST> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Remembers a place; one that is known keeps its turn. Returns the one that had to be forgotten for it.
    pub fn add(&mut self, place: Cursor, with: With) -> Option<Cursor> {
        if !self.known.insert(place) {
            return None;
        }
        let forgotten = if self.len() >= MOST { self.next() } else { None };
        self.order.push_back((place, with));
        forgotten.map(|(place, _)| place)
    }

    /// The same before all others, for one that had its turn: nothing is forgotten for it.
    pub fn add_first(&mut self, place: Cursor, with: With) {
        if self.known.insert(place) {
            self.order.push_front((place, with));
        }
    }

    /// Whose turn it is: it is remembered no more.
    pub fn next(&mut self) -> Option<(Cursor, With)> {
        let next = self.order.pop_front()?;
        self.known.remove(&next.0);
        Some(next)
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
        let mut places = Remembered::<u32, 3>::default();
        let added = [1, 2, 1, 3, 2, 4, 5].map(|depth| places.add(place(depth), depth));
        assert_eq!(
            added.map(|forgotten| forgotten.map(|place| place.depth)),
            [None, None, None, None, None, Some(1), Some(2)]
        );
        assert_eq!((places.len(), places.is_empty()), (3, false));
        // Whoever had its turn, or was forgotten, may come again.
        assert_eq!(places.next(), Some((place(3), 3)));
        assert_eq!((places.add(place(3), 30), places.add(place(1), 10)), (None, Some(place(4))));
        places.add_first(place(9), 90);
        places.add_first(place(5), 50);
        let rest: Vec<u32> = std::iter::from_fn(|| places.next()).map(|(_, with)| with).collect();
        assert_eq!((rest, places.is_empty(), places.next()), (vec![90, 5, 30, 10], true, None));
    }
}
