//! Whether the books of a cache are right: its slots, pins and tree, recomputed from scratch.
//!
//! On error: the first invariant that doesn't hold, with its number.

use crate::cache::HiCache;
use crate::error::{Error, Result};
use crate::host::SlotPool;
use crate::ids::{Slot, Tier};

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
            books(pool.out() == self.flights.reading(space), "C3: host slots are out without a read")?;
        }
        self.check_buffer()?;
        let held: usize = self.hits.values().map(|hit| 1 + usize::from(hit.also.is_some())).sum();
        let pins = held + self.flights.pins() + self.forwards.pins();
        books(self.tree.pins() == pins, "C4: pins without a hit, a transfer or a forward")
    }

    /// The host slots of every space.
    fn host_pools(&self) -> impl Iterator<Item = &SlotPool> {
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
