//! The part of `prefetch` for models with windows or states: which prefix becomes usable with what the store has,
//! and reading exactly what that one needs.
//!
//! ```text
//!  FULL     on the host ######|sssss-sss|      s: in the store
//!  window         ...#...##s.ss..ss.|          what is here and what the store has count alike, page by page
//!  state          .......*....s..s..|
//!                            ^ the deepest boundary at which all agree: read up to there, and no window but the last
//! ```

use crate::cache::HiCache;
use crate::error::Result;
use crate::flights::What;
use crate::hash::{self, Digest};
use crate::hit::{Asked, Fetch, Keys};
use crate::ids::{HitId, HostSlot, Slot, Tier};
use crate::path::parts::Room;
use crate::path::prefetch::BATCH_PAGES;
use crate::tree::{Ballot, Found, Hold, Place};

/// What is read for one boundary.
pub(super) struct Reads {
    /// Those that follow the ones on the host.
    pub full: Vec<Asked>,
    /// For each part.
    pub parts: Vec<Vec<Asked>>,
    pub room: Room,
}

impl HiCache {
    /// Asks the store for all pages that are not on the host, and for what the parts miss from there on where
    /// nothing is usable any more.
    pub(super) fn prefetch_parts(&mut self, id: HitId, found: Found) -> Result<bool> {
        // What comes is hung below pages that are on the host themselves.
        let (rest_at, end) = self.rest(id)?;
        let asks = !self.stages() && (!self.asking.writes || end > found.usable);
        if asks && self.tree.resident_depth(found.place, Tier::Host) < found.place.depth {
            self.back_up_path(found.place);
        }
        let (usable, place) = (found.usable, self.tree.ancestor(found.place, found.place.depth));
        let on_host = self.hung_at(place);
        // What is staged for a boundary is whole.
        let staged = self.hits.get(&id).is_some_and(|hit| !hit.staged.is_empty());
        let pages = end.saturating_sub(usable) as usize;
        let worth_it = pages > 0 && self.is_worth_it(pages);
        if staged || !(on_host >= usable && usable >= rest_at && worth_it) {
            self.act();
            return Ok(false);
        }
        let from = (0..self.parts.len()).map(|part| self.tree.needs_from(part, usable + 1));
        let from = from.fold(usable, u32::min);
        let mut digests = self.tree.digests(place, from..place.depth);
        digests.extend(self.rest_digests(id, place)?);
        let prior = self.tree.last_digest(self.tree.ancestor(place, usable));
        self.hit_mut(id)?.keys =
            Keys { at: usable, prior, digests: digests[(usable - from) as usize..].to_vec() };
        let asked = self.wanted(place, usable, on_host..end, from, &digests);
        let fetch = Fetch {
            at: usable,
            front: on_host,
            span: end - usable,
            keys: asked.len(),
            usable: usable..usable,
            ..Fetch::default()
        };
        if asked.is_empty() {
            self.act();
            return Ok(false);
        }
        self.ask(id, Fetch { asked, ..fetch })?;
        self.act();
        Ok(true)
    }

    /// Pages of a path in the tier that what is read is hung below there, or comes behind.
    fn hung_at(&self, place: Place) -> u32 {
        self.tree.resident_depth(place, if self.stages() { Tier::Device } else { Tier::Host })
    }

    /// Pages of a hit from which on it has its tokens, and to which.
    #[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
    pub(super) fn rest(&self, id: HitId) -> Result<(u32, u32)> {
        let hit = self.hit(id)?;
        Ok((hit.rest_at, hit.rest_at + self.tree.page_size().pages(hit.rest.len()) as u32))
    }

    /// Digests of a hit's pages behind a place of the tree.
    fn rest_digests(&mut self, id: HitId, place: Place) -> Result<Vec<Digest>> {
        let (size, prior) = (self.tree.page_size(), self.tree.last_digest(place));
        let hit = self.hit(id)?;
        let rest = hit.rest.view().from((place.depth - hit.rest_at) as usize * size.tokens());
        let known = hit.keys.after(place.depth, prior);
        if known.len() >= size.pages(rest.len()) {
            return Ok(known.to_vec());
        }
        let digests = hash::chain(prior, rest, size);
        self.stats.hashed_pages += digests.len() as u64;
        Ok(digests)
    }

    /// What is asked of the store: pages of FULL, and of the parts what no tier has, from where it may count.
    /// `digests` begin with page `from`.
    fn wanted(
        &self,
        place: Place,
        usable: u32,
        full: std::ops::Range<u32>,
        from: u32,
        digests: &[Digest],
    ) -> Vec<Asked> {
        let digest = |page: u32| &digests[(page - from) as usize];
        let end = full.end;
        let mut asked: Vec<Asked> = full.map(|page| Asked { space: 0, page, key: *digest(page) }).collect();
        for ((part, space), name) in (0..).zip(1u8..).zip(self.part_names()) {
            let pages =
                (self.tree.needs_from(part, usable + 1)..end).filter(|&page| !self.has(part, place, page));
            asked.extend(pages.map(|page| Asked { space, page, key: hash::of_part(digest(page), name) }));
        }
        asked
    }

    /// Whether any tier has a part of a page on the path to a place.
    pub(super) fn has(&self, part: usize, place: Place, page: u32) -> bool {
        page < place.depth && {
            let at = self.tree.ancestor(place, page + 1);
            Tier::ALL.into_iter().any(|tier| self.tree.part_slot(part, tier, at).is_some())
        }
    }

    /// The store answered: begins to read what the deepest prefix needs that is usable with it and that there is room for.
    /// False: there is no room for any.
    pub(super) fn read_usable(&mut self, id: HitId) -> bool {
        let Ok(found) = self.find_again(id) else { return true };
        let Some(fetch) = self.hits.get_mut(&id).and_then(|hit| hit.fetch.as_mut()) else { return true };
        let present = fetch.asked.iter().zip(&fetch.answers);
        let present: Vec<Asked> =
            present.filter(|(_, there)| **there == Some(true)).map(|(asked, _)| *asked).collect();
        let on_host = self.hung_at(found.place);
        let ends = self.boundaries(found, on_host, &present);
        let deepest = ends.last().copied();
        let pages = (deepest.unwrap_or(found.usable) - found.usable) as usize;
        let deepest = deepest.filter(|_| self.is_worth_it(pages));
        self.stats.prefetch_below_threshold += u64::from(pages > 0 && deepest.is_none());
        let (mut end, mut reads) = (found.usable, None);
        if deepest.is_some() && self.stages() {
            let Some(choice) = self.staged_reads(found, on_host, &ends, &present) else {
                self.fits_nowhere(id, found.usable..ends.last().copied().unwrap_or_default());
                return true;
            };
            (end, reads) = choice;
        } else if let Some(deepest) = deepest {
            (end, reads) = (deepest, self.reads(found.place, on_host, deepest, &present));
            // Where there is no room for the deepest one, one about half as far may do.
            while reads.is_none() {
                let half = found.usable + (end - found.usable) / 2;
                let Some(&next) = ends.iter().rfind(|&&boundary| boundary <= half) else { break };
                (end, reads) = (next, self.reads(found.place, on_host, next, &present));
            }
        }
        let Some(fetch) = self.hits.get_mut(&id).and_then(|hit| hit.fetch.as_mut()) else { return true };
        fetch.no_room = deepest.is_some() && reads.is_none();
        if fetch.no_room {
            return false;
        }
        fetch.asked = Vec::new();
        fetch.front = on_host;
        let Some(reads) = reads else { return true };
        fetch.usable.end = end;
        self.stats.prefetch_no_room += u64::from(Some(end) != deepest);
        if self.stages() {
            self.stage_for(id, on_host, end);
        }
        self.read(id, reads);
        // The pages that it counts on are held from now on.
        let _ = self.find_again(id);
        true
    }

    /// Boundaries behind what is usable at which everything agrees, with what the store has: in ascending order.
    fn boundaries(&self, found: Found, on_host: u32, present: &[Asked]) -> Vec<u32> {
        let stored = |space: u8, page: u32| is_present(present, space, page).is_some();
        let mut reach = on_host;
        while stored(0, reach) {
            reach += 1;
        }
        let components = self.tree.components();
        let starts = (0..components.len()).map(|part| self.tree.needs_from(part, found.usable + 1));
        let first = starts.fold(found.usable, u32::min);
        let mut ballot = if first == 0 { Ballot::new(components) } else { Ballot::inside(components) };
        let mut ends = Vec::new();
        for page in first..reach {
            // In any tier: the two views are one here.
            let there = |part: usize| {
                let space = u8::try_from(part + 1).unwrap_or(u8::MAX);
                [stored(space, page) || self.has(part, found.place, page); 2]
            };
            let [agreed, _] = ballot.page(there);
            if agreed && page >= found.usable {
                ends.push(page + 1);
            }
        }
        ends
    }

    /// What a boundary lacks on the host, with room for all of it, if that can be had.
    fn reads(&mut self, place: Place, on_host: u32, end: u32, present: &[Asked]) -> Option<Reads> {
        let (full, parts) = self.lacking_reads(place, on_host, end, present)?;
        // The path that they are hung below must not go to make room for them.
        let pin = self.tree.pin(self.tree.ancestor(place, on_host.min(end)), Hold::Host);
        let keys = |asked: &Vec<Asked>| asked.iter().map(|asked| asked.key).collect::<Vec<Digest>>();
        let room = self.room_to_read(&keys(&full), &parts.iter().map(keys).collect::<Vec<_>>());
        self.tree.unpin(pin);
        Some(Reads { full, parts, room: room? })
    }

    /// What a boundary lacks where what is read goes, if the store has it: pages, and of each part.
    pub(super) fn lacking_reads(
        &self,
        place: Place,
        on_host: u32,
        end: u32,
        present: &[Asked],
    ) -> Option<(Vec<Asked>, Vec<Vec<Asked>>)> {
        let place = self.tree.ancestor(place, place.depth);
        let stored = |space: u8, page: u32| is_present(present, space, page).copied();
        let full = (on_host..end).map(|page| stored(0, page)).collect::<Option<Vec<Asked>>>()?;
        let mut parts = Vec::with_capacity(self.parts.len());
        for (part, space) in (0..self.parts.len()).zip(1u8..) {
            let pages = (self.tree.needs_from(part, end)..end).filter(|&page| !self.has(part, place, page));
            parts.push(pages.map(|page| stored(space, page)).collect::<Option<Vec<Asked>>>()?);
        }
        Some((full, parts))
    }

    fn read(&mut self, id: HitId, reads: Reads) {
        for (pages, slots) in reads.full.chunks(BATCH_PAGES).zip(reads.room.full.chunks(BATCH_PAGES)) {
            let keys = pages.iter().map(|page| page.key).collect();
            self.submit_full(id, pages[0].page, keys, slots.to_vec());
        }
        let parts = reads.parts.iter().flatten().zip(reads.room.parts.into_iter().flatten());
        let parts: Vec<(Asked, HostSlot)> =
            parts.map(|(asked, slot)| (*asked, HostSlot { space: asked.space, slot })).collect();
        for batch in parts.chunks(BATCH_PAGES) {
            let (keys, to) = batch.iter().map(|(asked, to)| (asked.key, *to)).unzip();
            let reads = batch.iter().map(|(asked, to)| (asked.page, *to)).collect();
            self.submit_read(id, keys, to, |hit, attempt| What::ReadParts { hit, attempt, reads });
        }
    }

    /// Keys under which a part of pages on the path to `end` is stored.
    pub(super) fn part_keys(&self, part: usize, end: Place, pages: &[u32]) -> Vec<Digest> {
        let name = self.part_names()[part];
        self.page_digests(end, pages).iter().map(|page| hash::of_part(page, name)).collect()
    }

    /// Digests of pages on the path to `end`, in ascending order.
    pub(super) fn page_digests(&self, end: Place, pages: &[u32]) -> Vec<Digest> {
        let (Some(&first), Some(&last)) = (pages.first(), pages.last()) else { return Vec::new() };
        let digests = self.tree.digests(end, first..last + 1);
        pages.iter().map(|&page| digests[(page - first) as usize]).collect()
    }

    /// A part's slots on the host, with its space.
    pub(super) fn in_space(&self, part: usize, slots: &[Slot]) -> Vec<HostSlot> {
        debug_assert!(part < self.parts.len(), "a part that is there");
        let space = u8::try_from(part + 1).unwrap_or(u8::MAX);
        slots.iter().map(|&slot| HostSlot { space, slot }).collect()
    }
}

/// What the store has, if it has this; they are in order of space and page.
fn is_present(present: &[Asked], space: u8, page: u32) -> Option<&Asked> {
    let at = present.binary_search_by_key(&(space, page), |asked| (asked.space, asked.page));
    at.ok().map(|at| &present[at])
}
