//! `evict`: makes room, exactly as much as is needed; and `allocate`, which asks for it.

use crate::cache::HiCache;
use crate::error::{Result, argument};
use crate::ids::{Slot, Tier};
use crate::tree::{By, Spared};

impl HiCache {
    /// Takes `pages` pages out of a tier, or as many as can go, and returns their slots. Slots that the
    /// cache owns are free then; device slots of an engine that owns them are the engine's again.
    ///
    /// # Errors
    /// When the cache is closed.
    pub fn evict(&mut self, tier: Tier, pages: usize) -> Result<Vec<Slot>> {
        self.open()?;
        self.leaves_by(By::Evict);
        let slots = self.make_room(tier, pages);
        if tier == Tier::Device && self.config.engine_owns_slots {
            // This tells the engine. What became free last goes first, so that it is these.
            self.device.take(slots.len());
        }
        self.act();
        Ok(slots)
    }

    /// Device slots of an engine that owns them which left the cache, and not by `evict`, since it was told last: they are
    /// its own again, and nothing under way touches them. Each is told once. What is cleared, or of an epoch that has
    /// ended, leaves at once where nobody holds it, else when the last request or transfer lets it go: in `release`,
    /// `rewind`, or a `poll`. Also after `close`. Slots that wait to be told are refused wherever slots are given.
    ///
    /// # Errors
    /// When the cache owns the slots.
    pub fn returned_slots(&mut self) -> Result<Vec<Slot>> {
        if !self.config.engine_owns_slots {
            return argument("slots", "the cache owns the slots: what leaves is free already");
        }
        let returned = self.device.free();
        Ok(self.device.take(returned).unwrap_or_default())
    }

    /// Device slots for pages to compute; evicts what it must. `None`: there is no such room, and nothing was evicted; or,
    /// in a unified buffer, there will be once the forwards that are under way are through.
    ///
    /// # Errors
    /// When the engine owns the slots.
    pub fn allocate(&mut self, pages: usize) -> Result<Option<Vec<Slot>>> {
        self.open()?;
        self.on_device()?;
        if self.config.engine_owns_slots {
            return argument("slots", "the engine owns the slots: it allocates them itself");
        }
        self.leaves_by(By::Allocate);
        if self.unified.is_some() {
            let room = self.device_room(pages, &[0])?;
            self.act();
            return Ok(room.map(|room| room.full));
        }
        let missing = pages.saturating_sub(self.device.free());
        // All or nothing: a try that fails must not cost what others could hit.
        if missing > 0 && !self.tree.can_evict(Tier::Device, missing) {
            return Ok(None);
        }
        self.make_room(Tier::Device, missing);
        let slots = self.device.take(pages);
        self.act();
        Ok(slots)
    }

    /// Gives device slots back that no page of the tree lives in.
    ///
    /// # Errors
    /// When a slot doesn't exist, is free, belongs to a page or is named twice. Nothing was changed.
    pub fn free(&mut self, slots: &[Slot]) -> Result<()> {
        if self.config.engine_owns_slots {
            return argument("slots", "the engine owns the slots: it frees them itself");
        }
        self.device.check_out("slots", slots)?;
        self.device.give_back(slots);
        self.leave_frames(0, slots);
        self.publish();
        Ok(())
    }

    /// Our own device slots for a load: as many as can be had.
    pub(crate) fn device_slots(&mut self, pages: usize) -> Vec<Slot> {
        self.make_room(Tier::Device, pages.saturating_sub(self.device.free()));
        self.device.take(pages.min(self.device.free())).unwrap_or_default()
    }

    /// Makes room for so many pages on the host, of pages that no waiting request holds; returns how many there is room for.
    pub(crate) fn idle_host_room(&mut self, pages: usize) -> usize {
        self.host_room_but(pages, Spared::Waiting)
    }

    /// The same, without what is spared.
    pub(crate) fn host_room_but(&mut self, pages: usize, spared: Spared) -> usize {
        let missing = pages.saturating_sub(self.host.free());
        if missing > 0 {
            let out = self.tree.evict_but(Tier::Host, missing, spared);
            self.left(Tier::Host, &out);
        }
        pages.min(self.host.free())
    }

    pub(crate) fn make_room(&mut self, tier: Tier, pages: usize) -> Vec<Slot> {
        if pages == 0 {
            return Vec::new();
        }
        let out = self.tree.evict(tier, pages);
        self.left(tier, &out);
        out.slots
    }
}
