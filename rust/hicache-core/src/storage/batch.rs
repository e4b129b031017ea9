//! What the workers are given, and what they give back.
//!
//! On error: nothing here fails.

use super::{Keys, Outcome, Page};
use crate::hash::Digest;
use crate::identity::Fingerprint;
use crate::policy::fetching::{ReadTime, Request};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What to do with a batch of keys.
pub enum Work {
    /// Which are there.
    Exists,
    /// Read into pages.
    Get(Vec<Page>),
    /// Write from pages; for each, the page without which it is worth nothing.
    Put(Vec<Page>, Vec<Option<Digest>>),
    /// Remove, and end every write that was asked for before.
    Remove,
    /// The same for all pages of the identity; the batch has no keys, and one outcome.
    Clear,
}

/// A batch of work.
pub struct Batch {
    /// Names the completion.
    pub id: u64,
    /// Whose pages.
    pub identity: Fingerprint,
    /// In order.
    pub keys: Vec<Digest>,
    /// What to do with them.
    pub work: Work,
    /// Set when nobody waits any more.
    pub cancel: Arc<AtomicBool>,
    /// Keeps the pages' memory mapped, should this batch outlive the cache.
    pub memory: Arc<dyn Any + Send + Sync>,
    /// Of questions and reads: who waits for them, and how many tokens a key's page has.
    pub waiter: Option<(Request, u64)>,
    /// Its number among writes and removals, once it has one ([`super::Workers::enlist`]).
    pub(super) attempt: Option<u64>,
}

impl Batch {
    /// That nobody has asked for yet.
    pub fn new(
        id: u64,
        identity: Fingerprint,
        keys: Vec<Digest>,
        work: Work,
        cancel: Arc<AtomicBool>,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { id, identity, keys, work, cancel, memory, waiter: None, attempt: None }
    }

    /// Under their identity.
    pub fn keys(&self) -> Keys<'_> {
        Keys { identity: &self.identity, digests: &self.keys }
    }

    /// How many outcomes it has.
    pub fn answers(&self) -> usize {
        if matches!(self.work, Work::Clear) { 1 } else { self.keys.len() }
    }

    /// Who waits for it; nobody else waits for one that nobody is named for.
    pub(super) fn request(&self) -> Request {
        let alone = || Request { number: self.id, ..Request::default() };
        self.waiter.map_or_else(alone, |(request, _)| request)
    }

    pub(super) fn is_question_of(&self, number: u64) -> bool {
        matches!(self.work, Work::Exists) && self.waiter.is_some_and(|(request, _)| request.number == number)
    }

    /// Tokens of so many keys.
    pub(super) fn tokens(&self, keys: usize) -> u64 {
        keys as u64 * self.waiter.map_or(1, |(_, tokens)| tokens.max(1))
    }

    /// Keys of so many tokens.
    pub(super) fn pages(&self, tokens: u64) -> usize {
        usize::try_from(tokens / self.tokens(1)).unwrap_or(usize::MAX)
    }
}

/// A batch that ended, with an outcome for each key.
#[derive(Debug)]
pub struct Completion {
    /// The number the batch was given.
    pub id: u64,
    /// One per key, in order.
    pub outcomes: Vec<Outcome>,
    /// Of a read that was tried: when, and how many tokens it was for.
    pub time: Option<ReadTime>,
    /// Of a read: keys that the store was asked for and that didn't come.
    pub failed: Vec<Digest>,
    /// Of a clear: how many pages were removed.
    pub cleared: u64,
}

impl Completion {
    pub(super) fn of(batch: &Batch, outcomes: Vec<Outcome>, time: Option<ReadTime>) -> Self {
        let failed = |&(_, &outcome): &(&Digest, &Outcome)| {
            outcome != Outcome::Hit && outcome != Outcome::Cancelled && matches!(batch.work, Work::Get(_))
        };
        let failed = batch.keys.iter().zip(&outcomes).filter(failed).map(|(&key, _)| key).collect();
        Self { id: batch.id, outcomes, time, failed, cleared: 0 }
    }

    /// Of a batch that nobody carries out any more.
    pub(crate) fn cancelled(batch: &Batch) -> Self {
        Self::of(batch, vec![Outcome::Cancelled; batch.answers()], None)
    }
}
