//! Slots as an engine hands them out: the one that came back last goes first, so that whoever frees a slot
//! that is another's by now is noticed at once.

use hicache_core::ids::{Slot, Tier};
use std::collections::{BTreeMap, BTreeSet};

/// FULL's pools (`None`) and each component's, in both tiers.
#[derive(Debug, Default)]
pub struct Pools(BTreeMap<(Option<usize>, usize), Pool>);

#[derive(Debug, Default)]
struct Pool {
    made: u32,
    free: Vec<u32>,
    out: BTreeSet<u32>,
}

impl Pools {
    pub fn take(&mut self, component: Option<usize>, tier: Tier, count: usize) -> Vec<Slot> {
        let pool = self.0.entry((component, tier as usize)).or_default();
        let slots = (0..count).map(|_| {
            let slot = pool.free.pop().unwrap_or_else(|| {
                pool.made += 1;
                pool.made - 1
            });
            assert!(pool.out.insert(slot));
            Slot(slot)
        });
        slots.collect()
    }

    /// Every slot must be out: one that was freed before is free, or somebody else's.
    pub fn give(&mut self, component: Option<usize>, tier: Tier, slots: &[Slot]) {
        let pool = self.0.entry((component, tier as usize)).or_default();
        for slot in slots {
            assert!(pool.out.remove(&slot.0), "{slot:?} of {component:?} in {tier:?} was freed twice");
            pool.free.push(slot.0);
        }
    }

    pub fn out(&self, component: Option<usize>, tier: Tier) -> usize {
        self.0.get(&(component, tier as usize)).map_or(0, |pool| pool.out.len())
    }
}
