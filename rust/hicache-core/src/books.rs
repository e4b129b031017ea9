//! Whether the books of a cache are right: its slots, pins and tree, recomputed from scratch.
//!
//! On error: the first invariant that doesn't hold, with its number.

use crate::cache::HiCache;
use crate::error::{Error, Result};
use crate::host::SlotPool;
use crate::ids::{HostSlot, Slot, Tier};

impl HiCache {
    /// Books and tree.
    ///
    /// # Errors
    /// The first invariant that doesn't hold, with its number.
    pub fn check(&self) -> Result<()> {
        self.tree.check()?;
        for tier in Tier::ALL {
            let (pool, count) = (self.slots(tier), self.tree.resident(tier));
            books(placed(pool, self.tree.all_slots(tier), count), UNACCOUNTED[tier as usize])?;
            for (part, pools) in self.parts.iter().enumerate() {
                let (pool, count) = (pools.pool(tier), self.tree.part_resident(part, tier));
                books(placed(pool, self.tree.all_part_slots(part, tier), count), UNACCOUNTED[tier as usize])?;
            }
        }
        for (space, pool) in (0..).zip(self.host_pools()) {
            books(!self.is_free_with_record(space, pool), "C6: a host slot is free and has a record")?;
        }
        self.check_staging()?;
        self.check_buffer()?;
        let held: usize = self.hits.values().map(|hit| 1 + usize::from(hit.also.is_some())).sum();
        let pins = held + self.flights.pins() + self.to_store.landed.pins() + self.forwards.pins();
        books(self.tree.pins() == pins, "C4: pins without a hit, a transfer or a forward")
    }

    /// Whether memory that outlives the process says that something is in a slot in which nothing is.
    fn is_free_with_record(&self, space: u8, pool: &SlotPool) -> bool {
        let Some(kept) = self.executor.kept() else { return false };
        let slots = (0..).map(Slot).take(pool.capacity());
        slots.filter(|&slot| pool.is_empty(slot)).any(|slot| kept.is_sealed(HostSlot { space, slot }))
    }

    /// The host slots of every space.
    pub(crate) fn host_pools(&self) -> impl Iterator<Item = &SlotPool> {
        std::iter::once(&self.host).chain(self.parts.iter().map(|part| &part.host))
    }
}

const UNACCOUNTED: [&str; 2] =
    ["C1: device slots are not free, out or a page's", "C2: host slots are not free, out or a page's"];

/// Whether a pool's slots are free, out, or exactly those that pages have.
fn placed(pool: &SlotPool, mut slots: impl Iterator<Item = Slot>, count: usize) -> bool {
    slots.all(|slot| pool.is_placed(slot)) && pool.capacity() == pool.free() + pool.out() + count
}

fn books(holds: bool, what: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::Invariant(what.to_owned())) }
}
