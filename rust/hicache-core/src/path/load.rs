//! `load`: host → device, one for all requests of a forward. Returns at once; layers arrive in order.

use crate::cache::HiCache;
use crate::command::Command;
use crate::error::{Error, Result, argument};
use crate::flights::Copy;
use crate::ids::{HitId, Slot, Tier};
use crate::tree::{Hold, PinId};

/// What a load started.
#[derive(Debug, PartialEq, Eq)]
pub struct Loaded {
    /// What to wait for: the copies that bring these hits' pages, and all earlier ones. 0: nothing.
    pub ticket: u64,
    /// Given slots that were not needed.
    pub unused: Vec<Slot>,
}

/// A hit between its second look and its copies. Where it ends, the deeper one of its pins tells: another hit of
/// the batch may split the edge that it ends on.
struct Held {
    id: HitId,
    device: PinId,
    host: PinId,
}

impl HiCache {
    /// Pins hits on the device and starts to copy there what is on the host, as far as there is room:
    /// with our own slots (evicting others' pages), or with those of an engine that owns them.
    /// A prefetch that is still undecided is given up.
    ///
    /// # Errors
    /// When a hit was released, is loaded or is named twice; when slots are given that are not the
    /// engine's to give, or none by an engine that owns them. Nothing was changed.
    pub fn load(&mut self, ids: &[HitId], given: Option<&[Slot]>) -> Result<Loaded> {
        self.open()?;
        self.on_device()?;
        self.check_load(ids, given)?;
        // All are held before room is made for any: none may go to make room for another.
        let held = ids.iter().map(|&id| self.hold(id)).collect::<Result<Vec<Held>>>()?;
        let mut given = given.map(<[Slot]>::to_vec);
        if let Some(given) = &mut given {
            given.reverse();
        }
        let mut pages = Vec::new();
        let mut pins = Vec::new();
        for hit in held {
            self.raise(hit, given.as_mut(), &mut pages, &mut pins)?;
        }
        if !pages.is_empty() {
            self.flights.loads_submitted += 1;
            let ticket = self.flights.loads_submitted;
            self.commands.push(Command::Load { ticket, pages: vec![pages] });
            for (device, host, pages) in pins {
                self.flights.loads.push_back(Copy { ticket, device, host, pages, store: Vec::new() });
            }
        }
        self.act();
        let mut unused = given.unwrap_or_default();
        unused.reverse();
        // Pages that an earlier load is still bringing count as on the device: wait for that one too.
        let ticket = if self.flights.loads.is_empty() { 0 } else { self.flights.loads_submitted };
        Ok(Loaded { ticket, unused })
    }

    fn check_load(&mut self, ids: &[HitId], given: Option<&[Slot]>) -> Result<()> {
        let mut seen = hashbrown::HashSet::new();
        for &id in ids {
            if self.hit(id)?.loaded {
                return Err(Error::Hit("is loaded already"));
            }
            if !seen.insert(id) {
                return argument("hits", "one of them is named twice");
            }
        }
        match (given, self.config.engine_owns_slots) {
            (Some(slots), true) => self.device.check_out("slots", slots),
            (None, false) => Ok(()),
            (None, true) => argument("slots", "the engine owns the slots: pass some for the load"),
            (Some(_), false) => argument("slots", "the cache owns the slots: pass none"),
        }
    }

    /// Looks again and holds what is usable: less or more than the match found.
    fn hold(&mut self, id: HitId) -> Result<Held> {
        let place = self.find_again(id)?;
        let on_device = self.tree.resident_depth(place, Tier::Device);
        let on_host = self.tree.resident_depth(place, Tier::Host);
        let device = self.tree.pin(self.tree.ancestor(place, on_device), Hold::Device);
        let host = self.tree.pin(self.tree.ancestor(place, on_host), Hold::Host);
        self.hit_mut(id)?.stop_fetch();
        Ok(Held { id, device, host })
    }

    fn raise(
        &mut self,
        held: Held,
        given: Option<&mut Vec<Slot>>,
        pages: &mut Vec<(Slot, Slot)>,
        pins: &mut Vec<(PinId, PinId, u32)>,
    ) -> Result<()> {
        let Held { id, device, host } = held;
        let ends = [&device, &host].map(|pin| self.tree.pinned(pin));
        let place = if ends[0].depth < ends[1].depth { ends[1] } else { ends[0] };
        // A hit of the same batch may have brought some of it.
        let from = self.tree.resident_depth(place, Tier::Device);
        let missing = (place.depth - from) as usize;
        let slots = match given {
            Some(given) => {
                given.split_off(given.len() - missing.min(given.len())).into_iter().rev().collect()
            }
            None => self.device_slots(missing),
        };
        self.stats.load_no_room_pages += (missing - slots.len()) as u64;
        #[expect(clippy::cast_possible_truncation, reason = "no more slots than pages")]
        let to = from + slots.len() as u32;
        let sources = self.tree.slots(place, from..to, Tier::Host);
        let end = self.tree.raise(place, &slots);
        self.device.place(&slots);
        pages.extend(slots.into_iter().zip(sources));
        let end = self.tree.touch_exactly(end);
        let turn = self.tree.next_turn(end);

        let pin = self.tree.pin(end, Hold::Device);
        if to > from {
            pins.push((self.tree.move_pin(device, end), host, to - from));
        } else {
            self.tree.unpin(device);
            self.tree.unpin(host);
        }
        let hit = self.hits.get_mut(&id).ok_or(Error::Hit("was released"))?;
        let soft = [Some(std::mem::replace(&mut hit.pin, pin)), hit.also.take()];
        (hit.loaded, hit.copied) = (true, to - from);
        hit.request.turn = turn;
        let fetched = (hit.stored.end.min(to)).saturating_sub(hit.stored.start.max(from));
        soft.into_iter().flatten().for_each(|soft| self.tree.unpin(soft));
        self.count_hit(from, to, fetched);
        Ok(())
    }

    fn count_hit(&mut self, from: u32, to: u32, fetched: u32) {
        let tokens = |pages: u32| u64::from(pages) * self.config.page_size.tokens() as u64;
        self.stats.hit_device_tokens += tokens(from);
        self.stats.hit_storage_tokens += tokens(fetched);
        self.stats.hit_host_tokens += tokens(to - from - fetched);
    }
}
