//! `bump_epoch`: the weights are others from now on.
//!
//! Nothing of before is matched, loaded, fetched or stored any more, in any tier:
//! - **In memory** all namespaces begin anew; pages that nobody holds leave at once, the others when the last request or
//!   transfer lets them go.
//! - **Waiting requests** find nothing any more and compute; what their prefetches still bring is given back.
//! - **Running requests** go on with the pages that they hold and insert behind these; nobody else ever finds them, and
//!   they are neither backed up nor stored. Their cursors are stale.
//! - **Storage** is asked for the new identity; what was decided to be stored under the old one either is, or isn't:
//!   never under the new one.
//!
//! On error: nothing was changed.

use crate::cache::HiCache;
use crate::error::Result;
use crate::events::Medium;
use crate::explain::Reason;
use crate::hash::Namespace;
use crate::identity::Fingerprint;
use crate::ids::Tier;
use crate::tree::{By, Hold, PinId, Place};

impl HiCache {
    /// Ends the epoch. Pages are stored and asked for under `identity` from now on. Returns how many pages left the
    /// device and the host; others follow when the requests that hold them end. An engine that owns the slots learns from
    /// [`HiCache::returned_slots`] which are its own again, now and then.
    ///
    /// # Errors
    /// When the cache is closed.
    pub fn bump_epoch(&mut self, identity: Fingerprint) -> Result<[usize; 2]> {
        self.open()?;
        self.executor.identify(identity);
        self.config.identity = identity;
        let gone = self.begin_epoch(By::NewWeights, &Reason::NewWeights);
        self.flights.forget_writes();
        self.tree.tell_cleared(Medium::Storage);
        self.act();
        Ok(gone)
    }

    /// Waiting hits are at the beginning of their namespace again, where there is nothing.
    pub(super) fn begin_anew(&mut self, why: &Reason) {
        let waiting = self.hits.iter().filter(|(_, hit)| !hit.loaded).map(|(&id, _)| id);
        let mut waiting: Vec<_> = waiting.collect();
        // A map's order must not decide in which order namespaces come.
        waiting.sort_unstable();
        for id in waiting {
            self.stop_fetch(id, None);
            self.unstage_all(id);
            let Some(hit) = self.hits.get_mut(&id) else { continue };
            (hit.matched, hit.stored) = (0, 0..0);
            hit.story.note(0..u32::MAX, why.clone());
            let namespace: Namespace =
                self.tree.namespace(self.tree.pinned(&hit.pin)).cloned().unwrap_or_default();
            let root = self.tree.root(&namespace);
            let pin = std::mem::replace(&mut hit.pin, self.tree.pin(root, Hold::Soft));
            let also = hit.also.take();
            self.tree.unpin(pin);
            also.into_iter().for_each(|also| self.tree.unpin(also));
        }
    }

    /// Lets a place go; if it is of a past epoch, what nobody else holds of it leaves.
    pub(crate) fn let_go(&mut self, pin: PinId) {
        let place = self.tree.pinned(&pin);
        if !self.tree.is_past(place) {
            self.tree.unpin(pin);
            return;
        }
        self.leaves_by(self.ended_by);
        // It keeps the place's name while pages leave.
        let end = self.tree.pin(place, Hold::Soft);
        self.tree.unpin(pin);
        for tier in Tier::ALL {
            let place: Place = self.tree.pinned(&end);
            let out = self.tree.give_up(tier, place);
            self.left(tier, &out);
        }
        self.tree.unpin(end);
    }
}
