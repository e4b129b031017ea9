//! What the workers are given, and what they give back.
//!
//! On error: nothing here fails.

use super::{Keys, Outcome, Page};
use crate::hash::Digest;
use crate::identity::Fingerprint;
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
        Self { id, identity, keys, work, cancel, memory, attempt: None }
    }

    /// Under their identity.
    pub fn keys(&self) -> Keys<'_> {
        Keys { identity: &self.identity, digests: &self.keys }
    }
}

/// A batch that ended, with an outcome for each key.
#[derive(Debug)]
pub struct Completion {
    /// The number the batch was given.
    pub id: u64,
    /// One per key, in order.
    pub outcomes: Vec<Outcome>,
}
