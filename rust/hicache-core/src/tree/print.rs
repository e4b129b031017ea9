//! Fingerprints of prefixes, and the changes that readers on other threads are told of.
//!
//! Kept only once somebody reads, or for a policy that wants names of pages: one word a page. For readers
//! also a list of changes since the last time.

use super::node::Node;
use super::{Place, Tree};
use crate::hash::Namespace;
use crate::ids::Tier;
use crate::page::Tokens;
use foldhash::fast::FixedState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::ops::Range;

/// Where a prefix's last page lives now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Of the whole prefix.
    pub print: u64,
    /// Bit 0 device, bit 1 host.
    pub tiers: u64,
}

/// The fingerprint that a namespace's first page continues.
pub(crate) fn seed_print(namespace: &Namespace) -> u64 {
    FixedState::default().hash_one(namespace)
}

/// The fingerprint of one page more. Never one whose entry would look unused.
pub(crate) fn next_print(before: u64, page: Tokens<'_>) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write_u64(before);
    page.for_each(|token| hasher.write_u64(token));
    hasher.finish() | 4
}

impl Tree {
    /// From now on every change is noted; returns all pages as they are.
    pub fn start_publishing(&mut self) -> Vec<Change> {
        if self.changes.is_none() {
            let there = self.keeps_prints();
            self.changes = Some(Vec::new());
            if there {
                return self.all_changes();
            }
            let mut nodes: Vec<(u32, u32)> = self.arena.iter().map(|(at, node)| (node.start, at)).collect();
            // A parent starts before its children do.
            nodes.sort_unstable();
            for (_, index) in nodes {
                self.arena[index].prints = self.prints_of(index);
            }
        }
        self.all_changes()
    }

    /// All pages as they are, where changes are noted.
    pub fn all_changes(&self) -> Vec<Change> {
        let nodes =
            self.arena.iter().flat_map(|(_, node)| (0..node.pages() as usize).map(|page| change(node, page)));
        nodes.collect()
    }

    /// The changes since the last time, if they are noted.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Fingerprints of a node's pages, continued from its parent's.
    pub(super) fn prints_of(&self, index: u32) -> Vec<u64> {
        let node = &self.arena[index];
        if !self.keeps_prints() || node.is_root() {
            return Vec::new();
        }
        let mut print = self.last_print(Place { node: node.parent, depth: node.start });
        let pages = self.page_size.pages(node.tokens.view().len());
        let mut prints = Vec::with_capacity(pages);
        for page in 0..pages {
            print = next_print(print, self.page(node.tokens.view(), page));
            prints.push(print);
        }
        prints
    }

    /// Whether every page has its fingerprint.
    pub(super) const fn keeps_prints(&self) -> bool {
        self.changes.is_some() || self.leaving.wants_pages
    }

    /// Fingerprints of a range of pages on the path to `place`. They must be kept.
    pub(super) fn prints(&self, place: Place, pages: Range<u32>) -> Vec<u64> {
        let mut prints = vec![0; pages.len()];
        self.climb(place, pages.clone(), |node, part| {
            let start = self.arena[node].start;
            let from = &self.arena[node].prints[(part.start - start) as usize..(part.end - start) as usize];
            prints[(part.start - pages.start) as usize..(part.end - pages.start) as usize]
                .copy_from_slice(from);
        });
        prints
    }

    /// Notes where some pages of a node live now.
    pub(super) fn note(&mut self, index: u32, pages: Range<usize>) {
        if let Some(changes) = &mut self.changes {
            let node = &self.arena[index];
            changes.extend(pages.map(|page| change(node, page)));
        }
    }

    pub(super) fn last_print(&self, place: Place) -> u64 {
        let node = &self.arena[place.node];
        match &node.namespace {
            Some(namespace) => seed_print(namespace),
            None => node.prints[(place.depth - node.start) as usize - 1],
        }
    }
}

fn change(node: &Node, page: usize) -> Change {
    let there = |tier: Tier| u64::from(page < node.slots[tier as usize].len()) << tier as u32;
    Change { print: node.prints[page], tiers: there(Tier::Device) | there(Tier::Host) }
}
