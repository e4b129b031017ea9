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
//! Here: when, and which pages; `parts`: what windows and states add; `landed`: what becomes of the copies.
//! On error: outcomes are values; whatever isn't a success is counted, and tried again when its path comes again.

mod landed;
mod parts;

pub(crate) use landed::LandedQueue;

use crate::cache::HiCache;
use crate::flights::{Copy, ToStore};
use crate::ids::{HitId, Slot, Tier};
use crate::policy::Write;
use crate::staging::Side;
use crate::transfer::SpacePages;
use crate::tree::{Hold, Mark, Place, Wanted};
use std::ops::Range;

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

    /// Begins to write what of a path is wanted in storage, or waits behind those that wait; how many slots' copies were
    /// begun.
    pub(super) fn write_straight(&mut self, end: Place) -> usize {
        let (begun, lacking) =
            if self.to_store.waiting() > 0 { (0, self.lacks(end)) } else { self.stage_path(end) };
        if lacking > 0 {
            self.stats.backup_no_room_pages += lacking as u64;
            self.note_store(self.tree.ancestor(end, end.depth));
        }
        begun
    }

    /// The same of what leaves the device next, before those that wait; how many are written now or when there is room.
    pub(super) fn save_straight(&mut self, end: Place) -> usize {
        let (begun, lacking) = self.stage_path(end);
        if lacking > 0 {
            self.note_store(self.tree.ancestor(end, end.depth));
        }
        begun + lacking
    }

    /// Tries again what waits for slots, as long as that brings some of it further; and what has landed goes on.
    pub(super) fn write_waiting(&mut self) {
        for _ in 0..self.to_store.waiting() {
            let Some((place, _)) = self.next_to_store() else { continue };
            if self.stage_path(place).1 > 0 {
                self.note_first(self.tree.ancestor(place, place.depth));
                break;
            }
        }
        self.store_landed();
    }

    /// Pages of a path that are to be written now: what of it is on the device, wanted in storage, and neither believed
    /// stored nor on the way. The end of what is wanted, and these.
    fn to_write(&self, end: Place) -> Option<(Place, Vec<Range<u32>>)> {
        if !self.storage || self.tree.is_past(end) || self.on_device().is_err() {
            return None;
        }
        let mark = match self.tree.saving().wanted[Tier::Device as usize] {
            Wanted::UsedAgain => Some(Mark::Host),
            Wanted::Marked => Some(Mark::Soon),
            Wanted::Nothing | Wanted::All => None,
        };
        let there = self.tree.resident_depth(end, Tier::Device);
        let depth = mark.map_or(there, |mark| there.min(self.tree.marked_depth(end, mark)));
        let end = self.tree.ancestor(end, depth);
        Some((end, self.tree.unstored(end)))
    }

    /// How much of a path is to be written.
    fn lacks(&self, end: Place) -> usize {
        let Some((end, ranges)) = self.to_write(end) else { return 0 };
        let pages: usize = ranges.iter().map(ExactSizeIterator::len).sum();
        let parts = 0..self.parts.len();
        pages + parts.map(|part| self.tree.unstored_part(part, end).pages.len()).sum::<usize>()
    }

    /// Begins to copy what of a path is to be written into staging, parents first, as far as writes may have slots: how
    /// many slots that are, and how much found none.
    pub(super) fn stage_path(&mut self, end: Place) -> (usize, usize) {
        let Some((end, ranges)) = self.to_write(end) else { return (0, 0) };
        let (mut begun, mut lacking) = (0, 0);
        for range in ranges {
            let slots = if lacking == 0 { self.stage(Side::Writes, 0, range.len()) } else { Vec::new() };
            lacking += range.len() - slots.len();
            begun += slots.len();
            if !slots.is_empty() {
                self.stage_pages(self.tree.ancestor(end, end.depth), range.start, &slots);
            }
        }
        if lacking > 0 {
            return (begun, lacking);
        }
        let (begun_parts, lacking) = self.stage_parts_of(self.tree.ancestor(end, end.depth));
        if lacking == 0 {
            self.tree.settle_debts(self.tree.ancestor(end, end.depth));
        }
        (begun + begun_parts, lacking)
    }

    /// Copies pages of the path to `end`, from page `first` on, into these slots.
    fn stage_pages(&mut self, end: Place, first: u32, slots: &[Slot]) {
        #[expect(clippy::cast_possible_truncation, reason = "no more slots than pages")]
        let pages = first..first + slots.len() as u32;
        let sources = self.tree.slots(end, pages.clone(), Tier::Device);
        let to_store = self.pages_to_store(end, pages.clone(), slots);
        self.tree.store(end, pages.clone());
        self.stats.backed_up_pages += slots.len() as u64;
        // With windows and states a pin inside an edge would split it.
        let held = if self.parts.is_empty() { self.tree.ancestor(end, pages.end) } else { end };
        let copies = vec![sources.into_iter().zip(slots.iter().copied()).collect()];
        self.copy_to_staging(held, copies, pages.zip(to_store).collect());
    }

    /// Begins a copy of what the device has of the path to a place, which is to be stored.
    fn copy_to_staging(&mut self, held: Place, copies: SpacePages, writes: Vec<(u32, ToStore)>) {
        let device = self.tree.pin(held, Hold::Device);
        let held = self.tree.pinned(&device);
        let last = writes.iter().map(|(page, _)| page + 1).max().unwrap_or(0);
        let host = self.tree.pin(self.tree.ancestor(held, last), Hold::Name);
        let gate = self.open_gate(copies.iter().map(Vec::as_slice));
        let copies = self.in_frames(copies);
        let ticket = self.join_backup(copies);
        let full = writes.iter().filter(|(_, page)| page.slot.space == 0).count();
        self.flights.backups.push_back(Copy {
            ticket,
            device,
            host,
            gate,
            pages: u32::try_from(full).unwrap_or(u32::MAX),
            parts: Vec::new(),
            store: Vec::new(),
            writes,
            staged: Vec::new(),
            unstored: false,
        });
    }
}
