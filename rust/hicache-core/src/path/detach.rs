//! `detach`: the engine takes its device memory back (to sleep, say); host and storage keep what they have.
//! [`HiCache::attach`] gives it other memory later.

use crate::cache::HiCache;
use crate::error::{Error, Result, argument};
use crate::host::SlotPool;
use crate::ids::Tier;
use crate::parts::DeviceSlots;
use crate::tree::By;

impl HiCache {
    /// Empties the device tier and lets go of its memory: when this returns, nobody reads or writes it any
    /// more. Pages that have no host copy are gone. Until device memory is attached again, nothing can be
    /// loaded, allocated or inserted; matches and prefetches go on. Returns the pages that were dropped.
    ///
    /// # Errors
    /// When it is detached already; while copies or forwards are under way, hits are loaded, or slots that
    /// the cache owns are with the engine. Nothing was changed.
    pub fn detach(&mut self) -> Result<usize> {
        self.open()?;
        // After a fault too: it is how a cache gets other memory, and goes on.
        if !self.attached() {
            return Err(Error::Detached);
        }
        if self.copying() > 0 {
            return argument("pools", "copies are under way: poll until they have landed, then detach");
        }
        if self.forwards() > 0 {
            let reason = format!("{} forwards are under way: end them, then detach", self.forwards());
            return argument("pools", reason);
        }
        let loaded = self.hits.values().filter(|hit| hit.loaded).count();
        if loaded > 0 {
            return argument("pools", format!("{loaded} hits are loaded: release them, then detach"));
        }
        let out = if self.config.engine_owns_slots { 0 } else { self.device.out() };
        if out > 0 {
            return argument("pools", format!("{out} device slots are out: free them, then detach"));
        }
        for (part, pools) in self.parts.iter().enumerate() {
            let (out, name) = (pools.device.out(), self.part_names()[part]);
            if out > 0 {
                let reason = format!("{out} device slots of {name} are out: free them, then detach");
                return argument("pools", reason);
            }
        }
        let before = self.stats.dropped_pages;
        self.leaves_by(By::Detach);
        self.make_room(Tier::Device, usize::MAX);
        if self.tree.resident(Tier::Device) > 0 {
            return Err(Error::Invariant("C4: device pages are pinned by nobody".to_owned()));
        }
        // The copier's threads end here.
        self.executor.detach();
        self.leave_device();
        self.act();
        Ok(usize::try_from(self.stats.dropped_pages - before).unwrap_or(usize::MAX))
    }

    /// Whether there is device memory.
    pub const fn attached(&self) -> bool {
        self.executor.attached()
    }

    /// # Errors
    /// When there is no device memory, or copies to and from it have failed for good.
    pub(crate) fn on_device(&self) -> Result<()> {
        match self.executor.fault() {
            Some(fault) => Err(Error::Device(fault)),
            None if self.attached() => Ok(()),
            None => Err(Error::Detached),
        }
    }

    /// The device tier has no slots.
    pub(crate) fn leave_device(&mut self) {
        self.device = SlotPool::new(0);
        self.unified = None;
        self.frames_version += 1;
        self.parts.iter_mut().for_each(|part| part.device = SlotPool::new(0));
    }

    /// The device tier has so many slots of each space, and no page.
    pub(crate) fn enter_device(&mut self, slots: &[u32], device: DeviceSlots) {
        self.config.resize(slots);
        self.parts.iter_mut().zip(device.parts).for_each(|(pools, device)| pools.device = device);
        (self.device, self.unified) = (device.full, device.unified);
        self.frames_version += 1;
        self.tell_saving();
        self.publish();
    }
}
