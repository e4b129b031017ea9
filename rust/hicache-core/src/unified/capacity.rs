//! What an end can have: now, and after the moves and short waits that [`Unified::relieve`] asks for.
//!
//! Admission and eviction look at what is schedulable: pages that compaction can bring need no eviction. A real
//! allocation looks at what is available. All of it comes from counts that are kept, in O(log n).
//!
//! On error: nothing here fails.

use super::Unified;
use super::geometry::End;

impl Unified {
    /// Slots that [`Unified::take`] finds now.
    pub fn available(&self, end: End) -> usize {
        let side = &self.sides[end as usize];
        let gap = self.geometry.most(end, self.span(end.other()) as u64).saturating_sub(side.span.into());
        side.free_slots.len().min(side.holes.len() + wide(gap))
    }

    /// Slots that are there once the other end is packed and what runs now (forwards, moves) is through.
    /// Nothing is evicted for these. A lower bound while something holds all pages still, exact otherwise.
    pub fn schedulable(&self, end: End) -> usize {
        let other = self.reach(end.other(), 0, 0);
        let side = &self.sides[end as usize];
        let frames = self.geometry.most(end, other).saturating_sub((side.live + self.kept(end)).into());
        let slots = self.geometry.slots(end).saturating_sub(side.live + side.parked_long);
        wide(frames.min(slots.into()))
    }

    /// Whether both ends can have these many slots (by [`End`]) together, without an eviction.
    pub fn fits(&self, need: [usize; 2]) -> bool {
        self.would_fit(need, [0, 0])
    }

    /// Whether they could if `freed` slots of each end, none of which a transfer touches, were given back.
    pub fn would_fit(&self, need: [usize; 2], freed: [usize; 2]) -> bool {
        let ids = End::BOTH.iter().all(|&end| self.missing_slots(end, need, freed) == 0);
        let spans = End::BOTH.map(|end| self.reach(end, need[end as usize], freed[end as usize]));
        ids && self.geometry.ordered(spans)
    }

    /// Slots that an end lacks for a need, however many bytes there are.
    pub fn short_of_slots(&self, end: End, need: usize) -> usize {
        self.missing_slots(end, [need; 2], [0, 0])
    }

    fn missing_slots(&self, end: End, need: [usize; 2], freed: [usize; 2]) -> usize {
        let side = &self.sides[end as usize];
        let freed = if self.gates.still > 0 { 0 } else { freed[end as usize] };
        let taken = (side.live + side.parked_long) as usize + need[end as usize];
        taken.saturating_sub(freed).saturating_sub(self.geometry.slots(end) as usize)
    }

    /// Parked frames that don't count. While all pages are held still, a short wait doesn't bring back what was taken
    /// from the gap instead meanwhile: then none does.
    const fn kept(&self, end: End) -> u32 {
        let side = &self.sides[end as usize];
        if self.gates.still > 0 { side.parked } else { side.parked_long }
    }

    /// The span of an end that was packed, got `need` pages and lost `freed`.
    pub(super) fn reach(&self, end: End, need: usize, freed: usize) -> u64 {
        let side = &self.sides[end as usize];
        let still = self.gates.still > 0;
        let freed = if still { 0 } else { freed };
        let pages = ((side.live + self.kept(end)) as usize + need).saturating_sub(freed);
        let least = if still { side.span } else { side.tied_long.last().map_or(0, |last| last + 1) };
        (pages as u64).max(least.into())
    }
}

#[expect(clippy::cast_possible_truncation, reason = "pages of a buffer: fewer than 2^31")]
const fn wide(pages: u64) -> usize {
    pages as usize
}
