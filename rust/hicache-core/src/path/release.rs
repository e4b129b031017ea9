//! `release`: the end of a request, in any state. What still runs for it is cancelled.

use crate::cache::HiCache;
use crate::error::{Error, Result};
use crate::ids::{Cursor, HitId};
use crate::policy::{Moment, Request, tick};

impl HiCache {
    /// Lets a hit go, exactly once. Returns its cursor: where the next turn may continue.
    /// `generated` tells how many tokens the request generated.
    ///
    /// # Errors
    /// When it was released before.
    pub fn release(&mut self, id: HitId, generated: u64) -> Result<Cursor> {
        let mut hit = self.hits.remove(&id).ok_or(Error::Hit("was released"))?;
        hit.stop_fetch();
        self.stats.generated_tokens += generated;
        let place = self.tree.pinned(&hit.pin);
        let cursor = Cursor { cache: Some(self.serial), ..self.tree.cursor(place) };
        self.note_use(place);
        let (tick, moment) = (tick(self.now), Moment::Released { generated });
        self.tree.tell(Request { tick, moment, ..hit.request }, 0..place.depth, place);
        self.tree.touch_matched(place);
        hit.also.into_iter().for_each(|pin| self.tree.unpin(pin));
        if hit.loaded {
            self.leave_place(hit.pin);
        } else {
            self.tree.unpin(hit.pin);
        }
        self.stir();
        self.publish();
        Ok(cursor)
    }
}
