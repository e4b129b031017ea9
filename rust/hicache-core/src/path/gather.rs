//! Which pages of a path go to storage next: all that is on the host and wanted there, parents first, as far as more may be
//! on their way; a long path goes piece by piece.
//!
//! On error: nothing here fails. What there is no room for waits for its turn; what failed, until its path comes again.

use crate::cache::HiCache;
use crate::ids::{Slot, Tier};
use crate::tree::{Mark, Place, Wanted};

/// What of a path is still to be looked at: pages from this one on; of a part what is behind so many, and all of those after
/// it. Of what comes before, what failed since isn't tried again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    page: u32,
    part: usize,
    behind: u32,
}

impl HiCache {
    /// Leading pages of the path to a place that aren't still being copied to the host.
    pub(super) fn landed_depth(&self, place: Place) -> u32 {
        let begins = self.flights.backups.iter().filter(|copy| copy.pages > 0).map(|copy| {
            let end = self.tree.pinned(&copy.host);
            self.tree.ancestor(end, end.depth - copy.pages + 1)
        });
        let here = begins
            .filter(|first| first.depth <= place.depth && self.tree.ancestor(place, first.depth) == *first);
        here.fold(place.depth, |depth, first| depth.min(first.depth - 1))
    }

    /// Whether a slot of a part is still being copied to.
    fn is_landing(&self, part: usize, slot: Slot) -> bool {
        let copies = self.flights.backups.iter().filter_map(|copy| copy.parts.get(part));
        copies.flatten().any(|&landing| landing == slot)
    }

    /// Everything of a path that is on the host and wanted in storage, parents first; what there is no room for waits
    /// for its turn.
    pub(super) fn store_path(&mut self, place: Place, from: Rest) {
        let mut depth = self.tree.resident_depth(place, Tier::Host);
        let mark = match self.tree.saving().wanted[Tier::Host as usize] {
            Wanted::UsedAgain => Some(Mark::Host),
            Wanted::Marked => Some(Mark::Soon),
            Wanted::Nothing | Wanted::All => None,
        };
        if let Some(mark) = mark {
            depth = depth.min(self.tree.marked_depth(place, mark));
        }
        let end = self.tree.ancestor(place, depth);
        match self.store_pages(end, from).or_else(|| self.store_parts(end, from)) {
            Some(rest) => self.note_rest(end, rest),
            None => self.tree.settle_debts(end),
        }
    }

    /// Pages of a path, as far as more may be on their way; what is left.
    fn store_pages(&mut self, end: Place, from: Rest) -> Option<Rest> {
        for pages in self.tree.unstored(end) {
            let mut page = pages.start.max(from.page);
            while page < pages.end {
                #[expect(clippy::cast_possible_truncation, reason = "no more than a batch")]
                let to = pages.end.min(page + self.room_to_store() as u32);
                if to == page {
                    return Some(Rest { page, ..from });
                }
                self.tree.store(end, page..to);
                let slots = self.tree.slots(end, page..to, Tier::Host);
                let to_store = self.pages_to_store(end, page..to, &slots);
                // What is behind it may leave meanwhile.
                let hold = if to < end.depth { self.tree.ancestor(end, to) } else { end };
                to_store.into_iter().zip(page..to).for_each(|(page, at)| self.add(hold, page, at));
                page = to;
            }
        }
        None
    }

    /// The same of what parts have of it. What one edge has of a part goes together.
    fn store_parts(&mut self, end: Place, from: Rest) -> Option<Rest> {
        for part in from.part..self.parts.len() {
            let behind = if part == from.part { from.behind } else { 0 };
            let (owed, left) = self.tree.take_owed(part, end, behind, self.room_to_store());
            let (landing, owed): (Vec<_>, Vec<_>) =
                owed.into_iter().partition(|&(_, slot)| self.is_landing(part, slot));
            landing.into_iter().for_each(|(_, slot)| self.tree.owe_part(part, end, slot));
            let (pages, slots): (Vec<u32>, Vec<Slot>) = owed.into_iter().unzip();
            let to_store = self.part_to_store(part, end, &pages, &slots);
            let held = self.tree.needs_from(part, end.depth);
            for (page, at) in to_store.into_iter().zip(pages) {
                // What a pin at the end doesn't hold of a part, one right behind it does.
                let end = if at < held { self.tree.ancestor(end, at + 1) } else { end };
                self.add(end, page, at);
            }
            if let Some(behind) = left {
                return Some(Rest { page: end.depth, part, behind });
            }
        }
        None
    }
}
