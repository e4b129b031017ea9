//! Parents and children: a page without which others are worth nothing goes after them.
//!
//! A page's children are counted, those under way included. Children whose parent isn't here are counted under its
//! name, so that it finds them when it comes, and so that whether a page is wanted is known before it is here.
//! Names are 8 bytes of a digest: should two pages share one, eviction's order suffers and nothing else.
//! On error: nothing here fails.

use super::Index;
use super::page::{Key, name};
use crate::storage::slab::record::Written;

impl Index {
    /// Whether pages are here, or under way, that are worth nothing without this one.
    pub fn is_wanted(&self, key: &Key) -> bool {
        self.wanted.contains_key(&(key.identity, name(&key.digest)))
    }

    /// The page without which this one is worth nothing, if it is here.
    pub fn parent_of(&self, page: u32) -> Option<u32> {
        let written = self.page(page).written;
        if written.parent == 0 { None } else { self.named(written.identity, written.parent) }
    }

    /// A page that needs this parent may come: the parent is not evicted meanwhile.
    pub fn expect(&mut self, identity: u16, parent: u64) {
        self.join(identity, parent);
    }

    /// Ends an `expect`.
    pub fn expect_no_more(&mut self, identity: u16, parent: u64) {
        self.part(identity, parent);
    }

    /// A child of this parent comes.
    pub(super) fn join(&mut self, identity: u16, parent: u64) {
        match self.named(identity, parent) {
            _ if parent == 0 => {}
            Some(page) => self.page_mut(page).children += 1,
            None => *self.wanted.entry((identity, parent)).or_insert(0) += 1,
        }
    }

    /// A child of this parent is gone, which may be a leaf now.
    pub(super) fn part(&mut self, identity: u16, parent: u64) {
        if parent == 0 {
            return;
        }
        if let Some(page) = self.named(identity, parent) {
            let found = self.page_mut(page);
            found.children = found.children.saturating_sub(1);
            return self.queue(page);
        }
        if let Some(children) = self.wanted.get_mut(&(identity, parent)) {
            *children -= 1;
            if *children == 0 {
                self.wanted.remove(&(identity, parent));
            }
        }
    }

    /// A page is gone that has so many children.
    pub(super) fn orphan(&mut self, written: &Written, children: u32) {
        if children > 0 {
            *self.wanted.entry((written.identity, name(&written.digest))).or_insert(0) += children;
        }
    }
}
