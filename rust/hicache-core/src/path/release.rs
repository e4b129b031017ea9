//! `release`: the end of a request, in any state. What still runs for it is cancelled.

use crate::cache::HiCache;
use crate::error::{Error, Result};
use crate::explain::{Reason, Revoked};
use crate::ids::{Cursor, HitId};
use crate::policy::{Moment, Request, tick};

impl HiCache {
    /// Lets a hit go, exactly once. Returns its cursor: where the next turn may continue.
    /// `generated` tells how many tokens the request generated.
    ///
    /// # Errors
    /// When it was released before.
    pub fn release(&mut self, id: HitId, generated: u64) -> Result<Cursor> {
        // Of one that was never loaded.
        let found = self.hits.get(&id).filter(|hit| !hit.loaded).map(|_| self.would_find(id));
        self.stop_fetch(id, Some(Reason::Revoked(Revoked::Release)));
        let mut hit = self.hits.remove(&id).ok_or(Error::Hit("was released"))?;
        self.stats.generated_tokens += generated;
        let place = self.tree.pinned(&hit.pin);
        let cursor = Cursor { cache: Some(self.serial), ..self.tree.cursor(place) };
        self.note_use(place);
        let (tick, moment) = (tick(self.now), Moment::Released { generated });
        self.tree.tell(Request { tick, moment, ..hit.request }, 0..place.depth, place);
        self.tree.touch_matched(place);
        hit.also.take().into_iter().for_each(|pin| self.tree.unpin(pin));
        let pin = self.end_story(id, hit, found);
        if found.is_none() {
            self.leave_place(pin);
        } else {
            self.tree.unpin(pin);
        }
        // Backups wait for those of the step's other requests.
        self.act_on_rest();
        Ok(cursor)
    }
}
