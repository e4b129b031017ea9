//! The part of `prefetch` that reads: at each `poll`, a few batches of each request that waits, in turn, for which there is
//! room on the host then.
//!
//! Room is taken late, and never what others wait for: it is made of pages that no waiting request holds, and reads never own
//! more than half of the host. So many long requests with near-perfect hits take turns, and who finds no room waits for
//! as long as something is under way that may leave some.

use crate::cache::HiCache;
use crate::command::Command;
use crate::explain::Reason;
use crate::flights::{Batch, What};
use crate::hash::Digest;
use crate::ids::{HitId, HostSlot, Slot, Tier};
use crate::path::prefetch::BATCH_PAGES;
use crate::tree::{Hold, Place};
use std::ops::Bound;

/// Batches of one request that have room and aren't read yet: enough for a store to be busy until the next poll.
const AHEAD: usize = 4;

/// Polls that found no room for anybody and nothing under way, after which nobody waits for it any more: while no request runs,
/// and while one does, which may leave room when it ends.
const PATIENCE: [u32; 2] = [8, 64];

/// What became of a try to read more for a request.
#[derive(PartialEq, Eq)]
enum Tried {
    Begun,
    /// It needs nothing now.
    Nothing,
    NoRoom,
}

impl HiCache {
    /// Begins reads, in turn, for as many batches as there is room.
    pub(super) fn fill(&mut self) {
        let (mut idle, mut begun, mut full) = (0, false, false);
        while idle < self.fetches.len() {
            let Some((attempt, id)) = self.whose_turn() else { break };
            self.turn = attempt;
            match self.begin_read(id) {
                Tried::Begun => (idle, begun) = (0, true),
                Tried::Nothing => idle += 1,
                Tried::NoRoom if self.parts.is_empty() => {
                    full = true;
                    break;
                }
                // Another one may need less: a hybrid's reads find room together or not at all.
                Tried::NoRoom => (idle, full) = (idle + 1, true),
            }
        }
        if full {
            self.note_no_room();
        }
        if full && !begun && self.stages() {
            self.yield_staged();
        }
        if begun || !full {
            self.without_room = 0;
        } else if !self.room_may_come() {
            self.without_room += 1;
        }
        self.settle_fetches();
    }

    /// There is no room for anybody who reads pages alone.
    fn note_no_room(&mut self) {
        for id in self.fetches.values() {
            let fetch = self.hits.get_mut(id).and_then(|hit| hit.fetch.as_mut());
            if let Some(fetch) = fetch.filter(|fetch| fetch.begun < fetch.present) {
                fetch.no_room = true;
            }
        }
    }

    /// Round about, in order of asking.
    fn whose_turn(&self) -> Option<(u64, HitId)> {
        let after = (Bound::Excluded(self.turn), Bound::Unbounded);
        let next = self.fetches.range(after).next().or_else(|| self.fetches.iter().next());
        next.map(|(&attempt, &id)| (attempt, id))
    }

    /// Ends those waits that have nothing to wait for.
    fn settle_fetches(&mut self) {
        let mut over = Vec::new();
        for &id in self.fetches.values() {
            let Some(fetch) = self.hits.get(&id).and_then(|hit| hit.fetch.as_ref()) else { continue };
            if fetch.open > 0 || !fetch.settled {
                continue;
            }
            let wants = fetch.begun < fetch.present || !fetch.asked.is_empty();
            if !wants || (fetch.no_room && self.room_is_hopeless()) {
                over.push((id, wants));
            }
        }
        for (id, stuck) in over {
            self.stats.prefetch_no_room += u64::from(stuck);
            self.stop_fetch(id, stuck.then_some(Reason::HostFull));
        }
    }

    /// Whether there was no room, and nothing under way that may leave some, at so many polls that none is to be hoped for.
    fn room_is_hopeless(&self) -> bool {
        let runs = || self.hits.values().any(|hit| hit.loaded);
        self.without_room >= PATIENCE[1] || (self.without_room >= PATIENCE[0] && !runs())
    }

    /// The next batch of one request. What only warms waits until no request does, and takes nobody's room.
    fn begin_read(&mut self, id: HitId) -> Tried {
        let warm = self.hits.get(&id).is_some_and(|hit| hit.warm);
        if warm && self.requests_wait() {
            return Tried::Nothing;
        }
        self.sparing = warm;
        let tried = self.try_reading(id);
        self.sparing = false;
        tried
    }

    fn try_reading(&mut self, id: HitId) -> Tried {
        // In staging the share of reads is what bounds them.
        let most = if self.stages() {
            BATCH_PAGES
        } else {
            BATCH_PAGES.max(self.host.capacity() / 2).saturating_sub(self.host.out())
        };
        let Some(hit) = self.hits.get(&id) else { return Tried::Nothing };
        let Some(fetch) = &hit.fetch else { return Tried::Nothing };
        if !fetch.asked.is_empty() {
            return self.begin_parts(id);
        }
        // Below the threshold it isn't known yet whether it is worth it.
        let known = fetch.settled || self.is_worth_it(fetch.present as usize);
        if !known || fetch.begun == fetch.present || most == 0 || fetch.open >= AHEAD {
            return Tried::Nothing;
        }
        let Some(on_host) = self.look_again(id) else { return Tried::Nothing };
        let Some(hit) = self.hits.get(&id) else { return Tried::Nothing };
        let Some(fetch) = &hit.fetch else { return Tried::Nothing };
        let count = ((fetch.present - fetch.begun) as usize).min(BATCH_PAGES).min(most);
        let at = fetch.at + fetch.begun;
        let first = (at - hit.keys.at) as usize;
        let mut keys = hit.keys.digests[first..first + count].to_vec();
        let slots = self.slots_below(on_host, &keys);
        keys.truncate(slots.len());
        let Some(fetch) = self.hits.get_mut(&id).and_then(|hit| hit.fetch.as_mut()) else {
            self.give_reads_of(0, &slots);
            return Tried::Nothing;
        };
        fetch.no_room = slots.len() < count;
        if slots.is_empty() {
            return if count > 0 { Tried::NoRoom } else { Tried::Nothing };
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most BATCH_PAGES")]
        let pages = slots.len() as u32;
        fetch.begun += pages;
        self.submit_full(id, at, keys, slots);
        Tried::Begun
    }

    /// Slots to read pages into that are hung below a place: the path to it must not go to make room for them.
    fn slots_below(&mut self, place: Place, keys: &[Digest]) -> Vec<Slot> {
        if self.stages() {
            return self.slots_to_read(keys);
        }
        let pin = self.tree.pin(place, Hold::Host);
        let slots = self.slots_to_read(keys);
        self.tree.unpin(pin);
        slots
    }

    /// The place up to which a request's path is on the host, before more of it is read: if what is read continues has left,
    /// nothing more is; and what others have brought meanwhile isn't read.
    fn look_again(&mut self, id: HitId) -> Option<Place> {
        let found = self.find_again(id).ok()?;
        if self.stages() {
            return self.look_again_staged(id, found.place);
        }
        let on_host = self.tree.resident_depth(found.place, Tier::Host);
        let fetch = self.hits.get_mut(&id)?.fetch.as_mut()?;
        if on_host < fetch.front {
            self.stop_fetch(id, Some(Reason::PathNotOnHost));
            return None;
        }
        fetch.skip_to(on_host);
        Some(self.tree.ancestor(found.place, on_host))
    }

    /// Reads pages of a request's path, from page `at` on.
    pub(super) fn submit_full(&mut self, id: HitId, at: u32, keys: Vec<Digest>, slots: Vec<Slot>) {
        let to = slots.iter().copied().map(HostSlot::full).collect();
        if let Some(fetch) = self.hits.get_mut(&id).and_then(|hit| hit.fetch.as_mut()) {
            fetch.open_full += 1;
        }
        self.submit_read(id, keys, to, |hit, attempt| What::Read { hit, attempt, at, slots });
    }

    pub(super) fn submit_read(
        &mut self,
        id: HitId,
        keys: Vec<Digest>,
        slots: Vec<HostSlot>,
        what: impl FnOnce(HitId, u64) -> What,
    ) {
        let (batch, waiter) = (self.flights.next_batch(), self.waiter(id));
        let Some(fetch) = self.hits.get_mut(&id).and_then(|hit| hit.fetch.as_mut()) else { return };
        fetch.open += 1;
        fetch.reading += keys.len();
        let cancel = fetch.cancel.clone();
        self.commands.push(Command::Read { id: batch, waiter, keys, slots, cancel });
        let (what, deadline) = (what(id, fetch.attempt), fetch.deadline);
        self.flights.prefetches.push_back(Batch::new(batch, deadline, what));
    }

    /// What a hybrid's prefetch reads, once it is known what the store has.
    fn begin_parts(&mut self, id: HitId) -> Tried {
        let settled =
            self.hits.get(&id).and_then(|hit| hit.fetch.as_ref()).is_some_and(|fetch| fetch.settled);
        if !settled {
            return Tried::Nothing;
        }
        if self.read_usable(id) { Tried::Begun } else { Tried::NoRoom }
    }
}
