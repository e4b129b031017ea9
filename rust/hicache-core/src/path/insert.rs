//! `insert`: what was computed enters the tree, and is backed up as the write policy says.

use crate::cache::HiCache;
use crate::error::{Error, Result, argument};
use crate::ids::{HitId, Slot, Tier};
use crate::key::Key;
use crate::page::Tokens;
use crate::policy::{Moment, Request, tick};

/// What became of the inserted pages.
#[derive(Debug, PartialEq, Eq)]
pub struct Inserted {
    /// Pages from the root to the end of what was inserted.
    pub depth: u32,
    /// The tree's device slots for the inserted pages: the page table must name these.
    pub slots: Vec<Slot>,
    /// So many of the given slots, the first ones, were not adopted: they are the caller's to give back.
    pub duplicates: usize,
    /// For each part that was given, the tree's slot for each slot that was, [`crate::ids::NO_SLOT`] where it has
    /// none. Where it is the given one, the tree adopted that; else that is the caller's to give back.
    pub parts: Vec<Vec<Slot>>,
}

/// The slots of a part that an insert is given, by the part's number. A window: for each inserted page its slot, or
/// none. A state: one, of the checkpoint at the end of the last inserted page, or none.
pub type GivenPart = (usize, Vec<Option<Slot>>);

impl HiCache {
    /// Adds the whole pages of `tokens`, which follow the hit's place, with their device slots.
    /// The hit's place and pin move along, so that the next call passes what follows.
    /// A slot for a trailing partial page may be given; it stays the caller's.
    ///
    /// # Errors
    /// When the hit isn't loaded; for negative tokens; for too few, too many or wrong slots.
    /// Nothing was changed.
    pub fn insert(&mut self, id: HitId, tokens: Tokens<'_>, slots: &[Slot]) -> Result<Inserted> {
        self.insert_parts(id, tokens, slots, &[])
    }

    /// The same with the windows of these pages and the checkpoint at their end, so far as they are there. Slots
    /// that the tree doesn't adopt stay the caller's. A window that had left is mended.
    ///
    /// # Errors
    /// As [`HiCache::insert`]; for a part that isn't there or is named twice, and for too few, too many or wrong
    /// slots of one. Nothing was changed.
    pub fn insert_parts(
        &mut self,
        id: HitId,
        tokens: Tokens<'_>,
        slots: &[Slot],
        parts: &[GivenPart],
    ) -> Result<Inserted> {
        self.open()?;
        self.on_device()?;
        if !self.hit(id)?.loaded {
            return Err(Error::Hit("is not loaded: load it before inserting"));
        }
        let (words, whole) = (self.tree.page_size(), Key::new(tokens, self.config.bigrams)?);
        let pages = self.config.page_size.pages(whole.units());
        let place = self.tree.pinned(&self.hit(id)?.pin);
        if self.tree.will_extend(place, pages, Tier::Device) {
            tokens.soon();
        }
        if !self.continues(place, tokens) {
            let reason = "must begin with the token that the last pair before them ends with";
            return argument("tokens", reason);
        }
        let key = whole.pages(pages, words);
        let known = self.tree.follow(place, key);
        // What equals tokens of the tree is not negative: only the rest is still to be looked at.
        if !self.config.bigrams {
            tokens.checked_from((known.depth - place.depth) as usize * words.tokens())?;
        }
        let partial = usize::from(tokens.len() > pages * self.config.page_size.tokens());
        if slots.len() < pages || slots.len() > pages + partial {
            let reason = format!("{pages} whole pages need a slot each, got {}", slots.len());
            return argument("slots", reason);
        }
        self.check_given(parts, pages)?;
        let given = &slots[..pages];
        if pages == 0 {
            let parts = parts.iter().map(|_| Vec::new()).collect();
            return Ok(Inserted { depth: place.depth, slots: Vec::new(), duplicates: 0, parts });
        }
        self.device.check_out("slots", given)?;
        let new = key.from((known.depth - place.depth) as usize * words.tokens());
        let before = if self.storage { self.tree.last_digest(known) } else { None };
        let hit = self.hits.get_mut(&id).ok_or(Error::Hit("was released"))?;
        let digests = hit.digests(known.depth, before, new, words);
        let done = self.tree.extend_from(place, known, key, Tier::Device, given, digests);
        self.stats.hashed_pages += done.hashed as u64;
        self.device.place(&given[done.known..]);
        #[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
        let new_pages = done.new_pages as u32;
        hit.request.new_pages += new_pages;
        let request = Request { tick: tick(self.now), moment: Moment::Inserted, new_pages, ..hit.request };
        self.tree.tell(request, place.depth..done.place.depth, done.place);
        // Before the pin, so that this holds them.
        let parts = self.attach_given(parts, done.place, pages);
        let hit = self.hits.get_mut(&id).ok_or(Error::Hit("was released"))?;
        let pin = std::mem::replace(&mut hit.pin, self.tree.pin(done.place, crate::tree::Hold::Device));
        self.leave_place(pin);
        self.stats.inserted_pages += done.new_pages as u64;
        let end = self.tree.ancestor(done.place, done.place.depth);
        let known = self.tree.ancestor(end, known.depth);
        // What it comes to once more after a rewind is no second use.
        let others = if self.was_there(id, known) { place.depth } else { known.depth };
        self.came(id, end, place.depth, others);
        self.cap_checkpoints(id)?;
        // What is to be copied waits for that of the step's other requests.
        self.act_on_rest();
        Ok(Inserted { depth: done.place.depth, slots: done.slots, duplicates: done.known, parts })
    }
}
