//! What a unified buffer must answer, worked out frame by frame with plain loops and sets.

use hicache_core::ids::Slot;
use hicache_core::unified::{End, Frame, GateId, Geometry};
use std::collections::{BTreeMap, BTreeSet};

/// What gates are, for the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Transfer,
    Forward,
    Still,
    Moves,
}

impl Kind {
    pub fn long(self) -> bool {
        matches!(self, Self::Transfer | Self::Still)
    }

    /// Whether it sees pages that it doesn't name.
    pub fn sees_all(self) -> bool {
        matches!(self, Self::Forward | Self::Still)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Is {
    Hole,
    Live(Slot),
    /// Nobody's, until these gates have closed; the slot that rests with it.
    Parked(BTreeSet<GateId>, Option<Slot>),
}

pub struct Frames {
    pub geometry: Geometry,
    pub sides: [Vec<Is>; 2],
    /// Which gates have named the page in a frame, by (end, distance).
    pub named: BTreeMap<(End, usize), BTreeSet<GateId>>,
    pub gates: BTreeMap<GateId, Kind>,
}

impl Frames {
    pub fn new(geometry: Geometry) -> Self {
        let sides = End::BOTH.map(|end| vec![Is::Hole; geometry.frames(end) as usize]);
        Self { geometry, sides, named: BTreeMap::new(), gates: BTreeMap::new() }
    }

    /// Frames ascend from the sink for one end and descend from the last whole page for the other.
    pub fn frame(&self, end: End, distance: usize) -> Frame {
        let (page, bytes) = (self.geometry.page_bytes(end), self.geometry.bytes());
        let distance = distance as u64;
        let frame = match end {
            End::Up => self.geometry.sink().div_ceil(page) + distance,
            End::Down => bytes / page - 1 - distance,
        };
        Frame(u32::try_from(frame).unwrap())
    }

    pub fn span(&self, end: End) -> usize {
        self.sides[end as usize].iter().rposition(|is| *is != Is::Hole).map_or(0, |last| last + 1)
    }

    /// Whether a frame is on its side of `span` frames of the other end.
    fn clear(&self, end: End, distance: usize, span: usize) -> bool {
        let own = self.geometry.address(end, self.frame(end, distance));
        let other = end.other();
        (0..span).all(|distance| {
            let theirs = self.geometry.address(other, self.frame(other, distance));
            if end == End::Up { own.end <= theirs.start } else { theirs.end <= own.start }
        })
    }

    fn has(&self, end: End, is: impl Fn(&Is) -> bool) -> usize {
        self.sides[end as usize].iter().filter(|state| is(state)).count()
    }

    pub fn distance(&self, end: End, slot: Slot) -> usize {
        self.sides[end as usize].iter().position(|is| *is == Is::Live(slot)).expect("in use")
    }

    /// Where the next page goes, if it can.
    pub fn next(&self, end: End) -> Option<usize> {
        let states = &self.sides[end as usize];
        let taken = self.has(end, |is| matches!(is, Is::Live(_) | Is::Parked(_, Some(_))));
        let span = self.span(end.other());
        (taken < self.geometry.slots(end) as usize)
            .then(|| (0..states.len()).find(|&at| states[at] == Is::Hole && self.clear(end, at, span)))
            .flatten()
    }

    /// How many times `next` finds something, one after the other.
    pub fn available(&mut self, end: End) -> usize {
        let mut taken = Vec::new();
        while let Some(at) = self.next(end) {
            self.sides[end as usize][at] = Is::Live(Slot(u32::MAX));
            taken.push(at);
        }
        taken.iter().for_each(|&at| self.sides[end as usize][at] = Is::Hole);
        taken.len()
    }

    /// The same, after all short gates have closed and the other end is packed. Nothing holds all pages still.
    pub fn schedulable(&mut self, end: End) -> usize {
        let mut later = Self {
            geometry: self.geometry.clone(),
            sides: self.sides.clone(),
            named: self.named.clone(),
            gates: self.gates.clone(),
        };
        let short: Vec<GateId> =
            self.gates.iter().filter(|(_, kind)| !kind.long()).map(|(&id, _)| id).collect();
        short.into_iter().for_each(|id| later.close(id));
        later.pack(end.other());
        later.available(end)
    }

    /// Moves the outermost page to the innermost hole, as long as that is possible and helps.
    fn pack(&mut self, end: End) {
        loop {
            let side = &self.sides[end as usize];
            let span = self.span(end);
            let movable = span > 0
                && matches!(side[span - 1], Is::Live(_))
                && self.named.get(&(end, span - 1)).is_none_or(BTreeSet::is_empty);
            let hole = side.iter().position(|is| *is == Is::Hole).filter(|&hole| hole + 1 < span);
            let Some(hole) = hole.filter(|_| movable) else { return };
            self.sides[end as usize].swap(hole, span - 1);
        }
    }

    pub fn open(&mut self, id: GateId, kind: Kind, named: &[(End, usize)]) {
        self.gates.insert(id, kind);
        named.iter().for_each(|&at| _ = self.named.entry(at).or_default().insert(id));
    }

    pub fn close(&mut self, id: GateId) {
        self.gates.remove(&id);
        self.named.values_mut().for_each(|gates| _ = gates.remove(&id));
        for is in self.sides.iter_mut().flatten() {
            if let Is::Parked(gates, _) = is {
                gates.remove(&id);
                if gates.is_empty() {
                    *is = Is::Hole;
                }
            }
        }
    }

    /// A page leaves its frame, freed (with its slot) or moved away. Forwards see where pages were that moved away,
    /// and none that is freed unless they name it.
    pub fn leave(&mut self, end: End, distance: usize, slot: Option<Slot>, moves: Option<GateId>) {
        let mut gates = self.named.get(&(end, distance)).cloned().unwrap_or_default();
        let ties = |kind: Kind| if slot.is_some() { kind == Kind::Still } else { kind.sees_all() };
        gates.extend(self.gates.iter().filter(|&(_, &kind)| ties(kind)).map(|(&id, _)| id));
        gates.extend(moves);
        self.sides[end as usize][distance] =
            if gates.is_empty() { Is::Hole } else { Is::Parked(gates, slot) };
    }
}
