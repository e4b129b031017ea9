//! Host → storage: what has landed on the host is written, as the write policy of storage says; whatever several requests
//! bring in one step goes in batches together.
//!
//! A page is never believed stored before the store has said so: until then it is on its way, and what failed (the workers
//! try twice) is neither; it is tried again when its path comes again. At most [`Config::write_queue`] batches are on their
//! way, with no more pages than half of the host (of staging, the writes' share). What waits beyond that holds nothing: its
//! places are remembered, and pages that leave meanwhile are lost to storage, and counted.
//!
//! On error: outcomes are values; whatever isn't a success is counted.
//!
//! [`Config::write_queue`]: crate::Config::write_queue

use crate::cache::HiCache;
use crate::command::Command;
use crate::flights::{Batch, ToStore, What, Written};
use crate::ids::HostSlot;
use crate::path::gather::Rest;
use crate::path::prefetch::BATCH_PAGES;
use crate::path::remembered::Remembered;
use crate::path::straight::LandedQueue;
use crate::policy::Write;
use crate::staging::Side;
use crate::storage::Outcome;
use crate::tree::{Hold, PinId, Place};

/// Places that wait at most.
const WAITING: usize = 4096;

/// What is to be stored.
#[derive(Debug, Default)]
pub(crate) struct StoreQueue {
    /// Ends of paths that are stored when there is room, and from where on.
    places: Remembered<Rest, WAITING>,
    /// The batch that is being filled.
    filling: Filling,
    /// Where the host is staging: what has been copied there.
    pub landed: LandedQueue,
    /// The store failed at something, or declined it, since something happened: reserves don't ask it again meanwhile.
    pub(super) refused: bool,
}

#[derive(Debug, Default)]
pub(super) struct Filling {
    pub pages: Vec<ToStore>,
    pub written: Vec<Written>,
    pub holds: Vec<PinId>,
}

impl StoreQueue {
    /// Paths that wait for room, or for the next poll.
    pub fn waiting(&self) -> usize {
        self.places.len()
    }
}

impl HiCache {
    /// Storage is another one, or empty: what is in memory isn't believed stored, and looked at when it comes again.
    pub(crate) fn owe_everything(&mut self) {
        self.drop_landed();
        self.to_store = StoreQueue::default();
        self.flights.forget_writes();
        // What is owed is what is wanted.
        self.tell_saving();
        self.tree.forget_stored();
        self.recount_copies();
        self.forget_staged_stored();
    }

    /// The path to a place is to be stored, as far as it is on the host.
    pub(crate) fn note_store(&mut self, end: Place) {
        self.note_rest(end, Rest::default());
    }

    pub(super) fn note_rest(&mut self, end: Place, rest: Rest) {
        let note = self.tree.cursor(end);
        if let Some(forgotten) = self.to_store.places.add(note, rest) {
            self.stats.stores_forgotten += 1;
            if let Some(place) = self.tree.resolve(forgotten) {
                self.tree.owe(place);
            }
        }
    }

    /// The same before all others: it was their turn.
    pub(super) fn note_first(&mut self, end: Place) {
        let note = self.tree.cursor(end);
        self.to_store.places.add_first(note, Rest::default());
    }

    /// A backup has landed: what came with it goes on, or waits.
    pub(crate) fn landed(&mut self, host: PinId, parts: &[HostSlot]) {
        let place = self.tree.pinned(&host);
        if self.storage && !self.tree.is_past(place) {
            for at in parts {
                self.tree.owe_part(usize::from(at.space) - 1, place, at.slot);
            }
            if self.asking.writes || self.config.writing.storage != Write::Back {
                if self.has_room_to_store() {
                    self.store_path(place, Rest::default());
                } else {
                    self.note_store(place);
                }
            }
        }
        self.let_go(host);
    }

    /// Stores what waits, as far as there is room, and submits the batch that was begun.
    pub(crate) fn store_waiting(&mut self) {
        if self.stages() {
            return self.write_waiting();
        }
        while !self.to_store.places.is_empty() && self.has_room_to_store() {
            // What one that is gone hung on is owed.
            if let Some((place, rest)) = self.next_to_store() {
                let landed = self.tree.ancestor(place, self.landed_depth(place));
                self.store_path(landed, rest);
            }
        }
        self.submit_store();
    }

    /// The place that waits longest, if it is still there.
    pub(super) fn next_to_store(&mut self) -> Option<(Place, Rest)> {
        let (note, rest) = self.to_store.places.next()?;
        Some((self.tree.resolve(note)?, rest))
    }

    /// One more page of a batch. What it holds it holds up to there, with its parts.
    pub(super) fn add(&mut self, end: Place, page: ToStore, at: u32) {
        let filling = &mut self.to_store.filling;
        let hold = filling.holds.last().map(|hold| self.tree.pinned(hold));
        let end = self.tree.ancestor(end, end.depth);
        if hold.is_none_or(|hold| hold.depth != end.depth || self.tree.ancestor(end, end.depth) != hold) {
            filling.holds.push(self.tree.pin(end, Hold::Host));
        }
        #[expect(clippy::cast_possible_truncation, reason = "no more holds than pages of a batch")]
        let hold = filling.holds.len() as u32 - 1;
        filling.written.push(Written { hold, page: at, slot: page.slot });
        filling.pages.push(page);
        if filling.pages.len() == BATCH_PAGES {
            self.submit_store();
        }
    }

    fn submit_store(&mut self) {
        let batch = std::mem::take(&mut self.to_store.filling);
        self.submit(batch);
    }

    pub(super) fn submit(&mut self, batch: Filling) {
        let Filling { pages, written, holds } = batch;
        if pages.is_empty() {
            return;
        }
        let id = self.flights.next_batch();
        self.commands.push(Command::Store {
            id,
            keys: pages.iter().map(|page| page.digest).collect(),
            parents: pages.iter().map(|page| page.parent).collect(),
            slots: pages.iter().map(|page| page.slot).collect(),
        });
        // They are stored anew.
        pages.iter().for_each(|page| self.doubts.stored(&page.digest));
        let deadline = self.now + self.config.store_deadline;
        self.flights.stores.push_back(Batch::new(id, deadline, What::Store { holds, written }));
    }

    /// How many more pages may be on their way, of a batch that may be; no more than this one takes.
    pub(super) fn room_to_store(&self) -> usize {
        let (batches, pages) = self.flights.storing();
        if batches >= self.config.write_queue {
            return 0;
        }
        let (most, filling) = ((self.host.capacity() / 2).max(1), self.to_store.filling.pages.len());
        most.saturating_sub(pages + filling).min(BATCH_PAGES - filling)
    }

    fn has_room_to_store(&self) -> bool {
        self.room_to_store() > 0
    }

    /// A batch was written, or wasn't.
    pub(crate) fn stored(
        &mut self,
        holds: Vec<PinId>,
        written: &[Written],
        outcomes: &[Outcome],
        forgotten: bool,
    ) {
        for (page, outcome) in written.iter().zip(outcomes) {
            match outcome {
                Outcome::Hit => self.stats.stored_pages += 1,
                Outcome::Declined => self.stats.store_declined_pages += 1,
                // Removed while it was written, or the store was detached: nobody wants it any more.
                Outcome::Cancelled => self.stats.store_cancelled_pages += 1,
                _ => self.stats.store_failed_pages += 1,
            }
            self.to_store.refused |= !forgotten && !matches!(outcome, Outcome::Hit | Outcome::Cancelled);
            // What a forgotten storage has not says nothing of what is believed since.
            if *outcome != Outcome::Hit && !forgotten {
                let place = self.tree.pinned(&holds[page.hold as usize]);
                match page.slot {
                    slot if self.stages() => self.not_stored(place, page.page, slot),
                    HostSlot { space: 0, .. } => self.tree.unstore(place, page.page),
                    HostSlot { space, slot } => {
                        self.tree.owe_part(usize::from(space) - 1, place, slot);
                        self.tree.owe(place);
                    }
                }
            }
        }
        if self.stages() {
            let slots: Vec<HostSlot> = written.iter().map(|page| page.slot).collect();
            self.unstage(Side::Writes, &slots);
        }
        holds.into_iter().for_each(|hold| self.let_go(hold));
    }
}
