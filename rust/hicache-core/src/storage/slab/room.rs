//! Room: free slots, and whose pages go when there are none.
//!
//! Leaves go, in the order of their last use, so that whatever a page needs outlives it. A class without a leaf, or one
//! that has turned over all it has while another's oldest leaf is older than its own, takes an extent from there: the
//! one in which the oldest leaf lies, with all that depends on its pages.
//! On error: no room is `None`.

use super::extents::Place;
use super::index::ground::NONE;
use super::index::page::{State, name};
use super::record::{At, Record};
use super::store::{Book, Slab};
use crate::error::{Result, argument};
use hashbrown::HashSet;

/// Most leaves of other classes that go so that a page of this one is a leaf.
const OTHERS: usize = 64;

impl Slab {
    /// A free slot of a class. Whoever writes to it commits the log first.
    pub(super) fn take(&self, book: &mut Book, class: u32) -> Option<Place> {
        loop {
            if let Some(place) = self.extents.take(class) {
                return Some(place);
            }
            if self.grow(book, class) {
                continue;
            }
            match self.oldest(book, class) {
                Some((_, true)) | None if self.seize(book, class) => {}
                Some((page, _)) => self.evict(book, page),
                None => return None,
            }
        }
    }

    fn grow(&self, book: &mut Book, class: u32) -> bool {
        let (extents, slots) = taken(book);
        let slots = slots + u64::from(book.index.ground.slots(class));
        if self.bounds.taken(extents + 1, slots) > self.bounds.size {
            return false;
        }
        let Some(extent) = self.extents.grow(class).and_then(|extent| u16::try_from(extent).ok()) else {
            return false;
        };
        book.index.ground.give(extent, class);
        true
    }

    /// The leaf of this class that goes next, and whether it is rather some other class's turn to give.
    fn oldest(&self, book: &mut Book, class: u32) -> Option<(u32, bool)> {
        let (used, page) = book.index.coldest(class).or_else(|| self.make_leaf(book, class))?;
        let turns = book.turns.entry(class).or_insert(0);
        *turns += 1;
        let own = book.index.ground.iter().filter(|(_, slots)| slots.class == class);
        let own: u32 = own.map(|(_, slots)| slots.used).sum();
        if *turns <= own {
            return Some((page, false));
        }
        *turns = 0;
        let others = book.index.coldest_but(class).is_some_and(|(other, _)| other < used);
        Some((page, others))
    }

    /// Evicts leaves of other classes until one of this class, which they depended on, is a leaf.
    fn make_leaf(&self, book: &mut Book, class: u32) -> Option<(u64, u32)> {
        if !book.index.ground.iter().any(|(_, slots)| slots.class == class && slots.used > 0) {
            return None;
        }
        for _ in 0..OTHERS {
            let (_, page) = book.index.coldest_but(class)?;
            self.evict(book, page);
            if let Some(found) = book.index.coldest(class) {
                return Some(found);
            }
        }
        None
    }

    /// Frees an extent of another class.
    fn seize(&self, book: &mut Book, class: u32) -> bool {
        let Some((_, page)) = book.index.coldest_but(class) else { return false };
        let extent = book.index.page(page).written.at.extent;
        if !self.empty(book, extent) {
            return false;
        }
        self.extents.release(extent.into())
    }

    /// Evicts all pages of an extent and whatever depends on them, and takes it from its class. False, and nothing
    /// done, if any of them is read or written now.
    fn empty(&self, book: &mut Book, extent: u16) -> bool {
        let pages = book.index.lying_in(extent);
        let idle = |page: &u32| {
            let page = book.index.page(*page);
            page.state == State::Here && page.readers == 0
        };
        if !pages.iter().all(idle) {
            return false;
        }
        let Some(doomed) = dependents(book, pages) else { return false };
        self.evict_all(book, &doomed);
        book.index.ground.release(extent);
        true
    }

    /// Evicts pages and all that depend on them, children first.
    fn evict_all(&self, book: &mut Book, doomed: &[u32]) {
        let mut rest: HashSet<u32> = doomed.iter().copied().collect();
        for &page in doomed {
            let mut next = Some(page);
            // From a leaf upwards, as far as that makes leaves.
            while let Some(page) =
                next.filter(|page| rest.contains(page) && book.index.page(*page).children == 0)
            {
                next = book.index.parent_of(page);
                rest.remove(&page);
                self.evict(book, page);
            }
        }
        // Parents in a circle have no leaf.
        doomed.iter().copied().filter(|page| rest.contains(page)).for_each(|page| self.evict(book, page));
    }

    /// Gives back what is beyond the bounds, after they have changed.
    ///
    /// # Errors
    /// Names `storage` where that would take pages, and the options forbid it.
    pub(super) fn shrink(&self) -> Result<()> {
        let mut book = self.book();
        for extent in self.extents.found() {
            let spare = u16::try_from(extent).is_ok_and(|number| book.index.ground.get(number).is_none());
            if spare && self.extents.surplus() > 0 {
                self.extents.give_back(extent);
            }
        }
        while self.extents.surplus() > 0 || self.beyond(&book) {
            if !self.options.shrink {
                let reason = format!("size={}: its pages take more, and shrink=no", self.bounds.size);
                return argument("storage", reason);
            }
            if !self.give_coldest_back(&mut book) {
                break;
            }
        }
        Ok(())
    }

    fn beyond(&self, book: &Book) -> bool {
        let (extents, slots) = taken(book);
        self.bounds.taken(extents, slots) > self.bounds.size
    }

    /// Gives the extent whose pages were all used longest ago back to the file system.
    pub(super) fn give_coldest_back(&self, book: &mut Book) -> bool {
        let last = |pages: &[u32]| {
            let used = pages.iter().filter(|&&page| page != NONE).map(|&page| book.index.page(page).used);
            used.max().unwrap_or(0)
        };
        let mut extents: Vec<(u64, u16)> =
            book.index.ground.iter().map(|(extent, slots)| (last(&slots.pages), extent)).collect();
        extents.sort_unstable();
        for (_, extent) in extents {
            if self.empty(book, extent) {
                return self.extents.give_back(extent.into());
            }
        }
        false
    }

    /// Gives a page up to make room.
    pub(super) fn evict(&self, book: &mut Book, page: u32) {
        book.counts.evicted_pages += 1;
        self.drop_page(book, page);
    }

    /// Gives a page up. Its slot is free once nobody reads it.
    pub(super) fn drop_page(&self, book: &mut Book, page: u32) {
        self.log.append(&Record::Gone(book.index.page(page).written.at));
        if let Some(at) = book.index.take_out(page) {
            self.free(at, true);
        }
    }

    /// A slot is nobody's any more.
    pub(super) fn free(&self, at: At, written: bool) {
        self.extents.free(at.extent.into(), at.slot, written);
    }
}

/// Extents that have a class, and their slots.
fn taken(book: &Book) -> (u64, u64) {
    let counts = book.index.ground.iter().map(|(_, slots)| slots.pages.len() as u64);
    counts.fold((0, 0), |(extents, slots), more| (extents + 1, slots + more))
}

/// Pages and all that depend on them, parents first. `None` if one that does is under way.
fn dependents(book: &Book, pages: Vec<u32>) -> Option<Vec<u32>> {
    let index = &book.index;
    let mut children: Vec<(u16, u64, u32)> = (0..index.numbers())
        .filter(|&page| index.page(page).state == State::Here && index.page(page).written.parent != 0)
        .map(|page| (index.page(page).written.identity, index.page(page).written.parent, page))
        .collect();
    children.sort_unstable();
    let (mut known, mut at): (HashSet<u32>, usize) = (pages.iter().copied().collect(), 0);
    let mut all = pages;
    while let Some(&page) = all.get(at) {
        let (written, count) = (index.page(page).written, index.page(page).children);
        let (identity, parent) = (written.identity, name(&written.digest));
        let first = children.partition_point(|&(i, p, _)| (i, p) < (identity, parent));
        let theirs = children[first..].iter().take_while(|&&(i, p, _)| (i, p) == (identity, parent));
        let theirs: Vec<u32> = theirs.map(|&(.., child)| child).collect();
        if theirs.len() < count as usize {
            return None;
        }
        all.extend(theirs.into_iter().filter(|&child| known.insert(child)));
        at += 1;
    }
    Some(all)
}
