//! What a full tier gives up first, how long who waits for storage, and what is copied further down when: policies behind
//! small seams.
//!
//! A policy knows leaves and pages as numbers, and what it is told; it refuses to know the tree, slots, bytes
//! and clocks. It is as pure as the tree: equal calls give equal answers.
//!
//! On error: a name that no policy has is refused, naming `eviction` or `prefetch`. Nothing else here fails.
//!
//! | file | what |
//! |---|---|
//! | `eviction` | the seam: what a policy is asked and told |
//! | `lists` | intrusive lists over numbers |
//! | `lru` | least recently used first |
//! | `write` | what is copied one tier further down, and when |
//! | `fetching` | the seam of prefetches: which read is next, and what a waiting request does |
//! | `stops` | when a request stops to wait |

mod eviction;
pub mod fetching;
pub(crate) mod lists;
#[cfg(test)]
mod lists_tests;
mod lru;
mod stops;
mod write;

pub use eviction::{Eviction, Leaf, Left, Moment, Order, Path, Request, Victim, Why};
pub use fetching::{Order as ReadOrder, Stop};
pub use lru::Lru;
pub use stops::{BestEffort, StopOptions, Timeout, WaitComplete};
pub use write::{HostCopies, Wish, Write, Writing};

/// What a policy is called.
pub type Name = std::borrow::Cow<'static, str>;

use crate::error::{Result, argument};

/// Ticks of a second.
const TICKS: f64 = 16.0;

/// A time in seconds as policies are told it: whole sixteenths.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is beyond stays at the end"
)]
pub fn tick(seconds: f64) -> u64 {
    (seconds * TICKS) as u64
}

/// The policy of a name.
///
/// # Errors
/// When no policy has that name.
pub fn by_name(name: &str) -> Result<Box<dyn Eviction>> {
    match name {
        "lru" => Ok(Box::new(Lru::default())),
        _ => argument("eviction", format!("unknown policy {name:?}: use lru")),
    }
}
