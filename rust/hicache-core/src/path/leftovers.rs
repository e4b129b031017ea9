//! The part of `prefetch`, `poll` and `evict` for host memory that outlives the process: what the process before this
//! one left in free slots is read where it is, and its records say what is there for the next one.
//!
//! A host slot has a record as long as a page of the tree is in it, a read of it is under way, or something is left in
//! it. On error: what can't be adopted is free, like any slot.

use crate::cache::HiCache;
use crate::hash::Digest;
use crate::host::SlotPool;
use crate::ids::{HostSlot, Slot, Tier};
use crate::path::parts::Room;
use crate::restart::Kept;
use crate::staging::Side;
use crate::tree::{By, Place};
use std::sync::Arc;

/// What became of the pages that the process before this one left on the host, in slots of all spaces.
/// `found` is the sum of `now`, `claimed`, `adopted` and `given_up`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Those that there were.
    pub found: u64,
    /// Those that are there now.
    pub now: u64,
    /// Those that are being verified for a request.
    pub claimed: u64,
    /// Became pages of this process, verified.
    pub adopted: u64,
    /// Given up: for room, because they were damaged, or because others had brought them.
    pub given_up: u64,
    /// Pages whose bytes or records were not what was written: most of them are among those given up.
    pub corrupt: u64,
}

impl HiCache {
    /// Host memory outlives the process: what is left in it, by space, may be adopted.
    pub(crate) fn keep(&mut self, kept: Kept, left: &[Vec<Slot>]) -> Arc<Kept> {
        let mut left = left.iter();
        let pools = std::iter::once(&mut self.host).chain(self.parts.iter_mut().map(|part| &mut part.host));
        for (pool, slots) in pools.zip(&mut left) {
            *pool = SlotPool::with_left(u32::try_from(pool.capacity()).unwrap_or(u32::MAX), slots);
        }
        self.executor.keep(kept)
    }

    /// What became of what was left on the host.
    pub fn leftovers(&self) -> Leftovers {
        let [found, corrupt] = self.executor.kept().map_or([0; 2], |kept| kept.counts());
        let mut leftovers = Leftovers { found, corrupt, ..Leftovers::default() };
        for pool in self.host_pools() {
            let ([now, claimed], [adopted, given_up]) = (pool.left(), pool.left_so_far());
            leftovers.now += now as u64;
            leftovers.claimed += claimed as u64;
            leftovers.adopted += adopted;
            leftovers.given_up += given_up;
        }
        leftovers
    }

    /// For people: where host memory outlives the process, and what was taken over; `None` where it doesn't.
    pub fn host_restart(&self) -> Option<String> {
        self.executor.kept().map(|kept| kept.describe())
    }

    /// Whether a prefetch can find anything: there is a store, or something is left on the host.
    pub(crate) fn can_fetch(&self) -> bool {
        let left = || self.host_pools().any(|pool| pool.left() != [0; 2]);
        self.storage && self.executor.kept().is_none_or(|kept| kept.behind() || left())
    }

    /// Host slots to read these pages into, for as many of the leading ones as there is room for: those they are in
    /// already, and others.
    pub(crate) fn slots_to_read(&mut self, keys: &[Digest]) -> Vec<Slot> {
        if self.stages() {
            return self.stage(Side::Reads, 0, keys.len());
        }
        self.leaves_by(By::Prefetch);
        let claimed = self.claim(0, keys);
        let missing = claimed.iter().filter(|slot| slot.is_none()).count();
        let room = if self.sparing { missing.min(self.host.free()) } else { self.idle_host_room(missing) };
        let mut others = self.host.take(room).unwrap_or_default().into_iter();
        let mut claimed = claimed.into_iter();
        let mut slots = Vec::with_capacity(keys.len());
        while let Some(slot) = claimed.next().and_then(|claimed| claimed.or_else(|| others.next())) {
            slots.push(slot);
        }
        claimed.flatten().for_each(|slot| {
            self.host.unclaim(slot);
        });
        slots
    }

    /// The same for pages and parts, all or none.
    pub(crate) fn room_to_read(&mut self, full: &[Digest], parts: &[Vec<Digest>]) -> Option<Room> {
        self.leaves_by(By::Prefetch);
        let keys = || std::iter::once(full).chain(parts.iter().map(Vec::as_slice));
        let claimed: Vec<Vec<Option<Slot>>> =
            (0..).zip(keys()).map(|(space, keys)| self.claim(space, keys)).collect();
        let missing: Vec<usize> =
            claimed.iter().map(|slots| slots.iter().filter(|slot| slot.is_none()).count()).collect();
        let there = !self.sparing || self.host_pools().zip(&missing).all(|(pool, &need)| need <= pool.free());
        let room = if there { self.room(Tier::Host, missing[0], &missing[1..]) } else { None };
        let Some(room) = room else {
            for (space, slots) in claimed.iter().enumerate() {
                slots.iter().flatten().for_each(|&slot| {
                    self.host_pool_mut(space).unclaim(slot);
                });
            }
            return None;
        };
        let merged = |claimed: Vec<Option<Slot>>, others: Vec<Slot>| {
            let mut others = others.into_iter();
            claimed.into_iter().filter_map(|slot| slot.or_else(|| others.next())).collect::<Vec<Slot>>()
        };
        let mut claimed = claimed.into_iter();
        let full = merged(claimed.next().unwrap_or_default(), room.full);
        Some(Room {
            full,
            parts: claimed.zip(room.parts).map(|(claimed, others)| merged(claimed, others)).collect(),
        })
    }

    /// For each of these pages the slot of a space that it was left in; nothing is left there from now on.
    fn claim(&mut self, space: u8, keys: &[Digest]) -> Vec<Option<Slot>> {
        let Some(kept) = self.executor.kept().filter(|_| self.can_fetch()) else {
            return vec![None; keys.len()];
        };
        let kept = Arc::clone(kept);
        let pool = self.host_pool_mut(usize::from(space));
        keys.iter().map(|key| kept.find(space, key).filter(|&slot| pool.claim(slot))).collect()
    }

    /// Slots that were to be read into are not needed: what was left in one of them still is, if it wasn't damaged.
    pub(crate) fn give_reads_of(&mut self, space: u8, slots: &[Slot]) {
        if self.stages() {
            let slots: Vec<HostSlot> = slots.iter().map(|&slot| HostSlot { space, slot }).collect();
            return self.unstage(Side::Reads, &slots);
        }
        let Some(kept) = self.executor.kept().cloned() else {
            return self.host_pool_mut(usize::from(space)).give_back(slots);
        };
        for &slot in slots {
            let at = HostSlot { space, slot };
            let pool = self.host_pool_mut(usize::from(space));
            if !(kept.is_sealed(at) && pool.unclaim(slot)) {
                kept.clear(at, None);
                pool.give_back(&[slot]);
            }
        }
    }

    /// Nothing is in these host slots any more.
    pub(crate) fn forget_slots(&self, space: usize, slots: &[Slot]) {
        let (Some(kept), Ok(space)) = (self.executor.kept(), u8::try_from(space)) else { return };
        slots.iter().for_each(|&slot| kept.clear(HostSlot { space, slot }, None));
    }

    /// All that the path to a place has on the host was used now, with the parts that its end needs.
    pub(crate) fn note_use(&self, place: Place) {
        let Some(kept) = self.executor.kept() else { return };
        let (turn, depth) = (kept.next_turn(), self.tree.resident_depth(place, Tier::Host));
        let end = self.tree.ancestor(place, depth);
        for (page, slot) in (1..).zip(self.tree.slots(end, 0..depth, Tier::Host)) {
            kept.note(HostSlot::full(slot), turn, page);
        }
        for (part, space) in (0..self.parts.len()).zip(1u8..) {
            for page in self.tree.needs_from(part, depth) + 1..=depth {
                let slot = self.tree.part_slot(part, Tier::Host, self.tree.ancestor(end, page));
                slot.into_iter().for_each(|slot| kept.note(HostSlot { space, slot }, turn, page));
            }
        }
    }

    /// The host slots of a space.
    pub(crate) fn host_pool_mut(&mut self, space: usize) -> &mut SlotPool {
        match space.checked_sub(1) {
            None => &mut self.host,
            Some(part) => &mut self.parts[part].host,
        }
    }
}
