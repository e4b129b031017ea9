//! Why a request got what it got: tokens by tier and, for the rest, a reason for every token.
//!
//! A request's [`Story`] takes down what verbs decide about ranges of its pages, a few words a decision; what they
//! decide never depends on it. The explanation is made when somebody asks (`path/explain`).
//! Knows pages as numbers, and outcomes; refuses to know the tree, slots and stores. On error: nothing here fails.

mod story;
mod text;

pub(crate) use story::{Loaded, Past, PastHit, Story};

use crate::policy::Name;
use crate::tree::By;

/// Why tokens have to be computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nobody has asked for them before, as far as is remembered, in no tier; and if the store was asked, it hasn't
    /// got them either.
    NeverSeen,
    /// They were there, and left.
    Evicted {
        /// When, in ticks.
        tick: u64,
        /// What needed the room.
        by: By,
        /// From which tier, the last one that had them.
        tier: crate::ids::Tier,
    },
    /// They were there when the request was matched, and left before it was loaded.
    LeftMeanwhile,
    /// Another namespace (extra key or adapter, of the same salt) has them.
    OtherNamespace,
    /// They are there, but not the window or state that a request needs to go on behind them.
    PartMissing {
        /// Whose.
        part: String,
    },
    /// Storage was not asked: nobody called `prefetch`, or not before the load.
    NotAsked,
    /// Fewer than a prefetch is worth asking for.
    BelowPrefetchThreshold {
        /// Tokens that were missing.
        tokens: u64,
        /// The least.
        threshold: u64,
    },
    /// Fewer than a load is worth making.
    BelowLoadThreshold {
        /// Tokens that would have been copied.
        tokens: u64,
        /// The least.
        threshold: u64,
    },
    /// More than the engine's budget for a load.
    OverBudget {
        /// Tokens that would have been copied.
        tokens: u64,
        /// The most.
        budget: u64,
    },
    /// On the host; a policy of the engine's said that no more than the tokens before them are to be loaded.
    DeclinedByPolicy {
        /// The policy's name.
        policy: Name,
        /// Tokens of the prefix that it wanted.
        tokens: u64,
    },
    /// The path that they continue is not on the host, and there was no room for it there.
    PathNotOnHost,
    /// Staged, or on their way: the path that they continue left the device meanwhile.
    PathNotOnDevice,
    /// The store hasn't got them.
    NotStored,
    /// The store had other bytes than what was written, or too few.
    Corrupt,
    /// The store could not read them.
    ReadFailed,
    /// The store did not answer in time.
    TimedOut,
    /// The prefetch was given up before they came.
    Revoked(Revoked),
    /// There was no room on the host for them.
    HostFull,
    /// There was no room on the device for them.
    DeviceFull,
    /// The weights changed while the request waited.
    NewWeights,
    /// The cache was cleared while the request waited.
    Cleared,
    /// Storage is still being asked.
    Waiting,
    /// More than the caller's limit: the last token is computed in any case, say.
    Limit,
    /// The end that is no whole page.
    PartialPage,
}

/// Who gave a prefetch up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revoked {
    /// The hard end of every wait.
    Deadline,
    /// The stop policy: after so many milliseconds of waiting.
    Policy {
        /// The policy's name.
        policy: Name,
        /// Since the request could first have run.
        waited_ms: u64,
    },
    /// The request was loaded before.
    Load,
    /// The request was released before.
    Release,
    /// The store was detached or cleared.
    Detached,
}

/// A request, token by token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Whether it was loaded: else this is what a load would find now.
    pub loaded: bool,
    /// All tokens of the prompt, those before a cursor included.
    pub tokens: u64,
    /// That the device had.
    pub device: u64,
    /// That came from the host.
    pub host: u64,
    /// That came from storage, by this request's prefetch.
    pub storage: u64,
    /// The others, in order: they were, or have to be, computed.
    pub computed: Vec<(u64, Reason)>,
}
