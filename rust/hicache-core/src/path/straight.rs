//! Device → storage where the host is staging: pages are copied into slots of it, and written from there.
//!
//! ```text
//!  a path  |ssssssss|wwww|........|     s: stored, w: in slots of staging, on their way
//!           device pin ──▶ copied ──▶ unpinned; waits for its batch ──▶ written ──▶ slots free, outcomes noted
//! ```
//! The policy of storage says what is written and when. As much of a path goes at once as writes may have slots for
//! (`staging`); the rest of it waits as its end alone and goes on by itself at `poll`, parents first: a path longer than the
//! pool is written in pieces. Until its copy has landed a page is held on the device, from then on it may leave: a name (a pin
//! that holds nothing) tells up to where the path is still there when the store has answered. A page that storage
//! is on the way to get counts as stored, and stops to if it doesn't get it.
//!
//! On error: outcomes are values; whatever isn't a success is counted, and tried again when its path comes again.

use crate::cache::HiCache;
use crate::flights::{Copy, ToStore, Written};
use crate::ids::{HitId, HostSlot, Slot, Tier};
use crate::path::prefetch::BATCH_PAGES;
use crate::path::store::Filling;
use crate::policy::Write;
use crate::staging::Side;
use crate::tree::{Hold, Mark, PinId, Place, Wanted};
use std::collections::VecDeque;
use std::ops::Range;

/// Pages in slots of staging that no batch has taken yet: those of one copy, or what is left of them.
#[derive(Debug)]
pub(crate) struct Landed {
    /// Behind the last of them.
    name: PinId,
    first: u32,
    pages: Vec<ToStore>,
}

/// Copies that have landed, in order.
#[derive(Debug, Default)]
pub(crate) struct LandedQueue(VecDeque<Landed>);

impl LandedQueue {
    /// Slots that they are in.
    pub fn slots(&self) -> impl Iterator<Item = HostSlot> + '_ {
        self.0.iter().flat_map(|landed| &landed.pages).map(|page| page.slot)
    }

    /// Names that follow them.
    pub fn pins(&self) -> usize {
        self.0.len()
    }
}

impl HiCache {
    /// A request inserted or found pages up to `end`, of which others had brought the first ones.
    pub(super) fn used_straight(&mut self, id: HitId, end: Place, others: u32) {
        if end.depth == 0 || self.tree.is_past(end) {
            return;
        }
        let asked = self.asking.writes;
        let own = || self.hits.get(&id).and_then(|hit| hit.wish).map(|wish| wish.storage);
        let write = asked.then(own).flatten().unwrap_or(Some(self.config.writing.storage));
        let depth = match write {
            Some(Write::Through | Write::Back) => end.depth,
            Some(Write::Selective) => others,
            None => 0,
        };
        let marks: &[Mark] = match (asked, write) {
            (true, Some(Write::Back)) => &[Mark::Storage],
            (true, _) => &[Mark::Storage, Mark::Soon],
            (false, Some(Write::Selective)) => &[Mark::Host],
            (false, _) => &[],
        };
        for &mark in marks {
            self.tree.mark(self.tree.ancestor(end, depth), mark);
        }
        if depth > 0 && write != Some(Write::Back) {
            self.write_straight(self.tree.ancestor(end, depth));
        }
    }

    /// Begins to write what of a path is wanted in storage, or waits behind those that wait; how many pages were begun.
    pub(super) fn write_straight(&mut self, end: Place) -> usize {
        let (begun, lacking) =
            if self.to_store.waiting() > 0 { (0, self.lacks(end)) } else { self.stage_path(end) };
        if lacking > 0 {
            self.stats.backup_no_room_pages += lacking as u64;
            self.note_store(self.tree.ancestor(end, end.depth));
        }
        begun
    }

    /// The same of what leaves the device next, before those that wait; how many pages are written now or when there is room.
    pub(super) fn save_straight(&mut self, end: Place) -> usize {
        let (begun, lacking) = self.stage_path(end);
        if lacking > 0 {
            self.note_store(self.tree.ancestor(end, end.depth));
        }
        begun + lacking
    }

    /// Tries again what waits for slots, as far as there are some; and what has landed goes on.
    pub(super) fn write_waiting(&mut self) {
        while self.to_store.waiting() > 0 && self.may_stage(Side::Writes, 0) > 0 {
            let Some(place) = self.next_to_store() else { continue };
            if self.stage_path(place).1 > 0 {
                self.note_first(self.tree.ancestor(place, place.depth));
                break;
            }
        }
        self.store_landed();
    }

    /// Pages of a path that are to be written now: what of it is on the device, wanted in storage, and neither believed
    /// stored nor on the way. The end of what is wanted, and these.
    fn to_write(&self, end: Place) -> (Place, Vec<Range<u32>>) {
        if !self.storage || self.tree.is_past(end) || self.on_device().is_err() {
            return (end, Vec::new());
        }
        let mark = match self.tree.saving().wanted[Tier::Device as usize] {
            Wanted::UsedAgain => Some(Mark::Host),
            Wanted::Marked => Some(Mark::Soon),
            Wanted::Nothing | Wanted::All => None,
        };
        let there = self.tree.resident_depth(end, Tier::Device);
        let depth = mark.map_or(there, |mark| there.min(self.tree.marked_depth(end, mark)));
        let end = self.tree.ancestor(end, depth);
        (end, self.tree.unstored(end))
    }

    fn lacks(&self, end: Place) -> usize {
        self.to_write(end).1.iter().map(ExactSizeIterator::len).sum()
    }

    /// Begins to copy these pages into staging, parents first, as far as writes may have slots: how many, and how many
    /// found none.
    pub(super) fn stage_path(&mut self, end: Place) -> (usize, usize) {
        let (end, ranges) = self.to_write(end);
        let (mut begun, mut lacking) = (0, 0);
        for range in ranges {
            let slots = if lacking == 0 { self.stage(Side::Writes, 0, range.len()) } else { Vec::new() };
            lacking += range.len() - slots.len();
            begun += slots.len();
            if !slots.is_empty() {
                self.stage_pages(end, range.start, &slots);
            }
        }
        if lacking == 0 {
            self.tree.settle_debts(end);
        }
        (begun, lacking)
    }

    /// Copies pages of the path to `end`, from page `first` on, into these slots.
    fn stage_pages(&mut self, end: Place, first: u32, slots: &[Slot]) {
        #[expect(clippy::cast_possible_truncation, reason = "no more slots than pages")]
        let count = slots.len() as u32;
        let pages = first..first + count;
        let sources = self.tree.slots(end, pages.clone(), Tier::Device);
        let end = self.tree.ancestor(end, pages.end);
        self.tree.store(end, pages);
        let device = self.tree.pin(end, Hold::Device);
        let name = self.tree.pin(self.tree.pinned(&device), Hold::Name);
        let copies = vec![sources.into_iter().zip(slots.iter().copied()).collect::<Vec<_>>()];
        let gate = self.open_gate(copies.iter().map(Vec::as_slice));
        let copies = self.in_frames(copies);
        let ticket = self.join_backup(copies);
        self.stats.backed_up_pages += u64::from(count);
        self.flights.backups.push_back(Copy {
            ticket,
            device,
            host: name,
            gate,
            pages: count,
            parts: Vec::new(),
            store: Vec::new(),
            staged: slots.iter().copied().map(HostSlot::full).collect(),
            unstored: false,
        });
    }

    /// A copy into staging has landed: the device's pages may leave, and what was copied waits for its batch. Without a store,
    /// or of a past epoch, it goes nowhere.
    pub(super) fn staged_copy(&mut self, copy: Copy) {
        let Copy { device, host: name, pages, staged, .. } = copy;
        let end = self.tree.pinned(&device);
        if self.storage && !self.tree.is_past(end) {
            let first = end.depth - pages;
            let slots: Vec<Slot> = staged.iter().map(|at| at.slot).collect();
            let pages = self.pages_to_store(end, first..end.depth, &slots);
            self.to_store.landed.0.push_back(Landed { name, first, pages });
        } else {
            self.unstage(Side::Writes, &staged);
            self.let_go(name);
        }
        self.let_go(device);
    }

    /// A copy into staging failed: what it was to bring isn't on its way.
    pub(super) fn lose_staged(&mut self, copy: Copy) {
        let Copy { device, host: name, gate, pages, staged, .. } = copy;
        self.stats.backup_failed_pages += u64::from(pages);
        self.close_gate(gate);
        let end = self.tree.pinned(&device);
        (end.depth - pages..end.depth).for_each(|page| self.tree.unstore(end, page));
        self.unstage(Side::Writes, &staged);
        self.let_go(device);
        self.let_go(name);
    }

    /// Batches of what has landed, whoever brought it, as many as may be on their way.
    fn store_landed(&mut self) {
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
        let Landed { name, first, mut pages } = landed;
        let place = self.tree.pinned(&name);
        let rest = pages.split_off(most.min(pages.len()));
        #[expect(clippy::cast_possible_truncation, reason = "a batch")]
        let (hold, end) = (batch.holds.len() as u32, first + pages.len() as u32);
        // They count as stored, those that are still there: another store may have come since they were begun.
        if first < place.depth {
            self.tree.store(place, first..end.min(place.depth));
        }
        if !rest.is_empty() {
            let name = self.tree.pin(place, Hold::Name);
            self.to_store.landed.0.push_front(Landed { name, first: end, pages: rest });
        }
        batch.holds.push(name);
        let written = |(page, at): (&ToStore, u32)| Written { hold, page: at, slot: page.slot };
        batch.written.extend(pages.iter().zip(first..).map(written));
        batch.pages.append(&mut pages);
    }

    /// Pages that are on their way to the store and that it wasn't told of yet.
    pub(super) fn before_their_batch(&self) -> usize {
        let copies: usize = self.flights.backups.iter().map(|copy| copy.staged.len()).sum();
        copies + self.to_store.landed.slots().count()
    }

    /// What has landed goes nowhere: its store went, or its weights.
    pub(super) fn drop_landed(&mut self) {
        for Landed { name, first, pages } in std::mem::take(&mut self.to_store.landed.0) {
            let place = self.tree.pinned(&name);
            let slots: Vec<HostSlot> = pages.iter().map(|page| page.slot).collect();
            (first..).zip(&pages).filter(|(page, _)| *page < place.depth).for_each(|(page, _)| {
                self.tree.unstore(place, page);
            });
            self.unstage(Side::Writes, &slots);
            self.let_go(name);
        }
    }
}
