//! Carrying out a batch of writes: each page once more if it fails, and none that a removal ended.
//!
//! On error: outcomes per key.

use super::batch::Work;
use super::removals::Removals;
use super::workers::{Page, attempt};
use super::{Keys, Outcome, Store};
use crate::hash::Digest;

/// Writes what no removal ended meanwhile.
pub(super) fn write(
    store: &dyn Store,
    removals: &Removals,
    number: u64,
    keys: Keys<'_>,
    pages: &[Page],
    parents: &[Option<Digest>],
) -> Vec<Outcome> {
    let may = removals.enter(number, keys);
    let mut outcomes = vec![Outcome::Cancelled; keys.len()];
    let mut left: Vec<usize> = (0..keys.len()).filter(|&at| may[at]).collect();
    // What fails once is tried once more.
    for _ in 0..2 {
        left = try_writing(store, keys, pages, parents, &left, &mut outcomes);
    }
    let undone = removals.undone(number, keys);
    if !undone.is_empty() {
        let digests: Vec<Digest> = undone.iter().map(|&at| keys.digests[at]).collect();
        attempt(store, Keys { digests: &digests, ..keys }, &Work::Remove);
        undone.into_iter().for_each(|at| outcomes[at] = Outcome::Cancelled);
    }
    outcomes
}

/// Tries some pages of a batch; those that are worth another try.
fn try_writing(
    store: &dyn Store,
    keys: Keys<'_>,
    pages: &[Page],
    parents: &[Option<Digest>],
    which: &[usize],
    outcomes: &mut [Outcome],
) -> Vec<usize> {
    if which.is_empty() {
        return Vec::new();
    }
    let digests: Vec<Digest> = which.iter().map(|&at| keys.digests[at]).collect();
    let pages = which.iter().map(|&at| Page(pages[at].0.clone())).collect();
    let work = Work::Put(pages, which.iter().map(|&at| parents[at]).collect());
    let answers = attempt(store, Keys { digests: &digests, ..keys }, &work);
    which.iter().zip(answers).for_each(|(&at, outcome)| outcomes[at] = outcome);
    which.iter().copied().filter(|&at| outcomes[at].is_transient()).collect()
}
