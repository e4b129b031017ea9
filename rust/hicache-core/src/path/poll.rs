//! `poll`: lets finished transfers and the passing of time in, in order of submission.

use crate::cache::HiCache;
use crate::error::Result;
use crate::explain::{Reason, Revoked};
use crate::flights::{Batch, Ready, What};
use crate::ids::{HitId, Tier};
use crate::storage::Outcome;
use crate::transfer::Direction;
use crate::tree::By;

impl HiCache {
    /// How many leading transfers of each kind have ended.
    pub fn ready(&mut self) -> Ready {
        let fault = self.executor.fault().is_some();
        self.ended(fault)
    }

    /// The same, when it is known whether there is a fault: then no copy is under way any more.
    fn ended(&mut self, fault: bool) -> Ready {
        while let Some(done) = self.executor.completed() {
            self.flights.land(done);
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
        let mut applied = Ready {
            backups: copies(ready.backups, most.backups),
            loads: copies(ready.loads, most.loads),
            stores: ready.stores.min(most.stores),
            prefetches: ready.prefetches.min(most.prefetches),
            strays: ready.strays.min(most.strays),
        };
        self.take_strays(applied.strays, limits.is_none());
        self.land_copies(applied.backups, applied.loads);
        if fault {
            self.leaves_by(By::Fault);
            self.make_room(Tier::Device, usize::MAX);
        }
        self.flights
            .stores
            .drain(..applied.stores)
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|batch| self.apply(batch));
        applied.prefetches = self.apply_fetched(applied.prefetches, limits.is_none());
        self.let_deadlines_pass();
        self.try_again();
        self.fill_reserves();
        self.fill();
        self.warm_up();
        self.store_waiting();
        self.submit_backups();
        self.carry_out();
        Ok(applied)
    }

    pub(super) fn apply(&mut self, batch: Batch) {
        let outcomes = batch.outcomes.unwrap_or_default();
        match batch.what {
            What::Store { holds, written } => {
                self.tell_acknowledged(batch.forgotten, &holds, &written, &outcomes);
                self.stored(holds, &written, &outcomes, batch.forgotten);
            }
            What::Clear => self.note_cleared(batch.id, &outcomes, batch.cleared),
            What::Exists { hit, attempt, from } => {
                if self.fetches(hit, attempt) {
                    self.answered(hit, from, &outcomes);
                }
            }
            What::Read { hit, attempt, at, slots } => {
                self.count_faults(&outcomes);
                self.arrive(hit, attempt, at, slots, &outcomes);
            }
            What::ReadParts { hit, attempt, reads } => {
                self.count_faults(&outcomes);
                self.arrive_parts(hit, attempt, reads, outcomes);
            }
        }
    }

    pub(super) fn count_faults(&mut self, outcomes: &[Outcome]) {
        let count = |what| outcomes.iter().filter(|&&outcome| outcome == what).count() as u64;
        self.stats.corrupt_pages += count(Outcome::Corrupt) + count(Outcome::Short);
        self.stats.read_failed_pages += count(Outcome::Failed) + count(Outcome::TimedOut);
    }

    /// Pages that came after their deadline: what was wrong with them is counted all the same.
    fn read_in_vain(&mut self, outcomes: &[Outcome]) {
        self.count_faults(outcomes);
        self.stats.prefetch_dropped_pages +=
            outcomes.iter().filter(|&&outcome| outcome == Outcome::Hit).count() as u64;
    }

    fn let_deadlines_pass(&mut self) {
        self.stats.deadlines_passed += self.flights.expire(self.now) as u64;
        let late = |id: &&HitId| {
            let fetch = self.hits.get(*id).and_then(|hit| hit.fetch.as_ref());
            fetch.is_some_and(|fetch| self.now >= fetch.deadline)
        };
        let late: Vec<HitId> = self.fetches.values().filter(late).copied().collect();
        late.into_iter().for_each(|id| self.stop_fetch(id, Some(Reason::Revoked(Revoked::Deadline))));
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
                let outcomes = batch.outcomes.unwrap_or_default();
                self.tell_acknowledged(batch.forgotten, &holds, &written, &outcomes);
                self.stored(holds, &written, &outcomes, batch.forgotten);
            }
            What::Read { slots, .. } => {
                self.read_in_vain(&batch.outcomes.unwrap_or_default());
                self.give_reads_of(0, &slots);
            }
            What::ReadParts { reads, .. } => {
                self.read_in_vain(&batch.outcomes.unwrap_or_default());
                self.give_reads_back(&reads);
            }
            What::Clear => {
                self.note_cleared(batch.id, &batch.outcomes.unwrap_or_default(), batch.cleared);
            }
            What::Exists { .. } => self.count_faults(&batch.outcomes.unwrap_or_default()),
        }
    }
}
