//! When pages are copied to the host: what comes, what is used again, and what found no room the last time.
//!
//! The verbs tell what happened; the write policy says what follows from it. Copies of one step go as one: what is
//! decided is done in the tree at once, and its bytes are copied by the next verb that isn't an `insert`.
//!
//! On error: what finds no room is remembered, and tried again when there is some.

use crate::cache::HiCache;
use crate::command::Command;
use crate::ids::{Cursor, HitId, Slot, Tier};
use crate::path::remembered::Remembered;
use crate::policy::Write;
use crate::transfer::SpacePages;
use crate::tree::{Mark, Place};
use std::collections::VecDeque;

/// Places that are remembered at most. What is forgotten is backed up when it comes again, or is about to leave.
const REMEMBERED: usize = 1024;
/// Places that one `poll` tries again at most.
const RETRIES: usize = 32;

/// What is still to be written.
#[derive(Debug, Default)]
pub(crate) struct ToWrite {
    /// Copies that were decided and not submitted: their ticket, and pages by space.
    pending: Option<(u64, SpacePages)>,
    /// Slots that reserves may still copy before something happens again; none: something did.
    budget: Option<usize>,
    /// Copies that reserves began, in order: their ticket, and slots by space.
    ahead: VecDeque<(u64, Vec<usize>)>,
    /// Whether what leaves now leaves for room.
    pub for_room: bool,
    /// By order, of the host: slots that left for room since the last poll, and how much further its reserve reaches for that.
    pub left: Vec<usize>,
    pub further: Vec<usize>,
    /// Ends of paths that found no room on the host, and whether others' copies have left for them already.
    no_room: Remembered<bool, REMEMBERED>,
}

impl HiCache {
    /// A request inserted pages up to `end`, of which those before `known` were there: others had inserted them.
    pub(crate) fn came(&mut self, id: HitId, end: Place, from: u32, known: u32) {
        let others = if known > from { known } else { 0 };
        if self.stages() {
            return self.used_straight(id, end, others);
        }
        if self.asking.writes {
            self.follow_wish(id, end, others);
        } else {
            match self.config.writing.host {
                Write::Through => {
                    self.back_up_path(end);
                }
                Write::Selective | Write::Back => {}
            }
            if others > 0 {
                self.used_again(self.tree.ancestor(end, others));
            }
        }
        self.store_what_is_owed(end);
    }

    /// A request found the path to `end`, which another one had brought.
    pub(crate) fn found(&mut self, id: HitId, end: Place) {
        // Who brings up what may be asked for is no request.
        let warm = self.hits.get(&id).is_some_and(|hit| hit.warm);
        match (self.stages(), self.asking.writes) {
            _ if warm => {}
            (true, _) => self.used_straight(id, end, end.depth),
            (false, true) => self.follow_wish(id, end, end.depth),
            (false, false) => self.used_again(end),
        }
        if !self.stages() {
            self.store_what_is_owed(end);
        }
    }

    /// What a request wants of the path to `end`, of which others brought so many pages.
    fn follow_wish(&mut self, id: HitId, end: Place, others: u32) {
        if end.depth == 0 || self.tree.is_past(end) {
            return;
        }
        let wish = self.hits.get(&id).and_then(|hit| hit.wish).unwrap_or(self.config.writing.wish());
        let upto = |write| match write {
            Some(Write::Through | Write::Back) => end.depth,
            Some(Write::Selective) => others,
            None => 0,
        };
        let (host, storage) = (upto(wish.host), upto(wish.storage));
        let soon = if wish.storage == Some(Write::Back) { 0 } else { storage };
        for (mark, depth) in [(Mark::Host, host), (Mark::Storage, storage), (Mark::Soon, soon)] {
            let end = self.tree.ancestor(end, depth);
            self.tree.mark(end, mark);
        }
        if wish.host != Some(Write::Back) && host > 0 {
            let end = self.tree.ancestor(end, host);
            self.back_up_path(end);
        }
        if self.storage && soon > 0 {
            let end = self.tree.ancestor(end, soon);
            self.note_store(end);
        }
    }

    fn store_what_is_owed(&mut self, end: Place) {
        let through = self.asking.writes || self.config.writing.storage == Write::Through;
        if self.storage && through && self.tree.owes(end) && !self.tree.is_past(end) {
            self.note_store(end);
        }
    }

    fn used_again(&mut self, end: Place) {
        let writing = self.config.writing;
        let selective = [writing.host, writing.storage].contains(&Write::Selective);
        if end.depth == 0 || !selective || self.tree.is_past(end) {
            return;
        }
        self.tree.mark(end, Mark::Host);
        if writing.host == Write::Selective {
            self.back_up_path(end);
        }
        if self.storage && writing.storage == Write::Selective {
            self.note_store(end);
        }
    }

    /// Pages of a path found no room on the host.
    pub(crate) fn remember(&mut self, cursor: Cursor, alone: bool) {
        self.stats.backups_forgotten += u64::from(self.to_write.no_room.add(cursor, alone).is_some());
    }

    /// Tries again what found no room, as long as there may be some.
    pub(crate) fn try_again(&mut self) {
        for _ in 0..self.to_write.no_room.len().min(RETRIES) {
            let free = self.host.free() > 0;
            if !(free || self.tree.can_evict(Tier::Host, 1)) || !self.attached() {
                return;
            }
            let Some((cursor, alone)) = self.to_write.no_room.next() else { return };
            if alone && !free && !self.tree.leaves_alone(Tier::Host) {
                self.remember(cursor, alone);
            } else if let Some(place) = self.tree.resolve(cursor) {
                self.stats.backups_retried += 1;
                self.back_up_again(place, alone);
            }
        }
    }

    /// Something happened that may change what leaves next.
    pub(crate) const fn stir(&mut self) {
        self.to_write.budget = None;
        self.to_store.refused = false;
    }

    /// Whether reserves may copy more. Each verb allows them as much as they hold: where the host has no room for all
    /// that they want, they would make one another's copies leave for ever.
    pub(crate) fn may_reserve(&mut self, copied: usize) -> bool {
        let all = || self.tree.saving().reserve.iter().sum();
        let budget = self.to_write.budget.get_or_insert_with(all);
        *budget = budget.saturating_sub(copied);
        *budget > 0
    }

    /// A reserve has begun all copies but so many.
    pub(crate) fn note_ahead(&mut self, before: usize) {
        for copy in self.flights.backups.iter().skip(before) {
            let staged = |space: usize| {
                copy.writes.iter().filter(|(_, page)| usize::from(page.slot.space) == space).count()
            };
            let kept = |space: usize| {
                space.checked_sub(1).map_or(copy.pages as usize, |part| copy.parts[part].len())
            };
            let of = |space| if copy.writes.is_empty() { kept(space) } else { staged(space) };
            let slots = (0..=self.parts.len()).map(of).collect();
            self.to_write.ahead.push_back((copy.ticket, slots));
        }
    }

    /// Slots of a space that reserves are copying: they don't leave before that is done, and are clean then.
    pub(crate) fn copying_ahead(&mut self, space: usize) -> usize {
        let landed = self.flights.backups.front().map_or(u64::MAX, |oldest| oldest.ticket);
        let ahead = &mut self.to_write.ahead;
        while ahead.front().is_some_and(|copy| copy.0 < landed) {
            ahead.pop_front();
        }
        ahead.iter().map(|copy| copy.1.get(space).copied().unwrap_or(0)).sum()
    }

    /// A backup's copies: they go with the next ones that are submitted. The ticket of those.
    pub(crate) fn join_backup(&mut self, copies: SpacePages) -> u64 {
        let (ticket, pages) = self.to_write.pending.get_or_insert_with(|| {
            self.flights.backups_submitted += 1;
            (self.flights.backups_submitted, Vec::new())
        });
        if pages.len() < copies.len() {
            pages.resize_with(copies.len(), Vec::new);
        }
        pages.iter_mut().zip(copies).for_each(|(all, more): (&mut Vec<(Slot, Slot)>, _)| all.extend(more));
        *ticket
    }

    /// Submits what was decided.
    pub(crate) fn submit_backups(&mut self) {
        if let Some((ticket, pages)) = self.to_write.pending.take() {
            // After moves that were decided with it: it names where its pages are then, and its gate keeps them there.
            self.commands.push(Command::Backup { ticket, pages });
        }
    }
}
