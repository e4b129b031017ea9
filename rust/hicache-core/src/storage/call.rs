//! One call of a relayed store: what is asked, who has it, and what became of it.
//!
//! A call waits, is taken, and is answered. The asker may give it up while it waits; while it is taken only if it lends no
//! memory, or after whoever took it has let go of that memory. So no answer and no byte comes after the asker has gone on.
//! On error: nothing here fails; a poisoned mutex is used as it is, since each change is one assignment.

use super::outcome::Outcome;
use super::workers::Page;
use super::{Held, Keys};
use crate::hash::Digest;
use crate::identity::Fingerprint;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What is asked of a store.
#[derive(Debug)]
pub enum Ask {
    /// Which keys are there.
    Exists,
    /// Read into pages.
    Get(Vec<Page>),
    /// Write from pages; for each the page without which it is worth nothing.
    Put(Vec<Page>, Vec<Option<Digest>>),
    /// Remove keys.
    Remove,
    /// Remove all pages of the identity.
    Clear,
    /// All that it holds.
    List,
    /// Give room back.
    Compact,
    /// End.
    Close,
}

/// What was answered.
#[derive(Debug)]
pub enum Reply {
    /// One per key.
    Outcomes(Vec<Outcome>),
    /// Pages that were cleared, bytes that were given back; 0 for `Close`.
    Number(u64),
    /// What there is.
    Held(Vec<Held>),
    /// Nothing that can be believed, and why.
    Failed(String),
    /// Nothing, in time.
    TimedOut,
}

/// Where a call is.
#[derive(Debug)]
enum State {
    Waiting,
    Taken,
    Answered(Reply),
    /// The asker went on without an answer, or has it.
    Over,
}

/// A call.
#[derive(Debug)]
pub struct Call {
    /// What is asked.
    pub ask: Ask,
    /// Whose pages.
    pub identity: Fingerprint,
    /// Of which pages.
    pub digests: Vec<Digest>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Call {
    pub(super) fn new(ask: Ask, keys: Keys<'_>) -> Self {
        let (identity, digests) = (*keys.identity, keys.digests.to_vec());
        Self { ask, identity, digests, state: Mutex::new(State::Waiting), changed: Condvar::new() }
    }

    /// Whether it lends memory to whoever takes it.
    pub const fn lends(&self) -> bool {
        matches!(self.ask, Ask::Get(_) | Ask::Put(..))
    }

    /// Takes it; false if its asker has gone on.
    pub(super) fn take(&self) -> bool {
        let mut state = self.state();
        let waits = matches!(*state, State::Waiting);
        if waits {
            *state = State::Taken;
        }
        waits
    }

    /// Answers it, after the memory that it lent has been let go of; false if its asker has gone on.
    pub fn answer(&self, reply: Reply) -> bool {
        let mut state = self.state();
        let open = matches!(*state, State::Waiting | State::Taken);
        if open {
            *state = State::Answered(reply);
            self.changed.notify_all();
        }
        open
    }

    /// Whether its asker still waits.
    pub fn is_open(&self) -> bool {
        matches!(*self.state(), State::Waiting | State::Taken)
    }

    /// The answer. None: there is none yet, the deadline has passed, and the call can't be given up, since it lends memory.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> Option<Reply> {
        let mut state = self.state();
        loop {
            if let State::Answered(_) = *state {
                let State::Answered(reply) = std::mem::replace(&mut *state, State::Over) else { continue };
                return Some(reply);
            }
            let Some(deadline) = deadline else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                if matches!(*state, State::Taken) && self.lends() {
                    return None;
                }
                *state = State::Over;
                return Some(Reply::TimedOut);
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
