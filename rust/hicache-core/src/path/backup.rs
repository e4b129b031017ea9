//! `backup`: device → host, parents first. Windows and states are backed up by themselves, too: with pages that were
//! backed up long before. When it is done is decided in `write` and `reserve`, what follows in `store`.

use crate::cache::HiCache;
use crate::error::{Error, Result};
use crate::flights::{Copy, ToStore};
use crate::ids::{HitId, HostSlot, Slot, Tier};
use crate::policy::HostCopies;
use crate::tree::{By, Hold, Missing, PinId, Place, Spared};
use std::ops::Range;

/// Whose room a backup may take, and whether what finds none is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// Whatever may leave the host.
    First,
    /// The same, once more.
    Again,
    /// No copies of what is on the device. Two paths that don't fit beside one another would make each other's leave for
    /// ever; what has none when it leaves the device is the reserve's.
    Alone,
    /// Nothing that is kept back for the device's next leaves.
    Spared,
}

impl Room {
    const fn spared(self) -> Spared {
        match self {
            Self::First | Self::Again => Spared::Nothing,
            Self::Alone => Spared::Copies,
            Self::Spared => Spared::Reserve,
        }
    }
}

impl HiCache {
    /// Copies what of a loaded hit is not on the host there, as far as there is room: pages, and the window and the
    /// state at its end. Returns how many slots' copies were started. `insert` does so by itself.
    ///
    /// # Errors
    /// When the hit was released or isn't loaded, or copies have failed for good.
    pub fn backup(&mut self, id: HitId) -> Result<usize> {
        self.open()?;
        let hit = self.hit(id)?;
        if !hit.loaded {
            return Err(Error::Hit("is not loaded: nothing of it is held on the device"));
        }
        self.on_device()?;
        let slots = self.back_up_path(self.tree.pinned(&hit.pin));
        self.act();
        Ok(slots)
    }

    /// Starts the backup of what a path has on the device and not on the host. What finds no room is remembered.
    pub(crate) fn back_up_path(&mut self, place: Place) -> usize {
        if self.stages() {
            return self.write_straight(place);
        }
        // What of it is on the host alone may leave for the rest.
        let end = self.tree.cursor(place);
        let (slots, lacking) = self.back_up(place, Room::First);
        if lacking {
            self.remember(end, false);
        }
        slots
    }

    /// The same of what found no room before, which was counted then. Others' copies leave for it once.
    pub(crate) fn back_up_again(&mut self, place: Place, alone: bool) {
        let end = self.tree.cursor(place);
        let (slots, lacking) = self.back_up(place, if alone { Room::Alone } else { Room::Again });
        if lacking {
            self.remember(end, alone || slots > 0);
        }
    }

    /// The same for what is about to leave the device, in room that nothing of that kind has to make.
    pub(crate) fn back_up_sparing(&mut self, place: Place) -> usize {
        self.back_up(place, Room::Spared).0
    }

    /// How many slots' copies were started, and whether some found no room.
    fn back_up(&mut self, place: Place, how: Room) -> (usize, bool) {
        let from = self.tree.resident_depth(place, Tier::Host);
        let on_device = self.tree.resident_depth(place, Tier::Device);
        let missing = on_device.saturating_sub(from) as usize;
        let nothing = self.stages()
            || self.host.capacity() == 0
            || (missing == 0 && self.parts.is_empty())
            || self.tree.is_past(place);
        // What is on the device after a fault may never have arrived there.
        if nothing || self.executor.fault().is_some() {
            return (0, false);
        }
        self.leaves_by(By::Backup);
        // The sources must not go while room is made; nor may the copies, which hang on them.
        let device = self.tree.pin(self.tree.ancestor(place, on_device), Hold::Device);
        let beside = self.hold_beside(&device, from, missing);
        let room = self.host_room_but(missing, how.spared());
        // What a reserve finds no room for is tried again at each poll.
        self.stats.backup_no_room_pages += if how == Room::First { (missing - room) as u64 } else { 0 };
        let slots = self.host.take(room).unwrap_or_default();
        #[expect(clippy::cast_possible_truncation, reason = "no more slots than pages")]
        let pages = from..from + slots.len() as u32;
        let (parts, whole) = self.room_beside(&device, pages.end, how);
        let lacking = room < missing || !whole;
        beside.into_iter().for_each(|beside| self.tree.unpin(beside));
        let count = slots.len() + parts.iter().map(|(_, slots)| slots.len()).sum::<usize>();
        if count == 0 {
            self.tree.unpin(device);
            return (0, lacking);
        }
        let place = self.tree.pinned(&device);
        let sources = self.tree.slots(place, pages.clone(), Tier::Device);
        if !slots.is_empty() {
            self.tree.mirror(place, &slots);
        }
        let mut end = self.tree.ancestor(place, pages.end.min(place.depth));
        self.host.place(&slots);
        let mut copies = vec![sources.into_iter().zip(slots.iter().copied()).collect()];
        let mut store = Vec::new();
        let mut beside = Vec::with_capacity(parts.len());
        for (part, (missing, slots)) in parts.into_iter().enumerate() {
            end = self.bring(part, Tier::Host, end, &missing, &slots);
            if self.storage {
                store.extend(self.in_space(part, &slots));
            }
            self.parts[part].stats.backed_up += slots.len() as u64;
            copies.push(missing.slots.into_iter().zip(slots.iter().copied()).collect());
            beside.push(slots);
        }
        let device = self.tree.move_pin(device, end);
        self.note_use(self.tree.pinned(&device));
        // The pin has split an edge that it ends inside of.
        let host = self.tree.pin(self.tree.pinned(&device), Hold::Host);
        self.stats.backed_up_pages += slots.len() as u64;
        let gate = self.open_gate(copies.iter().map(Vec::as_slice));
        let copies = self.in_frames(copies);
        let ticket = self.join_backup(copies);
        self.flights.backups.push_back(Copy {
            ticket,
            device,
            host,
            gate,
            pages: pages.end - pages.start,
            parts: beside,
            store,
            writes: Vec::new(),
            staged: Vec::new(),
            unstored: false,
        });
        (count, lacking)
    }

    /// With parts, what is on the host already must not go to make room for what comes: the one is worth nothing
    /// without the other. Where copies give way, neither may those that these hang on.
    fn hold_beside(&mut self, device: &PinId, on_host: u32, missing: usize) -> Option<PinId> {
        let stays = self.config.writing.host_copies == HostCopies::Keep || missing <= self.host.free();
        if self.parts.is_empty() && stays {
            return None;
        }
        let place = self.tree.pinned(device);
        Some(self.tree.pin(self.tree.ancestor(place, on_host.min(place.depth)), Hold::Host))
    }

    /// What the parts miss on the host at the end of what is or comes there of a path, as far as there is room for
    /// all that one part misses, and slots for it; and whether that is all.
    fn room_beside(&mut self, device: &PinId, on_host: u32, how: Room) -> (Vec<(Missing, Vec<Slot>)>, bool) {
        let (mut room, mut whole) = (Vec::new(), true);
        for part in 0..self.parts.len() {
            let place = self.tree.pinned(device);
            let end = self.tree.ancestor(place, on_host.min(place.depth));
            let missing = self.tree.missing_up_to(part, Tier::Host, end, end.depth);
            let count = missing.pages.len();
            let slots = self.part_room_but(part, count, how.spared());
            if slots.is_none() {
                whole = false;
                self.parts[part].stats.backup_no_room += if how == Room::First { count as u64 } else { 0 };
            }
            room.push(slots.map_or_else(|| (Missing::default(), Vec::new()), |slots| (missing, slots)));
        }
        (room, whole)
    }

    /// Pages on the path to `end`, as they are stored from these slots.
    pub(super) fn pages_to_store(&self, end: Place, pages: Range<u32>, slots: &[Slot]) -> Vec<ToStore> {
        let before = pages.start.checked_sub(1).and_then(|_| {
            let parent = self.tree.ancestor(end, pages.start);
            self.tree.last_digest(parent)
        });
        let digests = self.tree.digests(end, pages);
        let parents = std::iter::once(before).chain(digests.iter().copied().map(Some));
        let to_store = |((&digest, parent), &slot)| ToStore { digest, parent, slot: HostSlot::full(slot) };
        digests.iter().zip(parents).zip(slots).map(to_store).collect()
    }

    /// What a part has of pages on the path to `end`, likewise.
    pub(super) fn part_to_store(
        &self,
        part: usize,
        end: Place,
        pages: &[u32],
        slots: &[Slot],
    ) -> Vec<ToStore> {
        let (keys, slots) = (self.part_keys(part, end, pages), self.in_space(part, slots));
        let to_store = |((digest, page), slot)| ToStore { digest, parent: Some(page), slot };
        keys.into_iter().zip(self.page_digests(end, pages)).zip(slots).map(to_store).collect()
    }
}
