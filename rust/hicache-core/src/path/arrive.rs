//! The part of `poll` that takes what was read: pages that continue what is there are hung below it; what came before its turn
//! is kept until what is missing has come, or until nobody waits for it any more.

use crate::cache::HiCache;
use crate::hit::Early;
use crate::ids::{HitId, HostSlot, Slot, Tier};
use crate::storage::Outcome;

impl HiCache {
    /// Applies the leading questions and reads that have landed or, where ranks needn't agree, all that have: nobody waits
    /// behind another one's then. How many these were.
    pub(super) fn apply_fetched(&mut self, leading: usize, all: bool) -> usize {
        let landed = self.flights.landed(leading, all);
        let count = landed.len();
        for batch in landed {
            // Ranks agree on what has come, not on how long it took.
            if let Some(time) = batch.time.filter(|_| all) {
                self.stop.read(time);
            }
            batch.failed.iter().for_each(|&page| self.doubts.failed(page));
            self.apply(batch);
        }
        if all && !self.fetches.is_empty() {
            self.under_way = self.executor.under_way();
        }
        count
    }

    /// Pages were read, as far as the outcomes say, for page `at` of a hit's path and those behind it.
    pub(super) fn arrive(
        &mut self,
        id: HitId,
        attempt: u64,
        at: u32,
        slots: Vec<Slot>,
        outcomes: &[Outcome],
    ) {
        let arrived = outcomes.iter().take_while(|&&outcome| outcome == Outcome::Hit).count();
        if !self.fetches(id, attempt) {
            self.stats.prefetch_dropped_pages += arrived as u64;
            return self.give_reads_of(0, &slots);
        }
        if let Some(hit) = self.hits.get_mut(&id)
            && let Some(fetch) = &mut hit.fetch
        {
            fetch.open -= 1;
            fetch.open_full -= 1;
            fetch.reading -= slots.len();
            fetch.early.insert(at, Early { slots, arrived });
            if arrived < outcomes.len() {
                // Nothing behind it comes either.
                let end = fetch.expected().end;
                let rest = end.saturating_sub(at) as usize;
                let mut outcomes = outcomes.to_vec();
                outcomes.resize(rest.max(outcomes.len()), Outcome::Absent);
                hit.story.note_outcomes(at, &outcomes);
            }
        }
        self.graft_early(id);
        self.graft_waiting_parts(id);
    }

    /// Hangs what continues what is there. Where something didn't come, nothing behind it is of use.
    fn graft_early(&mut self, id: HitId) {
        loop {
            let fetch = self.hits.get_mut(&id).and_then(|hit| hit.fetch.as_mut());
            let Some(fetch) = fetch else { return };
            let Some(Early { mut slots, arrived }) = fetch.early.remove(&fetch.front) else { return };
            #[expect(clippy::cast_possible_truncation, reason = "a batch")]
            let (at, pages) = (fetch.front, slots.len() as u32);
            fetch.front += pages;
            let late = slots.split_off(arrived);
            self.give_reads_of(0, &late);
            self.graft(id, at, slots);
            if !late.is_empty() {
                return self.stop_fetch(id, None);
            }
        }
    }

    /// Hangs pages that were read below the hit's place; gives back the slots of those that can't be.
    fn graft(&mut self, id: HitId, at: u32, mut slots: Vec<Slot>) {
        if self.stages() {
            return self.stage_read(id, at, slots);
        }
        let Ok(found) = self.find_again(id) else { return self.give_reads_of(0, &slots) };
        let place = found.place;
        let on_host = self.tree.resident_depth(place, Tier::Host);
        // Others may have brought some of these pages meanwhile, or those before them may have gone.
        let useless = if on_host < at { slots.len() } else { slots.len().min((on_host - at) as usize) };
        self.stats.prefetch_dropped_pages += useless as u64;
        self.host.give_back(&slots[..useless]);
        self.forget_slots(0, &slots[..useless]);
        slots.drain(..useless);
        if slots.is_empty() {
            return;
        }
        let Some(hit) = self.hits.get_mut(&id) else { return };
        let size = self.tree.page_size().tokens();
        let from = (on_host - hit.rest_at) as usize * size;
        let key = hit.rest.view().range(from..from + slots.len() * size);
        let at = self.tree.ancestor(place, on_host);
        let known = self.tree.follow(at, key);
        let digests = hit.keys.after(known.depth, self.tree.last_digest(known));
        let done = self.tree.extend_from(at, known, key, Tier::Host, &slots, digests);
        self.stats.hashed_pages += done.hashed as u64;
        debug_assert!(done.known == 0, "pages after the host's last one are not on the host");
        self.host.place(&slots);
        // Where host memory outlives the process they may have been left there, instead.
        if self.executor.kept().is_none() {
            self.tree.tell_stored(done.place, on_host..done.place.depth);
        }
        self.tree.store(done.place, on_host..done.place.depth);
        if self.parts.is_empty() {
            let start = if hit.stored.is_empty() { on_host } else { hit.stored.start };
            hit.stored = start..done.place.depth;
        }
        self.stats.prefetched_pages += slots.len() as u64;
        self.note_stored(id);
    }

    /// Windows and states were read.
    pub(super) fn arrive_parts(
        &mut self,
        id: HitId,
        attempt: u64,
        reads: Vec<(u32, HostSlot)>,
        outcomes: Vec<Outcome>,
    ) {
        if !self.fetches(id, attempt) {
            let came = outcomes.iter().filter(|&&outcome| outcome == Outcome::Hit).count();
            self.stats.prefetch_dropped_pages += came as u64;
            return self.give_reads_back(&reads);
        }
        if let Some(fetch) = self.hits.get_mut(&id).and_then(|hit| hit.fetch.as_mut()) {
            fetch.open -= 1;
            fetch.reading -= reads.len();
            fetch.parts.push((reads, outcomes));
        }
        self.graft_waiting_parts(id);
    }

    /// Hangs windows and states below their pages, once these are all there.
    fn graft_waiting_parts(&mut self, id: HitId) {
        let Some(fetch) = self.hits.get_mut(&id).and_then(|hit| hit.fetch.as_mut()) else { return };
        if fetch.open_full > 0 {
            return;
        }
        for (reads, outcomes) in std::mem::take(&mut fetch.parts) {
            self.graft_parts(id, &reads, &outcomes);
        }
    }
}
