//! The part of `load` that takes what is staged: pages that follow the device's end of the path enter the tree there, and are
//! copied from the slots that they wait in, which come back when the copy has landed.
//!
//! What isn't copied (no room on the device, below the threshold, beyond a budget or what a policy wants) is given back at
//! once: nothing stays on the host without a request that waits for it.
//!
//! On error: as `load`.

use super::pages;
use crate::cache::HiCache;
use crate::error::Result;
use crate::explain::Reason;
use crate::flights::Copy;
use crate::ids::{HitId, HostSlot, Slot, Tier};
use crate::path::load::{Copies, FromStaging, Held};
use crate::staging::Side;
use crate::tree::Place;

impl HiCache {
    /// A held hit is loaded with what is on the device and what is staged behind that.
    pub(in crate::path) fn load_staged(
        &mut self,
        held: Held,
        given: Option<&mut Vec<Slot>>,
        budget: Option<&mut usize>,
        copies: &mut Copies,
    ) -> Result<()> {
        if !self.parts.is_empty() {
            return self.load_staged_parts(held, budget, copies);
        }
        let Held { id, device, host, .. } = held;
        // A hit of the same batch may have brought some of it.
        let place = self.find_again(id)?.place;
        let device = self.tree.move_pin(device, place);
        self.drop_useless(id, place.depth);
        let wanted = self.wanted_of_staged(id, place.depth, budget)?;
        let slots = self.device_slots_for(wanted, given);
        let count = slots.len();
        self.stats.load_no_room_pages += (wanted - count) as u64;
        let (from, to) = (place.depth, place.depth + pages(count));
        self.hit_mut(id)?.story.note(to..from + pages(wanted), Reason::DeviceFull);
        let sources = self.take_staged(id, count)?;
        let end = self.raise_staged(id, place, &slots)?;
        let end = self.tree.touch_exactly(end);
        if count > 0 {
            let from = sources.iter().copied().map(HostSlot::full).collect();
            let forgotten = self.hit(id)?.staged.forgotten;
            copies.staged.push(FromStaging { slots: from, forgotten });
            copies.full.extend(slots.into_iter().zip(sources));
            copies.pins.push((self.tree.move_pin(device, end), host, pages(count)));
        } else {
            self.tree.unpin(device);
            self.tree.unpin(host);
        }
        self.hold_loaded(id, end, from)
    }

    /// How many staged pages of a hit are to be copied, of those that follow `depth` pages on the device: all or none, where
    /// no policy wants less.
    fn wanted_of_staged(&mut self, id: HitId, depth: u32, budget: Option<&mut usize>) -> Result<usize> {
        let hit = self.hit(id)?;
        let most = hit.most.map_or(u32::MAX, |most| most.max(depth));
        let (end, staged) = ((depth + pages(hit.staged.slots.len())).min(most), hit.staged.slots.len());
        let wanted = (end - depth) as usize;
        if wanted < staged {
            let policy = self.asking.name.clone();
            let why = Reason::DeclinedByPolicy { policy, tokens: self.tokens(most as usize) };
            self.decline_staged(id, end..depth + pages(staged), why)?;
        }
        match self.declines_so_many(wanted, 0, budget) {
            Some(why) => {
                self.decline_staged(id, depth..end, why)?;
                Ok(0)
            }
            None => Ok(wanted),
        }
    }

    /// These pages of a hit's path are staged, and not to be copied.
    pub(super) fn decline_staged(
        &mut self,
        id: HitId,
        pages: std::ops::Range<u32>,
        why: Reason,
    ) -> Result<()> {
        self.stats.load_declined_pages += u64::from(pages.end - pages.start);
        self.hit_mut(id)?.story.note(pages, why);
        Ok(())
    }

    /// The slots of so many leading pages that are staged for a hit, and the others come back.
    fn take_staged(&mut self, id: HitId, count: usize) -> Result<Vec<Slot>> {
        let slots = &mut self.hit_mut(id)?.staged.slots;
        let rest = slots.split_off(count);
        let slots = std::mem::take(slots);
        self.drop_read(&rest);
        Ok(slots)
    }

    /// What is staged for a prefix that is warmed goes to the device, as far as there is free room.
    pub(in crate::path) fn raise_warm_staged(&mut self, id: HitId) {
        let Ok(found) = self.find_again(id) else { return };
        self.drop_useless(id, found.place.depth);
        let Some(hit) = self.hits.get(&id).filter(|hit| !hit.staged.is_empty()) else { return };
        let full = hit.staged.slots.len();
        let of =
            |space: usize| hit.staged.parts.iter().filter(|(_, at)| usize::from(at.space) == space).count();
        let parts = (0..self.parts.len()).all(|part| of(part + 1) <= self.parts[part].device.free());
        // Parts come with all of it, or not at all.
        let room = if self.parts.is_empty() { full.min(self.device.free()) } else { full };
        let fits =
            parts && room <= self.device.free() && self.tokens(room) >= self.config.load_threshold as u64;
        if !fits || self.on_device().is_err() {
            return;
        }
        self.cut_staged(id, room);
        let loaded = self.load(&[id], None).is_ok();
        let copied = self.hits.get(&id).filter(|_| loaded).map_or(0, |hit| hit.copied);
        self.stats.warmed_device_pages += u64::from(copied);
    }

    /// No more than so many pages stay staged for a hit.
    fn cut_staged(&mut self, id: HitId, most: usize) {
        let Some(hit) = self.hits.get_mut(&id) else { return };
        let rest = hit.staged.slots.split_off(most.min(hit.staged.slots.len()));
        self.drop_read(&rest);
    }

    /// A load has landed: its slots are free, and what isn't stored counts as such.
    pub(in crate::path) fn staged_load(&mut self, copy: &Copy) {
        self.unstage(Side::Reads, &copy.staged);
        if copy.unstored {
            let place = self.tree.pinned(&copy.device);
            staged_range(copy, place).for_each(|page| self.tree.unstore(place, page));
        }
    }

    /// Storage is another one, or empty: what was read of the last one is right, and isn't believed stored.
    pub(crate) fn forget_staged_stored(&mut self) {
        self.hits.values_mut().for_each(|hit| hit.staged.forgotten = true);
        for copy in self.flights.loads.iter_mut().filter(|copy| !copy.staged.is_empty()) {
            copy.unstored = true;
            let place = self.tree.pinned(&copy.device);
            self.tree.store(place, staged_range(copy, place));
        }
    }

    /// Pages that follow a place, as a hit has their tokens, are on the device from now on.
    pub(super) fn raise_staged(&mut self, id: HitId, place: Place, slots: &[Slot]) -> Result<Place> {
        if slots.is_empty() {
            return Ok(place);
        }
        let size = self.tree.page_size().tokens();
        let hit = self.hits.get(&id).ok_or(crate::error::Error::Hit("was released"))?;
        let from = (place.depth - hit.rest_at) as usize * size;
        let key = hit.rest.view().range(from..from + slots.len() * size);
        let (digests, forgotten) =
            (hit.keys.after(place.depth, self.tree.last_digest(place)), hit.staged.forgotten);
        let done = self.tree.extend_from(place, place, key, Tier::Device, slots, digests);
        self.stats.hashed_pages += done.hashed as u64;
        debug_assert!(done.known == 0, "pages behind the device's last one are not on the device");
        self.device.place(slots);
        if !forgotten {
            self.tree.tell_stored(done.place, place.depth..done.place.depth);
        }
        // Also what isn't believed stored, until it has landed: before, it can't be written.
        self.tree.store(done.place, place.depth..done.place.depth);
        Ok(done.place)
    }
}

/// Pages that a load from staging brings, of the path to a place.
fn staged_range(copy: &Copy, place: Place) -> std::ops::Range<u32> {
    let full = copy.staged.iter().filter(|at| at.space == 0).count();
    place.depth - pages(full)..place.depth
}
