//! Errors: wrong arguments, places that are gone, and broken invariants.
//!
//! Outcomes (no room, declined, timed out) are values, never errors; a broken disk is a miss and a
//! counter. What is left here is the caller's to mend.

/// Why a call was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// An argument or a setting that can't be meant.
    #[error("{argument}: {reason}")]
    Argument {
        /// The argument's or the field's name.
        argument: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The cursor's place was evicted, or is not these tokens': pass all of them.
    #[error("after: the place of this hit was evicted or is not these tokens'; pass all tokens instead")]
    Stale,
    /// A hit was used in a state that doesn't allow it.
    #[error("hit: {0}")]
    Hit(&'static str),
    /// A forked child used what it inherited: its threads did not come along.
    #[error("the cache was made in another process: a forked child needs one of its own")]
    Forked,
    /// The device, or copies to and from it, can't be had or failed.
    #[error("device: {0}")]
    Device(String),
    /// There is no device memory: it was detached, or never attached.
    #[error("the device memory is detached: attach it first")]
    Detached,
    /// The cache was closed.
    #[error("the cache is closed")]
    Closed,
    /// Transfers took longer than their deadline.
    #[error("{what} did not finish within {seconds} s")]
    Deadline {
        /// What was waited for.
        what: &'static str,
        /// For how long, in seconds.
        seconds: f64,
    },
    /// A numbered invariant doesn't hold: a bug in this library.
    #[error("broken invariant: {0}")]
    Invariant(String),
}

/// Shorthand used throughout the core.
pub type Result<T> = std::result::Result<T, Error>;

/// An argument error, built in one line.
pub(crate) fn argument<T>(argument: &'static str, reason: impl Into<String>) -> Result<T> {
    Err(Error::Argument { argument, reason: reason.into() })
}
