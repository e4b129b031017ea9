//! A naive model of a tree with components: every page's slots in a map, usability straight from its definition.

use super::Seeded;
use super::pools::Pools;
use hicache_core::hash::Namespace;
use hicache_core::ids::Tier;
use hicache_core::page::{PageSize, Tokens};
use hicache_core::tree::{Component, Evicted, Hold, PinId, Place, Tree};
use std::collections::BTreeMap;

type Key = Vec<i32>;

/// What one page has: a slot per tier of FULL and of each component.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    full: [Option<u32>; 2],
    parts: Vec<[Option<u32>; 2]>,
}

pub struct Model {
    size: usize,
    pub tree: Tree,
    pub pages: BTreeMap<Key, Page>,
    pins: Vec<(PinId, Key, Tier)>,
    pools: Pools,
    random: Seeded,
}

impl Model {
    pub fn new(size: u32, components: &[Component], seed: u64, hashing: bool) -> Self {
        let tree = Tree::with_components(PageSize::new(size).unwrap(), hashing, components);
        let (size, pools, random) = (size as usize, Pools::default(), Seeded(seed));
        Self { size, tree, pages: BTreeMap::new(), pins: Vec::new(), pools, random }
    }

    fn prefix(&self, key: &[i32], pages: usize) -> Key {
        key[..pages * self.size].to_vec()
    }

    fn known(&self, key: &[i32]) -> usize {
        (1..=key.len() / self.size).take_while(|&n| self.pages.contains_key(&key[..n * self.size])).count()
    }

    fn resident(&self, key: &[i32], tier: Tier) -> usize {
        (1..=key.len() / self.size)
            .take_while(|&n| {
                self.pages.get(&key[..n * self.size]).is_some_and(|p| p.full[tier as usize].is_some())
            })
            .count()
    }

    /// Deepest usable boundary, straight from the definition.
    fn usable(&self, key: &[i32], device_only: bool) -> usize {
        let has = |slots: &[Option<u32>; 2]| slots[0].is_some() || (!device_only && slots[1].is_some());
        let agrees = |depth: usize| {
            let page = |n: usize| self.pages.get(&key[..n * self.size]);
            let full = (1..=depth).all(|n| page(n).is_some_and(|p| has(&p.full)));
            full && self.tree.components().iter().enumerate().all(|(at, component)| {
                let from = match component {
                    Component::Swa { window } => depth.saturating_sub(*window as usize) + 1,
                    Component::State => depth,
                };
                (from..=depth).all(|n| page(n).is_some_and(|p| has(&p.parts[at])))
            })
        };
        (1..=self.known(key)).rev().find(|&depth| agrees(depth)).unwrap_or(0)
    }

    fn held_root(&mut self) -> (Place, PinId) {
        let root = self.tree.root(&Namespace::default());
        (root, self.tree.pin(root, Hold::Soft))
    }

    fn walk(&mut self, root: Place, key: &[i32]) -> Place {
        let found = self.tree.walk(root, Tokens::I32(key));
        assert_eq!(found.place.depth as usize, self.known(key));
        assert_eq!(found.device as usize, self.usable(key, true), "usable on the device: {key:?}");
        assert_eq!(found.usable as usize, self.usable(key, false), "usable anywhere: {key:?}");
        let deeper = (found.place.depth > found.usable).then_some(found.place.depth);
        let state = self.tree.components().contains(&Component::State);
        assert_eq!(self.tree.checkpoint_at(&found), deeper.filter(|_| state));
        found.place
    }

    fn insert(&mut self, key: &[i32]) {
        let (root, held) = self.held_root();
        let pages = key.len() / self.size;
        let slots = self.pools.take(None, Tier::Device, pages);
        let done = self.tree.extend(root, Tokens::I32(key), Tier::Device, &slots);
        self.pools.give(None, Tier::Device, &done.duplicates(&slots));
        for n in 1..=pages {
            let parts = vec![[None; 2]; self.tree.components().len()];
            let page =
                self.pages.entry(key[..n * self.size].to_vec()).or_insert(Page { full: [None; 2], parts });
            let known = *page.full[0].get_or_insert(slots[n - 1].0);
            assert_eq!(done.slots[n - 1].0, known);
        }
        for component in 0..self.tree.components().len() {
            let first = match self.tree.components()[component] {
                // The engine keeps a window and sometimes a little more, or less: then it is no use alone.
                Component::Swa { window } => pages.saturating_sub(self.random.below(window as usize + 3)),
                Component::State if self.random.below(3) > 0 => pages - 1,
                Component::State => continue,
            };
            let offered: Vec<u32> = (first..pages).map(|page| u32::try_from(page).unwrap()).collect();
            self.attach(component, Tier::Device, done.place, key, &offered);
        }
        self.tree.unpin(held);
    }

    fn attach(&mut self, component: usize, tier: Tier, end: Place, key: &[i32], pages: &[u32]) {
        let slots = self.pools.take(Some(component), tier, pages.len());
        let duplicates = self.tree.attach(component, tier, end, pages, &slots);
        let mut expected = Vec::new();
        for (&page, &slot) in pages.iter().zip(&slots) {
            let key = self.prefix(key, page as usize + 1);
            let own = &mut self.pages.get_mut(&key).unwrap().parts[component][tier as usize];
            if own.is_some() {
                expected.push(slot);
            }
            own.get_or_insert(slot.0);
        }
        assert_eq!(duplicates, expected);
        self.pools.give(Some(component), tier, &duplicates);
    }

    /// Copies what a tier misses of a path from the other one: FULL up to `depth`, then each component.
    fn bring(&mut self, key: &[i32], tier: Tier, depth: usize, end: Place) {
        let from = self.resident(key, tier);
        let slots = self.pools.take(None, tier, depth.saturating_sub(from));
        let settle = [Tree::raise, Tree::mirror][tier as usize];
        settle(&mut self.tree, end, &slots);
        for (n, slot) in (from + 1..=depth).zip(slots) {
            let key = self.prefix(key, n);
            self.pages.get_mut(&key).unwrap().full[tier as usize] = Some(slot.0);
        }
        let end = self.tree.ancestor(end, u32::try_from(depth).unwrap());
        for component in 0..self.tree.components().len() {
            let missing = self.tree.missing(component, tier, end);
            for (&page, slot) in missing.pages.iter().zip(&missing.slots) {
                let key = self.prefix(key, page as usize + 1);
                let other = 1 - tier as usize;
                assert_eq!(self.pages[&key].parts[component][other], Some(slot.0));
            }
            self.attach(component, tier, end, key, &missing.pages);
        }
    }

    /// A load: afterwards what was usable anywhere is usable on the device.
    fn load(&mut self, key: &[i32]) {
        let (root, held) = self.held_root();
        let place = self.walk(root, key);
        let depth = self.usable(key, false);
        let end = self.tree.ancestor(place, u32::try_from(depth).unwrap());
        self.bring(key, Tier::Device, depth.max(self.resident(&key[..depth * self.size], Tier::Device)), end);
        assert!(self.usable(key, true) >= depth, "a loaded prefix is usable");
        self.tree.touch_matched(end);
        self.tree.unpin(held);
    }

    fn backup(&mut self, key: &[i32]) {
        let (root, held) = self.held_root();
        let place = self.walk(root, key);
        let depth = self.resident(key, Tier::Device);
        if depth >= self.resident(key, Tier::Host) {
            let end = self.tree.ancestor(place, u32::try_from(depth).unwrap());
            self.bring(key, Tier::Host, depth, end);
        }
        self.tree.unpin(held);
    }

    fn pin(&mut self, key: &[i32]) {
        let (root, held) = self.held_root();
        let place = self.walk(root, key);
        let tier = Tier::ALL[self.random.below(2)];
        let depth = [self.usable(key, true), self.resident(key, Tier::Host)][tier as usize];
        let at = self.tree.ancestor(place, u32::try_from(depth).unwrap());
        let pin = self.tree.pin(at, [Hold::Device, Hold::Host][tier as usize]);
        self.pins.push((pin, self.prefix(key, depth), tier));
        self.tree.unpin(held);
    }

    /// Whether a pin must keep a component's (or, for `None`, FULL's) page in a tier.
    fn is_held(&self, key: &Key, component: Option<usize>, tier: Tier) -> bool {
        self.pins.iter().filter(|(_, pin, at)| *at == tier && pin.starts_with(key)).any(|(_, pin, _)| {
            let behind = (pin.len() - key.len()) / self.size;
            match component.map(|at| self.tree.components()[at]) {
                None => true,
                Some(Component::Swa { window }) => behind < window as usize,
                // Held only if it was there when the pin was made, which for a device hit it was.
                Some(Component::State) => behind == 0 && tier == Tier::Device,
            }
        })
    }

    fn evict(&mut self, component: Option<usize>, tier: Tier, wanted: usize) {
        let before = self.pages.clone();
        let out = match component {
            None => self.tree.evict(tier, wanted),
            Some(component) => self.tree.evict_component(component, tier, wanted),
        };
        let freed = component.map_or(out.slots.len(), |component| out.parts[component].len());
        assert!(freed <= wanted, "never more than asked");
        self.take(&out, tier);
        for (key, page) in &before {
            let now = self.pages.get(key);
            let went =
                |own: &dyn Fn(&Page) -> Option<u32>| own(page).is_some() && now.and_then(own).is_none();
            let full = went(&|page| page.full[tier as usize]);
            assert!(!full || !self.is_held(key, None, tier), "a held page went: {key:?}");
            for at in 0..self.tree.components().len() {
                let part = went(&|page| page.parts[at][tier as usize]);
                assert!(!part || !self.is_held(key, Some(at), tier), "held state went: {key:?}");
            }
        }
        if let Some(component) = component.filter(|_| freed < wanted) {
            self.nothing_loose(component, tier);
        }
    }

    /// What is left of a component after an eviction of everything is on a pin's path, or a mirror.
    fn nothing_loose(&self, component: usize, tier: Tier) {
        for (key, page) in &self.pages {
            let slots = page.parts[component];
            let mirror = tier == Tier::Host && slots[0].is_some();
            let pinned = self.pins.iter().any(|(_, pin, at)| *at == tier && pin.starts_with(key));
            assert!(slots[tier as usize].is_none() || mirror || pinned, "it could have gone: {key:?}");
        }
    }

    fn take(&mut self, out: &Evicted, tier: Tier) {
        self.pools.give(None, tier, &out.slots);
        let (at, tier) = (tier, tier as usize);
        for (component, slots) in out.parts.iter().enumerate() {
            self.pools.give(Some(component), at, slots);
            for slot in slots {
                let mut pages = self.pages.values_mut();
                let page = pages.find(|page| page.parts[component][tier] == Some(slot.0));
                page.expect("a component's slot that a page had").parts[component][tier] = None;
            }
        }
        for slot in &out.slots {
            let mut pages = self.pages.iter_mut();
            let (key, page) = pages.find(|(_, page)| page.full[tier] == Some(slot.0)).expect("a page's slot");
            page.full[tier] = None;
            assert!(page.parts.iter().all(|part| part[tier].is_none()), "it goes with its page: {key:?}");
        }
        self.pages.retain(|_, page| page.full != [None; 2]);
    }

    pub fn step(&mut self) {
        let pages = 1 + self.random.below(7);
        let mut key = self.random.tokens(pages * self.size, 2);
        key.resize(pages * self.size, 0);
        let components = self.tree.components().len();
        let tier = Tier::ALL[self.random.below(2)];
        match self.random.below(12) {
            0..=2 => self.insert(&key),
            3 | 4 => self.backup(&key),
            5 | 6 => self.load(&key),
            7 => {
                let wanted = 1 + self.random.below(4);
                self.evict(None, tier, wanted);
            }
            8 | 9 if components > 0 => {
                let (component, wanted) = (self.random.below(components), 1 + self.random.below(4));
                self.evict(Some(component), tier, wanted);
            }
            10 if self.pins.len() < 4 => self.pin(&key),
            _ if !self.pins.is_empty() => {
                let at = self.random.below(self.pins.len());
                let (pin, ..) = self.pins.swap_remove(at);
                self.tree.unpin(pin);
            }
            _ => {}
        }
        self.tree.check().unwrap();
    }

    pub fn close(mut self) {
        for (pin, ..) in std::mem::take(&mut self.pins) {
            self.tree.unpin(pin);
        }
        for tier in [Tier::Device, Tier::Host] {
            for component in 0..self.tree.components().len() {
                self.evict(Some(component), tier, usize::MAX);
                assert_eq!(self.tree.part_resident(component, tier), 0);
            }
            self.evict(None, tier, usize::MAX);
            assert_eq!(self.tree.resident(tier), 0);
        }
        assert_eq!(self.tree.nodes(), 0);
    }
}
