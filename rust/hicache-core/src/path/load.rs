//! `load`: host → device, one for all requests of a forward. Returns at once; layers arrive in order.

use crate::cache::HiCache;
use crate::command::Command;
use crate::error::{Error, Result, argument};
use crate::explain::{Loaded as Given, Reason};
use crate::flights::Copy;
use crate::ids::{HitId, HostSlot, Slot, Tier};
use crate::path::prefetch::micros;
use crate::tree::{By, Hold, PinId, Place};
use crate::unified::GateId;

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
pub(super) struct Held {
    pub id: HitId,
    pub device: PinId,
    pub host: PinId,
    /// On the device, where what is usable there as it is ends, if windows or states say that this is before the
    /// other one: what is left if there is no room.
    pub ready: Option<PinId>,
}

/// Slots of staging that are copied from, and whether what is in them isn't believed stored.
#[derive(Default)]
pub(super) struct FromStaging {
    pub slots: Vec<HostSlot>,
    pub forgotten: bool,
}

/// What a load copies, and the pins that hold it meanwhile, with how many pages they are for.
#[derive(Default)]
pub(super) struct Copies {
    pub full: Vec<(Slot, Slot)>,
    /// For each part; none as long as there are none.
    pub parts: Vec<Vec<(Slot, Slot)>>,
    /// Where the host is staging: of each of these, the slots that are copied from, which are its own.
    pub staged: Vec<FromStaging>,
    /// Per hit that something is copied for: on the device and on the host.
    pub pins: Vec<(PinId, PinId, u32)>,
    /// In a unified buffer: what is copied for each of these and those before it, of FULL and of the part.
    pub ends: Vec<[usize; 2]>,
}

impl HiCache {
    /// Pins hits on the device and starts to copy there what is on the host, as far as there is room:
    /// with our own slots (evicting others' pages), or with those of an engine that owns them.
    /// A prefetch that is still undecided is given up. What is less than the configured threshold isn't copied.
    ///
    /// # Errors
    /// When a hit was released, is loaded or is named twice; when slots are given that are not the
    /// engine's to give, or none by an engine that owns them. Nothing was changed.
    pub fn load(&mut self, ids: &[HitId], given: Option<&[Slot]>) -> Result<Loaded> {
        self.load_within(ids, given, None)
    }

    /// The same with a budget: so many device pages at most may become unavailable by it, those that it copies and those
    /// that are there and that nobody else holds. A hit whose copies don't fit into what those before it left isn't copied:
    /// it ends with what is on the device, which is held in any case.
    ///
    /// # Errors
    /// The same.
    pub fn load_within(
        &mut self,
        ids: &[HitId],
        given: Option<&[Slot]>,
        budget: Option<usize>,
    ) -> Result<Loaded> {
        self.check_load(ids, given)?;
        self.leaves_by(By::Load);
        // All are held before room is made for any: none may go to make room for another.
        let before = budget.map_or(0, |_| self.tree.evictable(Tier::Device));
        let held = ids.iter().map(|&id| self.hold(id)).collect::<Result<Vec<Held>>>()?;
        let mut budget = budget.map(|pages| pages.saturating_sub(before - self.tree.evictable(Tier::Device)));
        let mut given = given.map(<[Slot]>::to_vec);
        if let Some(given) = &mut given {
            given.reverse();
        }
        let mut copies = Copies::default();
        for hit in held {
            if self.stages() {
                self.load_staged(hit, given.as_mut(), budget.as_mut(), &mut copies)?;
            } else if let Some(why) = self.declines(&hit, budget.as_mut()) {
                self.decline(hit, why, &mut copies)?;
            } else if self.parts.is_empty() {
                self.raise(hit, given.as_mut(), &mut copies)?;
            } else {
                self.raise_parts(hit, &mut copies)?;
            }
            if self.unified.is_some() {
                let end = [copies.full.len(), copies.parts.first().map_or(0, Vec::len)];
                copies.ends.resize(copies.pins.len(), end);
            }
        }
        if !copies.pins.is_empty() {
            self.flights.loads_submitted += 1;
            let ticket = self.flights.loads_submitted;
            let gates = self.open_gates(&copies);
            let mut pages = vec![copies.full];
            pages.append(&mut copies.parts);
            let pages = self.in_frames(pages);
            self.commands.push(Command::Load { ticket, pages });
            copies.staged.resize_with(copies.pins.len(), FromStaging::default);
            for (((device, host, pages), gate), staged) in
                copies.pins.into_iter().zip(gates).zip(copies.staged)
            {
                let (parts, store) = (Vec::new(), Vec::new());
                self.flights.loads.push_back(Copy {
                    ticket,
                    device,
                    host,
                    gate,
                    pages,
                    parts,
                    store,
                    writes: Vec::new(),
                    staged: staged.slots,
                    unstored: staged.forgotten,
                });
            }
        }
        for &id in ids {
            let end = self.tree.pinned(&self.hit(id)?.pin);
            self.found(id, end);
        }
        self.act();
        let mut unused = given.unwrap_or_default();
        unused.reverse();
        // Pages that an earlier load is still bringing count as on the device: wait for that one too.
        let ticket = if self.flights.loads.is_empty() { 0 } else { self.flights.loads_submitted };
        Ok(Loaded { ticket, unused })
    }

    /// One for each pin, as those land one by one.
    fn open_gates(&mut self, copies: &Copies) -> Vec<Option<GateId>> {
        let mut from = [0; 2];
        let mut gates = Vec::new();
        for &end in &copies.ends {
            let part = copies.parts.first().map_or(&[][..], |part| &part[from[1]..end[1]]);
            gates.push(self.open_gate([&copies.full[from[0]..end[0]], part].into_iter()));
            from = end;
        }
        gates.resize(copies.pins.len(), None);
        gates
    }

    /// Whether a load of these would be refused: for who decides something about it before.
    ///
    /// # Errors
    /// Those of [`HiCache::load`].
    pub fn check_load(&mut self, ids: &[HitId], given: Option<&[Slot]>) -> Result<()> {
        self.open()?;
        self.on_device()?;
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
        let found = self.find_again(id)?;
        let found = self.shortened(id, found)?;
        let place = self.tree.ancestor(found.place, found.usable);
        let on_device = self.tree.resident_depth(place, Tier::Device);
        let on_host = self.tree.resident_depth(place, Tier::Host);
        // With the windows before them, and the checkpoints at them.
        let device = self.tree.pin(self.tree.ancestor(place, on_device), Hold::Device);
        let host = self.tree.pin(self.tree.ancestor(place, on_host), Hold::Host);
        let ready = (found.device < on_device)
            .then(|| self.tree.pin(self.tree.ancestor(place, found.device), Hold::Device));
        self.stop_fetch(id, Some(self.why_loaded(id)));
        Ok(Held { id, device, host, ready })
    }

    /// Where a held hit ends: the deeper of its pins.
    pub(super) fn end(&self, held: &Held) -> Place {
        let ends = [&held.device, &held.host].map(|pin| self.tree.pinned(pin));
        if ends[0].depth < ends[1].depth { ends[1] } else { ends[0] }
    }

    fn raise(&mut self, held: Held, given: Option<&mut Vec<Slot>>, copies: &mut Copies) -> Result<()> {
        let place = self.end(&held);
        let Held { id, device, host, .. } = held;
        // A hit of the same batch may have brought some of it.
        let from = self.tree.resident_depth(place, Tier::Device);
        let missing = (place.depth - from) as usize;
        let slots = self.device_slots_for(missing, given);
        self.stats.load_no_room_pages += (missing - slots.len()) as u64;
        #[expect(clippy::cast_possible_truncation, reason = "no more slots than pages")]
        let to = from + slots.len() as u32;
        self.hit_mut(id)?.story.note(to..place.depth, Reason::DeviceFull);
        let sources = self.tree.slots(place, from..to, Tier::Host);
        let end = self.tree.raise(place, &slots);
        self.device.place(&slots);
        copies.full.extend(slots.into_iter().zip(sources));
        let end = self.tree.touch_exactly(end);
        if to > from {
            copies.pins.push((self.tree.move_pin(device, end), host, to - from));
        } else {
            self.tree.unpin(device);
            self.tree.unpin(host);
        }
        self.hold_loaded(id, end, from)
    }

    /// Device slots for so many pages, or as many as there are: an engine's, or our own.
    pub(super) fn device_slots_for(&mut self, pages: usize, given: Option<&mut Vec<Slot>>) -> Vec<Slot> {
        match given {
            Some(given) => given.split_off(given.len() - pages.min(given.len())).into_iter().rev().collect(),
            None => self.device_slots(pages),
        }
    }

    /// A hit is loaded and ends at `end`, of which so many pages were usable as they were.
    pub(super) fn hold_loaded(&mut self, id: HitId, end: Place, from: u32) -> Result<()> {
        let (pin, to, turn) = (self.tree.pin(end, Hold::Device), end.depth, self.tree.next_turn(end));
        let staged = self.stages();
        let hit = self.hits.get_mut(&id).ok_or(Error::Hit("was released"))?;
        let soft = [Some(std::mem::replace(&mut hit.pin, pin)), hit.also.take()];
        hit.loaded = true;
        hit.request.turn = turn;
        // Where the host is staging, whatever a load copies was read.
        let stored = hit.stored.end.min(to).saturating_sub(hit.stored.start.max(from));
        let fetched = if staged { to - from } else { stored };
        soft.into_iter().flatten().for_each(|soft| self.tree.unpin(soft));
        let loaded = Given { device: from, host: to - from - fetched, storage: fetched };
        (hit.story.loaded, hit.copied) = (Some(loaded), to - from);
        let (prompt, warm, first) = (hit.story.tokens, hit.warm, hit.first_asked);
        if !warm {
            self.count_hit(loaded, prompt);
            self.requests.waits.see(first.map_or(0, |first| micros(self.now - first)));
        }
        Ok(())
    }

    fn count_hit(&mut self, loaded: Given, prompt: u64) {
        let tokens = |pages: u32| u64::from(pages) * self.config.page_size.tokens() as u64;
        self.stats.loaded_requests += 1;
        self.stats.hit_device_tokens += tokens(loaded.device);
        self.stats.hit_storage_tokens += tokens(loaded.storage);
        self.stats.hit_host_tokens += tokens(loaded.host);
        self.stats.missed_tokens += prompt.saturating_sub(tokens(loaded.pages()));
        self.requests.prompts.see(prompt);
        let tiers = [loaded.device, loaded.host, loaded.storage];
        self.requests.hits.iter_mut().zip(tiers).for_each(|(hits, pages)| hits.see(tokens(pages)));
    }
}
