//! What becomes of copies into staging: they land, wait for a batch, and are written; or go nowhere, because the device's
//! copies failed, the store went, or the weights.
//!
//! On error: what isn't written isn't believed stored.

use crate::cache::HiCache;
use crate::flights::{Copy, ToStore, Written};
use crate::ids::HostSlot;
use crate::path::prefetch::BATCH_PAGES;
use crate::path::store::Filling;
use crate::staging::Side;
use crate::tree::{Hold, PinId, Place};
use std::collections::VecDeque;
use std::ops::Range;

/// What is in slots of staging and no batch has taken yet: pages of one copy, or what is left of them.
#[derive(Debug)]
struct Landed {
    /// Behind the last of them.
    name: PinId,
    writes: Vec<(u32, ToStore)>,
}

/// Copies that have landed, in order.
#[derive(Debug, Default)]
pub(crate) struct LandedQueue(VecDeque<Landed>);

impl LandedQueue {
    /// Slots that they are in.
    pub fn slots(&self) -> impl Iterator<Item = HostSlot> + '_ {
        self.0.iter().flat_map(|landed| &landed.writes).map(|(_, page)| page.slot)
    }

    /// Names that follow them.
    pub fn pins(&self) -> usize {
        self.0.len()
    }
}

impl HiCache {
    /// A copy into staging has landed: the device's pages may leave, and what was copied waits for its batch. Without a store,
    /// or of a past epoch, it goes nowhere.
    pub(in crate::path) fn staged_copy(&mut self, copy: Copy) {
        let Copy { device, host: name, writes, .. } = copy;
        if self.storage && !self.tree.is_past(self.tree.pinned(&device)) {
            self.to_store.landed.0.push_back(Landed { name, writes });
        } else {
            self.unstage(Side::Writes, &slots(&writes));
            self.let_go(name);
        }
        self.let_go(device);
    }

    /// A copy into staging failed: what it was to bring isn't on its way.
    pub(in crate::path) fn lose_staged(&mut self, copy: Copy) {
        let Copy { device, host: name, gate, pages, writes, .. } = copy;
        self.stats.backup_failed_pages += u64::from(pages);
        self.close_gate(gate);
        self.give_up_writes(name, &writes);
        self.let_go(device);
    }

    /// What has landed goes nowhere: its store went, or its weights.
    pub(in crate::path) fn drop_landed(&mut self) {
        for Landed { name, writes } in std::mem::take(&mut self.to_store.landed.0) {
            self.give_up_writes(name, &writes);
        }
    }

    fn give_up_writes(&mut self, name: PinId, writes: &[(u32, ToStore)]) {
        let place = self.tree.pinned(&name);
        writes.iter().for_each(|&(page, ToStore { slot, .. })| self.not_stored(place, page, slot));
        self.unstage(Side::Writes, &slots(writes));
        self.let_go(name);
    }

    /// A page, or what a part has of it, isn't stored, nor on its way. It may have left: then it isn't before the place.
    pub(in crate::path) fn not_stored(&mut self, place: Place, page: u32, slot: HostSlot) {
        if page >= place.depth {
            return;
        }
        match usize::from(slot.space).checked_sub(1) {
            None => self.tree.unstore(place, page),
            Some(part) => {
                self.tree.unstore_part(part, place, page);
                self.tree.owe(place);
            }
        }
    }

    /// Batches of what has landed, whoever brought it, as many as may be on their way.
    pub(super) fn store_landed(&mut self) {
        while !self.to_store.landed.0.is_empty() && self.flights.storing().0 < self.config.write_queue {
            let mut batch = Filling::default();
            while let Some(more) = BATCH_PAGES.checked_sub(batch.pages.len()).filter(|&more| more > 0)
                && let Some(landed) = self.to_store.landed.0.pop_front()
            {
                self.take_landed(landed, more, &mut batch);
            }
            self.submit(batch);
        }
    }

    /// As many as a batch takes, the first ones; the rest is first in the next one.
    fn take_landed(&mut self, landed: Landed, most: usize, batch: &mut Filling) {
        let Landed { name, mut writes } = landed;
        let place = self.tree.pinned(&name);
        let rest = writes.split_off(most.min(writes.len()));
        self.count_as_stored(place, &writes);
        if !rest.is_empty() {
            let name = self.tree.pin(place, Hold::Name);
            self.to_store.landed.0.push_front(Landed { name, writes: rest });
        }
        #[expect(clippy::cast_possible_truncation, reason = "a batch")]
        let hold = batch.holds.len() as u32;
        batch.holds.push(name);
        for (page, to_store) in writes {
            batch.written.push(Written { hold, page, slot: to_store.slot });
            batch.pages.push(to_store);
        }
    }

    /// Those that are still there: another store may have come since they were begun.
    fn count_as_stored(&mut self, place: Place, writes: &[(u32, ToStore)]) {
        let there = writes.iter().filter(|(page, _)| *page < place.depth);
        let (mut from, mut to) = (0, 0);
        for &(page, ToStore { slot, .. }) in there {
            match usize::from(slot.space).checked_sub(1) {
                Some(part) => self.tree.store_part(part, place, page),
                None if page == to => to += 1,
                None => {
                    self.count_range(place, from..to);
                    (from, to) = (page, page + 1);
                }
            }
        }
        self.count_range(place, from..to);
    }

    fn count_range(&mut self, place: Place, pages: Range<u32>) {
        if !pages.is_empty() {
            self.tree.store(place, pages);
        }
    }

    /// Storage is another one, or empty: what is being copied goes there, and isn't copied once more.
    pub(in crate::path) fn recount_copies(&mut self) {
        if !self.storage {
            return;
        }
        let copies = std::mem::take(&mut self.flights.backups);
        for copy in &copies {
            let place = self.tree.pinned(&copy.host);
            if !self.tree.is_past(place) {
                self.count_as_stored(place, &copy.writes);
            }
        }
        self.flights.backups = copies;
    }

    /// Pages that are on their way to the store and that it wasn't told of yet.
    pub(in crate::path) fn before_their_batch(&self) -> usize {
        let copies: usize = self.flights.backups.iter().map(|copy| copy.writes.len()).sum();
        copies + self.to_store.landed.slots().count()
    }
}

fn slots(writes: &[(u32, ToStore)]) -> Vec<HostSlot> {
    writes.iter().map(|(_, page)| page.slot).collect()
}
