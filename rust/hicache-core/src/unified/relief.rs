//! The ladder that an allocation climbs when the gap is too small: pack the other end, wait for what is short,
//! give up. And packing for its own sake, when nobody waits.
//!
//! Pages nearest to the gap go to the holes furthest from it, no more of them than the need asks for. The tables
//! name the new places at once; the bytes are the caller's to move, before anything uses the tables again, and
//! the moves' own gate stays open until they have landed: so that the old frames go to nobody before.
//!
//! On error: nothing here fails; what can't be done is a value.

use super::Unified;
use super::gate::{GateId, Kind};
use super::geometry::{End, Frame};
use super::side::State;
use crate::ids::Slot;

/// One page's way to another frame of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Whose page it is.
    pub slot: Slot,
    /// Where its bytes are.
    pub from: Frame,
    /// Where they belong.
    pub to: Frame,
}

/// Bytes to move. No frame is in it twice, so that the moves may run in any order, or all at once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the tables name the new frames already: the bytes must be moved, and the gate closed"]
pub struct Moves {
    /// To be closed when the bytes have landed.
    pub gate: GateId,
    /// The end whose pages move.
    pub end: End,
    /// Ascending in distance from the end, both ways: neighbours stay neighbours as far as the holes let them.
    pub list: Vec<Move>,
}

/// What to do for an allocation.
#[derive(Debug, PartialEq, Eq)]
pub enum Relief {
    /// [`Unified::take`] finds room now.
    Ready,
    /// Move these bytes, close the gate, and ask again.
    Moves(Moves),
    /// Close one of these gates (forwards and moves that are under way), and ask again.
    Wait(Vec<GateId>),
    /// Nothing but giving pages back, or the end of a transfer, helps.
    Short,
}

impl Unified {
    /// The next step to `pages` slots at one end. Ask again after it: from what is schedulable, `Ready` comes after
    /// finitely many steps, as long as no new gate opens in between.
    pub fn relieve(&mut self, end: End, pages: usize) -> Relief {
        if self.available(end) >= pages {
            return Relief::Ready;
        }
        let mut need = [0; 2];
        need[end as usize] = pages;
        if !self.fits(need) {
            return Relief::Short;
        }
        let (side, other) = (&self.sides[end as usize], end.other());
        let wanted = side.span as usize + pages.saturating_sub(side.holes.len());
        let target = self.geometry.most(other, wanted as u64);
        let possible = target >= u64::from(self.sides[other as usize].packed(false));
        let moves = if possible { self.pack(other, target, usize::MAX) } else { None };
        moves.map_or_else(|| Relief::Wait(self.gates.short()), Relief::Moves)
    }

    /// Packs one end as far as `most` moves can, when nobody waits; `None` if there is nothing to gain now.
    pub fn compact(&mut self, end: End, most: usize) -> Option<Moves> {
        self.pack(end, self.sides[end as usize].packed(false).into(), most)
    }

    /// Moves the pages at distances from `target` on, furthest first, `most` at most, to holes before them.
    /// The caller knows that no gate touches any of them, and that there are so many holes.
    fn pack(&mut self, end: End, target: u64, most: usize) -> Option<Moves> {
        if self.gates.still > 0 {
            return None;
        }
        let side = &self.sides[end as usize];
        let beyond = (0..side.span).rev().take_while(|&distance| u64::from(distance) >= target);
        let live = |distance: &u32| matches!(side.states[*distance as usize], State::Live(_));
        let mut from: Vec<u32> = beyond.filter(live).take(most).collect();
        from.reverse();
        let to: Vec<u32> = side.holes.iter().copied().take(from.len()).collect();
        if from.is_empty() {
            return None;
        }
        debug_assert!(to.len() == from.len() && to.last() < from.first(), "a packed end holds its pages");
        let gate = self.gates.add(Kind::Moves);
        let mut touched = self.gates.of_moved();
        touched.push(gate);
        let list =
            from.into_iter().zip(to).filter_map(|(from, to)| self.shift(end, from, to, &touched)).collect();
        Some(Moves { gate, end, list })
    }

    /// `gates` touch the frame that a page leaves; the last of them is the moves' own, which touches both.
    fn shift(&mut self, end: End, from: u32, to: u32, gates: &[GateId]) -> Option<Move> {
        self.tie_all(end, from, gates);
        let (old, new) = (self.geometry.frame(end, from), self.geometry.frame(end, to));
        let slot = self.sides[end as usize].shift(from, to, new)?;
        self.tie_all(end, to, &gates[gates.len() - 1..]);
        Some(Move { slot, from: old, to: new })
    }
}
