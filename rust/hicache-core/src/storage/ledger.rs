//! What a store holds, how many bytes it takes, and which of it goes next: the one used longest ago of those that no
//! stored page needs.
//!
//! Knows names, sizes and times; refuses to know where pages are. A page whose parent isn't there is no child of anybody
//! until that comes. On error: nothing here fails.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::ops::RangeInclusive;

/// A page as the ledger knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<N> {
    /// What it takes.
    pub bytes: u64,
    /// When it was used last, by any clock that all entries share.
    pub used: u64,
    /// The page without which it is worth nothing.
    pub parent: Option<N>,
}

/// All pages of a store, by name.
#[derive(Debug)]
pub struct Ledger<N> {
    pages: BTreeMap<N, Entry<N>>,
    /// How many pages that are there name this one as their parent, whether it is there or not.
    children: HashMap<N, u32>,
    /// Pages without children, by use.
    leaves: BTreeSet<(u64, N)>,
    bytes: u64,
}

impl<N: Copy + Ord + Hash> Default for Ledger<N> {
    fn default() -> Self {
        Self { pages: BTreeMap::new(), children: HashMap::new(), leaves: BTreeSet::new(), bytes: 0 }
    }
}

impl<N: Copy + Ord + Hash> Ledger<N> {
    /// Bytes of all pages.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many pages there are.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// What is known of a page.
    pub fn get(&self, name: &N) -> Option<&Entry<N>> {
        self.pages.get(name)
    }

    /// Names between two, both included, in order.
    pub fn range(&self, names: RangeInclusive<N>) -> impl Iterator<Item = (&N, &Entry<N>)> {
        self.pages.range(names)
    }

    /// A page is there: a new one, or what is known of it changed.
    pub fn insert(&mut self, name: N, mut entry: Entry<N>) {
        // No page waits for itself.
        entry.parent = entry.parent.filter(|parent| *parent != name);
        self.remove(&name);
        self.bytes += entry.bytes;
        if let Some(parent) = entry.parent {
            let children = self.children.entry(parent).or_insert(0);
            *children += 1;
            if let Some(known) = self.pages.get(&parent).filter(|_| *children == 1) {
                self.leaves.remove(&(known.used, parent));
            }
        }
        if !self.children.contains_key(&name) {
            self.leaves.insert((entry.used, name));
        }
        self.pages.insert(name, entry);
    }

    /// A page was used. False if it isn't known.
    pub fn touch(&mut self, name: &N, used: u64) -> bool {
        let Some(entry) = self.pages.get_mut(name) else { return false };
        if self.leaves.remove(&(entry.used, *name)) {
            self.leaves.insert((used.max(entry.used), *name));
        }
        entry.used = used.max(entry.used);
        true
    }

    /// A page is gone.
    pub fn remove(&mut self, name: &N) -> Option<Entry<N>> {
        let entry = self.pages.remove(name)?;
        self.bytes -= entry.bytes;
        self.leaves.remove(&(entry.used, *name));
        if let Some(parent) = entry.parent {
            let children = self.children.get_mut(&parent).map_or(0, |children| {
                *children -= 1;
                *children
            });
            if children == 0 {
                self.children.remove(&parent);
                if let Some(known) = self.pages.get(&parent) {
                    self.leaves.insert((known.used, parent));
                }
            }
        }
        Some(entry)
    }

    /// The page that goes next, and isn't one of `spared`; it is still there. Parents that wait for one another in
    /// a ring, which nothing honest makes, go by use alone.
    pub fn next(&self, spared: impl Fn(&N) -> bool) -> Option<N> {
        let leaf = self.leaves.iter().map(|(_, name)| *name).find(|name| !spared(name));
        leaf.or_else(|| {
            let ring =
                || self.pages.iter().filter(|(name, _)| !spared(name)).min_by_key(|(_, page)| page.used);
            if self.leaves.is_empty() { ring().map(|(name, _)| *name) } else { None }
        })
    }

    /// Recomputes what is kept of it, for tests: whether it was right.
    pub fn holds(&self) -> bool {
        let mut children: HashMap<N, u32> = HashMap::new();
        self.pages
            .values()
            .filter_map(|page| page.parent)
            .for_each(|parent| *children.entry(parent).or_default() += 1);
        let leaves = self.pages.iter().filter(|(name, _)| !children.contains_key(*name));
        let leaves: BTreeSet<(u64, N)> = leaves.map(|(name, page)| (page.used, *name)).collect();
        self.bytes == self.pages.values().map(|page| page.bytes).sum::<u64>()
            && children == self.children
            && leaves == self.leaves
    }
}
