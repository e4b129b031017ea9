//! `clear`: nothing of before is found again: not in memory, or not in storage, or neither. Of our identity alone.
//!
//! - **Memory**, device and host at once: as when the weights change (`epoch`), but the identity stays. What nobody holds
//!   leaves at once; what requests hold is theirs until they end, and found by nobody.
//! - **Storage**: a thread asks the store to remove all pages of the identity; every write that was asked for before
//!   loses. What it is told meanwhile waits for nothing.
//!
//! On error: nothing was changed. A store that fails is no error here: [`HiCache::cleared`] says so.

use crate::cache::HiCache;
use crate::command::Command;
use crate::doubts::Doubts;
use crate::error::{Result, argument};
use crate::explain::Reason;
use crate::flights::{Batch, What};
use crate::ids::Tier;
use crate::storage::Outcome;
use crate::tree::By;

/// Clears of which it is remembered how they ended.
const REMEMBERED: usize = 16;

/// What became of clearing a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleared {
    /// It is under way.
    Waiting,
    /// So many pages were removed, and none of those before is there.
    Pages(u64),
    /// The store failed: pages may be left. Or the store was detached, or it was asked too long ago to remember.
    Failed,
}

impl HiCache {
    /// Empties device and host. Returns how many pages left each; others follow when the requests that hold them end. An
    /// engine that owns the slots learns from [`HiCache::returned_slots`] which are its own again, now and then.
    ///
    /// # Errors
    /// When the cache is closed.
    pub fn clear_memory(&mut self) -> Result<[usize; 2]> {
        self.open()?;
        let gone = self.begin_epoch(By::Clear, &Reason::Cleared);
        // Of the process before this one.
        if let Some(kept) = self.executor.kept() {
            kept.forget_all();
            let pools =
                std::iter::once(&mut self.host).chain(self.parts.iter_mut().map(|part| &mut part.host));
            pools.for_each(crate::host::SlotPool::forget_left);
        }
        self.act();
        Ok(gone)
    }

    /// Begins to remove all pages of the identity from storage; returns its number, for [`HiCache::cleared`].
    /// Prefetches are given up.
    ///
    /// # Errors
    /// When there is no store.
    pub fn clear_storage(&mut self) -> Result<u64> {
        self.open()?;
        if !self.storage {
            return argument("tiers", "there is no storage to clear");
        }
        self.revoke_fetches();
        let id = self.flights.next_batch();
        self.commands.push(Command::Clear { id });
        let deadline = self.now + self.config.store_deadline;
        self.flights.prefetches.push_back(Batch::new(id, deadline, What::Clear));
        self.doubts = Doubts::default();
        self.owe_everything();
        self.act();
        Ok(id)
    }

    /// What became of a clear, as far as polls know.
    pub fn cleared(&self, id: u64) -> Cleared {
        let mut flights = self.flights.prefetches.iter().chain(&self.flights.strays);
        if flights.any(|batch| batch.id == id) {
            return Cleared::Waiting;
        }
        self.clears.iter().find(|clear| clear.0 == id).map_or(Cleared::Failed, |clear| clear.1)
    }

    /// The store has been asked to remove everything.
    pub(super) fn note_cleared(&mut self, id: u64, outcomes: &[Outcome], pages: u64) {
        let done = outcomes == [Outcome::Hit];
        self.stats.cleared_storage_pages += pages;
        self.clears.truncate(REMEMBERED - 1);
        self.clears.push_front((id, if done { Cleared::Pages(pages) } else { Cleared::Failed }));
    }

    /// All namespaces begin anew. Returns how many pages left the device and the host.
    pub(super) fn begin_epoch(&mut self, by: By, why: &Reason) -> [usize; 2] {
        self.flights.backups.iter_mut().for_each(|copy| copy.store.clear());
        self.ended_by = by;
        self.leaves_by(by);
        self.tree.end_epoch();
        self.begin_anew(why);
        let gone = Tier::ALL.map(|tier| self.make_room(tier, usize::MAX).len());
        self.drop_landed();
        if let Some(publisher) = &self.publisher {
            publisher.epoch(self.tree.epoch());
        }
        gone
    }
}
