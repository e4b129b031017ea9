//! `close`: the end, in bounded time, whatever is under way.
//!
//! On error: nothing here fails. What a store doesn't give back in time is left behind, with the memory that it needs.

use crate::cache::HiCache;
use crate::ids::HitId;
use crate::transfer::Direction;
use std::time::Duration;

impl HiCache {
    /// Ends everything: prefetches are given up, storage threads end within `most`. Hits may still be
    /// released; all else is refused from now on.
    pub fn close(&mut self, most: Duration) {
        self.cool_all();
        let waiting: Vec<HitId> = self.fetches.values().copied().collect();
        waiting.into_iter().for_each(|id| self.stop_fetch(id, None));
        self.act();
        self.closed = true;
        self.executor.close(most);
        let ended = |way, submitted| self.executor.progress(way).finished() >= submitted;
        if ended(Direction::Out, self.flights.backups_submitted)
            && ended(Direction::In, self.flights.loads_submitted)
        {
            self.executor.leave();
        }
    }
}
