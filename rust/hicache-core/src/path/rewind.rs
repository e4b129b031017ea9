//! `rewind`: a hit goes back to where it was before tokens were inserted that turned out not to be the history's,
//! drafts that a model rejected, say.
//!
//! Nothing leaves the tree. What was inserted is whole and right for its tokens, so it stays for whoever asks for
//! exactly these, and leaves by age; it is the tree's from its insert on, so its slots do not come back. Knows the
//! hit's place and pin; refuses to know what was rejected, and why.
//!
//! On error: names the argument; nothing was changed.

use crate::cache::HiCache;
use crate::error::{Error, Result, argument};
use crate::ids::HitId;
use crate::tree::{Hold, Place};

/// Ends that are remembered.
const LEFT: usize = 8;

impl HiCache {
    /// Whether a hit itself brought all pages up to a place, or found them when it was loaded: it went back from
    /// behind it.
    pub(super) fn was_there(&self, id: HitId, place: Place) -> bool {
        let Some(hit) = self.hits.get(&id).filter(|hit| !hit.left.is_empty()) else { return false };
        let place = self.tree.ancestor(place, place.depth);
        let mut left = hit.left.iter().filter_map(|&left| self.tree.resolve(left));
        left.any(|end| end.depth >= place.depth && self.tree.ancestor(end, place.depth) == place)
    }

    /// A loaded hit ends after so many `pages` of its path from now on, and holds no more than these: what is
    /// inserted next follows there.
    ///
    /// # Errors
    /// When the hit isn't loaded; when it has fewer pages; when the window or the checkpoint that a hit needs there
    /// is not on the device, where there are such parts; when the cache is closed or has no device memory.
    pub fn rewind(&mut self, id: HitId, pages: u32) -> Result<()> {
        self.open()?;
        self.on_device()?;
        let hit = self.hit(id)?;
        if !hit.loaded {
            return Err(Error::Hit("is not loaded: there is nothing to rewind"));
        }
        let end = self.tree.pinned(&hit.pin);
        if pages > end.depth {
            return argument("length", format!("the hit has {} pages, fewer than {pages}", end.depth));
        }
        if pages == end.depth {
            return Ok(()); // whatever parts there are at an insert's end
        }
        let place = self.tree.ancestor(end, pages);
        if pages > 0 && !self.parts.is_empty() && self.tree.found(place).device < pages {
            let reason =
                format!("after {pages} pages a window or a state that a hit needs is not on the device");
            return argument("length", reason);
        }
        let left = self.tree.cursor(end);
        let hit = self.hit_mut(id)?;
        hit.left.truncate(LEFT - 1);
        hit.left.insert(0, left);
        let pin = self.tree.pin(place, Hold::Device);
        let left = std::mem::replace(&mut self.hit_mut(id)?.pin, pin);
        self.leave_place(left);
        self.publish();
        Ok(())
    }
}
