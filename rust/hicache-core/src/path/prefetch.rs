//! `prefetch`: storage → host, while the request waits. Asks which pages there are; what of them is read when is
//! `filling`'s.

use crate::cache::HiCache;
use crate::command::Command;
use crate::error::{Error, Result};
use crate::explain::Reason;
use crate::flights::{Batch, What};
use crate::hash::{self, Digest};
use crate::hit::{Fetch, Keys};
use crate::ids::{HitId, Tier};
use crate::policy::fetching::Request;
use crate::storage::Outcome;

/// Pages that one batch asks for, or reads.
pub(crate) const BATCH_PAGES: usize = 128;

/// Questions of one request that wait for a thread, or for an answer.
const QUESTIONS: usize = 4;

impl HiCache {
    /// Starts to bring the rest of a hit's tokens from storage to the host. Returns at once: whether
    /// anything was asked for. The hit waits until `poll` has applied all of it, or the deadline passes.
    ///
    /// # Errors
    /// When the hit was released or is loaded.
    pub fn prefetch(&mut self, id: HitId) -> Result<bool> {
        self.open()?;
        let hit = self.hit(id)?;
        if hit.loaded {
            return Err(Error::Hit("is loaded: prefetch comes before"));
        }
        if hit.fetch.is_some() || !self.can_fetch() || self.host.capacity() == 0 {
            return Ok(false);
        }
        let found = self.find_again(id)?;
        if !self.parts.is_empty() {
            return self.prefetch_parts(id, found);
        }
        let place = found.place;
        // What comes is hung below pages that are on the host themselves.
        let (rest_at, end) = self.rest(id)?;
        let asks = !self.stages() && (!self.asking.writes || end > place.depth);
        if asks && self.tree.resident_depth(place, Tier::Host) < place.depth {
            self.back_up_path(place);
        }
        let from = self.read_from(id, place);
        let hit = self.hit(id)?;
        let size = self.tree.page_size().tokens();
        let contiguous = place.depth >= rest_at;
        let known = (place.depth.max(rest_at) - rest_at) as usize * size;
        let rest = hit.rest.view().from(known);
        let at = from.unwrap_or(place.depth);
        let staged = (at - place.depth) as usize;
        let pages = rest.len() / size - staged;
        if !(from.is_some() && contiguous && pages > 0 && self.is_worth_it(pages)) {
            // Of what is gone from the path itself that is said already.
            self.note_not_asked(id, from.is_some() && contiguous, at.max(rest_at), pages);
            self.act();
            return Ok(false);
        }
        let prior = self.tree.last_digest(place);
        if hit.keys.after(place.depth, prior).len() < staged + pages {
            let digests = hash::chain(prior, rest, self.tree.page_size());
            self.stats.hashed_pages += digests.len() as u64;
            self.hit_mut(id)?.keys = Keys { at: place.depth, prior, digests };
        }
        let keys = &self.hit(id)?.keys;
        let count = keys.digests.len() - (at - keys.at) as usize;
        #[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
        let span = count as u32;
        self.ask(id, Fetch { at, front: at, span, keys: count, ..Fetch::default() })?;
        self.act();
        Ok(true)
    }

    /// Whether so many pages are worth asking for, or reading.
    pub(super) fn is_worth_it(&self, pages: usize) -> bool {
        pages * self.config.page_size.tokens() >= self.config.prefetch_threshold
    }

    /// Begins a prefetch: asks the store for its keys.
    pub(super) fn ask(&mut self, id: HitId, fetch: Fetch) -> Result<()> {
        let attempt = self.flights.next_batch();
        let deadline = self.now + self.config.prefetch_deadline;
        let answers = vec![None; fetch.keys];
        self.stats.prefetch_asked_pages += fetch.keys as u64;
        self.fetches.insert(attempt, id);
        self.hit_mut(id)?.fetch = Some(Fetch { attempt, deadline, answers, ..fetch });
        (0..QUESTIONS).for_each(|_| self.ask_more(id));
        self.hit_mut(id)?.story.asked = true;
        Ok(())
    }

    /// The next question of a prefetch, if there is one.
    fn ask_more(&mut self, id: HitId) {
        let waiter = self.waiter(id);
        let Some(hit) = self.hits.get_mut(&id) else { return };
        let Some(fetch) = hit.fetch.as_mut().filter(|fetch| fetch.put < fetch.keys && !fetch.settled) else {
            return;
        };
        let from = fetch.put;
        fetch.put = fetch.keys.min(from + BATCH_PAGES);
        let keys: Vec<Digest> = if fetch.asked.is_empty() {
            let first = (fetch.at - hit.keys.at) as usize;
            hit.keys.digests[first + from..first + fetch.put].to_vec()
        } else {
            fetch.asked[from..fetch.put].iter().map(|asked| asked.key).collect()
        };
        let (attempt, deadline, cancel) = (fetch.attempt, fetch.deadline, fetch.cancel.clone());
        let batch = self.flights.next_batch();
        self.commands.push(Command::Exists { id: batch, waiter, keys, cancel });
        let what = What::Exists { hit: id, attempt, from };
        self.flights.prefetches.push_back(Batch::new(batch, deadline, what));
    }

    /// A waiting request as policies know it.
    pub(super) fn waiter(&self, id: HitId) -> Request {
        let Some(hit) = self.hits.get(&id) else { return Request::default() };
        let (number, later) = hit.fetch.as_ref().map_or((0, 0), |fetch| {
            (fetch.attempt, self.tokens(fetch.present.saturating_sub(fetch.begun) as usize))
        });
        Request { number, arrived: micros(hit.arrived), prompt: hit.story.tokens, later }
    }

    pub(super) fn tokens(&self, pages: usize) -> u64 {
        (pages * self.config.page_size.tokens()) as u64
    }

    /// The store answered what it has of the keys from place `from` on.
    pub(super) fn answered(&mut self, id: HitId, from: usize, outcomes: &[Outcome]) {
        self.count_faults(outcomes);
        let Some(hit) = self.hits.get_mut(&id) else { return };
        let Some(fetch) = hit.fetch.as_mut().filter(|fetch| !fetch.settled) else { return };
        let first = (fetch.at - hit.keys.at.min(fetch.at)) as usize;
        let mut believed = outcomes.to_vec();
        for (place, outcome) in (from..).zip(&mut believed) {
            let key =
                fetch.asked.get(place).map_or_else(|| hit.keys.digests[first + place], |asked| asked.key);
            if *outcome == Outcome::Hit && self.doubts.has(&key) {
                self.stats.prefetch_doubted_pages += 1;
                *outcome = Outcome::Failed;
            }
            fetch.answers[place] = Some(*outcome == Outcome::Hit);
        }
        while let Some(&Some(there)) = fetch.answers.get(fetch.answered) {
            fetch.answered += 1;
            if fetch.asked.is_empty() {
                if !there {
                    fetch.settled = true;
                    break;
                }
                fetch.present += 1;
            }
        }
        fetch.settled |= fetch.answered == fetch.keys;
        let (settled, parts, present) = (fetch.settled, !fetch.asked.is_empty(), fetch.present as usize);
        self.note_answers(id, from, &believed);
        if !settled {
            self.ask_more(id);
        } else if !parts && present > 0 && !self.is_worth_it(present) {
            self.stats.prefetch_below_threshold += 1;
            let why = self.too_few(present);
            self.stop_fetch(id, Some(why));
        }
    }

    /// Ends a hit's wait: what waits for a thread ends now, and what arrives from now on is given back. `why`: why those pages
    /// are missing then that the store has or may have, where nothing was said of them yet.
    pub(crate) fn stop_fetch(&mut self, id: HitId, why: Option<Reason>) {
        let Some(hit) = self.hits.get_mut(&id) else { return };
        let Some(fetch) = hit.fetch.take() else { return };
        if let Some(why) = why {
            hit.story.note(fetch.expected(), why);
        }
        self.fetches.remove(&fetch.attempt);
        fetch.cancel.store(true, std::sync::atomic::Ordering::Relaxed);
        self.commands.push(Command::Cancel { waiter: fetch.attempt });
        for early in fetch.early.into_values() {
            self.stats.prefetch_dropped_pages += early.arrived as u64;
            self.give_reads_of(0, &early.slots);
        }
        for (reads, outcomes) in fetch.parts {
            let came = outcomes.iter().filter(|&&outcome| outcome == Outcome::Hit).count();
            self.stats.prefetch_dropped_pages += came as u64;
            self.give_reads_back(&reads);
        }
        if self.stages() {
            self.settle_boundary(id, fetch.usable.start);
        }
    }

    /// Whether a hit still waits for this attempt.
    pub(super) fn fetches(&self, id: HitId, attempt: u64) -> bool {
        let fetch = self.hits.get(&id).and_then(|hit| hit.fetch.as_ref());
        fetch.is_some_and(|fetch| fetch.attempt == attempt)
    }
}

/// A time as policies are told it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is before the clock's 0 is 0"
)]
pub(super) fn micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}
