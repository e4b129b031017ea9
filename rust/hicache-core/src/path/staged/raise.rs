//! The part of a load from staging for models with windows and states: all that is staged for a boundary comes, or the hit ends
//! where everything is on the device already.
//!
//! On error: as `load`.

use crate::cache::HiCache;
use crate::error::Result;
use crate::explain::Reason;
use crate::ids::{HitId, Slot, Tier};
use crate::path::load::{Copies, FromStaging, Held};
use crate::path::parts::Room;
use crate::tree::{Hold, PinId, Place};

/// What of each part is copied: pages, and the slots that what it has of them waits in.
type Wanted = Vec<Vec<(u32, Slot)>>;

impl HiCache {
    pub(super) fn load_staged_parts(
        &mut self,
        held: Held,
        budget: Option<&mut usize>,
        copies: &mut Copies,
    ) -> Result<()> {
        let id = held.id;
        let found = self.find_again(id)?;
        self.drop_useless(id, found.place.depth);
        let (hit, ready) = (self.hit(id)?, found.device);
        let mut end = hit.staged.boundary;
        if end > ready && !self.boundary_holds(hit, found.place) {
            self.note_hole(id, ready..end);
            end = 0;
        }
        // All that the boundary counts on must stay while room is made.
        let at = self.tree.ancestor(found.place, ready.max(end.min(found.place.depth)));
        let path = self.tree.pin(at, Hold::Device);
        let room = if end > ready { self.room_for_staged(id, &path, ready..end, budget)? } else { None };
        let place = self.tree.pinned(&path);
        let (end, from) = if let Some((wanted, room)) = room {
            let end = self.bring_staged(id, place, &wanted, room, copies)?;
            let staged = std::mem::take(&mut self.hit_mut(id)?.staged);
            (end, FromStaging { slots: staged.all().collect(), forgotten: staged.forgotten })
        } else {
            self.unstage_all(id);
            (self.tree.ancestor(place, ready), FromStaging::default())
        };
        self.settle_held(held, end, ready, copies)?;
        self.tree.unpin(path);
        if copies.pins.len() > copies.staged.len() {
            copies.staged.push(from);
        }
        Ok(())
    }

    /// What is copied for the pages behind those that are ready, and room on the device for all of it; `None`: it isn't to
    /// be copied, or there is no room.
    fn room_for_staged(
        &mut self,
        id: HitId,
        path: &PinId,
        pages: std::ops::Range<u32>,
        budget: Option<&mut usize>,
    ) -> Result<Option<(Wanted, Room)>> {
        let (place, hit) = (self.tree.pinned(path), self.hit(id)?);
        let missing = |part: usize| {
            let space = u8::try_from(part + 1).unwrap_or(u8::MAX);
            let needed = self.tree.needs_from(part, pages.end)..pages.end;
            let needed = needed.filter(|&page| !self.has(part, place, page));
            needed.filter_map(|page| Some((page, hit.staged.part(space, page)?))).collect()
        };
        let wanted: Wanted = (0..self.parts.len()).map(missing).collect();
        let counts: Vec<usize> = wanted.iter().map(Vec::len).collect();
        let full = hit.staged.slots.len();
        let policy = hit.most.filter(|&most| most < pages.end).map(|most| Reason::DeclinedByPolicy {
            policy: self.asking.name.clone(),
            tokens: self.tokens(most as usize),
        });
        let why = policy.or_else(|| self.declines_so_many(full, counts.iter().sum(), budget));
        if let Some(why) = why {
            self.decline_staged(id, pages, why)?;
            return Ok(None);
        }
        let room = self.device_room(full, &counts)?;
        if room.is_none() {
            self.stats.load_no_room_pages += full as u64;
            for (pools, &count) in self.parts.iter_mut().zip(&counts) {
                pools.stats.load_no_room += count as u64;
            }
            self.hit_mut(id)?.story.note(pages, Reason::DeviceFull);
        }
        Ok(room.map(|room| (wanted, room)))
    }

    /// What is staged for a hit is on the device from now on, behind a place or on the path to it. Where it ends.
    fn bring_staged(
        &mut self,
        id: HitId,
        place: Place,
        wanted: &Wanted,
        room: Room,
        copies: &mut Copies,
    ) -> Result<Place> {
        let staged = &self.hit(id)?.staged;
        let (sources, forgotten) = (staged.slots.clone(), staged.forgotten);
        let end = self.raise_staged(id, place, &room.full)?;
        copies.full.extend(room.full.into_iter().zip(sources));
        copies.parts.resize_with(self.parts.len(), Vec::new);
        let mut end = self.tree.ancestor(end, end.depth);
        for (part, (wanted, slots)) in wanted.iter().zip(room.parts).enumerate() {
            if slots.is_empty() {
                continue;
            }
            let (pages, from): (Vec<u32>, Vec<Slot>) = wanted.iter().copied().unzip();
            let duplicates = self.tree.attach(part, Tier::Device, end, &pages, &slots);
            debug_assert!(duplicates.is_empty(), "what is missing isn't there");
            let pools = &mut self.parts[part];
            pools.device.place(&slots);
            pools.stats.loaded += slots.len() as u64;
            // Else nothing of it is written before it is there (`straight::parts`).
            if !forgotten {
                pages.iter().for_each(|&page| self.tree.store_part(part, end, page));
            }
            copies.parts[part].extend(slots.into_iter().zip(from));
            end = self.tree.ancestor(end, end.depth);
        }
        Ok(end)
    }
}
