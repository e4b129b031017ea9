//! Room: free slots, and whose pages go when there are none.
//!
//! Leaves go, in the order of their last use, so that whatever a page needs outlives it. A class without a leaf, or one
//! that has turned over all it has while another's oldest leaf is older than its own, takes an extent from there: the
//! one in which the oldest leaf lies, with all that depends on its pages.
//! Nothing here does I/O or waits: who can, does so without the book, and asks again.
//! On error: no room is `Full`.

use super::extents::Place;
use super::index::ground::NONE;
use super::index::page::{State, name};
use super::lend::Asked;
use super::record::{At, Record};
use super::store::{Book, Slab};
use crate::error::{Result, argument};
use hashbrown::HashSet;

/// Most leaves of other classes that go so that a page of this one is a leaf.
const OTHERS: usize = 64;

/// What room there is for a page.
pub(super) enum Room {
    /// This slot.
    Place(Place),
    /// Perhaps some after this, without the book.
    Wait(Wait),
    /// None.
    Full,
}

/// What may give room.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    /// Slots of this size that zeros are being written to.
    Zeros(u32),
    /// A file, or one file less: there may be so many.
    Files(u32),
}

/// What is still waited for, before anything is evicted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    zeros: bool,
    files: bool,
}

impl Patience {
    pub(super) const ALL: Self = Self { zeros: true, files: true };
}

impl Slab {
    /// A free slot of a class. Whoever writes to it commits the log first.
    pub(super) fn take(&self, book: &mut Book, class: u32, patience: Patience) -> Room {
        loop {
            let most = self.bounds.files(book.slots_with(class));
            match self.extents.take(class) {
                Asked::Have(place) => return Room::Place(place),
                Asked::Wait if patience.zeros => return Room::Wait(Wait::Zeros(class)),
                Asked::Wait | Asked::None => {}
            }
            match self.grow(book, class, most) {
                Asked::Have(()) => continue,
                Asked::Wait if patience.files => return Room::Wait(Wait::Files(most)),
                Asked::Wait | Asked::None => {}
            }
            match self.oldest(book, class) {
                Some((_, true)) | None if self.seize(book, class) => {}
                Some((page, _)) => self.evict(book, page),
                None => return Room::Full,
            }
        }
    }

    /// Has it, without the book; what patience is left.
    pub(super) fn wait(&self, wait: Wait, patience: Patience) -> Patience {
        match wait {
            Wait::Zeros(class) => Patience { zeros: self.extents.settle(class), ..patience },
            Wait::Files(most) => Patience { files: self.extents.provide(most), ..patience },
        }
    }

    fn grow(&self, book: &mut Book, class: u32, most: u32) -> Asked<()> {
        match self.extents.grow(class, most) {
            Asked::Have(extent) => {
                let Ok(extent) = u16::try_from(extent) else { return Asked::None };
                book.logged = book.slots_with(class);
                book.index.ground.give(extent, class);
                book.since = book.since.max(book.index.ground.all());
                self.log.allow(self.bounds.log(book.logged));
                Asked::Have(())
            }
            Asked::Wait => Asked::Wait,
            Asked::None => Asked::None,
        }
    }

    /// The leaf of this class that goes next, and whether it is rather some other class's turn to give.
    fn oldest(&self, book: &mut Book, class: u32) -> Option<(u32, bool)> {
        let (used, page) = book.index.coldest(class).or_else(|| self.make_leaf(book, class))?;
        let turns = book.turns.entry(class).or_insert(0);
        *turns += 1;
        if u64::from(*turns) <= book.index.ground.used(class) {
            return Some((page, false));
        }
        *turns = 0;
        let others = book.index.coldest_but(class).is_some_and(|(other, _)| other < used);
        Some((page, others))
    }

    /// Evicts leaves of other classes until one of this class, which they depended on, is a leaf.
    fn make_leaf(&self, book: &mut Book, class: u32) -> Option<(u64, u32)> {
        if book.index.ground.used(class) == 0 {
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

    /// Frees an extent of another class, unless two are spare already: those can't be used, and more would neither.
    fn seize(&self, book: &mut Book, class: u32) -> bool {
        if self.extents.spare().1 > 1 {
            return false;
        }
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

    /// Gives back what is beyond the bounds, after they have changed, and tells them.
    ///
    /// # Errors
    /// Names `storage` where that would take pages, and the options forbid it.
    pub(super) fn shrink(&self) -> Result<()> {
        let most = loop {
            let mut book = self.book();
            let most = self.bounds.files(book.index.ground.all());
            if self.extents.files() <= most {
                break most;
            }
            let extent = match self.extents.spare().0 {
                Some(spare) => spare,
                None if !self.options.shrink => {
                    let reason = format!("size={}: its pages take more, and shrink=no", self.bounds.size);
                    return argument("storage", reason);
                }
                None => match self.vacate_coldest(&mut book) {
                    Some(extent) => extent,
                    None => break most,
                },
            };
            drop(book);
            self.extents.give_back(extent);
        };
        self.extents.allow(most);
        let mut book = self.book();
        let slots = book.index.ground.all();
        (book.logged, book.since) = (slots, slots);
        self.log.allow(self.bounds.log(slots));
        Ok(())
    }

    /// Takes the extent whose pages were all used longest ago from its class: whoever has it given back does so without
    /// the book.
    pub(super) fn vacate_coldest(&self, book: &mut Book) -> Option<u32> {
        let last = |pages: &[u32]| {
            let used = pages.iter().filter(|&&page| page != NONE).map(|&page| book.index.page(page).used);
            used.max().unwrap_or(0)
        };
        let mut extents: Vec<(u64, u16)> =
            book.index.ground.iter().map(|(extent, slots)| (last(&slots.pages), extent)).collect();
        extents.sort_unstable();
        let (_, extent) = extents.into_iter().find(|&(_, extent)| self.empty(book, extent))?;
        self.extents.release(extent.into()).then(|| extent.into())
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

impl Book {
    /// How many slots the log has to be told of, with one more extent of a class.
    fn slots_with(&self, class: u32) -> u64 {
        let ground = &self.index.ground;
        self.logged.max(ground.all() + u64::from(ground.slots(class)))
    }
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
