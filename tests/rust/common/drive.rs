//! A tree under random operations of every kind, the same for every policy; answers what each one took.

use super::Seeded;
use hicache_core::hash::Namespace;
use hicache_core::ids::{Slot, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::policy::{Eviction, Moment, Request};
use hicache_core::tree::{Component, Evicted, Hold, PinId, Place, Tree};

pub struct Drive {
    pub tree: Tree,
    random: Seeded,
    made: u32,
    requests: u64,
    pins: Vec<PinId>,
}

impl Drive {
    pub fn new(components: &[Component], seed: u64, policy: Box<dyn Eviction>) -> Self {
        let tree = Tree::with_policy(PageSize::new(1).unwrap(), false, components, policy);
        Self { tree, random: Seeded(seed), made: 0, requests: 0, pins: Vec::new() }
    }

    /// One operation. Returns the key it was about and what was evicted.
    pub fn step(&mut self) -> (Vec<i32>, Option<Evicted>) {
        let mut key = self.random.tokens(9, 3);
        key.push(1);
        let salt = (self.random.below(4) == 0).then(|| "other".to_owned());
        let root = self.tree.root(&Namespace { salt: salt.clone(), ..Namespace::default() });
        let held = self.tree.pin(root, Hold::Soft);
        let found = self.tree.walk(root, Tokens::I32(&key)).place;
        let (tier, components) = (Tier::ALL[self.random.below(2)], self.tree.components().len());
        let mut out = None;
        match self.random.below(14) {
            0..=3 => self.insert(root, &key),
            4 | 5 => self.use_path(found),
            6 => {
                let missing = found.depth - self.tree.resident_depth(found, Tier::Device);
                let slots = self.fresh(missing, true);
                self.tree.raise(found, &slots);
            }
            7 | 8 => out = Some(self.tree.evict(tier, 1 + self.random.below(6))),
            9 if components > 0 => {
                let (component, wanted) = (self.random.below(components), 1 + self.random.below(3));
                out = Some(self.tree.evict_component(component, tier, wanted));
            }
            10 | 11 => self.pin(found),
            _ if !self.pins.is_empty() => {
                let at = self.random.below(self.pins.len());
                self.tree.unpin(self.pins.swap_remove(at));
            }
            _ => {}
        }
        self.tree.unpin(held);
        if salt.is_some() {
            key.push(-1);
        }
        (key, out)
    }

    /// Lets all pins go and takes page after page from both tiers.
    pub fn close(mut self) -> Vec<Evicted> {
        self.pins.drain(..).for_each(|pin| self.tree.unpin(pin));
        let mut all = Vec::new();
        for tier in [Tier::Device, Tier::Host] {
            while self.tree.resident(tier) > 0 {
                all.push(self.tree.evict(tier, 1));
            }
        }
        assert_eq!(self.tree.nodes(), 0);
        all
    }

    fn fresh(&mut self, most: u32, fewer: bool) -> Vec<Slot> {
        let count = if fewer { u32::try_from(self.random.below(most as usize + 1)).unwrap() } else { most };
        self.made += count;
        (self.made - count..self.made).map(Slot).collect()
    }

    fn tell(&mut self, moment: Moment, new_pages: usize, from: u32, end: Place) {
        let turn = self.tree.next_turn(self.tree.ancestor(end, from));
        let (number, tick) = (self.requests, self.requests);
        let new_pages = u32::try_from(new_pages).unwrap();
        self.tree.tell(Request { number, tick, moment, turn, new_pages }, from..end.depth, end);
    }

    fn use_path(&mut self, place: Place) {
        self.requests += 1;
        self.tell(Moment::Matched, 0, 0, place);
        self.tree.touch_matched(place);
    }

    fn insert(&mut self, root: Place, key: &[i32]) {
        let slots = self.fresh(u32::try_from(key.len()).unwrap(), false);
        self.requests += 1;
        let done = self.tree.extend(root, Tokens::I32(key), Tier::Device, &slots);
        let end = done.place;
        self.tell(Moment::Inserted, done.new_pages, 0, end);
        let missing = end.depth - self.tree.resident_depth(end, Tier::Host);
        let slots = self.fresh(missing, true);
        self.tree.mirror(end, &slots);
        for component in 0..self.tree.components().len() {
            let back = match self.tree.components()[component] {
                Component::State => 1,
                Component::Swa { .. } => 1 + u32::try_from(self.random.below(4)).unwrap(),
            };
            let pages: Vec<u32> = (end.depth.saturating_sub(back)..end.depth).collect();
            self.attach(component, Tier::Device, end, &pages);
            let on_host = self.tree.ancestor(end, self.tree.resident_depth(end, Tier::Host));
            let missing = self.tree.missing(component, Tier::Host, on_host).pages;
            self.attach(component, Tier::Host, on_host, &missing);
        }
    }

    fn attach(&mut self, component: usize, tier: Tier, end: Place, pages: &[u32]) {
        let slots = self.fresh(u32::try_from(pages.len()).unwrap(), false);
        self.tree.attach(component, tier, end, pages, &slots);
    }

    fn pin(&mut self, place: Place) {
        let (hold, depth) = match self.random.below(4) {
            0 => (Hold::Device, self.tree.resident_depth(place, Tier::Device)),
            1 => (Hold::Host, self.tree.resident_depth(place, Tier::Host)),
            _ => (Hold::Soft, place.depth),
        };
        let at = self.tree.ancestor(place, depth);
        self.pins.push(self.tree.pin(at, hold));
    }
}
