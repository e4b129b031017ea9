//! A rolling digest of what the tree decided: equal on ranks that took the same decisions, and almost
//! surely different on ranks that did not. Costs about an instruction a page.

use crate::ids::{Slot, Tier};
use crate::lanes;

/// What was decided; the numbers are part of the digest.
#[derive(Clone, Copy, Debug)]
pub(super) enum Decision {
    /// Pages got slots in a tier.
    Placed = 1,
    /// Pages left a tier.
    Left = 2,
    /// An edge was split.
    Split = 3,
    /// Component state got slots, or left.
    PartPlaced = 4,
    PartLeft = 5,
}

/// The digest so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Decisions(u64);

/// 2^64 divided by the golden ratio, odd: spreads every bit (Knuth, TAOCP volume 3, 6.4).
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Slots from which on taking many at a time pays.
const MANY: usize = 16;

impl Decisions {
    /// Folds in one decision: where in its path, in which order of slots, and the slots themselves. Whose
    /// pages they are is folded in before it, by a hash of their tokens or of their edge's.
    pub fn fold(&mut self, decision: Decision, depth: u32, order: usize, slots: &[Slot]) {
        self.word(u64::from(depth) << 16 | (order as u64) << 8 | decision as u64);
        self.word(slots.len() as u64);
        if slots.len() < MANY {
            slots.iter().for_each(|slot| self.word(u64::from(slot.0)));
        } else {
            self.word(lanes::digest(slots, 0));
        }
    }

    pub const fn value(self) -> u64 {
        self.0
    }

    /// Folds in one word.
    pub const fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(SPREAD);
    }
}

/// The order of slots that a tier's FULL pages are.
pub(super) const fn full(tier: Tier) -> usize {
    tier as usize
}
