//! Host → storage: what has landed on the host is written, as the write policy of storage says; whatever several requests
//! bring in one step goes in batches together.
//!
//! A page is never believed stored before the store has said so: until then it is on its way, and what failed (the workers
//! try twice) is neither; it is tried again when its path comes again. At most [`Config::write_queue`] batches are on their
//! way, with no more pages than half of the host. What waits beyond that holds nothing: its places are remembered,
//! and pages that leave meanwhile are lost to storage, and counted.
//!
//! On error: outcomes are values; whatever isn't a success is counted.
//!
//! [`Config::write_queue`]: crate::Config::write_queue

use crate::cache::HiCache;
use crate::command::Command;
use crate::flights::{Batch, ToStore, What, Written};
use crate::ids::{Cursor, HostSlot, Slot, Tier};
use crate::path::prefetch::BATCH_PAGES;
use crate::policy::Write;
use crate::storage::Outcome;
use crate::tree::{Hold, Mark, PinId, Place, Wanted};
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use std::collections::VecDeque;

/// Places that wait at most.
const WAITING: usize = 4096;

/// What is to be stored.
#[derive(Debug, Default)]
pub(crate) struct StoreQueue {
    /// Ends of paths that are stored when there is room.
    places: VecDeque<Cursor>,
    /// The same, to look one up.
    known: HashSet<Cursor, FixedState>,
    /// The batch that is being filled.
    filling: Filling,
}

#[derive(Debug, Default)]
struct Filling {
    pages: Vec<ToStore>,
    written: Vec<Written>,
    holds: Vec<PinId>,
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
        self.to_store = StoreQueue::default();
        self.flights.forget_writes();
        // What is owed is what is wanted.
        self.tell_saving();
        self.tree.forget_stored();
    }

    /// The path to a place is to be stored, as far as it is on the host.
    pub(crate) fn note_store(&mut self, end: Place) {
        let note = self.tree.cursor(end);
        if !self.to_store.known.insert(note) {
            return;
        }
        if self.to_store.places.len() == WAITING {
            self.stats.stores_forgotten += 1;
            if let Some(place) = self.next_to_store() {
                self.tree.owe(place);
            }
        }
        self.to_store.places.push_back(note);
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
                    self.store_path(place);
                } else {
                    self.note_store(place);
                }
            }
        }
        self.let_go(host);
    }

    /// Stores what waits, as far as there is room, and submits the batch that was begun.
    pub(crate) fn store_waiting(&mut self) {
        while !self.to_store.places.is_empty() && self.has_room_to_store() {
            // What one that is gone hung on is owed.
            if let Some(place) = self.next_to_store() {
                let landed = self.tree.ancestor(place, self.landed_depth(place));
                self.store_path(landed);
            }
        }
        self.submit_store();
    }

    /// The place that waits longest, if it is still there.
    fn next_to_store(&mut self) -> Option<Place> {
        let note = self.to_store.places.pop_front()?;
        self.to_store.known.remove(&note);
        self.tree.resolve(note)
    }

    /// Leading pages of the path to a place that aren't still being copied to the host.
    fn landed_depth(&self, place: Place) -> u32 {
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

    /// Everything of a path that is on the host and wanted in storage, parents first.
    fn store_path(&mut self, place: Place) {
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
        for pages in self.tree.unstored(end) {
            self.tree.store(end, pages.clone());
            let slots = self.tree.slots(end, pages.clone(), Tier::Host);
            let to_store = self.pages_to_store(end, pages.clone(), &slots);
            to_store.into_iter().zip(pages).for_each(|(page, at)| self.add(end, page, at));
        }
        for part in 0..self.parts.len() {
            let owed = self.tree.take_owed(part, end);
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
        }
        self.tree.settle_debts(end);
    }

    /// One more page of a batch. What it holds it holds up to there, with its parts.
    fn add(&mut self, end: Place, page: ToStore, at: u32) {
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
        let Filling { pages, written, holds } = std::mem::take(&mut self.to_store.filling);
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

    /// Whether another batch may be on its way.
    fn has_room_to_store(&self) -> bool {
        let (batches, pages) = self.flights.storing();
        let most = (self.host.capacity() / 2).max(1);
        batches < self.config.write_queue && pages + self.to_store.filling.pages.len() < most
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
            // What a forgotten storage has not says nothing of what is believed since.
            if *outcome != Outcome::Hit && !forgotten {
                let place = self.tree.pinned(&holds[page.hold as usize]);
                match page.slot {
                    HostSlot { space: 0, .. } => self.tree.unstore(place, page.page),
                    HostSlot { space, slot } => {
                        self.tree.owe_part(usize::from(space) - 1, place, slot);
                        self.tree.owe(place);
                    }
                }
            }
        }
        holds.into_iter().for_each(|hold| self.let_go(hold));
    }
}
