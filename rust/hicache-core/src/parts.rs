//! The slots of parts (windows, recurrent states): each has its own on device and host, beside the cache's.
//!
//! Part `p` is component `p` of the tree, and space `p + 1` of copies and commands. Knows no bytes and no tree.
//! On error: nothing here fails.

use crate::config::PartSlots;
use crate::host::SlotPool;
use crate::ids::Tier;

/// One part's slots, and what was counted of them.
#[derive(Debug)]
pub(crate) struct PartPools {
    pub device: SlotPool,
    pub host: SlotPool,
    pub stats: PartStats,
}

impl PartPools {
    pub fn new(slots: PartSlots) -> Self {
        let (device, host) = (SlotPool::new(slots.device), SlotPool::new(slots.host));
        Self { device, host, stats: PartStats::default() }
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
