//! `insert`: what was computed enters the tree, and is backed up.

use crate::cache::HiCache;
use crate::error::{Error, Result, argument};
use crate::ids::{HitId, Slot, Tier};
use crate::key::Key;
use crate::page::Tokens;

/// What became of the inserted pages.
#[derive(Debug, PartialEq, Eq)]
pub struct Inserted {
    /// Pages from the root to the end of what was inserted.
    pub depth: u32,
    /// The tree's device slots for the inserted pages: the page table must name these.
    pub slots: Vec<Slot>,
    /// Given slots that the tree did not adopt: the caller's to give back.
    pub duplicates: Vec<Slot>,
}

impl HiCache {
    /// Adds the whole pages of `tokens`, which follow the hit's place, with their device slots.
    /// The hit's place and pin move along, so that the next call passes what follows.
    /// A slot for a trailing partial page may be given; it stays the caller's.
    ///
    /// # Errors
    /// When the hit isn't loaded; for negative tokens; for too few, too many or wrong slots.
    /// Nothing was changed.
    pub fn insert(&mut self, id: HitId, tokens: Tokens<'_>, slots: &[Slot]) -> Result<Inserted> {
        self.open()?;
        self.on_device()?;
        if !self.hit(id)?.loaded {
            return Err(Error::Hit("is not loaded: load it before inserting"));
        }
        let tokens = tokens.checked()?;
        let (words, whole) = (self.tree.page_size(), Key::new(tokens, self.config.bigrams)?);
        let pages = self.config.page_size.pages(whole.units());
        let partial = usize::from(tokens.len() > pages * self.config.page_size.tokens());
        if slots.len() < pages || slots.len() > pages + partial {
            let reason = format!("{pages} whole pages need a slot each, got {}", slots.len());
            return argument("slots", reason);
        }
        if !self.continues(self.tree.pinned(&self.hit(id)?.pin), tokens) {
            let reason = "must begin with the token that the last pair before them ends with";
            return argument("tokens", reason);
        }
        let given = &slots[..pages];
        self.device.check_out("slots", given)?;

        let place = self.tree.pinned(&self.hit(id)?.pin);
        let key = whole.pages(pages, words);
        let done = self.tree.extend(place, key, Tier::Device, given);
        for (own, given) in done.slots.iter().zip(given) {
            if own == given {
                self.device.place(*own);
            }
        }
        let hit = self.hits.get_mut(&id).ok_or(Error::Hit("was released"))?;
        let pin = std::mem::replace(&mut hit.pin, self.tree.pin(done.place, crate::tree::Hold::Device));
        self.tree.unpin(pin);
        self.stats.inserted_pages += done.new_pages as u64;
        // Write-through: a page is backed up when it enters.
        self.back_up_path(done.place);
        self.act();
        Ok(Inserted { depth: done.place.depth, slots: done.slots, duplicates: done.duplicates })
    }
}
