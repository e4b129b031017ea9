//! Gates: what is under way outside and may touch pages where they are now. Until it is through, nobody gets the
//! frame or the slot of a page that it may touch, and a page whose address it has stays there.
//!
//! A gate names the pages that it has the addresses of. That is finer than "no move while any transfer is
//! under way", which under load would mean never: a transfer doesn't care where other pages go. [`Gate::Still`] is
//! the coarse gate, for whoever can't name what it touches.
//!
//! On error: a page that is not in use, or a gate that is not open, is refused; nothing was changed.

use super::Unified;
use super::geometry::End;
use super::side::Term;
use crate::error::{Result, argument};
use crate::ids::Slot;
use std::collections::BTreeMap;

/// What is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// A copy between tiers or machines, or a reservation for one: its pages stay where they are.
    Transfer(Vec<(End, Slot)>),
    /// A forward of the model. The pages that it writes stay; it may read any other at the address that it had when
    /// it began, so that what moves meanwhile leaves its old frame to nobody before the forward is through. What it
    /// reads and doesn't name is not given back before: whoever gives pages back sees to that.
    Forward {
        /// Pages that it writes.
        writes: Vec<(End, Slot)>,
    },
    /// Something that may touch any page: nothing moves, and what is freed comes back when it is through.
    Still,
}

/// An open gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GateId(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Transfer,
    Forward,
    Still,
    Moves,
}

impl Kind {
    /// Forwards and moves are through in about the time of a step; nobody knows how long the others take.
    pub const fn term(self) -> Term {
        match self {
            Self::Forward | Self::Moves => Term::Short,
            Self::Transfer | Self::Still => Term::Long,
        }
    }

    /// Whether it may read a page that it doesn't name where that was, after it moved.
    const fn reads_all(self) -> bool {
        matches!(self, Self::Forward | Self::Still)
    }
}

#[derive(Debug)]
pub(super) struct Open {
    pub kind: Kind,
    /// Frames that it touches, one entry for each time: (end, distance).
    pub tied: Vec<(End, u32)>,
}

#[derive(Debug, Default)]
pub(super) struct Gates {
    pub open: BTreeMap<GateId, Open>,
    next: u64,
    /// Open gates of kind [`Kind::Still`].
    pub still: usize,
}

impl Gates {
    pub fn add(&mut self, kind: Kind) -> GateId {
        let id = GateId(self.next);
        self.next += 1;
        self.still += usize::from(kind == Kind::Still);
        self.open.insert(id, Open { kind, tied: Vec::new() });
        id
    }

    /// Gates that may touch a page that moves, where it was.
    pub fn of_moved(&self) -> Vec<GateId> {
        self.those(Kind::reads_all)
    }

    /// Gates that may touch any page that is given back.
    pub fn of_freed(&self) -> Vec<GateId> {
        if self.still == 0 { Vec::new() } else { self.those(|kind| kind == Kind::Still) }
    }

    fn those(&self, which: impl Fn(Kind) -> bool) -> Vec<GateId> {
        self.open.iter().filter(|(_, open)| which(open.kind)).map(|(&id, _)| id).collect()
    }

    /// Gates that close soon.
    pub fn short(&self) -> Vec<GateId> {
        self.those(|kind| kind.term() == Term::Short)
    }
}

impl Unified {
    /// Something is under way from now on. A page may be named by any number of gates.
    ///
    /// # Errors
    /// When a page is not in use. Nothing was changed.
    pub fn open(&mut self, gate: Gate) -> Result<GateId> {
        let (kind, pages) = match gate {
            Gate::Transfer(pages) => (Kind::Transfer, pages),
            Gate::Forward { writes } => (Kind::Forward, writes),
            Gate::Still => (Kind::Still, Vec::new()),
        };
        pages.iter().try_for_each(|&(end, slot)| self.check_live("gate", end, &[slot]))?;
        let id = self.gates.add(kind);
        for (end, slot) in pages {
            let distance = self.distance_of(end, slot);
            self.tie_all(end, distance, &[id]);
        }
        Ok(id)
    }

    /// It is through: what only waited for it is free.
    ///
    /// # Errors
    /// When the gate is not open.
    pub fn close(&mut self, gate: GateId) -> Result<()> {
        let Some(open) = self.gates.open.remove(&gate) else {
            return argument("gate", format!("gate {} is not open", gate.0));
        };
        self.gates.still -= usize::from(open.kind == Kind::Still);
        for (end, distance) in open.tied {
            self.sides[end as usize].untie(distance, open.kind.term());
        }
        self.sides.iter_mut().for_each(super::side::Side::retract);
        Ok(())
    }

    /// Gates that are open.
    pub fn gates(&self) -> usize {
        self.gates.open.len()
    }

    /// These gates touch a frame.
    pub(super) fn tie_all(&mut self, end: End, distance: u32, gates: &[GateId]) {
        for id in gates {
            if let Some(open) = self.gates.open.get_mut(id) {
                open.tied.push((end, distance));
                self.sides[end as usize].tie(distance, open.kind.term());
            }
        }
    }
}
