//! `release`: the end of a request, in any state. What still runs for it is cancelled.

use crate::cache::HiCache;
use crate::error::{Error, Result};
use crate::explain::{PastHit, Reason, Revoked};
use crate::hit::Hit;
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
        let hit = self.hits.remove(&id).ok_or(Error::Hit("was released"))?;
        self.stats.generated_tokens += generated;
        let place = self.tree.pinned(&hit.pin);
        let cursor = Cursor { cache: Some(self.serial), ..self.tree.cursor(place) };
        let mut past = self.let_hit_go(hit, generated);
        past.story.loaded = past.story.loaded.or(found);
        self.past.push(id, past);
        // Backups wait for those of the step's other requests.
        self.act_on_rest();
        Ok(cursor)
    }

    /// The end of a hit, with or without a request behind it: nothing is held by it any more. Returns what an explanation
    /// needs of it.
    pub(super) fn let_hit_go(&mut self, hit: Hit, generated: u64) -> PastHit {
        let Hit { request, pin, also, loaded, story, rest, rest_at, matched, staged, .. } = hit;
        self.let_staged_go(&staged);
        let place = self.tree.pinned(&pin);
        self.note_use(place);
        let (tick, moment) = (tick(self.now), Moment::Released { generated });
        self.tree.tell(Request { tick, moment, ..request }, 0..place.depth, place);
        self.tree.touch_matched(place);
        also.into_iter().for_each(|pin| self.tree.unpin(pin));
        if loaded {
            self.leave_place(pin);
        } else {
            self.tree.unpin(pin);
        }
        PastHit { story, was_loaded: loaded, rest, rest_at, matched }
    }
}
