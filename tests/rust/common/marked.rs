//! What a tree keeps in mind of writes, as it would be without any cleverness: sets of pages. A page is the number of its
//! epoch and then all tokens up to its end; it has a slot per tier, marks, and is stored (or on its way there) or not.

use super::Seeded;
use hicache_core::hash::Namespace;
use hicache_core::ids::{Slot, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::tree::{Evicted, Hold, Mark, PinId, Place, Saving, Tree, Wanted};
use std::collections::{BTreeMap, BTreeSet};

pub(super) type Key = Vec<i32>;

pub const MARKS: [Mark; 3] = [Mark::Host, Mark::Storage, Mark::Soon];

pub struct Marked {
    pub tree: Tree,
    saving: Saving,
    epoch: i32,
    pub(super) slots: [BTreeMap<Key, Slot>; 2],
    pub(super) by_slot: [BTreeMap<Slot, Key>; 2],
    pub(super) marks: [BTreeSet<Key>; 3],
    pub(super) stored: BTreeSet<Key>,
    /// On the host, were to be stored, and weren't.
    pub(super) owed: BTreeSet<Key>,
    /// Stores under way, held up to there: pages of a path, counted from 0.
    stores: Vec<(PinId, Key, Vec<u32>)>,
    made: u32,
    random: Seeded,
    /// Pages that were lost, by tier; debts that were seen.
    pub lost: [usize; 2],
    pub debts: usize,
}

pub(super) fn prefix(key: &[i32], pages: usize) -> Key {
    key[..=pages].to_vec()
}

impl Marked {
    /// Pages of one token.
    pub fn new(saving: Saving, seed: u64) -> Self {
        let mut tree = Tree::new(PageSize::new(1).unwrap(), false);
        tree.save(saving.clone());
        Self {
            tree,
            saving,
            epoch: 0,
            slots: Default::default(),
            by_slot: Default::default(),
            marks: Default::default(),
            stored: BTreeSet::new(),
            owed: BTreeSet::new(),
            stores: Vec::new(),
            made: 0,
            random: Seeded(seed),
            lost: [0; 2],
            debts: 0,
        }
    }

    pub(super) fn has(&self, tier: Tier, key: &Key) -> bool {
        self.slots[tier as usize].contains_key(key)
    }

    fn lives(&self, key: &Key) -> bool {
        Tier::ALL.iter().any(|&tier| self.has(tier, key))
    }

    fn resident(&self, tier: Tier, key: &[i32]) -> usize {
        (1..key.len()).take_while(|&pages| self.has(tier, &prefix(key, pages))).count()
    }

    fn known(&self, key: &[i32]) -> usize {
        (1..key.len()).take_while(|&pages| self.lives(&prefix(key, pages))).count()
    }

    pub(super) fn wanted(&self, tier: Tier, key: &Key) -> bool {
        let mark = |mark: Mark| self.marks[mark as usize].contains(key);
        let wanted = match self.saving.wanted[tier as usize] {
            Wanted::Nothing => false,
            Wanted::All => true,
            Wanted::UsedAgain => mark(Mark::Host),
            Wanted::Marked => mark([Mark::Host, Mark::Storage][tier as usize]),
        };
        wanted && key[0] == self.epoch
    }

    /// Wanted one tier further down, and not there.
    pub(super) fn unsaved(&self, tier: Tier, key: &Key) -> bool {
        let there = if tier == Tier::Device { self.has(Tier::Host, key) } else { self.stored.contains(key) };
        self.wanted(tier, key) && !there
    }

    fn fresh(&mut self, pages: usize) -> Vec<Slot> {
        let first = self.made;
        self.made += u32::try_from(pages).unwrap();
        (first..self.made).map(Slot).collect()
    }

    fn give(&mut self, tier: Tier, key: Key, slot: Slot) {
        assert!(self.slots[tier as usize].insert(key.clone(), slot).is_none());
        self.by_slot[tier as usize].insert(slot, key);
    }

    /// A path that is likely to be there, and a place of it, held while something is done.
    pub(super) fn place(&mut self) -> (Key, Place, PinId) {
        let key = self.key();
        let (root, pin) = self.root();
        let pages = self.known(&key);
        let place = self.tree.walk(root, Tokens::I32(&key[1..])).place;
        assert_eq!(place.depth as usize, pages);
        let depth = self.random.below(pages + 1);
        (prefix(&key, depth), self.tree.ancestor(place, u32::try_from(depth).unwrap()), pin)
    }

    fn root(&mut self) -> (Place, PinId) {
        let root = self.tree.root(&Namespace::default());
        (root, self.tree.pin(root, Hold::Soft))
    }

    /// Tokens of a whole history, of two kinds; long ones cross from strand to strand.
    fn key(&mut self) -> Key {
        let pages = 1 + self.random.below(40);
        let mut key = vec![self.epoch];
        // Seldom the other one, so that long beginnings are shared.
        key.extend((0..pages).map(|_| i32::from(self.random.below(9) == 0)));
        key
    }

    fn insert(&mut self) {
        let key = self.key();
        let (root, pin) = self.root();
        let (tier, pages) = (Tier::ALL[usize::from(self.random.below(4) == 0)], key.len() - 1);
        let slots = self.fresh(pages);
        let done = self.tree.extend(root, Tokens::I32(&key[1..]), tier, &slots);
        for (page, &slot) in slots.iter().enumerate() {
            let key = prefix(&key, page + 1);
            if !self.has(tier, &key) {
                self.give(tier, key, slot);
            }
        }
        if tier == Tier::Host && self.random.below(2) == 0 {
            // Read from storage: that has it.
            let from = self.random.below(pages);
            self.note_stored(&key, done.place, from, pages);
        }
        self.tree.unpin(pin);
    }

    fn note_stored(&mut self, key: &[i32], place: Place, from: usize, to: usize) {
        self.tree.store(place, u32::try_from(from).unwrap()..u32::try_from(to).unwrap());
        for page in from..to {
            let key = prefix(key, page + 1);
            self.owed.remove(&key);
            self.stored.insert(key);
        }
    }

    /// Copies pages to the other tier.
    fn copy(&mut self) {
        let (key, place, pin) = self.place();
        let to = Tier::ALL[self.random.below(2)];
        let from = self.resident(to, &key);
        let depth = (key.len() - 1).max(from);
        let slots = self.fresh(depth - from);
        [Tree::raise, Tree::mirror][to as usize](&mut self.tree, place, &slots);
        (from..depth).zip(slots).for_each(|(page, slot)| self.give(to, prefix(&key, page + 1), slot));
        self.tree.unpin(pin);
    }

    fn mark(&mut self) {
        let (key, place, pin) = self.place();
        let mark = MARKS[self.random.below(3)];
        self.tree.mark(place, mark);
        self.marks[mark as usize].extend((1..key.len()).map(|pages| prefix(&key, pages)));
        self.tree.unpin(pin);
    }

    /// What of a path is on the host and not stored goes on its way.
    fn store(&mut self) {
        let (key, place, pin) = self.place();
        let depth = self.resident(Tier::Host, &key);
        let end = self.tree.ancestor(place, u32::try_from(depth).unwrap());
        let pages: Vec<u32> = self.tree.unstored(end).into_iter().flatten().collect();
        let hold = self.tree.pin(end, Hold::Host);
        for &page in &pages {
            self.note_stored(&key, end, page as usize, page as usize + 1);
        }
        self.tree.settle_debts(end);
        self.stores.push((hold, prefix(&key, depth), pages));
        self.tree.unpin(pin);
    }

    /// A store ends: some of its pages failed, most often none.
    fn land(&mut self) {
        if self.stores.is_empty() {
            return;
        }
        let (hold, key, pages) = self.stores.swap_remove(self.random.below(self.stores.len()));
        let fails = self.random.below(2) == 0;
        for page in pages {
            if fails && self.random.below(3) == 0 {
                let place = self.tree.pinned(&hold);
                self.tree.unstore(place, page);
                let key = prefix(&key, page as usize + 1);
                self.stored.remove(&key);
                self.owed.insert(key);
            }
        }
        self.tree.unpin(hold);
    }

    /// Nobody remembers that a path was to be stored.
    fn owe(&mut self) {
        let (key, place, pin) = self.place();
        self.tree.owe(place);
        let pages = (1..key.len()).map(|pages| prefix(&key, pages));
        let lacking = pages.filter(|key| self.has(Tier::Host, key) && !self.stored.contains(key));
        let lacking: Vec<Key> = lacking.collect();
        self.owed.extend(lacking);
        self.tree.unpin(pin);
    }

    fn evict(&mut self) {
        let (tier, pages) = (Tier::ALL[self.random.below(2)], 1 + self.random.below(12));
        let out = self.tree.evict(tier, pages);
        self.take(tier, &out);
    }

    fn take(&mut self, tier: Tier, out: &Evicted) {
        let (mut lost, mut dropped) = (0, 0);
        for slot in &out.slots {
            let key = self.by_slot[tier as usize].remove(slot).expect("a page's slot");
            self.slots[tier as usize].remove(&key);
            if !self.lives(&key) {
                dropped += 1;
                lost += usize::from(self.unsaved(tier, &key));
                self.marks.iter_mut().for_each(|marks| _ = marks.remove(&key));
                self.stored.remove(&key);
                // What it hung on may have been stored under its name.
                let parent = prefix(&key, key.len() - 2);
                if self.saving.wanted[Tier::Host as usize] == Wanted::All
                    && parent.len() > 1
                    && self.has(Tier::Host, &parent)
                    && !self.stored.contains(&parent)
                {
                    self.owed.insert(parent);
                }
            }
            if tier == Tier::Host {
                self.owed.remove(&key);
            }
        }
        assert_eq!((out.dropped, out.unsaved), (dropped, lost), "of {:?}", out.slots);
        self.lost[tier as usize] += lost;
    }

    pub fn step(&mut self) {
        match self.random.below(20) {
            0..=4 => self.insert(),
            5..=7 => self.copy(),
            8 | 9 => self.mark(),
            10 | 11 => self.store(),
            12 | 13 => self.land(),
            14 => self.owe(),
            15 if self.random.below(20) == 0 => {
                self.tree.end_epoch();
                self.epoch += 1;
            }
            15 if self.random.below(20) == 0 => {
                self.tree.forget_stored();
                self.stored.clear();
                self.owed = self.slots[Tier::Host as usize].keys().cloned().collect();
            }
            _ => self.evict(),
        }
        self.tree.check().unwrap();
        self.compare();
    }

    /// Everybody is through: everything can go, and nothing is kept in mind of it.
    pub fn end(&mut self) {
        while !self.stores.is_empty() {
            self.land();
        }
        for tier in Tier::ALL {
            let out = self.tree.evict(tier, usize::MAX);
            self.take(tier, &out);
        }
        assert_eq!((self.tree.in_debt(), self.tree.pins(), self.tree.nodes()), (0, 0, 0));
        assert!(self.stored.is_empty() && self.owed.is_empty());
    }
}
