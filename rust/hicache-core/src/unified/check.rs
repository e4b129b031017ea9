//! The numbered invariants of the buffer, recomputed from scratch.
//!
//! Knows everything, changes nothing. On error: the first one that doesn't hold, by number.

use super::Unified;
use super::geometry::End;
use super::side::{Side, State, Term};
use crate::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Gates by what they touch: (end, distance), how many of each [`Term`].
type Ties = BTreeMap<(End, u32), [u32; 2]>;

fn ensure(holds: bool, number: &str, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::Invariant(format!("{number}: {}", what()))) }
}

impl Unified {
    /// # Errors
    /// When an invariant doesn't hold: a bug in this library.
    pub fn check(&self) -> Result<()> {
        let ties = self.ties()?;
        for end in End::BOTH {
            let side = &self.sides[end as usize];
            check_span(side, end)?;
            self.check_table(side, end)?;
            check_slots(side, end, self.geometry.slots(end))?;
            check_ties(side, end, &ties)?;
        }
        let spans = self.sides.each_ref().map(|side| u64::from(side.span));
        ensure(self.frontiers_ordered(), "U2", || format!("spans {spans:?} meet, or leave the buffer"))?;
        End::BOTH.into_iter().try_for_each(|end| self.check_capacity(end, self.available(end)))
    }

    /// U5: every gate's frames.
    fn ties(&self) -> Result<Ties> {
        let mut ties = Ties::new();
        for open in self.gates.open.values() {
            for &at in &open.tied {
                ties.entry(at).or_default()[open.kind.term() as usize] += 1;
            }
        }
        let still = self.gates.open.values().filter(|open| open.kind == super::gate::Kind::Still).count();
        ensure(still == self.gates.still, "U5", || "gates that hold all pages are counted wrongly".into())?;
        Ok(ties)
    }

    /// U2, from the bytes of the outermost frames.
    fn frontiers_ordered(&self) -> bool {
        let outermost = |end: End| {
            let span = self.sides[end as usize].span;
            let inside = span <= self.geometry.frames(end);
            let frame = |distance| self.geometry.frame(end, distance);
            let bytes = || self.geometry.address(end, frame(span - 1));
            (inside, (inside && span > 0).then(bytes))
        };
        let ((up_inside, up), (down_inside, down)) = (outermost(End::Up), outermost(End::Down));
        let low = up.map_or(self.geometry.sink(), |bytes| bytes.end);
        let high = down.map_or(self.geometry.bytes(), |bytes| bytes.start);
        up_inside
            && down_inside
            && self.geometry.sink() <= low
            && low <= high
            && high <= self.geometry.bytes()
    }

    /// U3: the table and the frames say the same.
    fn check_table(&self, side: &Side, end: End) -> Result<()> {
        let mut table = vec![-1; self.geometry.slots(end) as usize + 2];
        table[0] = 0;
        for (distance, state) in (0..).zip(&side.states) {
            if let State::Live(slot) = state {
                let row = table.get_mut(slot.0 as usize).filter(|row| **row == -1);
                let Some(row) = row else {
                    return ensure(false, "U3", || format!("slot {} of {end:?} has two frames", slot.0));
                };
                *row = self.geometry.frame(end, distance).0.cast_signed();
            }
        }
        ensure(table == side.table, "U3", || format!("{end:?}: the table is not what the frames say"))
    }

    /// U7: what is available is what a walk over all frames finds free.
    pub(super) fn check_capacity(&self, end: End, kept: usize) -> Result<()> {
        let side = &self.sides[end as usize];
        let other = &self.sides[end.other() as usize];
        let edge = other
            .span
            .checked_sub(1)
            .map(|last| self.geometry.address(end.other(), self.geometry.frame(end.other(), last)));
        let free = (0..self.geometry.frames(end)).filter(|&distance| {
            let bytes = self.geometry.address(end, self.geometry.frame(end, distance));
            let clear = match (&edge, end) {
                (None, End::Up) => true,
                (None, End::Down) => bytes.start >= self.geometry.sink(),
                (Some(edge), End::Up) => bytes.end <= edge.start,
                (Some(edge), End::Down) => bytes.start >= edge.end,
            };
            clear && side.states[distance as usize] == State::Hole
        });
        let available = free.count().min(side.free_slots.len());
        let more = self.schedulable(end);
        ensure(available == kept && available <= more, "U7", || {
            format!("{end:?}: {available} are available, not {kept} (schedulable: {more})")
        })
    }
}

/// U1: the span is what is live, holes and parked; it ends with no hole, and beyond it there is nothing.
fn check_span(side: &Side, end: End) -> Result<()> {
    let count = |wanted: fn(&State) -> bool| side.states.iter().filter(|state| wanted(state)).count();
    let live = count(|state| matches!(state, State::Live(_)));
    let parked = count(|state| matches!(state, State::Parked(_)));
    let span = side.span as usize;
    let beyond = side.states.get(span..).is_some_and(|rest| rest.iter().any(|state| *state != State::Hole));
    let edge = span > 0 && side.states.get(span - 1).is_none_or(|state| *state == State::Hole);
    let holes: BTreeSet<u32> =
        (0..side.span).filter(|&at| side.states.get(at as usize) == Some(&State::Hole)).collect();
    let sums = live == side.live as usize && parked == side.parked as usize && holes == side.holes;
    ensure(sums && span == live + parked + holes.len() && !beyond && !edge, "U1", || {
        format!("{end:?}: span {span}, {live} live, {parked} parked, {} holes", holes.len())
    })
}

/// U4: a slot is in use, free, or parked with its frame.
fn check_slots(side: &Side, end: End, slots: u32) -> Result<()> {
    let named = side.states.iter().filter_map(|state| match *state {
        State::Live(slot) | State::Parked(Some(slot)) => Some(slot.0),
        State::Hole | State::Parked(None) => None,
    });
    let mut all: Vec<u32> = named.chain(side.free_slots.iter().map(|slot| slot.0)).collect();
    all.sort_unstable();
    ensure(all.into_iter().eq(1..=slots), "U4", || format!("{end:?}: slots are lost, or have two owners"))
}

/// U5: frames are tied by the open gates, and only pages and what is parked are; U6: what is parked is tied.
fn check_ties(side: &Side, end: End, ties: &Ties) -> Result<()> {
    let mut parked_long = 0;
    for (distance, state) in (0..).zip(&side.states) {
        let due = ties.get(&(end, distance)).copied().unwrap_or_default();
        let touched = due != [0, 0];
        let long = due[Term::Long as usize] > 0;
        let known = side.ties[distance as usize] == due
            && side.tied.contains(&distance) == touched
            && side.tied_long.contains(&distance) == long;
        ensure(known, "U5", || format!("{end:?}: frame {distance} from the end is touched by other gates"))?;
        ensure(!touched || *state != State::Hole, "U6", || format!("{end:?}: a hole {distance} is touched"))?;
        let parked = matches!(state, State::Parked(_));
        ensure(touched || !parked, "U6", || format!("{end:?}: {distance} is parked and waits for nothing"))?;
        parked_long += u32::from(parked && long);
    }
    ensure(parked_long == side.parked_long, "U6", || format!("{end:?}: {parked_long} wait for long gates"))
}
