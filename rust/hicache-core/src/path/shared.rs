//! The part of `allocate` and `load` for a unified buffer: room is made in the buffer, pages move for it, and copies
//! name frames that stay where they are until they have landed.
//!
//! Moves are decided here and carried out with the verb's other commands, before these: whatever lands, and whatever
//! the engine does next, finds the bytes where the tables say. That is why a move's gate closes at once: what it
//! fills is touched by nothing under way (the gates of copies and forwards see to it), and commands keep their order.
//! The engine reads the tables ([`HiCache::frames`]) before each forward. One that is under way while it allocates or
//! loads needs a gate: `forward`.
//!
//! On error: a slot that the buffer doesn't have in use is a bug of this library.

use crate::cache::HiCache;
use crate::command::Command;
use crate::config::Config;
use crate::error::{Error, Result, argument};
use crate::host::SlotPool;
use crate::ids::{Slot, Tier};
use crate::parts::ENDS;
use crate::path::parts::Room;
use crate::room::{self, Wanted};
use crate::transfer::SpacePages;
use crate::unified::{End, Gate, GateId, Relief, Unified};

/// The space of an end.
const fn space(end: End) -> u32 {
    match end {
        End::Down => 0,
        End::Up => 1,
    }
}

impl HiCache {
    /// The unified buffer, to look at; `None` where each space has memory of its own, and while detached.
    pub const fn unified(&self) -> Option<&Unified> {
        self.unified.as_ref()
    }

    /// The frames of a space (0: the cache's own, 1: the part's) by slot, for the engine's page tables: slot 0 is the
    /// sink, -1 where a slot is not in use, one row of -1 at the end. True until [`HiCache::frames_version`] changes.
    ///
    /// # Errors
    /// When there is no such space, device memory is not one unified buffer, or is detached.
    pub fn frames(&self, space: usize) -> Result<&[i32]> {
        if self.config.unified.is_none() {
            return argument("unified", "slots are frames: device memory is not one buffer");
        }
        let buffer = self.unified.as_ref().ok_or(Error::Detached)?;
        match ENDS.get(space) {
            Some(&end) => Ok(buffer.table(end)),
            None => argument("space", format!("there is no space {space}: the buffer has 2")),
        }
    }

    /// Changes whenever a frame of any slot does. Never goes down.
    pub const fn frames_version(&self) -> u64 {
        self.frames_version
    }

    /// Slots of a space that can be had on the device without an eviction: what is free or, of a unified buffer, what
    /// its gap and the holes of both ends are room for. The two spaces of such a buffer can't have theirs both.
    pub fn device_free(&self, space: usize) -> usize {
        match (&self.unified, ENDS.get(space)) {
            (Some(buffer), Some(&end)) => buffer.schedulable(end),
            _ => self.device_pool(space).map_or(0, SlotPool::free),
        }
    }

    pub(crate) fn device_pool(&self, space: usize) -> Option<&SlotPool> {
        match space.checked_sub(1) {
            None => Some(&self.device),
            Some(part) => self.parts.get(part).map(|pools| &pools.device),
        }
    }

    /// Slots of pages and of all parts on the device, all or none.
    pub(crate) fn device_room(&mut self, pages: usize, parts: &[usize]) -> Result<Option<Room>> {
        match parts {
            &[parts] if self.unified.is_some() => self.shared_room(Wanted { pages, parts }),
            _ => Ok(self.room(Tier::Device, pages, parts)),
        }
    }

    /// The same in the buffer. What it evicted and moved for it stays so also where there is none: then the room is there
    /// once the forwards that are under way are through.
    fn shared_room(&mut self, wanted: Wanted) -> Result<Option<Room>> {
        let Some(buffer) = &mut self.unified else { return Ok(None) };
        let (answer, gone) = room::make_room(&mut self.tree, buffer, 0, wanted)?;
        self.frames_version += 1;
        self.book(Tier::Device, &gone);
        if answer != room::Room::Made {
            return Ok(None);
        }
        let Some(full) = self.take_frames(End::Down, wanted.pages)? else { return Ok(None) };
        let Some(part) = self.take_frames(End::Up, wanted.parts)? else {
            self.device.give_back(&full);
            self.return_frames(End::Down, &full);
            return Ok(None);
        };
        Ok(Some(Room { full, parts: vec![part] }))
    }

    /// Slots at an end of the buffer that eviction has made room for: pages of the other end move out of the way.
    fn take_frames(&mut self, end: End, count: usize) -> Result<Option<Vec<Slot>>> {
        let Some(buffer) = &mut self.unified else { return Ok(None) };
        loop {
            match buffer.relieve(end, count) {
                Relief::Ready => break,
                Relief::Moves(moves) => {
                    let frames = moves.list.iter().map(|one| (Slot(one.from.0), Slot(one.to.0))).collect();
                    self.commands.push(Command::Move { space: space(moves.end), frames });
                    self.stats.moved_pages += moves.list.len() as u64;
                    buffer.close(moves.gate)?;
                }
                Relief::Wait(_) | Relief::Short => return Ok(None),
            }
        }
        let slots = buffer.take(end, count);
        if let Some(slots) = &slots {
            let pool = match end {
                End::Down => Some(&mut self.device),
                End::Up => self.parts.first_mut().map(|part| &mut part.device),
            };
            pool.into_iter().for_each(|pool| pool.hand_out(slots));
        }
        Ok(slots)
    }

    /// Device slots of a space are free again: the buffer has their frames back, unless something under way may still
    /// touch them.
    pub(crate) fn leave_frames(&mut self, space: usize, slots: &[Slot]) {
        if let Some(&end) = ENDS.get(space) {
            self.return_frames(end, slots);
        }
    }

    fn return_frames(&mut self, end: End, slots: &[Slot]) {
        if let Some(buffer) = &mut self.unified {
            let returned = buffer.give_back(end, slots);
            debug_assert!(returned.is_ok(), "slots that the books had in use: {returned:?}");
            self.frames_version += 1;
        }
    }

    /// A copy of these pages begins: it names their frames, which they keep until its gate closes. Where each space has
    /// memory of its own, slots are frames.
    pub(crate) fn open_gate<'a>(
        &mut self,
        pages: impl Iterator<Item = &'a [(Slot, Slot)]>,
    ) -> Option<GateId> {
        let buffer = self.unified.as_mut()?;
        let of_space =
            |(&end, pages): (&End, &'a [(Slot, Slot)])| pages.iter().map(move |&(device, _)| (end, device));
        let touched = ENDS.iter().zip(pages).flat_map(of_space).collect();
        let gate = buffer.open(Gate::Transfer(touched));
        // Loud: without its gate, pages could move under a copy.
        assert!(gate.is_ok(), "C5: a copy of slots that are not in use: {gate:?}");
        gate.ok()
    }

    /// A copy has landed, or never will.
    pub(crate) fn close_gate(&mut self, gate: Option<GateId>) {
        if let (Some(buffer), Some(gate)) = (&mut self.unified, gate) {
            let closed = buffer.close(gate);
            debug_assert!(closed.is_ok(), "a gate that its copy holds: {closed:?}");
        }
    }

    /// Pages of a copy as its command names them.
    pub(crate) fn in_frames(&self, mut pages: SpacePages) -> SpacePages {
        if let Some(buffer) = &self.unified {
            for (&end, pages) in ENDS.iter().zip(&mut pages) {
                for (device, _) in pages {
                    let frame = buffer.frame(end, *device);
                    // Loud: a slot's number taken for a frame would be another page's bytes.
                    assert!(frame.is_some(), "C5: a copy of a slot that is not in use");
                    frame.into_iter().for_each(|frame| *device = Slot(frame.0));
                }
            }
        }
        pages
    }

    /// Whether the buffer has exactly those slots in use that are with the engine or a page's; and no gate that neither
    /// a copy nor a forward holds.
    ///
    /// # Errors
    /// What of it doesn't hold.
    pub(crate) fn check_buffer(&self) -> Result<()> {
        let Some(buffer) = &self.unified else { return Ok(()) };
        buffer.check()?;
        for (at, &end) in ENDS.iter().enumerate() {
            let Some(pool) = self.device_pool(at) else { continue };
            let used = |slot: u32| buffer.frame(end, Slot(slot)).is_some() != pool.is_free(Slot(slot));
            let all = (1..=buffer.geometry().slots(end)).all(used);
            if !all || pool.capacity() != buffer.geometry().slots(end) as usize {
                return Err(Error::Invariant(format!("C5: slots of {end:?} are out without a frame")));
            }
        }
        if buffer.gates() != self.flights.gates() + self.forwards.len() {
            return Err(Error::Invariant("C5: gates without a copy or a forward".to_owned()));
        }
        Ok(())
    }

    /// # Errors
    /// When pages of a unified buffer must move, and this copier doesn't move them.
    pub(crate) fn check_moves(config: &Config, moves: bool) -> Result<()> {
        if config.unified.is_some() && !moves {
            return argument("unified", "this copier doesn't move pages inside device memory");
        }
        Ok(())
    }
}
