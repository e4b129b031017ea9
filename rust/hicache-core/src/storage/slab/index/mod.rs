//! What is where: pages by key, by place, and in the order of their last use.
//!
//! ```text
//! key ─▶ table ─▶ page (place, size, checksum, parent, last use, ...) ◀─ ground ◀─ place
//! ```
//! A digest is a hash already: its own bytes, mixed with a number of this process, find its entry, and entries
//! hold whole keys, so that asking what is there touches nothing else. A page is `Writing` until its bytes are on
//! the disk, then `Here`, and `Going` while somebody still reads what was given up. Neither clock nor I/O.
//!
//! | file | what |
//! |---|---|
//! | `page` | what is known of a page |
//! | `ground` | slots of extents, and whose they are |
//! | `attempts` | pages whose bytes are under way |
//! | `family` | parents and children |
//! | `order`, `leaves` | the order of last use; which leaf goes next |
//!
//! May assume that callers log what they do to it in the same order. On error: nothing here fails.

mod attempts;
mod family;
pub mod ground;
mod leaves;
mod order;
pub mod page;

pub use attempts::Finished;
pub use page::{Key, Page, State};

use super::record::{At, Record, Written};
use ground::{Ground, NONE, class_of};
use hashbrown::{HashMap, HashTable};
use leaves::Leaves;
use page::{key_of, name};

/// Of the table: all that an answer to "is it there" needs.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    time: u32,
    page: u32,
}

/// All pages.
#[derive(Debug)]
pub struct Index {
    table: HashTable<Entry>,
    pages: Vec<Page>,
    spare: Vec<u32>,
    /// Slots and their pages.
    pub ground: Ground,
    leaves: Leaves,
    wanted: HashMap<(u16, u64), u32>,
    writing: HashMap<Key, Vec<u32>>,
    touched: Vec<u32>,
    uses: u64,
    secret: u64,
    here: u64,
    bytes: u64,
}

impl Index {
    /// An empty one, over extents of so many bytes. `secret`: a number that nobody knows, so that nobody can
    /// choose tokens whose digests meet in the table.
    pub fn new(extent_bytes: u64, secret: u64) -> Self {
        Self {
            table: HashTable::new(),
            pages: Vec::new(),
            spare: Vec::new(),
            ground: Ground::new(extent_bytes),
            leaves: Leaves::default(),
            wanted: HashMap::new(),
            writing: HashMap::new(),
            touched: Vec::new(),
            uses: 0,
            secret: secret | 1,
            here: 0,
            bytes: 0,
        }
    }

    /// Makes room for so many pages at once.
    pub fn reserve(&mut self, pages: usize) {
        let secret = self.secret;
        self.table.reserve(pages, |entry| hashed(secret, name(&entry.key.digest)));
        self.pages.reserve(pages);
    }

    /// The page under a key, and when it was written.
    #[inline]
    pub fn find(&self, key: &Key) -> Option<(u32, u32)> {
        let hash = hashed(self.secret, name(&key.digest));
        self.table.find(hash, |entry| entry.key == *key).map(|entry| (entry.page, entry.time))
    }

    /// A page whose digest begins with these 8 bytes.
    fn named(&self, identity: u16, name_of: u64) -> Option<u32> {
        let same = |entry: &Entry| entry.key.identity == identity && name(&entry.key.digest) == name_of;
        self.table.find(hashed(self.secret, name_of), same).map(|entry| entry.page)
    }

    /// What is known of a page.
    pub fn page(&self, page: u32) -> &Page {
        &self.pages[page as usize]
    }

    pub(super) fn page_mut(&mut self, page: u32) -> &mut Page {
        &mut self.pages[page as usize]
    }

    /// Numbers of pages are below this.
    pub fn numbers(&self) -> u32 {
        u32::try_from(self.pages.len()).unwrap_or(u32::MAX)
    }

    /// Pages that are here, and their payloads' bytes.
    pub const fn holds(&self) -> (u64, u64) {
        (self.here, self.bytes)
    }

    /// A page of which a log tells. What was at its place or had its key is none. False: there is no such place.
    /// `queue_leaves` follows when all are told.
    pub fn restore(&mut self, written: Written) -> bool {
        let Some(class) = class_of(written.bytes.into()) else { return false };
        self.vacate(written.at);
        if let Some((page, _)) = self.find(&key_of(&written)) {
            self.take_out(page);
        }
        if self.ground.get(written.at.extent).is_none_or(|slots| slots.class != class) {
            // The extent has had another class since: all that is known of it is old.
            self.lying_in(written.at.extent).into_iter().for_each(|page| _ = self.take_out(page));
            self.ground.give(written.at.extent, class);
        }
        let Some(page) = self.number() else { return false };
        if !self.ground.take(written.at, page) {
            self.spare.push(page);
            return false;
        }
        let parent = if written.parent == name(&written.digest) { 0 } else { written.parent };
        let (written, used) = (Written { parent, ..written }, self.tick());
        *self.page_mut(page) = Page { used, ..Page::FREE };
        self.join(written.identity, parent);
        self.enter(page, written);
        true
    }

    /// Looks up what these records will need, to no other effect than that it is near.
    pub fn warm(&self, records: &[Record]) {
        let pages = records
            .iter()
            .filter(|record| matches!(record, Record::Page(page) if self.find(&key_of(page)).is_some()));
        std::hint::black_box(pages.count());
    }

    /// Pages that lie in an extent.
    pub fn lying_in(&self, extent: u16) -> Vec<u32> {
        let pages = self.ground.get(extent).map_or(&[][..], |slots| &slots.pages);
        pages.iter().copied().filter(|&page| page != NONE).collect()
    }

    /// What lies at a place is no page any more.
    pub fn vacate(&mut self, at: At) {
        if let Some(page) = self.ground.page(at) {
            self.take_out(page);
        }
    }

    /// Gives up all pages of an identity. Slots that are free now, and how many pages there were.
    pub fn clear(&mut self, identity: u16) -> (Vec<At>, u64) {
        let before = self.here;
        let all = 0..self.numbers();
        let theirs: Vec<u32> = all.filter(|&page| self.is_of(page, identity)).collect();
        let free = theirs.into_iter().filter_map(|page| self.take_out(page)).collect();
        (free, before - self.here)
    }

    fn is_of(&self, page: u32, identity: u16) -> bool {
        let found = self.page(page);
        found.state == State::Here && found.written.identity == identity
    }

    /// Gives a page up: it can't be found any more. Its slot, if it is free now; else the last reader's `close` tells.
    pub fn take_out(&mut self, page: u32) -> Option<At> {
        let Page { written, state, children, readers, .. } = *self.page(page);
        if state != State::Here {
            return None;
        }
        let hash = hashed(self.secret, name(&written.digest));
        if let Ok(entry) = self.table.find_entry(hash, |entry| entry.page == page) {
            entry.remove();
        }
        self.here -= 1;
        self.bytes -= u64::from(written.bytes);
        self.orphan(&written, children);
        self.part(written.identity, written.parent);
        if readers > 0 {
            self.page_mut(page).state = State::Going;
            return None;
        }
        self.drop_number(page);
        Some(written.at)
    }

    /// Somebody reads it: its slot stays.
    pub fn open(&mut self, page: u32) {
        self.page_mut(page).readers += 1;
    }

    /// A reader is done. The slot, if that was the last reader of a page that was given up.
    pub fn close(&mut self, page: u32) -> Option<At> {
        let found = self.page_mut(page);
        found.readers -= 1;
        if found.state != State::Going || found.readers > 0 {
            return None;
        }
        let at = found.written.at;
        self.drop_number(page);
        Some(at)
    }

    fn enter(&mut self, page: u32, written: Written) {
        let secret = self.secret;
        let entry = Entry { key: key_of(&written), time: written.time, page };
        let hash = hashed(secret, name(&written.digest));
        self.table.insert_unique(hash, entry, |entry| hashed(secret, name(&entry.key.digest)));
        let wanted = (written.identity, name(&written.digest));
        let children = if self.wanted.is_empty() { None } else { self.wanted.remove(&wanted) }.unwrap_or(0);
        let found = self.page_mut(page);
        (found.written, found.state, found.children) = (written, State::Here, children);
        self.here += 1;
        self.bytes += u64::from(written.bytes);
    }

    fn number(&mut self) -> Option<u32> {
        self.spare.pop().or_else(|| {
            let page = u32::try_from(self.pages.len()).ok().filter(|&page| page < NONE)?;
            self.pages.push(Page::FREE);
            Some(page)
        })
    }

    fn drop_number(&mut self, page: u32) {
        self.ground.free(self.page(page).written.at);
        *self.page_mut(page) = Page::FREE;
        self.spare.push(page);
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
const fn hashed(secret: u64, name: u64) -> u64 {
    let wide = (name ^ secret.rotate_left(32)) as u128 * secret as u128;
    (wide as u64) ^ (wide >> 64) as u64
}
