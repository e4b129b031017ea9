//! Pages that a store said it has and then didn't deliver. After a few tries they are taken for absent until they are stored
//! anew, so that no request waits for them again and again.
//!
//! Bounded: of too many, the oldest are forgotten, and tried again. On error: nothing here fails.

use crate::hash::Digest;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::VecDeque;

/// Reads of a page that may fail.
const TRIES: u8 = 2;

/// Pages that are remembered.
const MOST: usize = 1 << 14;

/// How often reads of a page have failed since it was stored.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    failed: HashMap<Digest, u8, FixedState>,
    /// In order of their first failure. One may be in it that was stored since.
    order: VecDeque<Digest>,
}

impl Doubts {
    /// A page was said to be there and didn't come.
    pub fn failed(&mut self, page: Digest) {
        let known = self.failed.len();
        let failures = self.failed.entry(page).or_default();
        *failures = failures.saturating_add(1);
        if self.failed.len() > known {
            self.order.push_back(page);
        }
        while self.order.len() > MOST {
            let oldest = self.order.pop_front();
            oldest.iter().for_each(|page| _ = self.failed.remove(page));
        }
    }

    /// A page is stored.
    pub fn stored(&mut self, page: &Digest) {
        if !self.failed.is_empty() {
            self.failed.remove(page);
        }
    }

    /// Whether a page isn't worth another try.
    pub fn has(&self, page: &Digest) -> bool {
        !self.failed.is_empty() && self.failed.get(page).is_some_and(|&failures| failures >= TRIES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(number: usize) -> Digest {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
        Digest(bytes)
    }

    #[test]
    fn a_page_is_doubted_after_two_failures_until_it_is_stored() {
        let mut doubts = Doubts::default();
        doubts.failed(page(1));
        assert!(!doubts.has(&page(1)));
        doubts.failed(page(1));
        assert!(doubts.has(&page(1)) && !doubts.has(&page(2)));
        doubts.stored(&page(1));
        assert!(!doubts.has(&page(1)));
    }

    #[test]
    fn the_oldest_of_too_many_are_forgotten() {
        let mut doubts = Doubts::default();
        (0..MOST + 3).for_each(|number| (0..2).for_each(|_| doubts.failed(page(number))));
        assert!(!doubts.has(&page(2)) && doubts.has(&page(3)) && doubts.has(&page(MOST + 2)));
        assert_eq!((doubts.failed.len(), doubts.order.len()), (MOST, MOST));
    }

    #[test]
    fn pages_that_fail_and_are_stored_in_turns_take_no_memory() {
        let mut doubts = Doubts::default();
        for _ in 0..2 * MOST {
            doubts.failed(page(1));
            doubts.stored(&page(1));
        }
        assert!(doubts.order.len() <= MOST && doubts.failed.is_empty());
    }
}
