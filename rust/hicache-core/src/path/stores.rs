//! `attach_store`, `detach_store`: a store comes or goes while the cache lives, from any state.
//!
//! What is under way in a store that goes keeps its host slots and pins until it lands, like what is late, whether that
//! store ever answers or not: another one can be attached at once. Waits for it end; nothing of it is believed stored.
//!
//! Host memory that outlives the process stands before the store: it stays when that goes, and is there when it comes.
//! On error: names what is in the way; nothing was changed, and a store that was opened for it is closed.

use crate::assemble::Opening;
use crate::cache::HiCache;
use crate::doubts::Doubts;
use crate::error::{Result, argument};
use crate::explain::{Reason, Revoked};
use crate::ids::HitId;
use crate::restart::store::KeptStore;
use crate::storage::{Store, Workers};
use std::sync::Arc;
use std::time::Duration;

/// What was still under way when a store was detached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftBehind {
    /// Pages on the host (where that is staging: or the device) that this store was to get, and hasn't got: their write
    /// hadn't begun.
    pub unwritten_pages: usize,
    /// Batches that are still inside of a store that was detached. What they need stays theirs until they come out.
    pub inside: usize,
}

impl HiCache {
    /// Gives a cache without a store one, as `open` opens it. What it has in memory already gets its digests here, which
    /// costs a walk over all of it, and is stored when it comes again (`write_out` doesn't wait for that).
    ///
    /// # Errors
    /// When there is a store, or no host tier; when the store can't be had, or not with this host memory.
    pub fn attach_store(&mut self, open: Opening<'_>) -> Result<()> {
        self.open()?;
        if self.has_store() {
            return argument("storage", "there is a store: detach it first");
        }
        if self.config.host_slots == 0 {
            return argument("host", "storage needs a host tier: pages pass through it");
        }
        let store = open()?;
        self.employ(Some(Arc::clone(&store))).inspect_err(|_| store.close())?;
        self.tree.start_hashing();
        self.owe_everything();
        Ok(())
    }

    /// Takes the store away. Prefetches are given up, writes that wait are cancelled, and what is inside the store has
    /// at most so long to come out; then it is closed. Neither it nor what hangs in it is waited for any longer.
    /// Polls take back what it still holds when that lands.
    ///
    /// # Errors
    /// When there is none.
    pub fn detach_store(&mut self, most: Duration) -> Result<LeftBehind> {
        self.open()?;
        if !self.has_store() {
            return argument("storage", "there is no store to detach");
        }
        self.revoke_fetches();
        // What was decided goes to the store that it was decided for.
        self.act();
        let waiting = self.tree.unsaved_pages(self.tree.saving().source()) + self.before_their_batch();
        // Of a store before this one: those pages are among what waits.
        let earlier = self.flights.left().1;
        self.executor.dismiss(most);
        self.flights.leave_storage();
        self.doubts = Doubts::default();
        self.storage = false;
        // Host memory that outlives the process goes on alone.
        if self.executor.kept().is_some() {
            self.employ(None)?;
        }
        self.owe_everything();
        while let Some(done) = self.executor.completed() {
            self.flights.land(done);
        }
        let (inside, cancelled) = self.flights.left();
        Ok(LeftBehind { unwritten_pages: waiting + cancelled - earlier, inside })
    }

    /// Whether there is a store, besides memory that outlives the process.
    pub fn has_store(&self) -> bool {
        self.storage && self.executor.kept().is_none_or(|kept| kept.behind())
    }

    /// Storage work goes to a store from now on, behind memory that outlives the process, if there is such.
    pub(crate) fn employ(&mut self, store: Option<Arc<dyn Store>>) -> Result<()> {
        if store.as_ref().is_some_and(|store| store.needs_shared_memory()) && !self.config.memory.shared {
            let need = "this storage needs host memory that other processes can map: Host(shared=True)";
            return argument("host shared", need);
        }
        let (kept, behind) = (self.executor.kept().cloned(), store.is_some());
        let store: Option<Arc<dyn Store>> = match &kept {
            Some(kept) => Some(Arc::new(KeptStore::new(Arc::clone(kept), store))),
            None => store,
        };
        let Some(store) = store else { return Ok(()) };
        let slabs = self.executor.memory().pools.iter().map(|pool| &pool.slab);
        let whole = slabs.filter_map(|slab| Some((slab.address(0..slab.bytes())?, slab.bytes())));
        store.register(&whole.collect::<Vec<_>>());
        let workers = Workers::start(&store, self.config.io_threads, self.config.write_queue)?;
        self.executor.employ(workers, self.config.identity);
        kept.iter().for_each(|kept| kept.set_behind(behind));
        self.storage = true;
        Ok(())
    }

    /// Ends all waits for storage.
    pub(super) fn revoke_fetches(&mut self) {
        let waiting: Vec<HitId> = self.fetches.values().copied().collect();
        let why = Reason::Revoked(Revoked::Detached);
        waiting.into_iter().for_each(|id| self.stop_fetch(id, Some(why.clone())));
    }
}
