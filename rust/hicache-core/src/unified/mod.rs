//! One buffer for two kinds of state: the KV of full attention grows down from its high end, recurrent states
//! or the KV of windows grow up from its low end, and whichever needs more gets more.
//!
//! What everything else stores are slots, names that never change. Where the bytes of a slot are is its frame,
//! and frames change: compaction moves the pages next to the gap into holes further back, so that
//! the other end can have the gap. Pure and deterministic, as the tree is. It knows ends, slots and frames
//! as numbers; it refuses to know bytes and what is in them, the tree, requests and streams: moves are handed to
//! the caller as values, and what is under way is told by gates.
//!
//! On error: wrong arguments are refused by name, before anything changed; no room is a value.
//!
//! | file | what |
//! |---|---|
//! | `geometry` | how the buffer is divided; the byte address of a frame |
//! | `side` | one end: frames, holes, the frontier, the table from slots to frames |
//! | `gate` | what is under way and may touch pages: these stay, and nobody gets their places |
//! | `capacity` | what can be had now; what moves and a short wait would bring |
//! | `relief` | what to do so that an allocation finds room: moves, a wait, or nothing helps |
//! | `check` | the numbered invariants U1 to U7 |

mod capacity;
mod check;
#[cfg(test)]
mod check_tests;
mod gate;
mod geometry;
mod relief;
mod side;

pub use gate::{Gate, GateId};
pub use geometry::{End, Frame, Geometry, Grows, Part};
pub use relief::{Move, Moves, Relief};

use crate::error::{Result, argument};
use crate::ids::Slot;
use gate::Gates;
use side::Side;

/// Who has which part of the buffer.
#[derive(Debug)]
pub struct Unified {
    geometry: Geometry,
    sides: [Side; 2],
    gates: Gates,
}

impl Unified {
    /// An empty buffer.
    pub fn new(geometry: Geometry) -> Self {
        let sides = End::BOTH.map(|end| Side::new(geometry.frames(end), geometry.slots(end)));
        Self { geometry, sides, gates: Gates::default() }
    }

    /// How the buffer is divided.
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Takes `count` slots at one end, each with a frame: holes nearest to the end first, then from the gap.
    /// `None` if there are fewer (see [`Unified::relieve`]); then nothing was changed.
    pub fn take(&mut self, end: End, count: usize) -> Option<Vec<Slot>> {
        if count > self.available(end) {
            return None;
        }
        let (geometry, side) = (&self.geometry, &mut self.sides[end as usize]);
        Some((0..count).map(|_| side.place(|distance| geometry.frame(end, distance))).collect())
    }

    /// Slots are free again. Their frames can be had at once, unless something under way may still touch them (it
    /// named them, or may touch anything): then slot and frame come back when its gate closes.
    ///
    /// # Errors
    /// When a slot is not in use or is named twice. Nothing was changed.
    pub fn give_back(&mut self, end: End, slots: &[Slot]) -> Result<()> {
        self.check_live("slots", end, slots)?;
        let mut seen = slots.to_vec();
        seen.sort_unstable();
        if let Some(twice) = seen.windows(2).find(|pair| pair[0] == pair[1]) {
            return argument("slots", format!("slot {} of {} is named twice", twice[0].0, self.name(end)));
        }
        let wide = self.gates.of_freed();
        for &slot in slots {
            let distance = self.distance_of(end, slot);
            self.tie_all(end, distance, &wide);
            self.sides[end as usize].free(distance);
        }
        self.sides[end as usize].retract();
        Ok(())
    }

    /// Where a slot's page is; `None` if the slot is not in use.
    pub fn frame(&self, end: End, slot: Slot) -> Option<Frame> {
        let frame = *self.sides[end as usize].table.get(slot.0 as usize)?;
        (slot.0 > 0).then_some(frame).and_then(|frame| u32::try_from(frame).ok()).map(Frame)
    }

    /// Whose page is in a frame; `None` if nobody's is.
    pub fn slot_in(&self, end: End, frame: Frame) -> Option<Slot> {
        let distance = self.geometry.distance(end, frame)?;
        self.sides[end as usize].slot_at(distance)
    }

    /// The frames of an end by slot, as an engine's index tensor wants them: slot 0 is the sink's frame 0; -1
    /// where a slot is not in use; one row of -1 at the end, which an index of -1 finds.
    pub fn table(&self, end: End) -> &[i32] {
        &self.sides[end as usize].table
    }

    /// Slots in use at one end.
    pub const fn live(&self, end: End) -> usize {
        self.sides[end as usize].live as usize
    }

    /// Frames between one end and its frontier: in use, holes, and waiting for a gate.
    pub const fn span(&self, end: End) -> usize {
        self.sides[end as usize].span as usize
    }

    /// Frames at one end that are free and lie before its frontier.
    pub fn holes(&self, end: End) -> usize {
        self.sides[end as usize].holes.len()
    }

    /// Frames at one end that nobody uses and that something under way may still touch.
    pub const fn pending(&self, end: End) -> usize {
        self.sides[end as usize].parked as usize
    }

    fn name(&self, end: End) -> &str {
        self.geometry.name(end)
    }

    fn check_live(&self, name: &'static str, end: End, slots: &[Slot]) -> Result<()> {
        match slots.iter().find(|&&slot| self.frame(end, slot).is_none()) {
            None => Ok(()),
            Some(slot) => argument(name, format!("slot {} of {} is not in use", slot.0, self.name(end))),
        }
    }

    /// Of a slot that is in use.
    fn distance_of(&self, end: End, slot: Slot) -> u32 {
        let frame = self.sides[end as usize].table[slot.0 as usize];
        self.geometry.distance(end, Frame(frame.cast_unsigned())).unwrap_or(u32::MAX)
    }
}
