//! What windows and states add to a write: the window before the end of what is written, and the states on the way there.
//!
//! A window goes when all that storage lacks of it has slots, since a part of it is of no use; one that is larger than all that
//! writes may have, beside what batches keep that are late, isn't waited for, and counted each time: who waits for it would
//! keep all others waiting. Pages go first: without them the rest is worth nothing.
//!
//! On error: as the pages.

use crate::cache::HiCache;
use crate::flights::What;
use crate::ids::Slot;
use crate::staging::Side;
use crate::tree::{Component, Missing, Place};

impl HiCache {
    /// Begins to copy what parts have of a path that is stored, or on its way: how many slots that are, and how much found
    /// none.
    pub(super) fn stage_parts_of(&mut self, end: Place) -> (usize, usize) {
        let (mut begun, mut lacking) = (0, 0);
        for part in 0..self.parts.len() {
            let end = self.tree.ancestor(end, end.depth);
            let missing = self.tree.unstored_part(part, end);
            if missing.pages.is_empty() {
                continue;
            }
            if self.still_loading() {
                lacking += missing.pages.len();
                continue;
            }
            let (more, less) = match self.tree.components()[part] {
                Component::Swa { .. } => self.stage_window(part, end, &missing),
                Component::State => self.stage_states(part, end, &missing),
            };
            begun += more;
            lacking += less;
        }
        (begun, lacking)
    }

    /// Whether a load brings what isn't believed stored: before it is there it can't be written, and what of it parts have
    /// isn't told apart.
    fn still_loading(&self) -> bool {
        self.flights.loads.iter().any(|load| load.unstored)
    }

    fn stage_window(&mut self, part: usize, end: Place, missing: &Missing) -> (usize, usize) {
        let count = missing.pages.len();
        if count > self.share_in_time(part + 1) {
            self.parts[part].stats.backup_no_room += count as u64;
            return (0, 0);
        }
        if count > self.may_stage(Side::Writes, part + 1) {
            return (0, count);
        }
        let slots = self.stage(Side::Writes, part + 1, count);
        self.stage_part(part, end, missing, &slots);
        (count, 0)
    }

    /// How many slots of a space writes may have, without those that batches keep which are late: nobody waits for these.
    fn share_in_time(&self, space: usize) -> usize {
        let strays = self.flights.strays.iter().filter_map(|batch| match &batch.what {
            What::Store { written, .. } => Some(written),
            _ => None,
        });
        let kept = strays.flatten().filter(|page| usize::from(page.slot.space) == space).count();
        self.share(space).saturating_sub(kept)
    }

    /// One by one: each is held by itself.
    fn stage_states(&mut self, part: usize, end: Place, missing: &Missing) -> (usize, usize) {
        if self.share_in_time(part + 1) == 0 {
            self.parts[part].stats.backup_no_room += missing.pages.len() as u64;
            return (0, 0);
        }
        let mut begun = 0;
        for (&page, &slot) in missing.pages.iter().zip(&missing.slots) {
            let slots = self.stage(Side::Writes, part + 1, 1);
            if slots.is_empty() {
                break;
            }
            let at = self.tree.ancestor(self.tree.ancestor(end, end.depth), page + 1);
            self.stage_part(part, at, &Missing { pages: vec![page], slots: vec![slot] }, &slots);
            begun += 1;
        }
        (begun, missing.pages.len() - begun)
    }

    /// Copies what a part has of pages before `end`, which a pin there holds, into these slots.
    fn stage_part(&mut self, part: usize, end: Place, sources: &Missing, slots: &[Slot]) {
        let to_store = self.part_to_store(part, end, &sources.pages, slots);
        sources.pages.iter().for_each(|&page| self.tree.store_part(part, end, page));
        self.parts[part].stats.backed_up += slots.len() as u64;
        let mut copies = vec![Vec::new(); part + 1];
        copies.push(sources.slots.iter().copied().zip(slots.iter().copied()).collect());
        self.copy_to_staging(end, copies, sources.pages.iter().copied().zip(to_store).collect());
    }
}
