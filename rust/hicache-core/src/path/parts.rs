//! Slots of parts (windows, recurrent states): allocated, freed and evicted like those of pages; and room for
//! pages and parts together, all or nothing.

use crate::cache::HiCache;
use crate::error::{Error, Result, argument};
use crate::host::SlotPool;
use crate::ids::{Slot, Tier};
use crate::parts::{PartPools, PartStats};
use crate::policy::Order;
use crate::tree::{By, Evicted, Spared};

/// Slots that were taken together.
#[derive(Debug, Default)]
pub(crate) struct Room {
    pub full: Vec<Slot>,
    /// For each part.
    pub parts: Vec<Vec<Slot>>,
}

impl HiCache {
    /// The parts' names, in order: a part is called by its number from here on.
    pub fn part_names(&self) -> Vec<&str> {
        self.config.part_names()
    }

    /// A part's slots in a tier, to look at.
    ///
    /// # Errors
    /// When there is no such part.
    pub fn part_slots(&self, part: usize, tier: Tier) -> Result<&SlotPool> {
        Ok(self.part(part)?.pool(tier))
    }

    /// What was counted of a part so far.
    ///
    /// # Errors
    /// When there is no such part.
    pub fn part_stats(&self, part: usize) -> Result<&PartStats> {
        Ok(&self.part(part)?.stats)
    }

    /// Device slots of a part; evicts what it must. `None`: there is no such room, as [`HiCache::allocate`] says.
    ///
    /// # Errors
    /// When there is no such part, or no device memory.
    pub fn allocate_part(&mut self, part: usize, count: usize) -> Result<Option<Vec<Slot>>> {
        self.open()?;
        self.on_device()?;
        self.part(part)?;
        self.leaves_by(By::Allocate);
        let slots = if self.unified.is_some() {
            self.device_room(0, &[count])?.and_then(|mut room| room.parts.pop())
        } else {
            self.part_room(part, Tier::Device, count)
        };
        self.act();
        Ok(slots)
    }

    /// Gives device slots of a part back that the tree has not adopted.
    ///
    /// # Errors
    /// When there is no such part; when a slot doesn't exist, is free, belongs to the tree or is named twice.
    /// Nothing was changed.
    pub fn free_part(&mut self, part: usize, slots: &[Slot]) -> Result<()> {
        self.check_part_out("slots", part, slots)?;
        self.parts[part].device.give_back(slots);
        self.leave_frames(part + 1, slots);
        Ok(())
    }

    /// Takes so many slots of a part out of a tier, or as many as can go, and returns them: they are free then.
    /// Inside the tree only the part's own state goes, at a leaf everything goes together.
    ///
    /// # Errors
    /// When there is no such part, or the cache is closed.
    pub fn evict_part(&mut self, part: usize, tier: Tier, count: usize) -> Result<Vec<Slot>> {
        self.open()?;
        self.part(part)?;
        self.leaves_by(By::Evict);
        let mut out = self.tree.evict_component(part, tier, count);
        self.left(tier, &out);
        self.act();
        Ok(out.parts.swap_remove(part))
    }

    pub(crate) fn part(&self, part: usize) -> Result<&PartPools> {
        let Some(pools) = self.parts.get(part) else {
            return argument("part", format!("there is no part {part}: the cache has {}", self.parts.len()));
        };
        Ok(pools)
    }

    /// # Errors
    /// When the engine hasn't got one of these slots of a part, which it gave as `argument`.
    pub(crate) fn check_part_out(
        &mut self,
        argument: &'static str,
        part: usize,
        slots: &[Slot],
    ) -> Result<()> {
        self.part(part)?;
        let checked = self.parts[part].device.check_out(argument, slots);
        checked.map_err(|error| match error {
            Error::Argument { argument, reason } => {
                let name = self.config.part_names()[part].to_owned();
                Error::Argument { argument, reason: format!("{name}: {reason}") }
            }
            other => other,
        })
    }

    /// What left a tier: slots are free again, or wait until the engine that owns them is told.
    pub(crate) fn left(&mut self, tier: Tier, out: &Evicted) {
        if tier == Tier::Device && self.unified.is_some() {
            self.leave_frames(0, &out.slots);
            (1..).zip(&out.parts).for_each(|(space, slots)| self.leave_frames(space, slots));
        }
        self.book(tier, out);
    }

    /// The books of it.
    pub(crate) fn book(&mut self, tier: Tier, out: &Evicted) {
        let (pool, counter) = match tier {
            Tier::Device => (&mut self.device, &mut self.stats.evicted_device_pages),
            Tier::Host => (&mut self.host, &mut self.stats.evicted_host_pages),
        };
        *counter += out.slots.len() as u64;
        self.stats.dropped_pages += out.dropped as u64;
        match tier {
            Tier::Device => self.stats.dropped_unsaved_pages += out.unsaved as u64,
            Tier::Host => self.stats.dropped_unstored_pages += out.unsaved as u64,
        }
        pool.displace(&out.slots);
        // Of slots that the engine owns, those are free that it wasn't told of yet.
        pool.give_back(&out.slots);
        if tier == Tier::Host {
            self.forget_slots(0, &out.slots);
        }
        // What gives way is on the device, and no loss to storage.
        self.left_for_room(Order::full(tier), out.dropped);
        for (part, slots) in out.parts.iter().enumerate() {
            self.book_part(part, tier, slots);
        }
    }

    /// What of one part left a tier.
    pub(crate) fn part_left(&mut self, part: usize, tier: Tier, slots: &[Slot]) {
        if tier == Tier::Device {
            self.leave_frames(part + 1, slots);
        }
        self.book_part(part, tier, slots);
    }

    fn book_part(&mut self, part: usize, tier: Tier, slots: &[Slot]) {
        let pools = &mut self.parts[part];
        pools.pool_mut(tier).displace(slots);
        pools.pool_mut(tier).give_back(slots);
        let counter = match tier {
            Tier::Device => &mut pools.stats.evicted_device,
            Tier::Host => &mut pools.stats.evicted_host,
        };
        *counter += slots.len() as u64;
        self.left_for_room(Order::of(part, tier), slots.len());
        if tier == Tier::Host {
            self.forget_slots(part + 1, slots);
        }
    }

    /// Slots of a part in a tier, all or none: a try that fails must not cost what others could hit.
    pub(crate) fn part_room(&mut self, part: usize, tier: Tier, count: usize) -> Option<Vec<Slot>> {
        let lacking = self.lacking(part, tier, count)?;
        if lacking > 0 {
            let out = self.tree.evict_component(part, tier, lacking);
            self.left(tier, &out);
        }
        self.parts[part].pool_mut(tier).take(count)
    }

    /// The same on the host, without what is spared.
    pub(crate) fn part_room_but(&mut self, part: usize, count: usize, spared: Spared) -> Option<Vec<Slot>> {
        let lacking = self.lacking(part, Tier::Host, count)?;
        if lacking > 0 {
            let out = self.tree.evict_component_but(part, Tier::Host, lacking, spared);
            self.left(Tier::Host, &out);
        }
        self.parts[part].host.take(count)
    }

    /// Slots of pages and of all parts in a tier, all or none.
    pub(crate) fn room(&mut self, tier: Tier, pages: usize, parts: &[usize]) -> Option<Room> {
        let lacking = pages.saturating_sub(self.slots(tier).free());
        if lacking > 0 && !self.tree.can_evict(tier, lacking) {
            return None;
        }
        for (part, &count) in parts.iter().enumerate() {
            self.lacking(part, tier, count)?;
        }
        // What leaves with a page only adds to what is free: whatever could be had before can still be had.
        self.make_room(tier, lacking);
        let mut room = Room::default();
        for (part, &count) in parts.iter().enumerate() {
            let Some(slots) = self.part_room(part, tier, count) else {
                self.give_room_back(tier, &room);
                return None;
            };
            room.parts.push(slots);
        }
        let pool = if tier == Tier::Device { &mut self.device } else { &mut self.host };
        let Some(full) = pool.take(pages) else {
            self.give_room_back(tier, &room);
            return None;
        };
        Some(Room { full, ..room })
    }

    fn give_room_back(&mut self, tier: Tier, room: &Room) {
        for (pools, slots) in self.parts.iter_mut().zip(&room.parts) {
            pools.pool_mut(tier).give_back(slots);
        }
        if tier == Tier::Host {
            (1..).zip(&room.parts).for_each(|(space, slots)| self.forget_slots(space, slots));
        }
    }

    /// How many slots of a part must leave for so many to be free; `None`: they can't.
    fn lacking(&mut self, part: usize, tier: Tier, count: usize) -> Option<usize> {
        let lacking = count.saturating_sub(self.parts[part].pool(tier).free());
        (lacking == 0 || self.tree.can_evict_component(part, tier, lacking)).then_some(lacking)
    }
}
