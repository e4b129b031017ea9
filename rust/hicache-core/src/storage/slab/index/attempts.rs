//! Pages whose bytes are under way to the disk.
//!
//! An attempt has a number and a slot of its own from the beginning, and keeps its parent from being evicted. What
//! is removed meanwhile finds its attempt cancelled, and of two attempts the first to end wins.
//! On error: nothing here fails.

use super::Index;
use super::page::{Key, Page, State, key_of, name};
use crate::storage::slab::record::{At, Written};

/// What became of a page whose bytes are on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// It is here.
    Here,
    /// Another attempt was quicker: its slot is free.
    Twice(At),
    /// It was removed meanwhile: its slot is free.
    Cancelled(At),
}

impl Index {
    /// A page whose bytes are now written to a slot that was free. Its parent stays from here on. `None`: there is
    /// no such slot, or too many pages.
    pub fn begin(&mut self, written: Written) -> Option<u32> {
        let page = self.number()?;
        if !self.ground.take(written.at, page) {
            self.spare.push(page);
            return None;
        }
        let parent = if written.parent == name(&written.digest) { 0 } else { written.parent };
        let used = self.tick();
        let written = Written { parent, ..written };
        *self.page_mut(page) = Page { written, state: State::Writing, used, ..Page::FREE };
        self.join(written.identity, parent);
        self.writing.entry(key_of(&written)).or_default().push(page);
        Some(page)
    }

    /// Its bytes are on the disk: it is here, unless it has been removed or another attempt has been quicker.
    pub fn finish(&mut self, page: u32, checksum: u64, time: u32) -> Finished {
        let Page { written, cancelled, .. } = *self.page(page);
        let key = key_of(&written);
        if cancelled {
            return Finished::Cancelled(self.abandon(page));
        }
        if let Some((other, _)) = self.find(&key) {
            self.touch(other);
            return Finished::Twice(self.abandon(page));
        }
        self.landed(page);
        self.enter(page, Written { time, checksum, ..written });
        self.queue(page);
        Finished::Here
    }

    /// Its bytes did not get to the disk: its slot is free.
    pub fn abandon(&mut self, page: u32) -> At {
        let written = self.page(page).written;
        self.landed(page);
        self.part(written.identity, written.parent);
        self.drop_number(page);
        written.at
    }

    /// Puts of a key that are under way lead to nothing.
    pub fn cancel(&mut self, key: &Key) {
        for page in self.writing.get(key).cloned().unwrap_or_default() {
            self.page_mut(page).cancelled = true;
        }
    }

    /// Puts of an identity that are under way lead to nothing.
    pub fn cancel_all(&mut self, identity: u16) {
        let all = self.writing.iter().filter(|(key, _)| key.identity == identity);
        let pages: Vec<u32> = all.flat_map(|(_, pages)| pages).copied().collect();
        pages.into_iter().for_each(|page| self.page_mut(page).cancelled = true);
    }

    /// Puts that are under way.
    pub fn under_way(&self) -> usize {
        self.writing.values().map(Vec::len).sum()
    }

    fn landed(&mut self, page: u32) {
        let key = key_of(&self.page(page).written);
        if let Some(pages) = self.writing.get_mut(&key) {
            pages.retain(|&other| other != page);
            if pages.is_empty() {
                self.writing.remove(&key);
            }
        }
    }
}
