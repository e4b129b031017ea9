//! One end: which of its frames are in use, holes, or parked; where its frontier is; the table from slots to frames.
//!
//! It counts frames by their distance from the end, whichever way they grow, and refuses to know the other end.
//! The frame right before the frontier is never a hole: what is freed there goes back to the gap at once, without
//! a move. On error: wrong use is a bug, and reported by the checker.

use super::geometry::Frame;
use crate::ids::Slot;
use std::collections::BTreeSet;

/// A slot's frame, while it has none.
const UNMAPPED: i32 = -1;

/// What a frame before the frontier is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Free, or beyond the frontier.
    Hole,
    /// A page's.
    Live(Slot),
    /// Nobody's, until no gate touches it: then its slot comes back with it, if it was freed rather than moved away.
    Parked(Option<Slot>),
}

/// How long what touches a frame may take: until a forward or moves are through, or as long as a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Term {
    Short = 0,
    Long = 1,
}

#[derive(Debug)]
pub(super) struct Side {
    /// By distance.
    pub states: Vec<State>,
    /// Open gates that touch a frame, by distance and [`Term`].
    pub ties: Vec<[u32; 2]>,
    /// Distances of the frames that any gate touches, and of those that a long one does.
    pub tied: BTreeSet<u32>,
    pub tied_long: BTreeSet<u32>,
    pub holes: BTreeSet<u32>,
    /// Frames by slot; slot 0 is the sink, and the last row is nobody's.
    pub table: Vec<i32>,
    /// Used from the end; filled so that low numbers go first.
    pub free_slots: Vec<Slot>,
    pub span: u32,
    pub live: u32,
    pub parked: u32,
    /// Of these, the ones that a long gate touches.
    pub parked_long: u32,
}

impl Side {
    pub fn new(frames: u32, slots: u32) -> Self {
        let mut table = vec![UNMAPPED; slots as usize + 2];
        table[0] = 0;
        Self {
            states: vec![State::Hole; frames as usize],
            ties: vec![[0; 2]; frames as usize],
            tied: BTreeSet::new(),
            tied_long: BTreeSet::new(),
            holes: BTreeSet::new(),
            table,
            free_slots: (1..=slots).rev().map(Slot).collect(),
            span: 0,
            live: 0,
            parked: 0,
            parked_long: 0,
        }
    }

    pub fn slot_at(&self, distance: u32) -> Option<Slot> {
        match self.states[distance as usize] {
            State::Live(slot) => Some(slot),
            State::Hole | State::Parked(_) => None,
        }
    }

    /// Gives a free slot a frame: the hole nearest to the end, or the next one of the gap. The caller knows
    /// that there are both.
    pub fn place(&mut self, frame: impl Fn(u32) -> Frame) -> Slot {
        let distance = self.holes.pop_first().unwrap_or_else(|| {
            self.span += 1;
            self.span - 1
        });
        let slot = self.free_slots.pop().unwrap_or(Slot(0));
        debug_assert!(slot.0 > 0, "the caller asked what is available");
        self.live += 1;
        self.settle(slot, distance, frame(distance));
        slot
    }

    /// A page left. Its frame is a hole, or parked if gates touch it.
    pub fn free(&mut self, distance: u32) {
        let State::Live(slot) = self.states[distance as usize] else { return };
        self.table[slot.0 as usize] = UNMAPPED;
        self.live -= 1;
        self.vacate(distance, Some(slot));
    }

    /// A page moves to a hole. Where it was is a hole, or parked.
    pub fn shift(&mut self, from: u32, to: u32, frame: Frame) -> Option<Slot> {
        let slot = self.slot_at(from)?;
        self.holes.remove(&to);
        self.settle(slot, to, frame);
        self.vacate(from, None);
        Some(slot)
    }

    fn settle(&mut self, slot: Slot, distance: u32, frame: Frame) {
        self.table[slot.0 as usize] = frame.0.cast_signed();
        self.states[distance as usize] = State::Live(slot);
    }

    fn vacate(&mut self, distance: u32, slot: Option<Slot>) {
        let ties = self.ties[distance as usize];
        if ties == [0, 0] {
            self.release(distance, slot);
            return;
        }
        self.states[distance as usize] = State::Parked(slot);
        self.parked += 1;
        self.parked_long += u32::from(ties[Term::Long as usize] > 0);
    }

    fn release(&mut self, distance: u32, slot: Option<Slot>) {
        self.states[distance as usize] = State::Hole;
        self.holes.insert(distance);
        self.free_slots.extend(slot);
    }

    /// A gate touches a frame that is in use.
    pub fn tie(&mut self, distance: u32, term: Term) {
        self.ties[distance as usize][term as usize] += 1;
        self.tied.insert(distance);
        if term == Term::Long {
            self.tied_long.insert(distance);
        }
    }

    /// A gate that touched a frame has closed. What was only waiting for it is a hole.
    pub fn untie(&mut self, distance: u32, term: Term) {
        let ties = &mut self.ties[distance as usize];
        ties[term as usize] -= 1;
        let ties = *ties;
        let state = self.states[distance as usize];
        if term == Term::Long && ties[Term::Long as usize] == 0 {
            self.tied_long.remove(&distance);
            self.parked_long -= u32::from(matches!(state, State::Parked(_)));
        }
        if ties == [0, 0] {
            self.tied.remove(&distance);
            if let State::Parked(slot) = state {
                self.parked -= 1;
                self.release(distance, slot);
            }
        }
    }

    /// Holes right before the frontier go back to the gap.
    pub fn retract(&mut self) {
        while self.span > 0 && self.holes.remove(&(self.span - 1)) {
            self.span -= 1;
        }
    }

    /// The least span that moves can bring about now, and once all short gates have closed.
    pub fn packed(&self, wait: bool) -> u32 {
        let (parked, tied) =
            if wait { (self.parked_long, &self.tied_long) } else { (self.parked, &self.tied) };
        (self.live + parked).max(tied.last().map_or(0, |last| last + 1))
    }
}
