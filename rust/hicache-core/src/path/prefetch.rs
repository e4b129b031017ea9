//! `prefetch`: storage → host, while the request waits. Asks which pages there are, then reads them.

use crate::cache::HiCache;
use crate::command::Command;
use crate::error::{Error, Result};
use crate::flights::{Batch, What};
use crate::hash::{self, Digest};
use crate::hit::{Fetch, Keys};
use crate::ids::{HitId, HostSlot, Tier};
use crate::tree::Hold;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Pages that one batch reads.
pub(crate) const BATCH_PAGES: usize = 128;

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
        if self.tree.resident_depth(place, Tier::Host) < place.depth {
            self.back_up_path(place);
        }
        let on_host = self.tree.resident_depth(place, Tier::Host) == place.depth;
        let hit = self.hit(id)?;
        let size = self.tree.page_size().tokens();
        let contiguous = place.depth >= hit.rest_at;
        let known = (place.depth.max(hit.rest_at) - hit.rest_at) as usize * size;
        let rest = hit.rest.view().from(known);
        let worth_it = !rest.is_empty()
            && rest.len() / size * self.config.page_size.tokens() >= self.config.prefetch_threshold;
        if !(on_host && contiguous && worth_it) {
            self.act();
            return Ok(false);
        }
        let (prior, at) = (self.tree.last_digest(place), place.depth);
        if hit.keys.after(at, prior).len() < rest.len() / size {
            let digests = hash::chain(prior, rest, self.tree.page_size());
            self.stats.hashed_pages += digests.len() as u64;
            self.hit_mut(id)?.keys = Keys { at, prior, digests };
        }
        let keys = &self.hit(id)?.keys;
        let digests = keys.digests[(at - keys.at) as usize..].to_vec();
        self.ask(id, at, digests)?;
        self.act();
        Ok(true)
    }

    /// Asks the store for keys, of pages after `at` pages.
    pub(super) fn ask(&mut self, id: HitId, at: u32, digests: Vec<Digest>) -> Result<()> {
        let attempt = self.flights.next_batch();
        let deadline = self.now + self.config.prefetch_deadline;
        let cancel: Arc<AtomicBool> = Arc::default();
        self.stats.prefetch_asked_pages += digests.len() as u64;
        self.commands.push(Command::Exists { id: attempt, keys: digests, cancel: Arc::clone(&cancel) });
        self.hit_mut(id)?.story.asked = true;
        let what = What::Exists { hit: id, attempt };
        self.flights.prefetches.push_back(Batch { id: attempt, deadline, outcomes: None, what });
        self.hit_mut(id)?.fetch =
            Some(Fetch { attempt, deadline, cancel, at, asked: Vec::new(), usable: 0..0, open: 1 });
        Ok(())
    }

    /// The store answered: reads as many of the leading pages as the host has room for.
    pub(crate) fn read_present(&mut self, id: HitId, present: usize) {
        let Ok(found) = self.find_again(id) else { return };
        let place = found.place;
        // The path that the pages are hung below must not go to make room for them.
        let on_host = self.tree.resident_depth(place, Tier::Host);
        let pin = self.tree.pin(self.tree.ancestor(place, on_host), Hold::Host);
        let wanted = self.hits.get(&id).and_then(|hit| {
            let first = (hit.fetch.as_ref()?.at - hit.keys.at) as usize;
            Some(hit.keys.digests[first..first + present].to_vec())
        });
        let slots = self.slots_to_read(&wanted.unwrap_or_default());
        self.tree.unpin(pin);
        if slots.len() < present {
            self.stats.prefetch_no_room += 1;
        }
        let hit = self.hits.get_mut(&id).and_then(|hit| Some((hit.fetch.as_mut()?, &hit.keys)));
        let Some((fetch, keys)) = hit else {
            self.give_reads_of(0, &slots);
            return;
        };
        let mut at = fetch.at;
        let asked = &keys.digests[(at - keys.at) as usize..];
        for (keys, slots) in asked.chunks(BATCH_PAGES).zip(slots.chunks(BATCH_PAGES)) {
            let (keys, slots) = (keys[..slots.len()].to_vec(), slots.to_vec());
            let (batch, cancel) = (self.flights.next_batch(), Arc::clone(&fetch.cancel));
            let to = slots.iter().copied().map(HostSlot::full).collect();
            self.commands.push(Command::Read { id: batch, keys, slots: to, cancel });
            #[expect(clippy::cast_possible_truncation, reason = "at most BATCH_PAGES")]
            let next = at + slots.len() as u32;
            let what = What::Read { hit: id, attempt: fetch.attempt, at, slots };
            self.flights.prefetches.push_back(Batch {
                id: batch,
                deadline: fetch.deadline,
                outcomes: None,
                what,
            });
            fetch.open += 1;
            at = next;
        }
    }
}
