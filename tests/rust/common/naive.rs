//! The tree as it would be without any cleverness: a map from token prefixes to pages.
//!
//! A key is a namespace's number and then tokens, whole pages of them. Uses are marked on every page of
//! a path; an edge matters only where the tree says so: a use marks whole edges, never a part of one.

use std::collections::{BTreeMap, HashSet};

pub type Key = Vec<u32>;

pub const DEVICE: usize = 0;
pub const HOST: usize = 1;

#[derive(Clone, Debug, Default)]
pub struct Page {
    pub slot: [Option<u32>; 2],
    used: [u64; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    Nothing,
    Soft,
    Hard(usize),
}

#[derive(Debug)]
pub struct Naive {
    size: usize,
    pub pages: BTreeMap<Key, Page>,
    /// Where edges end, besides at leaves.
    ends: HashSet<Key>,
    now: u64,
    made: [u32; 2],
    /// Whether the host gives up what the device has, too.
    pub gives_way: bool,
}

/// What an extension must answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    pub slots: Vec<u32>,
    pub duplicates: Vec<u32>,
    pub new_pages: usize,
}

impl Naive {
    pub fn new(size: usize) -> Self {
        Self { size, pages: BTreeMap::new(), ends: HashSet::new(), now: 0, made: [0; 2], gives_way: false }
    }

    pub fn depth(&self, key: &[u32]) -> usize {
        (key.len() - 1) / self.size
    }

    pub fn prefix<'a>(&self, key: &'a [u32], depth: usize) -> &'a [u32] {
        &key[..=depth * self.size]
    }

    /// The whole pages of a namespace's tokens.
    pub fn key(&self, namespace: u32, tokens: &[i32]) -> Key {
        let whole = tokens.len() / self.size * self.size;
        let tokens = tokens[..whole].iter().map(|&token| u32::try_from(token).unwrap());
        std::iter::once(namespace).chain(tokens).collect()
    }

    pub fn fresh(&mut self, tier: usize, pages: usize) -> Vec<u32> {
        let first = self.made[tier];
        self.made[tier] += u32::try_from(pages).unwrap();
        (first..self.made[tier]).collect()
    }

    /// Leading pages that are known anywhere.
    pub fn known(&self, key: &[u32]) -> usize {
        self.leading(key, |_| true)
    }

    /// Leading pages in a tier.
    pub fn resident(&self, key: &[u32], tier: usize) -> usize {
        self.leading(key, |page| page.slot[tier].is_some())
    }

    fn leading(&self, key: &[u32], holds: impl Fn(&Page) -> bool) -> usize {
        let has = |depth: &usize| self.pages.get(self.prefix(key, *depth)).is_some_and(&holds);
        (1..=self.depth(key)).take_while(has).count()
    }

    pub fn slots(&self, key: &[u32], pages: std::ops::Range<usize>, tier: usize) -> Vec<u32> {
        pages.map(|page| self.pages[self.prefix(key, page + 1)].slot[tier].unwrap()).collect()
    }

    pub fn total(&self, tier: usize) -> usize {
        self.pages.values().filter(|page| page.slot[tier].is_some()).count()
    }

    /// Pages after `from` of the path become resident, one slot each.
    pub fn extend(&mut self, key: &[u32], from: usize, tier: usize, slots: &[u32]) -> Adopted {
        self.now += 1;
        let mut out = Adopted::default();
        let known = self.known(key).max(from);
        for (depth, &slot) in (from + 1..).zip(slots) {
            let page = self.pages.entry(self.prefix(key, depth).to_vec()).or_default();
            if let Some(own) = page.slot[tier] {
                out.slots.push(own);
                out.duplicates.push(slot);
            } else {
                page.slot[tier] = Some(slot);
                page.used[tier] = self.now;
                out.slots.push(slot);
            }
        }
        let end = from + slots.len();
        out.new_pages = end.saturating_sub(known);
        // Where the new part begins, and where the key ends, edges end.
        for depth in [known.min(end), end].into_iter().filter(|&depth| depth > 0) {
            self.ends.insert(self.prefix(key, depth).to_vec());
        }
        let last_new = (from..end).rev().find(|&page| out.slots[page - from] == slots[page - from]);
        if let Some(page) = last_new {
            self.mark(self.prefix(key, page + 1), tier);
        }
        self.touch(self.prefix(key, end));
        out
    }

    /// Pages of a known path that follow those in a tier get slots there.
    pub fn settle(&mut self, key: &[u32], tier: usize, slots: &[u32]) -> usize {
        let from = self.resident(key, tier);
        self.now += 1;
        for (depth, &slot) in (from + 1..).zip(slots) {
            let prefix = self.prefix(key, depth).to_vec();
            self.pages.get_mut(&prefix).unwrap().slot[tier] = Some(slot);
        }
        let end = from + slots.len();
        if !slots.is_empty() {
            self.mark(self.prefix(key, end), tier);
        }
        end
    }

    pub fn touch_matched(&mut self, key: &[u32]) {
        self.now += 1;
        let whole = self.depth(key) == 0 || self.ends.contains(key) || !self.has_child(key, |_| true);
        let depth = if whole { self.depth(key) } else { self.edge_start(key) };
        self.touch(self.prefix(key, depth));
    }

    /// A use of a path, in every tier.
    fn touch(&mut self, key: &[u32]) {
        [DEVICE, HOST].into_iter().for_each(|tier| self.mark(key, tier));
    }

    fn mark(&mut self, key: &[u32], tier: usize) {
        for depth in 1..=self.depth(key) {
            let prefix = self.prefix(key, depth).to_vec();
            self.pages.get_mut(&prefix).unwrap().used[tier] = self.now;
        }
    }

    /// Pages before the edge that the last page of `key` is on.
    fn edge_start(&self, key: &[u32]) -> usize {
        (1..self.depth(key)).rev().find(|&d| self.ends.contains(self.prefix(key, d))).unwrap_or(0)
    }

    pub fn at_edge_end(&self, key: &[u32]) -> bool {
        self.ends.contains(key) || !self.has_child(key, |_| true)
    }

    fn has_child(&self, key: &[u32], holds: impl Fn(&Page) -> bool) -> bool {
        let below =
            self.pages.range::<[u32], _>((std::ops::Bound::Excluded(key), std::ops::Bound::Unbounded));
        below
            .take_while(|(other, _)| other.starts_with(key))
            .any(|(other, page)| other.len() == key.len() + self.size && holds(page))
    }

    /// Pages that could leave a tier right now: tails that no hard pin holds and no device page mirrors.
    pub fn tails(&self, tier: usize, pins: &[(Key, Held)]) -> Vec<Key> {
        let hard =
            |key: &Key| pins.iter().any(|(pin, held)| *held == Held::Hard(tier) && pin.starts_with(key));
        let may = |key: &Key, page: &Page| {
            page.slot[tier].is_some()
                && (tier == DEVICE || self.gives_way || page.slot[DEVICE].is_none())
                && !self.has_child(key, |child| child.slot[tier].is_some())
                && !hard(key)
        };
        self.pages.iter().filter(|(key, page)| may(key, page)).map(|(key, _)| key.clone()).collect()
    }

    /// Where copies give way, one does before a page that lives on the host alone, unless somebody waits for it.
    pub fn copies_go_first(&self, tier: usize, victim: &Key, tails: &[Key], pins: &[(Key, Held)]) {
        let copy = |key: &Key| self.pages[key].slot[DEVICE].is_some();
        let waits = |key: &Key| pins.iter().any(|(pin, held)| *held == Held::Soft && pin.starts_with(key));
        if self.gives_way && tier == HOST && !copy(victim) {
            let other = tails.iter().find(|tail| copy(tail) && !waits(tail));
            assert_eq!(other, None, "{victim:?} lives here alone");
        }
    }

    /// The tail that was used longest ago.
    pub fn oldest(&self, tier: usize, tails: &[Key]) -> Option<Key> {
        tails.iter().min_by_key(|key| self.pages[*key].used[tier]).cloned()
    }

    /// Takes one page out of a tier; true if it is gone altogether.
    pub fn take(&mut self, key: &[u32], tier: usize) -> bool {
        let page = self.pages.get_mut(key).unwrap();
        page.slot[tier] = None;
        let gone = page.slot == [None, None];
        if gone {
            self.pages.remove(key);
            self.ends.remove(key);
        }
        gone
    }

    /// How many pages an eviction of everything would take.
    pub fn evictable(&self, tier: usize, pins: &[(Key, Held)]) -> usize {
        let mut rest = Self { pages: self.pages.clone(), ends: HashSet::new(), ..*self };
        let mut taken = 0;
        loop {
            let tails = rest.tails(tier, pins);
            if tails.is_empty() {
                return taken;
            }
            taken += tails.len();
            for key in &tails {
                rest.take(key, tier);
            }
        }
    }
}
