//! The reads of one request, in the order of its path: batches, of which a part may be read from either end.
//!
//! Knows keys by their places in a batch; refuses to know pages, slots and the tree. On error: nothing here fails.

use super::Outcome;
use super::batch::Batch;
use crate::policy::fetching::{End, Request};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A batch of reads, as far as it is.
pub(super) struct Read {
    pub batch: Batch,
    parts: Mutex<Parts>,
}

#[derive(Default)]
pub(super) struct Parts {
    /// Cancelled, until the store has answered.
    pub outcomes: Vec<Outcome>,
    /// Keys that nobody has begun with.
    pub left: Range<usize>,
    /// Parts under way.
    pub open: usize,
    /// When the first was begun, and when the last one so far had ended.
    pub times: Option<(u64, u64)>,
}

#[derive(Default)]
pub(super) struct Line {
    pub request: Request,
    /// Tokens that nobody has begun with.
    pub ready: u64,
    /// Those of which something is left.
    pub reads: VecDeque<Arc<Read>>,
}

impl Line {
    /// Takes keys that nobody has begun with, of at most so many tokens.
    pub fn take(&mut self, tokens: u64, end: End) -> Option<(Arc<Read>, Range<usize>)> {
        let read = match end {
            End::Front => self.reads.front(),
            End::Back => self.reads.back(),
        };
        let read = Arc::clone(read?);
        let keys = read.take(read.batch.pages(tokens), end);
        self.ready -= read.batch.tokens(keys.len());
        if read.left() == 0 {
            _ = match end {
                End::Front => self.reads.pop_front(),
                End::Back => self.reads.pop_back(),
            };
        }
        Some((read, keys))
    }
}

impl Read {
    pub fn new(batch: Batch) -> Self {
        let keys = batch.keys.len();
        let outcomes = vec![Outcome::Cancelled; keys];
        Self { batch, parts: Mutex::new(Parts { outcomes, left: 0..keys, ..Parts::default() }) }
    }

    pub fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes keys that nobody has begun with.
    fn take(&self, most: usize, end: End) -> Range<usize> {
        let mut parts = self.parts();
        let left = parts.left.clone();
        let count = most.clamp(1, left.len().max(1)).min(left.len());
        let taken = match end {
            End::Front => left.start..left.start + count,
            End::Back => left.end - count..left.end,
        };
        match end {
            End::Front => parts.left.start = taken.end,
            End::Back => parts.left.end = taken.start,
        }
        parts.open += 1;
        taken
    }

    /// Keys that nobody has begun with.
    pub fn left(&self) -> usize {
        self.parts().left.len()
    }
}
