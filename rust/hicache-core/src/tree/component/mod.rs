//! Components: kinds of state that vote on a match, besides the KV of full attention (FULL).
//!
//! A prefix is usable in a view (device; device or host) where every component agrees:
//!
//! ```text
//!  FULL     ##########################|           every page of the prefix
//!  SWA      ....#....######.......####|           the last `window` pages; holes before them don't matter
//!  STATE    ........*.............*...*           a checkpoint at exactly this boundary, at an edge's end
//! ```
//! An SWA page or a checkpoint lives in a tier only where FULL does (S2). Holes are tombstones: pages whose
//! window state is gone; an insert that brings it again mends them.
//!
//! | file | what |
//! |---|---|
//! | `vote` | the two answers |
//! | `look` | what there is, and what could leave |
//! | `attach` | which slots are missing in a tier, and giving them |
//! | `hold` | what a pin holds of each component |
//! | `leave` | eviction, and what follows a cut or a split |
//! | `lose` | state whose copy failed |
//! | `check` | invariants S1 to S5 |

mod attach;
mod check;
#[cfg(test)]
mod check_tests;
mod hold;
mod leave;
mod look;
mod lose;
mod vote;

pub use attach::Missing;
pub(super) use hold::NOT_HELD;
pub(crate) use vote::Ballot;

use crate::ids::{NO_SLOT, Slot, Tier};

/// A hole.
pub(super) const ABSENT: Slot = NO_SLOT;

/// A kind of state besides FULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// Sliding-window KV.
    Swa {
        /// Pages that a match needs before its end: the model's window, rounded up to whole pages.
        window: u32,
    },
    /// Recurrent state: one checkpoint at a boundary.
    State,
}

/// What one edge has of one component.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// Per tier. SWA: one slot a page, `ABSENT` for holes, or nothing if all are. STATE: at most one,
    /// of the checkpoint at the edge's end.
    pub slots: [Vec<Slot>; 2],
    /// Hard pins that hold it, per tier.
    pub held: [u32; 2],
    /// Whether something of it is on the host that storage neither has nor will have.
    pub owed: bool,
}

impl Part {
    /// Whether the page at an offset has window state in a tier.
    pub fn has(&self, tier: Tier, offset: u32) -> bool {
        self.slots[tier as usize].get(offset as usize).is_some_and(|&slot| slot != ABSENT)
    }

    /// Whether there is anything in a tier.
    pub fn any(&self, tier: Tier) -> bool {
        !self.slots[tier as usize].is_empty()
    }

    /// Slots that are no holes.
    pub fn count(&self, tier: Tier) -> usize {
        self.slots[tier as usize].iter().filter(|&&slot| slot != ABSENT).count()
    }

    /// Slots of a tier that are no holes and, on the host, not the mirrors of the device's.
    pub fn loose(&self, tier: Tier) -> impl Iterator<Item = Slot> + '_ {
        let mirrors: &[Slot] = if tier == Tier::Host { &self.slots[Tier::Device as usize] } else { &[] };
        let mirrored = move |at: usize| mirrors.get(at).is_some_and(|&slot| slot != ABSENT);
        let all = self.slots[tier as usize].iter().copied().enumerate();
        all.filter(move |&(at, slot)| slot != ABSENT && !mirrored(at)).map(|(_, slot)| slot)
    }

    /// Slots of the host that are copies of the device's.
    pub fn doubled(&self) -> impl Iterator<Item = (usize, Slot)> + '_ {
        let [device, host] = &self.slots;
        let both = host.iter().zip(device).enumerate();
        both.filter(|(_, (host, device))| **host != ABSENT && **device != ABSENT)
            .map(|(at, (&host, _))| (at, host))
    }

    /// Slots of a tier that have none beside them in the other one.
    pub fn only(&self, tier: Tier) -> impl Iterator<Item = Slot> + '_ {
        let others = &self.slots[1 - tier as usize];
        let beside = move |at: usize| others.get(at).is_some_and(|&slot| slot != ABSENT);
        let all = self.slots[tier as usize].iter().copied().enumerate();
        all.filter(move |&(at, slot)| slot != ABSENT && !beside(at)).map(|(_, slot)| slot)
    }

    /// An all-hole edge has no list of slots.
    pub fn tidy(&mut self, tier: Tier) {
        if self.count(tier) == 0 {
            self.slots[tier as usize] = Vec::new();
        }
    }
}
