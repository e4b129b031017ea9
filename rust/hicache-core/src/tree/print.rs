//! Fingerprints of prefixes, and the changes that readers on other threads are told of.
//!
//! Kept only once somebody reads, or for a policy that wants names of pages: one word a page. For readers
//! also a list of changes since the last time.

use super::strand::Strand;
use super::{Place, Tree};
use crate::hash::Namespace;
use crate::ids::Tier;
use crate::page::{Tokens, make_room};
use foldhash::fast::FixedState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::ops::Range;

/// Where a prefix's last page lives now, or what a component has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Of the whole prefix, or that of a component's share.
    pub print: u64,
    /// Bit 0 device, bit 1 host.
    pub tiers: u64,
}

/// The fingerprint that a namespace's first page continues, in an epoch.
pub(crate) fn seed_print(namespace: &Namespace, epoch: u64) -> u64 {
    FixedState::default().hash_one((namespace, epoch))
}

/// The fingerprint of one page more. Never one whose entry would look unused.
pub(crate) fn next_print(before: u64, page: Tokens<'_>) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write_u64(before);
    page.for_each(|token| hasher.write_u64(token));
    hasher.finish() | 4
}

/// The fingerprint under which readers find what a component has of a page.
pub(crate) fn part_print(page: u64, component: usize) -> u64 {
    // A number that no token is: else it were the fingerprint of a page more.
    FixedState::default().hash_one((page, u64::MAX - component as u64)) | 4
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
            for index in self.strands.parents_first() {
                self.print(index, self.before(index));
            }
        }
        self.all_changes()
    }

    /// All pages as they are, where changes are noted.
    fn all_changes(&self) -> Vec<Change> {
        let strands = self
            .strands
            .iter()
            .flat_map(|(_, strand)| (strand.start..strand.end()).map(|page| change(strand, page)));
        let mut all: Vec<Change> = strands.collect();
        for (index, node) in self.arena.iter().filter(|(_, node)| !node.is_root()) {
            for component in 0..self.components.len() {
                let of_page = |page| self.part_change(component, index, page);
                all.extend((node.start..node.end).map(of_page).filter(|change| change.tiers != 0));
            }
        }
        all
    }

    /// The changes since the last time, if they are noted.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Fingerprints of a strand's pages from a place on, where they are kept.
    pub(super) fn print(&mut self, index: u32, from: Place) {
        if !self.keeps_prints() {
            return;
        }
        let mut print = self.last_print(from);
        let size = self.page_size.tokens();
        let strand = &mut self.strands[index];
        let tokens = strand.tokens.view().from((from.depth - strand.start) as usize * size);
        make_room(&mut strand.prints, self.page_size.pages(tokens.len()));
        for page in 0..self.page_size.pages(tokens.len()) {
            print = next_print(print, tokens.range(page * size..(page + 1) * size));
            strand.prints.push(print);
        }
    }

    /// Whether every page has its fingerprint.
    pub(super) const fn keeps_prints(&self) -> bool {
        self.changes.is_some() || self.leaving.wants_pages
    }

    /// Notes where some pages of a node, counted from the root, live now.
    pub(super) fn note(&mut self, node: u32, pages: Range<u32>) {
        if let Some(changes) = &mut self.changes {
            let strand = &self.strands[self.arena[node].strand];
            changes.extend(pages.map(|page| change(strand, page)));
        }
    }

    /// Notes what a component has of some pages of a node, counted from the root, now.
    pub(super) fn note_part(&mut self, component: usize, node: u32, pages: Range<u32>) {
        if let Some(mut changes) = self.changes.take() {
            changes.extend(pages.map(|page| self.part_change(component, node, page)));
            self.changes = Some(changes);
        }
    }

    fn part_change(&self, component: usize, node: u32, page: u32) -> Change {
        let strand = &self.strands[self.arena[node].strand];
        let there = |tier: Tier| u64::from(self.part_there(component, tier, node, page)) << tier as u32;
        let print = part_print(strand.prints[(page - strand.start) as usize], component);
        Change { print, tiers: there(Tier::Device) | there(Tier::Host) }
    }

    pub(super) fn last_print(&self, place: Place) -> u64 {
        let node = &self.arena[place.node];
        if let Some(rooted) = &node.rooted {
            return seed_print(&rooted.namespace, rooted.epoch);
        }
        let strand = &self.strands[node.strand];
        strand.prints[(place.depth - strand.start) as usize - 1]
    }
}

fn change(strand: &Strand, page: u32) -> Change {
    let there = |tier: Tier| u64::from(page < strand.reach(tier)) << tier as u32;
    let print = strand.prints[(page - strand.start) as usize];
    Change { print, tiers: there(Tier::Device) | there(Tier::Host) }
}
