//! Buffer-only mode, the read side: what a prefetch brings waits in host slots that belong to the hit it was read for, until
//! the hit's load inserts it on the device, or nobody can use it any more.
//!
//! ```text
//!  path on the device  ################|                    the tree's
//!  staged                       sssssssssssss|              the hit's: what the device has by now is given back
//!  being read, early                          ....rr        the prefetch's
//! ```
//! Nothing of it is the tree's: other requests don't find it, and two that want the same pages each read them. What the
//! tree must keep for it is where it begins, which the hit's soft pin asks for; if that leaves the device all the same,
//! what is staged behind the hole is of no use, and given back.
//!
//! - `read`: what is asked for and read, and what becomes of those that find no room;
//! - `load`: what is staged becomes pages of the device; `raise` with windows and states;
//! - `parts`: what of these is staged;
//! - here: what a hit has, and what of it is still of use.
//!
//! Assumes that every page of the tree is on the device. Refuses to know whose the other slots are: `staging` does.
//! On error: nothing here fails; what is of no use is given back and said to be so.

mod load;
mod parts;
mod raise;
mod read;

use crate::cache::HiCache;
use crate::explain::Reason;
use crate::hit::{Hit, Staged};
use crate::ids::{HitId, HostSlot, Slot};
use crate::staging::Side;
use std::ops::Range;

impl HiCache {
    /// Pages were read for page `at` of a hit's path and those behind it: they are the hit's from now on, as far as
    /// they are of use.
    pub(super) fn stage_read(&mut self, id: HitId, at: u32, mut slots: Vec<Slot>) {
        let Ok(found) = self.find_again(id) else { return self.give_reads_of(0, &slots) };
        let depth = found.place.depth;
        self.drop_useless(id, depth);
        let staged = self.hits.get(&id).map(|hit| &hit.staged);
        let next = staged.filter(|staged| !staged.slots.is_empty()).map_or(depth, Staged::end);
        // Others have brought some of it, or what it continues is gone.
        let useless = if next < at { slots.len() } else { slots.len().min((next - at) as usize) };
        if next < at {
            self.note_hole(id, at..at + pages(slots.len()));
        }
        self.drop_read(&slots[..useless]);
        slots.drain(..useless);
        let Some(hit) = self.hits.get_mut(&id).filter(|_| !slots.is_empty()) else { return };
        if hit.staged.is_empty() {
            hit.staged.forgotten = false;
        }
        if hit.staged.slots.is_empty() {
            hit.staged.at = next;
        }
        self.stats.prefetched_pages += slots.len() as u64;
        hit.staged.slots.extend(slots);
        if hit.staged.boundary == 0 {
            hit.stored = hit.staged.at..hit.staged.end();
        }
    }

    /// Of what is staged for a hit whose path has so many pages on the device: what the device has by now, and what
    /// doesn't continue that, is given back.
    pub(super) fn drop_useless(&mut self, id: HitId, depth: u32) {
        let Some(hit) = self.hits.get_mut(&id).filter(|hit| !hit.staged.is_empty()) else { return };
        let staged = &mut hit.staged;
        if depth < staged.at {
            let hole = staged.at..staged.end().max(staged.boundary);
            self.note_hole(id, hole);
            return self.unstage_all(id);
        }
        let there = staged.slots.len().min((depth - staged.at) as usize);
        let slots: Vec<Slot> = staged.slots.drain(..there).collect();
        staged.at += pages(there);
        if staged.boundary == 0 {
            hit.stored = staged.at..staged.end();
        }
        self.drop_read(&slots);
    }

    /// Pages of a waiting hit's path that are on the device or staged behind those, which end at `depth`.
    pub(super) const fn staged_to(hit: &Hit, depth: u32) -> u32 {
        let continues = !hit.staged.slots.is_empty() && hit.staged.at <= depth && hit.staged.end() > depth;
        if continues { hit.staged.end() } else { depth }
    }

    /// Nothing is staged for a hit any more.
    pub(crate) fn unstage_all(&mut self, id: HitId) {
        let Some(hit) = self.hits.get_mut(&id) else { return };
        hit.stored = 0..0;
        let staged = std::mem::take(&mut hit.staged);
        self.let_staged_go(&staged);
    }

    /// What was staged for a hit that is no more, or is not to be used.
    pub(crate) fn let_staged_go(&mut self, staged: &Staged) {
        let slots: Vec<HostSlot> = staged.all().collect();
        self.stats.prefetch_dropped_pages += slots.len() as u64;
        self.unstage(Side::Reads, &slots);
    }

    /// Pages that were read in vain.
    fn drop_read(&mut self, slots: &[Slot]) {
        self.stats.prefetch_dropped_pages += slots.len() as u64;
        self.give_reads_of(0, slots);
    }

    /// What these pages of a hit's path continue has left the device.
    fn note_hole(&mut self, id: HitId, pages: Range<u32>) {
        if let Some(hit) = self.hits.get_mut(&id) {
            hit.story.note(pages, Reason::PathNotOnDevice);
        }
    }

    /// Hits for which something is staged, in order of their numbers: no order of a map may decide whose slots come back
    /// first.
    pub(super) fn with_staged(&self) -> Vec<HitId> {
        let ids = self.hits.iter().filter(|(_, hit)| !hit.staged.is_empty()).map(|(&id, _)| id);
        let mut ids: Vec<HitId> = ids.collect();
        ids.sort_unstable();
        ids
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
fn pages(count: usize) -> u32 {
    count as u32
}
