//! What routers are told. The tree tells of device and host as it changes; of storage the verbs tell what a store has
//! acknowledged, since the tree believes more: what is on its way, too. On error: nothing here fails.

use crate::cache::HiCache;
use crate::error::{Result, argument};
use crate::events::Event;
use crate::flights::Written;
use crate::storage::Outcome;
use crate::tree::PinId;

impl HiCache {
    /// Keeps what comes to tiers and leaves them for [`HiCache::take_events`], at most so many announcements of pages. Every
    /// page is hashed from now on, with or without a store. To be asked for before anything is inserted.
    ///
    /// # Errors
    /// When there is room for none, or there are pages already.
    pub fn keep_events(&mut self, most: usize) -> Result<()> {
        self.open()?;
        if most == 0 {
            return argument("events", "need room for one page at least");
        }
        if self.tree.nodes() > 0 {
            return argument("events", "there are pages already, of which nobody was told");
        }
        self.tree.tell_events(most);
        Ok(())
    }

    /// What changed since the last time, in order; ranks that decided alike get the same. Also after `close`. Nothing where
    /// events aren't kept.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.tree.take_events()
    }

    /// What there is now: applied to nothing it gives what all events so far would have. Those that nobody has taken are dropped,
    /// as they are part of it. A walk over all pages.
    pub fn events_from_scratch(&mut self) -> Vec<Event> {
        self.tree.events_from_scratch()
    }

    /// Pages that a store has taken, or had, as its outcomes say; of a storage that was forgotten since, nothing is told.
    pub(super) fn tell_acknowledged(
        &mut self,
        forgotten: bool,
        holds: &[PinId],
        written: &[Written],
        outcomes: &[Outcome],
    ) {
        if forgotten || !self.tree.tells_events() || !self.has_store() {
            return;
        }
        for (page, &outcome) in written.iter().zip(outcomes) {
            if outcome == Outcome::Hit && page.slot.space == 0 {
                let place = self.tree.pinned(&holds[page.hold as usize]);
                self.tree.tell_stored(place, page.page..page.page + 1);
            }
        }
    }
}
