//! `poll`: lets finished transfers and the passing of time in, in order of submission.

use crate::cache::HiCache;
use crate::error::Result;
use crate::flights::{Batch, Ready, What};
use crate::ids::{HitId, Slot, Tier};
use crate::storage::Outcome;
use crate::transfer::Direction;

impl HiCache {
    /// How many leading transfers of each kind have ended.
    pub fn ready(&mut self) -> Ready {
        let fault = self.executor.fault().is_some();
        self.ended(fault)
    }

    /// The same, when it is known whether there is a fault: then no copy is under way any more.
    fn ended(&mut self, fault: bool) -> Ready {
        while let Some(done) = self.executor.completed() {
            self.flights.land(done.id, done.outcomes);
        }
        let landed = |copies: &std::collections::VecDeque<crate::flights::Copy>, finished: u64| {
            copies.iter().take_while(|copy| fault || copy.ticket <= finished).count()
        };
        let ended = |batches: &std::collections::VecDeque<Batch>| {
            batches.iter().take_while(|batch| batch.outcomes.is_some()).count()
        };
        Ready {
            backups: landed(&self.flights.backups, self.executor.progress(Direction::Out).finished()),
            loads: landed(&self.flights.loads, self.executor.progress(Direction::In).finished()),
            stores: ended(&self.flights.stores),
            prefetches: ended(&self.flights.prefetches),
            strays: ended(&self.flights.strays),
        }
    }

    /// Applies what has ended, at most `limits` of each kind, and lets deadlines before `at` seconds
    /// pass. Time never runs backwards. Returns what was applied. A fault of the device's copies lands all of
    /// them, whatever the limits: those that had not arrived never will.
    ///
    /// # Errors
    /// When the cache is closed.
    pub fn poll(&mut self, limits: Option<Ready>, at: f64) -> Result<Ready> {
        self.open()?;
        self.now = self.now.max(at);
        self.submit_backups();
        self.carry_out();
        let fault = self.executor.fault().is_some();
        let ready = self.ended(fault);
        let most = limits.unwrap_or(ready);
        let copies = |ready: usize, most: usize| if fault { ready } else { ready.min(most) };
        let applied = Ready {
            backups: copies(ready.backups, most.backups),
            loads: copies(ready.loads, most.loads),
            stores: ready.stores.min(most.stores),
            prefetches: ready.prefetches.min(most.prefetches),
            strays: ready.strays.min(most.strays),
        };
        self.take_strays(applied.strays, limits.is_none());
        self.land_copies(applied.backups, applied.loads);
        if fault {
            self.make_room(Tier::Device, usize::MAX);
        }
        let batches = self.flights.stores.drain(..applied.stores).collect::<Vec<_>>();
        let fetched = self.flights.prefetches.drain(..applied.prefetches).collect::<Vec<_>>();
        batches.into_iter().chain(fetched).for_each(|batch| self.apply(batch));
        self.let_deadlines_pass();
        self.try_again();
        self.fill_reserves();
        self.store_waiting();
        self.submit_backups();
        self.carry_out();
        Ok(applied)
    }

    fn apply(&mut self, batch: Batch) {
        let outcomes = batch.outcomes.unwrap_or_default();
        match batch.what {
            What::Store { holds, written } => self.stored(holds, &written, &outcomes),
            What::Exists { hit, attempt } => {
                if self.fetches(hit, attempt) {
                    self.count_faults(&outcomes);
                    if self.parts.is_empty() {
                        self.read_present(hit, leading_hits(&outcomes));
                    } else {
                        self.read_usable(hit, &outcomes);
                    }
                    self.fetch_step(hit);
                }
            }
            What::Read { hit, attempt, at, slots } => {
                self.count_faults(&outcomes);
                let arrived = leading_hits(&outcomes);
                if self.fetches(hit, attempt) {
                    self.graft(hit, at, slots, arrived);
                    self.fetch_step(hit);
                } else {
                    self.stats.prefetch_dropped_pages += arrived as u64;
                    self.give_reads_of(0, &slots);
                }
            }
            What::ReadParts { hit, attempt, reads } => {
                self.count_faults(&outcomes);
                if self.fetches(hit, attempt) {
                    self.graft_parts(hit, &reads, &outcomes);
                    self.fetch_step(hit);
                } else {
                    self.stats.prefetch_dropped_pages += hits(&outcomes).count() as u64;
                    self.give_reads_back(&reads);
                }
            }
        }
    }

    /// Hangs pages that were read below the hit's place; gives back the slots of those that can't be.
    fn graft(&mut self, id: HitId, at: u32, mut slots: Vec<Slot>, arrived: usize) {
        let late = slots.split_off(arrived);
        self.give_reads_of(0, &late);
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
        self.tree.store(done.place, on_host..done.place.depth);
        if self.parts.is_empty() {
            let start = if hit.stored.is_empty() { on_host } else { hit.stored.start };
            hit.stored = start..done.place.depth;
        }
        self.stats.prefetched_pages += slots.len() as u64;
        self.note_stored(id);
    }

    /// Whether a hit still waits for this attempt.
    fn fetches(&self, id: HitId, attempt: u64) -> bool {
        let fetch = self.hits.get(&id).and_then(|hit| hit.fetch.as_ref());
        fetch.is_some_and(|fetch| fetch.attempt == attempt)
    }

    /// One batch less to wait for; with the last one the wait is over.
    fn fetch_step(&mut self, id: HitId) {
        let Some(hit) = self.hits.get_mut(&id) else { return };
        if let Some(fetch) = &mut hit.fetch {
            fetch.open -= 1;
            if fetch.open == 0 {
                hit.fetch = None;
            }
        }
    }

    fn count_faults(&mut self, outcomes: &[Outcome]) {
        let count = |what| outcomes.iter().filter(|&&outcome| outcome == what).count() as u64;
        self.stats.corrupt_pages += count(Outcome::Corrupt) + count(Outcome::Short);
        self.stats.read_failed_pages += count(Outcome::Failed) + count(Outcome::TimedOut);
    }

    fn let_deadlines_pass(&mut self) {
        self.stats.deadlines_passed += self.flights.expire(self.now) as u64;
        for hit in self.hits.values_mut() {
            if hit.fetch.as_ref().is_some_and(|fetch| self.now >= fetch.deadline) {
                hit.stop_fetch();
            }
        }
    }

    /// Strays that have landed: the leading ones or, where nobody has to agree, all of them, so that none
    /// waits for one that never lands.
    fn take_strays(&mut self, leading: usize, all: bool) {
        for stray in self.flights.strays.drain(..leading).collect::<Vec<_>>() {
            self.give_up(stray);
        }
        if all {
            let (landed, rest): (Vec<Batch>, Vec<Batch>) =
                self.flights.strays.drain(..).partition(|batch| batch.outcomes.is_some());
            self.flights.strays.extend(rest);
            landed.into_iter().for_each(|stray| self.give_up(stray));
        }
    }

    /// A transfer that outlasted its deadline has landed after all: takes back what it owned.
    fn give_up(&mut self, batch: Batch) {
        match batch.what {
            What::Store { holds, written } => {
                self.stored(holds, &written, &batch.outcomes.unwrap_or_default());
            }
            What::Read { slots, .. } => self.give_reads_of(0, &slots),
            What::ReadParts { reads, .. } => self.give_reads_back(&reads),
            What::Exists { .. } => {}
        }
    }
}

fn hits(outcomes: &[Outcome]) -> impl Iterator<Item = usize> + '_ {
    outcomes.iter().enumerate().filter(|(_, outcome)| **outcome == Outcome::Hit).map(|(at, _)| at)
}

fn leading_hits(outcomes: &[Outcome]) -> usize {
    outcomes.iter().take_while(|&&outcome| outcome == Outcome::Hit).count()
}
