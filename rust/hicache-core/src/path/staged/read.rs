//! The part of `prefetch` and `poll` that reads into staging: from where, and who stops to wait for room.
//!
//! Room comes back when something that moves lands, or when a request that waits with what it has is loaded or leaves. So
//! nobody waits for it who can't get any: while nothing moves, and nobody is ready to be loaded, all that there is has
//! requests that wait for more. Then the one that asked first goes on with what it has, and leaves its room to the
//! others; one a poll. Where somebody is ready, an engine may take it any time: `filling`'s patience applies.
//!
//! On error: outcomes are values.

use crate::cache::HiCache;
use crate::explain::Reason;
use crate::flights::{Batch, What};
use crate::ids::{HitId, Tier};
use crate::tree::Place;

impl HiCache {
    /// Pages of a waiting hit's path that a prefetch continues, if it can: where the host is a tier, those of the tree
    /// must be there; else those that are staged come behind what is on the device.
    pub(in crate::path) fn read_from(&mut self, id: HitId, place: Place) -> Option<u32> {
        if !self.stages() {
            return (self.tree.resident_depth(place, Tier::Host) == place.depth).then_some(place.depth);
        }
        self.drop_useless(id, place.depth);
        let staged = self.hits.get(&id).map(|hit| &hit.staged).filter(|staged| !staged.is_empty());
        Some(staged.map_or(place.depth, crate::hit::Staged::end))
    }

    /// Before more is read for a request whose path is on the device up to a place: if what is read continues has left, nothing
    /// more is; and what others have brought meanwhile isn't read.
    pub(in crate::path) fn look_again_staged(&mut self, id: HitId, place: Place) -> Option<Place> {
        self.drop_useless(id, place.depth);
        let hit = self.hits.get_mut(&id)?;
        let fetch = hit.fetch.as_mut()?;
        let reach = if hit.staged.is_empty() { place.depth } else { hit.staged.end() };
        if reach < fetch.front {
            self.stop_fetch(id, Some(Reason::PathNotOnDevice));
            return None;
        }
        fetch.skip_to(reach);
        Some(place)
    }

    /// Whether something is under way that ends by itself, and may leave room for reads. In staging writes may if they have
    /// room that reads may have; they need never end: policies and deadlines say how long somebody waits for that.
    pub(in crate::path) fn room_may_come(&self) -> bool {
        if !self.stages() {
            return self.flights.moving();
        }
        let reads = |batch: &Batch| matches!(batch.what, What::Read { .. } | What::ReadParts { .. });
        let writes = !(self.flights.backups.is_empty() && self.flights.stores.is_empty());
        !self.flights.loads.is_empty()
            || self.flights.prefetches.iter().any(reads)
            || (writes && self.reads_lack_room())
    }

    /// Nobody found room: what is of no use to those that have it comes back, and if none can come in any other way, the
    /// request that asked first stops to wait.
    pub(in crate::path) fn yield_staged(&mut self) {
        // What only warms steps back, with what it has.
        let warms = |id: &&HitId| self.hits.get(*id).is_some_and(|hit| hit.warm && !hit.staged.is_empty());
        if self.requests_wait()
            && let Some(&warm) = self.fetches.values().find(warms)
        {
            return self.stop_fetch(warm, None);
        }
        let before = self.host.free();
        for id in self.with_staged() {
            // Cannot fail: the hit is there.
            let Ok(found) = self.find_again(id) else { continue };
            self.drop_useless(id, found.place.depth);
        }
        if self.room_may_come() || self.host.free() > before {
            return;
        }
        let waits = |id: &HitId| self.hits.get(id).is_some_and(|hit| hit.fetch.is_some());
        if self.with_staged().iter().any(|id| !waits(id)) {
            return;
        }
        let stuck = |id: &&HitId| {
            let hit = self.hits.get(*id).filter(|hit| !hit.staged.is_empty());
            hit.and_then(|hit| hit.fetch.as_ref()).is_some_and(|fetch| fetch.no_room && fetch.open == 0)
        };
        if let Some(&first) = self.fetches.values().find(stuck) {
            self.stats.prefetch_no_room += 1;
            self.stop_fetch(first, Some(Reason::HostFull));
        }
    }
}
