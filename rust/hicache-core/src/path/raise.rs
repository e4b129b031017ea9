//! The part of `load` for models with windows or states: pages and parts come together, or the hit ends where
//! everything is on the device already.

use crate::cache::HiCache;
use crate::error::Result;
use crate::explain::Reason;
use crate::ids::{Slot, Tier};
use crate::path::load::{Copies, Held};
use crate::tree::{Missing, Place};

impl HiCache {
    /// Brings all that a held hit misses on the device, if there is room for all of it; else the hit ends where it
    /// misses nothing.
    pub(super) fn raise_parts(&mut self, held: Held, copies: &mut Copies) -> Result<()> {
        let end = self.end(&held);
        // A hit of the same batch may have brought some of it.
        let full = end.depth - self.tree.resident_depth(end, Tier::Device);
        let components = 0..self.parts.len();
        let missing: Vec<Missing> =
            components.map(|part| self.tree.missing_up_to(part, Tier::Device, end, end.depth)).collect();
        let counts: Vec<usize> = missing.iter().map(|missing| missing.pages.len()).collect();
        let brings = full as usize + counts.iter().sum::<usize>() > 0;

        let ready = self.tree.pinned(held.ready.as_ref().unwrap_or(&held.device));
        let Some(room) = self.device_room(full as usize, &counts)? else {
            self.stats.load_no_room_pages += u64::from(full);
            self.hit_mut(held.id)?.story.note(ready.depth..end.depth, Reason::DeviceFull);
            for (pools, &count) in self.parts.iter_mut().zip(&counts) {
                pools.stats.load_no_room += count as u64;
            }
            return self.settle_held(held, ready, ready.depth, copies);
        };
        let sources = self.tree.slots(end, end.depth - full..end.depth, Tier::Host);
        let mut end = self.tree.raise(end, &room.full);
        self.device.place(&room.full);
        copies.full.extend(room.full.into_iter().zip(sources));
        copies.parts.resize_with(self.parts.len(), Vec::new);
        for (part, (missing, slots)) in missing.into_iter().zip(room.parts).enumerate() {
            end = self.bring(part, Tier::Device, end, &missing, &slots);
            self.parts[part].stats.loaded += slots.len() as u64;
            copies.parts[part].extend(slots.into_iter().zip(missing.slots));
        }
        let from = if brings { ready.depth } else { end.depth };
        self.settle_held(held, end, from, copies)
    }

    /// Gives what a part misses in a tier its slots there. The same place, under the name that it has then.
    pub(super) fn bring(
        &mut self,
        part: usize,
        tier: Tier,
        end: Place,
        missing: &Missing,
        slots: &[Slot],
    ) -> Place {
        let end = self.tree.ancestor(end, end.depth);
        if slots.is_empty() {
            return end;
        }
        let duplicates = self.tree.attach(part, tier, end, &missing.pages, slots);
        debug_assert!(duplicates.is_empty(), "what is missing isn't there");
        self.parts[part].pool_mut(tier).place(slots);
        self.tree.ancestor(end, end.depth)
    }

    /// A hit is loaded and ends at `end`, of which so many pages were usable as they were.
    pub(super) fn settle_held(
        &mut self,
        held: Held,
        end: Place,
        from: u32,
        copies: &mut Copies,
    ) -> Result<()> {
        let Held { id, device, host, ready } = held;
        let end = self.tree.touch_exactly(end);
        // Also where nothing was brought: else the pin would keep the windows of the whole edge that it ends on.
        let end = self.tree.split_before_windows(end);
        if end.depth > from {
            copies.pins.push((self.tree.move_pin(device, end), host, end.depth - from));
        } else {
            self.tree.unpin(device);
            self.tree.unpin(host);
        }
        ready.into_iter().for_each(|ready| self.tree.unpin(ready));
        self.hold_loaded(id, end, from)
    }
}
