//! When a request stops to wait for what storage has of its prefix: three rules.
//!
//! They are SGLang's, by their names (0.5.23, `hiradix_cache.py`, `can_terminate_prefetch`).
//! On error: an unknown name or a time that can't be meant is refused, naming the setting.

use super::fetching::{Stop, Verdict, Waiting};
use crate::error::{Result, argument};

/// Tokens that `prefetch_timeout_per_ki_token` is for.
const KI: u64 = 1024;

/// When a request stops to wait, as it is set.
#[derive(Clone, Debug, PartialEq)]
pub struct StopOptions {
    /// A rule's name: `best_effort`, `wait_complete` or `timeout`.
    pub policy: String,
    /// Of `timeout`: seconds that any request may wait.
    pub timeout_base: f64,
    /// Of `timeout`: seconds more for each 1,024 tokens that it asked the store for.
    pub timeout_per_ki_token: f64,
}

impl Default for StopOptions {
    fn default() -> Self {
        Self { policy: "timeout".into(), timeout_base: 1.0, timeout_per_ki_token: 0.25 }
    }
}

impl StopOptions {
    /// A rule by its name, with the usual times.
    pub fn named(policy: &str) -> Self {
        Self { policy: policy.into(), ..Self::default() }
    }

    /// The rule.
    ///
    /// # Errors
    /// When there is no such rule, or a time is negative or not finite.
    pub fn rule(&self) -> Result<Box<dyn Stop>> {
        let base = micros("prefetch_timeout_base", self.timeout_base)?;
        let per_ki = micros("prefetch_timeout_per_ki_token", self.timeout_per_ki_token)?;
        match self.policy.as_str() {
            "best_effort" => Ok(Box::new(BestEffort)),
            "wait_complete" => Ok(Box::new(WaitComplete)),
            "timeout" => Ok(Box::new(Timeout { base, per_ki })),
            other => {
                let reason = format!("unknown policy {other:?}: use timeout, best_effort or wait_complete");
                argument("prefetch", reason)
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; ages stay ages")]
fn micros(name: &'static str, seconds: f64) -> Result<u64> {
    if seconds.is_finite() && seconds >= 0.0 {
        return Ok((seconds * 1e6) as u64);
    }
    argument(name, format!("must be a number of seconds that is not negative, got {seconds}"))
}

/// Nobody waits: whoever could run does, with what has come.
#[derive(Debug)]
pub struct BestEffort;

impl Stop for BestEffort {
    fn name(&self) -> &'static str {
        "best_effort"
    }

    fn decide(&mut self, _waiting: &Waiting) -> Verdict {
        Verdict::Compute
    }
}

/// All that the store has is waited for.
#[derive(Debug)]
pub struct WaitComplete;

impl Stop for WaitComplete {
    fn name(&self) -> &'static str {
        "wait_complete"
    }

    fn decide(&mut self, waiting: &Waiting) -> Verdict {
        undecided(waiting)
    }
}

/// All that the store has is waited for, for a time that grows with what it was asked for.
#[derive(Debug)]
pub struct Timeout {
    /// In microseconds.
    pub base: u64,
    /// The same, for each 1,024 tokens.
    pub per_ki: u64,
}

impl Stop for Timeout {
    fn name(&self) -> &'static str {
        "timeout"
    }

    fn decide(&mut self, waiting: &Waiting) -> Verdict {
        let more = u128::from(waiting.requested) * u128::from(self.per_ki) / u128::from(KI);
        if u128::from(waiting.waited) > u128::from(self.base) + more {
            return Verdict::Compute;
        }
        undecided(waiting)
    }
}

const fn undecided(waiting: &Waiting) -> Verdict {
    if waiting.others > 0 { Verdict::Skip } else { Verdict::Wait }
}
