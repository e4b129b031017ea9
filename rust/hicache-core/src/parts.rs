//! The slots of parts (windows, recurrent states): each has its own on device and host, beside the cache's.
//!
//! They are numbers of their own, or names in one unified buffer that FULL and the one part share.
//!
//! Part `p` is component `p` of the tree, and space `p + 1` of copies and commands. Knows no bytes and no tree.
//! On error: what can't live in one buffer is named.

use crate::config::Config;
use crate::error::Result;
use crate::host::SlotPool;
use crate::ids::Tier;
use crate::unified::{End, Unified};

/// The end that each space has in a unified buffer.
pub(crate) const ENDS: [End; 2] = [End::Down, End::Up];

/// One part's slots, and what was counted of them.
#[derive(Debug)]
pub(crate) struct PartPools {
    pub device: SlotPool,
    pub host: SlotPool,
    pub stats: PartStats,
}

impl PartPools {
    /// Over device slots, and so many on the host.
    pub fn new(device: SlotPool, host: u32) -> Self {
        Self { device, host: SlotPool::new(host), stats: PartStats::default() }
    }

    pub const fn pool(&self, tier: Tier) -> &SlotPool {
        match tier {
            Tier::Device => &self.device,
            Tier::Host => &self.host,
        }
    }

    pub const fn pool_mut(&mut self, tier: Tier) -> &mut SlotPool {
        match tier {
            Tier::Device => &mut self.device,
            Tier::Host => &mut self.host,
        }
    }
}

/// Device slots of every space: the cache's own, the parts', and the buffer that they are names in, if it is one.
pub(crate) struct DeviceSlots {
    pub full: SlotPool,
    pub parts: Vec<SlotPool>,
    pub unified: Option<Unified>,
}

impl DeviceSlots {
    /// So many of each space, or at most so many in a unified buffer.
    ///
    /// # Errors
    /// Names what can't live in one buffer.
    pub fn new(config: &Config, slots: &[u32]) -> Result<Self> {
        if let Some(geometry) = config.geometry(slots)? {
            let [full, part] = ENDS.map(|end| SlotPool::named(geometry.slots(end)));
            return Ok(Self { full, parts: vec![part], unified: Some(Unified::new(geometry)) });
        }
        let full = slots.first().copied().unwrap_or_default();
        let full = if config.engine_owns_slots { SlotPool::all_out(full) } else { SlotPool::new(full) };
        let parts = slots.iter().skip(1).map(|&slots| SlotPool::new(slots)).collect();
        Ok(Self { full, parts, unified: None })
    }
}

/// What a cache did so far with one part, in slots: pages of windows, or states. Never goes down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartStats {
    /// Entered the device by insert.
    pub inserted: u64,
    /// Copied to the host.
    pub backed_up: u64,
    /// Found no room on the host when they were to be backed up.
    pub backup_no_room: u64,
    /// Copied from the host to the device.
    pub loaded: u64,
    /// Found no room on the device when they were to be loaded.
    pub load_no_room: u64,
    /// Left the device, by themselves or with their pages.
    pub evicted_device: u64,
    /// Left the host.
    pub evicted_host: u64,
    /// Put on the host by prefetches.
    pub prefetched: u64,
}
