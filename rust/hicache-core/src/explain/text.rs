//! An explanation as one line.

use super::{Explanation, Reason, Revoked};
use crate::ids::Tier;
use crate::tree::By;
use std::fmt::{self, Display, Formatter};

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens: ", Grouped(self.tokens))?;
        let mut parts = Vec::new();
        for (count, what) in [(self.device, "device"), (self.host, "host"), (self.storage, "storage")] {
            if count > 0 {
                parts.push(format!("{} {what}", Grouped(count)));
            }
        }
        let computed: u64 = self.computed.iter().map(|(tokens, _)| tokens).sum();
        let verb = if self.loaded { "computed" } else { "to compute" };
        match self.computed.as_slice() {
            [] if self.tokens > 0 => {}
            [] => parts.push("nothing".to_owned()),
            [(_, reason)] => parts.push(format!("{} {verb} ({reason})", Grouped(computed))),
            all => {
                let one = |(tokens, reason): &(u64, Reason)| format!("{} {reason}", Grouped(*tokens));
                let reasons = all.iter().map(one).collect::<Vec<_>>().join(", ");
                parts.push(format!("{} {verb} ({reasons})", Grouped(computed)));
            }
        }
        f.write_str(&parts.join(", "))
    }
}

impl Reason {
    /// Its code: for counting.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NeverSeen => "never_seen",
            Self::Evicted { .. } => "evicted",
            Self::LeftMeanwhile => "left_meanwhile",
            Self::OtherNamespace => "other_namespace",
            Self::PartMissing { .. } => "part_missing",
            Self::NotAsked => "not_asked",
            Self::BelowPrefetchThreshold { .. } => "below_prefetch_threshold",
            Self::BelowLoadThreshold { .. } => "below_load_threshold",
            Self::OverBudget { .. } => "over_budget",
            Self::DeclinedByPolicy { .. } => "declined_by_policy",
            Self::PathNotOnHost => "path_not_on_host",
            Self::PathNotOnDevice => "path_not_on_device",
            Self::NotStored => "not_stored",
            Self::Corrupt => "corrupt",
            Self::ReadFailed => "read_failed",
            Self::TimedOut => "timed_out",
            Self::Revoked(_) => "revoked",
            Self::HostFull => "host_full",
            Self::DeviceFull => "device_full",
            Self::NewWeights => "new_weights",
            Self::Cleared => "cleared",
            Self::Waiting => "waiting",
            Self::Limit => "limit",
            Self::PartialPage => "partial_page",
        }
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverSeen => f.write_str("never seen"),
            Self::Evicted { tick, by, tier } => {
                let tier = if *tier == Tier::Device { "device" } else { "host" };
                write!(f, "evicted from the {tier} at tick {tick}{}", by.text())
            }
            Self::LeftMeanwhile => f.write_str("evicted between match and load"),
            Self::OtherNamespace => f.write_str("cached in another namespace"),
            Self::PartMissing { part } => write!(f, "cached, but {part} is not"),
            Self::NotAsked => f.write_str("storage not asked"),
            Self::BelowPrefetchThreshold { tokens, threshold } => {
                write!(f, "storage not asked: {tokens} missing tokens are below the threshold of {threshold}")
            }
            Self::BelowLoadThreshold { tokens, threshold } => {
                write!(f, "on the host, not loaded: {tokens} tokens are below the threshold of {threshold}")
            }
            Self::OverBudget { tokens, budget } => {
                write!(f, "on the host, not loaded: {tokens} tokens are over the budget of {budget}")
            }
            Self::DeclinedByPolicy { policy, tokens } => {
                write!(f, "on the host, not loaded: {policy} wants a prefix of {tokens} tokens")
            }
            Self::PathNotOnHost => f.write_str("storage not asked: the path before is not on the host"),
            Self::PathNotOnDevice => f.write_str("of no use: the path before left the device"),
            Self::NotStored => f.write_str("not stored"),
            Self::Corrupt => f.write_str("stored, but damaged"),
            Self::ReadFailed => f.write_str("stored, but the store could not read it"),
            Self::TimedOut => f.write_str("the store did not answer in time"),
            Self::Revoked(by) => write!(f, "prefetch given up: {by}"),
            Self::HostFull => f.write_str("stored, but the host is full"),
            Self::DeviceFull => f.write_str("on the host, but the device is full"),
            Self::NewWeights => f.write_str("the weights changed"),
            Self::Cleared => f.write_str("the cache was cleared"),
            Self::Waiting => f.write_str("storage is still asked"),
            Self::Limit => f.write_str("beyond the limit"),
            Self::PartialPage => f.write_str("no whole page"),
        }
    }
}

impl Display for Revoked {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline => f.write_str("the deadline passed"),
            Self::Policy { policy, waited_ms } => write!(f, "{policy}, after {waited_ms} ms"),
            Self::Load => f.write_str("the request was loaded"),
            Self::Release => f.write_str("the request was released"),
            Self::Detached => f.write_str("the store was detached"),
        }
    }
}

impl By {
    const fn text(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::Allocate => " for pages to compute",
            Self::Load => " for a load",
            Self::Backup => " for a backup",
            Self::Prefetch => " for a prefetch",
            Self::Evict => " by the engine",
            Self::Detach => " with the device memory",
            Self::NewWeights => " with its weights",
            Self::Fault => " by a failed copy",
            Self::Clear => " by a clear",
        }
    }
}

/// A number with its thousands apart.
struct Grouped(u64);

impl Display for Grouped {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}
