//! What a hit looks like from outside: how much of it is usable, and its slots.

use crate::cache::HiCache;
use crate::error::{Error, Result};
use crate::ids::{HitId, NO_SLOT, Slot, Tier};
use crate::tree::Component;

/// What a hit looks like from outside, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitView {
    /// Usable on the device; after load: pinned there.
    pub device: u32,
    /// Usable on device or host (before load), what is staged for this hit included.
    pub usable: u32,
    /// How far the tokens matched: there may be pages, but no window or state, behind what is usable.
    pub matched: u32,
    /// Where a checkpoint would help the next request: deeper than the hit, where its tokens still matched.
    /// Only for models with states.
    pub checkpoint_at: Option<u32>,
    /// Usable only because of what the load copied.
    pub copied: u32,
    /// Usable on the host because of this hit's prefetch.
    pub stored: u32,
    /// Whether a prefetch is undecided.
    pub waiting: bool,
    /// Whether it was loaded.
    pub loaded: bool,
}

impl HiCache {
    /// A hit as it is now: what a match found may have gone since.
    ///
    /// # Errors
    /// When it was released.
    pub fn view(&self, id: HitId) -> Result<HitView> {
        let hit = self.hit(id)?;
        let stored = hit.stored.end - hit.stored.start;
        let place = self.tree.pinned(&hit.pin);
        let (device, usable) = if hit.loaded || self.parts.is_empty() {
            (self.tree.resident_depth(place, Tier::Device), Self::staged_to(hit, place.depth))
        } else {
            let found = self.tree.found(place);
            let staged = if self.boundary_holds(hit, place) { hit.staged.boundary } else { 0 };
            (found.device, found.usable.max(staged))
        };
        let has_state = self.tree.components().contains(&Component::State);
        Ok(HitView {
            device,
            usable,
            matched: hit.matched.max(usable),
            checkpoint_at: Some(hit.matched).filter(|&matched| has_state && matched > usable),
            copied: hit.copied,
            stored,
            waiting: hit.fetch.is_some(),
            loaded: hit.loaded,
        })
    }

    /// Device slots of a loaded hit's whole path.
    ///
    /// # Errors
    /// When it was released or not loaded, or copies have failed for good: its pages may never have arrived.
    pub fn hit_slots(&self, id: HitId) -> Result<Vec<Slot>> {
        let hit = self.hit(id)?;
        if !hit.loaded {
            return Err(Error::Hit("has no slots before it is loaded"));
        }
        self.on_device()?;
        let place = self.tree.pinned(&hit.pin);
        Ok(self.tree.slots(place, 0..place.depth, Tier::Device))
    }

    /// Device slots of a loaded hit's parts, in order of the parts. A window: one for each page of the hit,
    /// [`NO_SLOT`] for holes and for all that no token behind the hit sees. A state: the checkpoint at exactly the
    /// hit's end, if it has one. After a load none is missing that a token behind the hit needs; they are pinned
    /// with the hit, and read only.
    ///
    /// # Errors
    /// When it was released or not loaded, or copies have failed for good: its pages may never have arrived.
    pub fn hit_parts(&self, id: HitId) -> Result<Vec<Vec<Slot>>> {
        let hit = self.hit(id)?;
        if !hit.loaded {
            return Err(Error::Hit("has no slots before it is loaded"));
        }
        self.on_device()?;
        let end = self.tree.pinned(&hit.pin);
        let slot =
            |part: usize, depth: u32| self.tree.part_slot(part, Tier::Device, self.tree.ancestor(end, depth));
        let components = self.tree.components().iter().enumerate();
        let slots = components.map(|(part, component)| match component {
            Component::State => slot(part, end.depth).into_iter().collect(),
            Component::Swa { .. } => {
                let from = self.tree.needs_from(part, end.depth);
                let hole = |page: u32| page < from;
                let of_page = |page: u32| if hole(page) { None } else { slot(part, page + 1) };
                (0..end.depth).map(|page| of_page(page).unwrap_or(NO_SLOT)).collect()
            }
        });
        Ok(slots.collect())
    }
}
