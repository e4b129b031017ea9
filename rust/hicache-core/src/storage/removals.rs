//! Removals against the writes that were asked for before them: who wins, among the workers' batches.
//!
//! Each write gets an attempt number when it is asked for, each removal one too. A removal wins over every write with a
//! smaller number: those that wait are cancelled, those inside the store are undone when they come out. A write with a
//! larger number is cancelled only where it could be mistaken for an older one: until the removal itself and each
//! older write that is inside the store have ended.
//! On error: nothing here fails.

use super::Keys;
use crate::hash::Digest;
use crate::identity::Fingerprint;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A page.
type Name = (Fingerprint, Digest);

/// What is asked for, inside the store, and removed.
#[derive(Debug, Default)]
pub struct Removals(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    next: u64,
    /// Writes that have not ended; and those of them that are inside the store.
    asked: BTreeSet<u64>,
    inside: BTreeSet<u64>,
    /// The last removal of a page: its number, and whether it was carried out. Kept while a write could need it.
    removed: HashMap<Name, (u64, bool)>,
    /// The same of all pages of an identity.
    cleared: HashMap<Fingerprint, (u64, bool)>,
}

impl Removals {
    /// A write is asked for; its number.
    pub fn ask(&self) -> u64 {
        let mut books = self.books();
        let attempt = books.number();
        books.asked.insert(attempt);
        attempt
    }

    /// Pages shall be removed; the removal's number.
    pub fn remove(&self, keys: Keys<'_>) -> u64 {
        let mut books = self.books();
        let number = books.number();
        books.removed.extend(keys.digests.iter().map(|key| ((*keys.identity, *key), (number, false))));
        number
    }

    /// All pages of an identity shall be removed; the removal's number.
    pub fn clear(&self, identity: &Fingerprint) -> u64 {
        let mut books = self.books();
        let number = books.number();
        books.cleared.insert(*identity, (number, false));
        number
    }

    /// That was carried out.
    pub fn cleared(&self, number: u64, identity: &Fingerprint) {
        let mut books = self.books();
        if let Some(last) = books.cleared.get_mut(identity).filter(|last| last.0 == number) {
            last.1 = true;
        }
        books.forget();
    }

    /// A removal was carried out.
    pub fn removed(&self, number: u64, keys: Keys<'_>) {
        let mut books = self.books();
        for key in keys.digests {
            if let Some(removal) =
                books.removed.get_mut(&(*keys.identity, *key)).filter(|last| last.0 == number)
            {
                removal.1 = true;
            }
        }
        books.forget();
    }

    /// A write goes into the store: for each of its pages, whether it may.
    pub fn enter(&self, attempt: u64, keys: Keys<'_>) -> Vec<bool> {
        let mut books = self.books();
        let oldest = books.inside.first().copied().unwrap_or(u64::MAX);
        books.inside.insert(attempt);
        let after = |&(number, done): &(u64, bool)| number < attempt && done && oldest > number;
        let all = books.cleared.get(keys.identity).is_none_or(after);
        let may = |key: &Digest| books.removed.get(&(*keys.identity, *key)).is_none_or(after);
        keys.digests.iter().map(|key| all && may(key)).collect()
    }

    /// Which of its pages were removed since it was asked for: by their places.
    pub fn undone(&self, attempt: u64, keys: Keys<'_>) -> Vec<usize> {
        let books = self.books();
        if books.cleared.get(keys.identity).is_some_and(|&(number, _)| number > attempt) {
            return (0..keys.len()).collect();
        }
        if books.removed.is_empty() {
            return Vec::new();
        }
        let undone = |at: &usize| {
            books
                .removed
                .get(&(*keys.identity, keys.digests[*at]))
                .is_some_and(|&(number, _)| number > attempt)
        };
        (0..keys.len()).filter(undone).collect()
    }

    /// A write has ended.
    pub fn end(&self, attempt: u64) {
        let mut books = self.books();
        books.asked.remove(&attempt);
        books.inside.remove(&attempt);
        books.forget();
    }

    /// Removals that are still remembered.
    #[cfg(test)]
    pub fn remembered(&self) -> usize {
        let books = self.books();
        books.removed.len() + books.cleared.len()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // Nothing here panics between two changes that belong together.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    const fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Drops removals that were carried out and that no older write can undo.
    fn forget(&mut self) {
        if !self.removed.is_empty() || !self.cleared.is_empty() {
            let oldest = self.asked.first().copied().unwrap_or(u64::MAX);
            self.removed.retain(|_, (number, done)| !*done || oldest < *number);
            self.cleared.retain(|_, (number, done)| !*done || oldest < *number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_remembered_for_longer_than_it_takes() {
        let (removals, identity, digests) = (Removals::default(), Fingerprint([1; 32]), [Digest([2; 32])]);
        let keys = Keys { identity: &identity, digests: &digests };
        let (old, removal) = (removals.ask(), removals.remove(keys));
        let new = removals.ask();
        assert_eq!(removals.enter(new, keys), [false], "the removal was not carried out");
        removals.end(new);
        removals.removed(removal, keys);
        assert_eq!((removals.enter(old, keys), removals.remembered()), (vec![false], 1));
        let new = removals.ask();
        assert_eq!(removals.enter(new, keys), [false], "an older write is inside");
        removals.end(old);
        removals.end(new);
        assert_eq!(removals.remembered(), 0);
        let new = removals.ask();
        assert_eq!((removals.enter(new, keys), removals.undone(new, keys)), (vec![true], vec![]));
        removals.end(new);
    }

    /// A clear is a removal of every page of one identity, and of no other's.
    #[test]
    fn a_clear_wins_over_the_writes_of_its_identity_alone() {
        let (removals, digests) = (Removals::default(), [Digest([2; 32]), Digest([3; 32])]);
        let [ours, theirs] = [Fingerprint([1; 32]), Fingerprint([9; 32])];
        let (ours, theirs) =
            (Keys { identity: &ours, digests: &digests }, Keys { identity: &theirs, digests: &digests });
        let [queued, inside, foreign] = [(); 3].map(|()| removals.ask());
        assert_eq!(removals.enter(inside, ours), [true; 2]);
        let clear = removals.clear(ours.identity);
        let later = removals.ask();
        assert_eq!(removals.enter(queued, ours), [false; 2], "asked for before");
        assert_eq!(removals.enter(later, ours), [false; 2], "it is not carried out");
        assert_eq!(
            (removals.enter(foreign, theirs), removals.undone(foreign, theirs)),
            (vec![true; 2], vec![])
        );
        assert_eq!(removals.undone(inside, ours), [0, 1]);
        removals.cleared(clear, ours.identity);
        [queued, inside, foreign, later].into_iter().for_each(|attempt| removals.end(attempt));
        assert_eq!(removals.remembered(), 0);
        let new = removals.ask();
        assert_eq!((removals.enter(new, ours), removals.undone(new, ours)), (vec![true; 2], vec![]));
    }
}
