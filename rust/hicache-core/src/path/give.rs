//! The part of `insert` that gives windows and checkpoints to the tree: checked first, then attached.

use crate::cache::HiCache;
use crate::error::{Result, argument};
use crate::ids::{HitId, NO_SLOT, Slot, Tier};
use crate::path::insert::GivenPart;
use crate::tree::{Component, Place};

impl HiCache {
    /// # Errors
    /// When a part isn't there or is named twice; for too few, too many or wrong slots.
    pub(super) fn check_given(&mut self, parts: &[GivenPart], pages: usize) -> Result<()> {
        for (at, (part, slots)) in parts.iter().enumerate() {
            self.part(*part)?;
            let name = self.config.part_names()[*part].to_owned();
            if parts[..at].iter().any(|(other, _)| other == part) {
                return argument("parts", format!("{name} is named twice"));
            }
            let (count, of) = match self.tree.components()[*part] {
                Component::Swa { .. } => (pages, "one for each whole page"),
                Component::State => (1, "one for the end of the last whole page"),
            };
            if slots.len() != count {
                return argument("parts", format!("{name}: needs {count} slots, {of}, got {}", slots.len()));
            }
            let given: Vec<Slot> = slots.iter().copied().flatten().collect();
            if pages == 0 && !given.is_empty() {
                return argument(
                    "parts",
                    format!("{name}: there is no whole page that a slot could belong to"),
                );
            }
            self.check_part_out("parts", *part, &given)?;
        }
        Ok(())
    }

    /// Gives the last pages before `end` their slots of the parts. Returns the tree's slots for all that were given.
    pub(super) fn attach_given(
        &mut self,
        parts: &[GivenPart],
        end: Place,
        inserted: usize,
    ) -> Vec<Vec<Slot>> {
        parts.iter().map(|(part, slots)| self.attach_part(*part, slots, end, inserted)).collect()
    }

    fn attach_part(&mut self, part: usize, given: &[Option<Slot>], end: Place, inserted: usize) -> Vec<Slot> {
        #[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
        let first = match self.tree.components()[part] {
            Component::Swa { .. } => end.depth - inserted as u32,
            Component::State => end.depth - 1,
        };
        let all = (first..end.depth).zip(given);
        let (pages, slots): (Vec<u32>, Vec<Slot>) =
            all.filter_map(|(page, slot)| Some((page, (*slot)?))).unzip();
        if !slots.is_empty() {
            let duplicates = self.tree.attach(part, Tier::Device, end, &pages, &slots);
            // Both are in order of the pages.
            let mut duplicates = duplicates.into_iter().peekable();
            let adopted: Vec<Slot> =
                slots.into_iter().filter(|slot| duplicates.next_if_eq(slot).is_none()).collect();
            self.parts[part].device.place(&adopted);
            self.parts[part].stats.inserted += adopted.len() as u64;
        }
        let kept = |page: u32| self.tree.part_slot(part, Tier::Device, self.tree.ancestor(end, page + 1));
        (first..end.depth).map(|page| kept(page).unwrap_or(NO_SLOT)).collect()
    }

    /// Of a path with more checkpoints on the device than it keeps, the shallowest leave.
    pub(super) fn cap_checkpoints(&mut self, id: HitId) -> Result<()> {
        let cap = self.config.checkpoints_per_path;
        for part in 0..if cap == 0 { 0 } else { self.parts.len() } {
            if self.tree.components()[part] == Component::State {
                let end = self.tree.pinned(&self.hit(id)?.pin);
                let slots = self.tree.cap_checkpoints(part, end, cap);
                self.part_left(part, Tier::Device, &slots);
            }
        }
        Ok(())
    }
}
