//! The order of last use, and which leaf goes next.
//!
//! Uses are counted, not timed. Those that aren't logged yet are gathered: only the last one of a page counts.
//! On error: nothing here fails.

use super::Index;
use super::ground::class_of;
use super::leaves::Standing;
use super::page::State;
use crate::storage::slab::record::At;

impl Index {
    /// It was used.
    pub fn touch(&mut self, page: u32) {
        let now = self.tick();
        let found = self.page_mut(page);
        found.used = now;
        if !std::mem::replace(&mut found.unlogged, true) {
            self.touched.push(page);
        }
    }

    /// It was used, as a log tells.
    pub fn use_logged(&mut self, page: u32) {
        self.page_mut(page).used = self.tick();
    }

    /// How many uses are not logged yet.
    pub const fn unlogged(&self) -> usize {
        self.touched.len()
    }

    /// Places that were used since the last call, in order of their last use.
    pub fn take_touched(&mut self) -> Vec<At> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.retain(|&page| {
            let found = self.page_mut(page);
            std::mem::replace(&mut found.unlogged, false) && found.state == State::Here
        });
        touched.sort_unstable_by_key(|&page| self.page(page).used);
        touched.into_iter().map(|page| self.page(page).written.at).collect()
    }

    /// The leaf of a class that was used longest ago and that nobody reads, and when it was used.
    pub fn coldest(&mut self, class: u32) -> Option<(u64, u32)> {
        let Self { leaves, pages, .. } = self;
        leaves.coldest(class, |queued, page| {
            let found = &mut pages[page as usize];
            if found.state != State::Here || found.queued != queued {
                Standing::Stale
            } else if found.children > 0 {
                found.queued = 0;
                Standing::Parent
            } else if found.used != queued {
                found.queued = found.used;
                Standing::Used(found.used)
            } else if found.readers > 0 {
                Standing::Busy
            } else {
                Standing::Leaf
            }
        })
    }

    /// The leaf of any class but one that was used longest ago.
    pub fn coldest_but(&mut self, class: u32) -> Option<(u64, u32)> {
        let classes = self.leaves.classes().into_iter().filter(|&other| other != class);
        classes.filter_map(|class| self.coldest(class)).min()
    }

    /// Queues all leaves that aren't.
    pub fn queue_leaves(&mut self) {
        (0..self.numbers()).for_each(|page| self.queue(page));
    }

    /// It may be a leaf: queues it if it is.
    pub(super) fn queue(&mut self, page: u32) {
        let found = self.page_mut(page);
        if found.state == State::Here && found.children == 0 && found.queued == 0 {
            found.queued = found.used;
            if let (used, Some(class)) = (found.used, class_of(found.written.bytes.into())) {
                self.leaves.push(class, used, page);
            }
        }
    }

    pub(super) const fn tick(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }
}
