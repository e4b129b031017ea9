//! What windows and states have staged: with their pages, for one boundary, all of it or none.
//!
//! A boundary is chosen when it is known what the store has: the deepest one for which there is room, in every space. So
//! that nobody takes a page where the whole share would be room for a hundred, one that is less than half as far as what fits
//! into an empty share waits for more room. It holds if all that it needs is there, on the device or staged, when the
//! prefetch has ended; else nothing of it is of use.
//!
//! On error: nothing here fails.

use crate::cache::HiCache;
use crate::explain::Reason;
use crate::hit::{Asked, Hit, Staged};
use crate::ids::{HitId, HostSlot};
use crate::path::fetch::Reads;
use crate::path::parts::Room;
use crate::staging::Side;
use crate::storage::Outcome;
use crate::tree::{Found, Place};
use std::ops::Range;

impl HiCache {
    /// What comes from now on is for this boundary, behind so many pages on the device.
    pub(in crate::path) fn stage_for(&mut self, id: HitId, at: u32, boundary: u32) {
        if let Some(hit) = self.hits.get_mut(&id) {
            hit.staged = Staged { at, boundary, ..Staged::default() };
        }
    }

    /// What is read for the boundary that is chosen of those which agree, behind so many pages on the device. Without
    /// reads: there is no room now. `None`: there never is for any.
    pub(in crate::path) fn staged_reads(
        &mut self,
        found: Found,
        at: u32,
        ends: &[u32],
        present: &[Asked],
    ) -> Option<(u32, Option<Reads>)> {
        let spaces = 0..=self.parts.len();
        let share: Vec<usize> = spaces.clone().map(|space| self.share(space)).collect();
        let goal = self.deepest_within(found.place, at, ends, &share)?;
        let free: Vec<usize> = spaces.map(|space| self.may_stage(Side::Reads, space)).collect();
        let least = found.usable + (goal - found.usable).div_ceil(2);
        let far = &ends[ends.partition_point(|&end| end < least)..];
        let Some(end) = self.deepest_within(found.place, at, far, &free) else { return Some((goal, None)) };
        let (full, parts) = self.lacking_reads(found.place, at, end, present)?;
        let room = self.stage_together(full.len(), &parts.iter().map(Vec::len).collect::<Vec<_>>());
        Some((end, room.map(|room| Reads { full, parts, room })))
    }

    /// The deepest of some boundaries for which so many slots of each space are enough.
    fn deepest_within(&self, place: Place, at: u32, ends: &[u32], room: &[usize]) -> Option<u32> {
        let lacks = |part: usize, end: u32| {
            let pages = self.tree.needs_from(part, end)..end;
            pages.filter(|&page| !self.has(part, place, page)).count()
        };
        let fits = |end: &u32| (0..self.parts.len()).all(|part| lacks(part, *end) <= room[part + 1]);
        let full = ends.partition_point(|&end| end.saturating_sub(at) as usize <= room[0]);
        ends[..full].iter().rev().copied().find(fits)
    }

    /// The whole share of reads is too small for any boundary that a hit could have behind what is usable.
    pub(in crate::path) fn fits_nowhere(&mut self, id: HitId, pages: Range<u32>) {
        self.stats.prefetch_no_room += 1;
        let Some(hit) = self.hits.get_mut(&id) else { return };
        hit.story.note(pages, Reason::HostFull);
        if let Some(fetch) = &mut hit.fetch {
            (fetch.asked, fetch.no_room) = (Vec::new(), false);
        }
    }

    /// Slots for so much of every space, all or none.
    fn stage_together(&mut self, full: usize, parts: &[usize]) -> Option<Room> {
        let counts = || std::iter::once(full).chain(parts.iter().copied()).enumerate();
        if counts().any(|(space, count)| count > self.may_stage(Side::Reads, space)) {
            return None;
        }
        let mut slots: Vec<_> =
            counts().map(|(space, count)| self.stage(Side::Reads, space, count)).collect();
        let parts = slots.split_off(1);
        Some(Room { full: slots.pop().unwrap_or_default(), parts })
    }

    /// What was read of parts is the hit's from now on; slots of what didn't come are free.
    pub(in crate::path) fn stage_parts(
        &mut self,
        id: HitId,
        reads: &[(u32, HostSlot)],
        outcomes: &[Outcome],
    ) {
        let for_it = self.hits.get(&id).is_some_and(|hit| hit.staged.boundary > 0);
        for (&(page, at), &outcome) in reads.iter().zip(outcomes) {
            let came = outcome == Outcome::Hit;
            if let Some(hit) = self.hits.get_mut(&id).filter(|_| came && for_it) {
                hit.staged.parts.push((page, at));
                self.parts[usize::from(at.space) - 1].stats.prefetched += 1;
            } else {
                self.stats.prefetch_dropped_pages += u64::from(came);
                self.give_reads_back(&[(page, at)]);
            }
        }
        if let Some(hit) = self.hits.get_mut(&id) {
            hit.staged.parts.sort_unstable_by_key(|&(page, at)| (at.space, page));
        }
    }

    /// Whether all that a hit's boundary needs is there, on the device's end of the path at `place` or staged.
    pub(in crate::path) fn boundary_holds(&self, hit: &Hit, place: Place) -> bool {
        let (staged, end) = (&hit.staged, hit.staged.boundary);
        let whole = |part: usize| {
            let space = u8::try_from(part + 1).unwrap_or(u8::MAX);
            let there = |page| staged.part(space, page).is_some() || self.has(part, place, page);
            (self.tree.needs_from(part, end)..end).all(there)
        };
        end > 0 && Self::staged_to(hit, place.depth) >= end && (0..self.parts.len()).all(whole)
    }

    /// A hit's prefetch has ended: what is staged for a boundary that doesn't hold is of no use.
    pub(in crate::path) fn settle_boundary(&mut self, id: HitId, from: u32) {
        let Ok(found) = self.find_again(id) else { return };
        self.drop_useless(id, found.place.depth);
        let Some(hit) = self.hits.get(&id).filter(|hit| hit.staged.boundary > 0) else { return };
        let end = hit.staged.boundary;
        if !self.boundary_holds(hit, found.place) {
            return self.unstage_all(id);
        }
        if let Some(hit) = self.hits.get_mut(&id) {
            hit.stored = from.min(end)..end;
        }
    }
}
