//! Which slot an address is: the way back from what storage's threads are given.
//!
//! On error: an address that no page begins at is none.

use crate::executor::HostMemory;
use crate::ids::{HostSlot, Slot};

/// Where the pages of each space begin.
#[derive(Debug)]
pub struct Places(Vec<Place>);

#[derive(Debug)]
struct Place {
    space: u8,
    /// Of slot 0.
    start: usize,
    /// From one slot to the next.
    step: usize,
    slots: usize,
}

impl Places {
    /// Of a cache's memory: a page begins where the first of its pools that has bytes has it.
    pub fn of(memory: &HostMemory) -> Self {
        let mut places: Vec<Place> = Vec::new();
        for pool in memory.pools.iter().filter(|pool| pool.layout.bytes() > 0) {
            let starts = [0, 1].map(|slot| pool.layout.runs(slot).next().map_or(0, |run| run.start));
            let known = places.iter().any(|place| place.space == pool.space);
            if let (false, Some(start)) = (known, pool.slab.address(starts[0]..starts[0])) {
                places.push(Place {
                    space: pool.space,
                    start: start.expose_provenance(),
                    step: starts[1] - starts[0],
                    slots: pool.layout.slots(),
                });
            }
        }
        Self(places)
    }

    /// The slot whose page begins there.
    pub fn slot(&self, address: usize) -> Option<HostSlot> {
        self.0.iter().find_map(|place| {
            let from = address.checked_sub(place.start)?;
            let slot = from / place.step;
            let inside = from.is_multiple_of(place.step) && slot < place.slots;
            let slot = u32::try_from(slot).ok().filter(|_| inside)?;
            Some(HostSlot { space: place.space, slot: Slot(slot) })
        })
    }
}
