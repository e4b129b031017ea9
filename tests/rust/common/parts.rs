//! A tree with components and the pools that its slots come from: what an engine's requests do to both.

use super::pools::Pools;
use hicache_core::hash::Namespace;
use hicache_core::ids::Tier;
use hicache_core::page::{PageSize, Tokens};
use hicache_core::tree::{Component, Found, Hold, Place, Tree};
use std::ops::Range;

/// Models of all kinds. The numbers of a component in them differ on purpose.
pub const KINDS: [&[Component]; 8] = [
    &[],
    &[Component::Swa { window: 1 }],
    &[Component::Swa { window: 2 }],
    &[Component::Swa { window: 4 }],
    &[Component::State],
    &[Component::Swa { window: 2 }, Component::State],
    &[Component::State, Component::Swa { window: 3 }],
    &[Component::State, Component::Swa { window: 3 }, Component::Swa { window: 1 }],
];

/// The tokens of pages: a number names one page's tokens.
pub fn tokens(size: u32, pages: &[i32]) -> Vec<i32> {
    pages.iter().flat_map(|&page| (0..size.cast_signed()).map(move |at| page * 100 + at)).collect()
}

pub struct Parts {
    pub tree: Tree,
    pub pools: Pools,
    size: u32,
}

impl Parts {
    pub fn new(size: u32, components: &[Component]) -> Self {
        let tree = Tree::with_components(PageSize::new(size).unwrap(), true, components);
        Self { tree, pools: Pools::default(), size }
    }

    /// What a match of these pages finds.
    pub fn find(&mut self, pages: &[i32]) -> Found {
        self.find_tokens(&tokens(self.size, pages))
    }

    pub fn find_tokens(&mut self, tokens: &[i32]) -> Found {
        let root = self.tree.root(&Namespace::default());
        let held = self.tree.pin(root, Hold::Soft);
        let found = self.tree.walk(root, Tokens::I32(tokens));
        self.tree.unpin(held);
        found
    }

    /// FULL pages in a tier; returns the place after the last one.
    pub fn extend(&mut self, tier: Tier, pages: &[i32]) -> Place {
        let root = self.tree.root(&Namespace::default());
        let slots = self.pools.take(None, tier, pages.len());
        let tokens = tokens(self.size, pages);
        let done = self.tree.extend(root, Tokens::I32(&tokens), tier, &slots);
        self.pools.give(None, tier, &done.duplicates(&slots));
        self.check();
        done.place
    }

    /// A component's slots for pages of the path to `end`. Returns how many were adopted.
    pub fn attach(&mut self, component: usize, tier: Tier, end: Place, pages: Range<u32>) -> usize {
        self.attach_to(component, tier, end, &pages.collect::<Vec<_>>())
    }

    pub fn attach_to(&mut self, component: usize, tier: Tier, end: Place, pages: &[u32]) -> usize {
        let slots = self.pools.take(Some(component), tier, pages.len());
        let duplicates = self.tree.attach(component, tier, end, pages, &slots);
        self.pools.give(Some(component), tier, &duplicates);
        self.check();
        pages.len() - duplicates.len()
    }

    /// What a request leaves: FULL everywhere, each window's pages before its end, a checkpoint at its end.
    pub fn request(&mut self, tier: Tier, pages: &[i32]) -> Place {
        let end = self.extend(tier, pages);
        self.complete(tier, end);
        end
    }

    /// Every component of a prefix that ends at `end`.
    pub fn complete(&mut self, tier: Tier, end: Place) {
        for component in 0..self.tree.components().len() {
            let pages = match self.tree.components()[component] {
                Component::Swa { window } => end.depth.saturating_sub(window)..end.depth,
                Component::State => end.depth - 1..end.depth,
            };
            self.attach(component, tier, end, pages);
        }
    }

    /// FULL pages that a tier misses of the path to `end` come from the other one.
    pub fn bring_full(&mut self, tier: Tier, end: Place) {
        let missing = end.depth - self.tree.resident_depth(end, tier);
        let slots = self.pools.take(None, tier, missing as usize);
        [Tree::raise, Tree::mirror][tier as usize](&mut self.tree, end, &slots);
        self.check();
    }

    /// The same, with what a match that ends there needs of each component.
    pub fn bring(&mut self, tier: Tier, end: Place) {
        self.bring_full(tier, end);
        for component in 0..self.tree.components().len() {
            let missing = self.tree.missing(component, tier, end);
            self.attach_to(component, tier, end, &missing.pages);
        }
        self.check();
    }

    /// Returns how many slots of what was asked for came back.
    pub fn evict(&mut self, component: Option<usize>, tier: Tier, wanted: usize) -> usize {
        let out = match component {
            None => self.tree.evict(tier, wanted),
            Some(component) => self.tree.evict_component(component, tier, wanted),
        };
        self.pools.give(None, tier, &out.slots);
        for (component, slots) in out.parts.iter().enumerate() {
            self.pools.give(Some(component), tier, slots);
        }
        self.check();
        component.map_or(out.slots.len(), |component| out.parts[component].len())
    }

    pub fn evict_all(&mut self, tier: Tier) {
        for component in 0..self.tree.components().len() {
            self.evict(Some(component), tier, usize::MAX);
        }
        self.evict(None, tier, usize::MAX);
    }

    /// The tree's own invariants, and that it has exactly the slots that are out.
    pub fn check(&self) {
        self.tree.check().unwrap();
        for tier in Tier::ALL {
            assert_eq!(self.tree.resident(tier), self.pools.out(None, tier));
            for component in 0..self.tree.components().len() {
                let resident = self.tree.part_resident(component, tier);
                assert_eq!(resident, self.pools.out(Some(component), tier), "{component} in {tier:?}");
            }
        }
    }

    /// With nothing pinned everything can go.
    pub fn emptied(&mut self) {
        Tier::ALL.into_iter().for_each(|tier| self.evict_all(tier));
        assert_eq!((self.tree.nodes(), self.tree.pins()), (0, 0));
        self.check();
    }
}
