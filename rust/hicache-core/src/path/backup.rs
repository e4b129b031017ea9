//! `backup`: device → host, parents first; what has landed goes on to storage.

use crate::cache::HiCache;
use crate::command::Command;
use crate::error::{Error, Result};
use crate::flights::{Batch, Copy, What};
use crate::hash::Digest;
use crate::ids::{HitId, HostSlot, Slot, Tier};
use crate::path::prefetch::BATCH_PAGES;
use crate::tree::{Hold, PinId, Place};

impl HiCache {
    /// Copies those pages of a loaded hit to the host that are not there, as far as there is room.
    /// Returns how many were started. `insert` does so by itself.
    ///
    /// # Errors
    /// When the hit was released or isn't loaded, or copies have failed for good.
    pub fn backup(&mut self, id: HitId) -> Result<usize> {
        self.open()?;
        let hit = self.hit(id)?;
        if !hit.loaded {
            return Err(Error::Hit("is not loaded: nothing of it is held on the device"));
        }
        self.on_device()?;
        let pages = self.back_up_path(self.tree.pinned(&hit.pin));
        self.act();
        Ok(pages)
    }

    /// Starts the backup of what a path has on the device and not on the host.
    pub(crate) fn back_up_path(&mut self, place: Place) -> usize {
        let from = self.tree.resident_depth(place, Tier::Host);
        let on_device = self.tree.resident_depth(place, Tier::Device);
        let missing = on_device.saturating_sub(from) as usize;
        // What is on the device after a fault may never have arrived there.
        if missing == 0 || self.host.capacity() == 0 || self.executor.fault().is_some() {
            return 0;
        }
        // The sources must not go while room is made; nor may the copies, which hang on them.
        let device = self.tree.pin(self.tree.ancestor(place, on_device), Hold::Device);
        let room = self.host_room(missing);
        self.stats.backup_no_room_pages += (missing - room) as u64;
        let slots = self.host.take(room).unwrap_or_default();
        if slots.is_empty() {
            self.tree.unpin(device);
            return 0;
        }
        #[expect(clippy::cast_possible_truncation, reason = "no more slots than pages")]
        let pages = from..from + slots.len() as u32;
        let sources = self.tree.slots(place, pages.clone(), Tier::Device);
        let end = self.tree.mirror(self.tree.pinned(&device), &slots);
        self.host.place(&slots);
        let device = self.tree.move_pin(device, end);
        let host = self.tree.pin(end, Hold::Host);
        let store = if self.storage {
            self.tree.digests(end, pages.clone()).into_iter().zip(slots.iter().copied()).collect()
        } else {
            Vec::new()
        };
        self.stats.backed_up_pages += slots.len() as u64;
        self.flights.backups_submitted += 1;
        let ticket = self.flights.backups_submitted;
        let count = slots.len();
        let copied = pages.end - pages.start;
        let pages = vec![sources.into_iter().zip(slots).collect()];
        self.commands.push(Command::Backup { ticket, pages });
        self.flights.backups.push_back(Copy { ticket, device, host, pages: copied, store });
        count
    }

    /// A backup landed: its pages are written to storage, in batches that each hold all of them.
    pub(crate) fn store_pages(&mut self, host: PinId, pages: &[(Digest, Slot)]) {
        for batch in pages.chunks(BATCH_PAGES) {
            let id = self.flights.next_batch();
            let (keys, slots) = batch.iter().map(|&(key, slot)| (key, HostSlot::full(slot))).unzip();
            self.commands.push(Command::Store { id, keys, slots });
            let place = self.tree.pinned(&host);
            let what = What::Store { host: self.tree.pin(place, Hold::Host) };
            let deadline = self.now + self.config.store_deadline;
            self.flights.stores.push_back(Batch { id, deadline, outcomes: None, what });
        }
        self.tree.unpin(host);
    }
}
