//! Small inputs with the right answer, from faults that users of comparable systems met.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::Seeded;
use common::rig::{Rig, Shape};
use common::store::FaultStore;
use hicache_core::hash::Namespace;
use hicache_core::ids::{Cursor, HitId, Slot, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::tree::{Hold, Place, Tree};
use std::sync::Arc;

fn tree(size: u32) -> (Tree, Place) {
    let mut tree = Tree::new(PageSize::new(size).unwrap(), false);
    let root = tree.root(&Namespace::default());
    (tree, root)
}

fn slots(from: u32, count: u32) -> Vec<Slot> {
    (from..from + count).map(Slot).collect()
}

fn insert(tree: &mut Tree, root: Place, tokens: &[i32], from: u32) -> Place {
    let pages = u32::try_from(tokens.len() / tree.page_size().tokens()).unwrap();
    tree.extend(root, Tokens::I32(tokens), Tier::Device, &slots(from, pages)).place
}

/// What an engine holds of one request.
struct Request {
    hit: HitId,
    tokens: Vec<i32>,
    loaded: bool,
}

struct Load {
    rig: Rig,
    random: Seeded,
    live: Vec<Request>,
    cursors: Vec<(Cursor, Vec<i32>)>,
    out: Vec<Slot>,
}

impl Load {
    fn step(&mut self) {
        match self.random.below(12) {
            0..=2 => self.arrive(),
            3 => self.arrive_after(),
            4 => self.fetch(),
            5 | 6 => self.load(),
            7 => self.compute(),
            8 | 9 => self.release(),
            10 => self.squeeze(),
            _ => self.rig.poll(0.0),
        }
        self.rig.books();
    }

    fn arrive(&mut self) {
        let tokens = self.random.tokens(40, 4);
        let hit = self.rig.find(&tokens);
        self.live.push(Request { hit, tokens, loaded: false });
        if self.live.len() > 12 {
            self.release();
        }
    }

    /// The next turn of a released request, if its place is still there.
    fn arrive_after(&mut self) {
        if self.cursors.is_empty() {
            return;
        }
        let at = self.random.below(self.cursors.len());
        let (cursor, mut tokens) = self.cursors.swap_remove(at);
        let new = self.random.tokens(8, 4);
        if let Ok(hit) = self.rig.find_after(&new, Some(cursor)) {
            tokens.extend(new);
            self.live.push(Request { hit, tokens, loaded: false });
        }
    }

    fn pick(&mut self, loaded: bool) -> Option<usize> {
        let fit: Vec<usize> = (0..self.live.len()).filter(|&at| self.live[at].loaded == loaded).collect();
        (!fit.is_empty()).then(|| fit[self.random.below(fit.len())])
    }

    fn fetch(&mut self) {
        if let Some(at) = self.pick(false) {
            self.rig.cache.prefetch(self.live[at].hit).unwrap();
        }
    }

    fn load(&mut self) {
        if let Some(at) = self.pick(false) {
            self.rig.load(self.live[at].hit);
            self.live[at].loaded = true;
            self.rig.verify(self.live[at].hit, &self.live[at].tokens);
        }
    }

    fn compute(&mut self) {
        if let Some(at) = self.pick(true) {
            let Request { hit, tokens, .. } = &self.live[at];
            self.rig.compute(*hit, tokens);
            self.rig.verify(*hit, tokens);
        }
    }

    fn release(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let at = self.random.below(self.live.len());
        let Request { hit, mut tokens, .. } = self.live.swap_remove(at);
        let cursor = self.rig.cache.release(hit, 0).unwrap();
        tokens.truncate(cursor.depth as usize * self.rig.size());
        self.cursors.push((cursor, tokens));
    }

    fn squeeze(&mut self) {
        let (tier, pages) = (Tier::ALL[self.random.below(2)], 1 + self.random.below(8));
        let gone = self.rig.evict(tier, pages);
        assert!(gone.len() <= pages);
        let back = std::mem::take(&mut self.out);
        self.rig.cache.free(&back).unwrap();
        self.out = self.rig.cache.allocate(self.random.below(4)).unwrap().unwrap_or_default();
    }
}

/// The books are checked after each of 10,000 steps, and every page that a load or an insert
/// names must carry its stamp.
#[test]
fn books_hold_under_random_load() {
    for page in [1, 4] {
        let store = Arc::new(FaultStore::default());
        let shape = Shape { page, device: 64, host: 128, ..Shape::default() };
        let rig = Rig::new(shape, Some(&store));
        let mut load =
            Load { rig, random: Seeded(7), live: Vec::new(), cursors: Vec::new(), out: Vec::new() };
        for _ in 0..10_000 {
            load.step();
        }
        while !load.live.is_empty() {
            load.release();
        }
        load.rig.cache.free(&load.out).unwrap();
        load.rig.drained();
        let stats = *load.rig.cache.stats();
        assert!(stats.hit_device_tokens > 0 && stats.hit_host_tokens > 0 && stats.hit_storage_tokens > 0);
        assert!(stats.evicted_device_pages > 0 && stats.evicted_host_pages > 0 && stats.dropped_pages > 0);
    }
}

/// A hard pin protects everything from the match up to the root, and gives all of it back.
#[test]
fn pins_protect_exactly_what_they_hold() {
    let (mut tree, root) = tree(1);
    let end = insert(&mut tree, root, &[1, 2, 3, 4, 5, 6], 0);
    let pin = tree.pin(end, Hold::Device);
    assert_eq!(tree.evictable(Tier::Device), 0);
    assert_eq!(tree.evict(Tier::Device, 100).slots.len(), 0);
    tree.check().unwrap();
    // `unpin` takes the receipt: there is no way to give it back twice.
    tree.unpin(pin);
    assert_eq!(tree.pins(), 0);
    assert_eq!(tree.evict(Tier::Device, 100).slots.len(), 6);
    assert_eq!(tree.nodes(), 0);
}

#[test]
fn a_split_does_not_leave_pages_protected() {
    let (mut tree, root) = tree(1);
    let end = insert(&mut tree, root, &[1, 2, 3, 4, 5, 6], 0);
    let pin = tree.pin(end, Hold::Device);
    insert(&mut tree, root, &[1, 2, 3, 9], 10);
    assert_eq!(tree.evictable(Tier::Device), 1);
    tree.unpin(pin);
    tree.check().unwrap();
    assert_eq!(tree.evictable(Tier::Device), 7);
    assert_eq!(tree.resident(Tier::Device) - tree.evictable(Tier::Device), 0);
    assert_eq!(tree.evict(Tier::Device, 100).slots.len(), 7);
}

#[test]
fn a_hit_is_released_once() {
    let mut rig = Rig::new(Shape::default(), None);
    let hit = rig.find(&[1, 2, 3, 4]);
    rig.cache.release(hit, 0).unwrap();
    let error = rig.cache.release(hit, 0).unwrap_err().to_string();
    assert!(error.contains("released"), "{error}");
    assert!(rig.cache.view(hit).is_err() && rig.cache.load(&[hit], None).is_err());
    rig.drained();
}

/// Exactly as many as asked, from the tier that was asked.
#[test]
fn ten_host_leaves_give_three_pages() {
    let (mut tree, root) = tree(1);
    for leaf in 0..10 {
        tree.extend(root, Tokens::I32(&[i32::try_from(leaf).unwrap()]), Tier::Host, &slots(leaf, 1));
    }
    let out = tree.evict(Tier::Host, 3);
    assert_eq!((out.slots, out.dropped), (slots(0, 3), 3));
    assert_eq!(tree.resident(Tier::Host), 7);
}

#[test]
fn an_allocation_evicts_only_what_is_missing() {
    let mut rig = Rig::new(Shape { page: 1, device: 10, host: 0, ..Shape::default() }, None);
    rig.serve(&[1, 2, 3, 4, 5, 6]);
    assert_eq!(rig.free(Tier::Device), 4);
    let slots = rig.cache.allocate(6).unwrap().unwrap();
    assert_eq!(slots.len(), 6);
    assert_eq!(rig.cache.stats().evicted_device_pages, 2);
    rig.cache.free(&slots).unwrap();

    let mut rig = Rig::new(Shape { page: 4, device: 4, host: 0, ..Shape::default() }, None);
    rig.serve(&(0..16).collect::<Vec<_>>());
    assert_eq!(rig.free(Tier::Device), 0);
    rig.cache.allocate(2).unwrap().unwrap();
    assert_eq!(rig.cache.stats().evicted_device_pages, 2);
    rig.books();
}

#[test]
fn what_cannot_be_had_takes_nothing_with_it() {
    let mut rig = Rig::new(Shape { page: 1, device: 4, host: 0, ..Shape::default() }, None);
    let held = rig.find(&[1, 2, 3, 4]);
    rig.load(held);
    assert!(rig.compute(held, &[1, 2, 3, 4]));
    assert_eq!(rig.cache.allocate(1).unwrap(), None);
    rig.verify(held, &[1, 2, 3, 4]);
    assert_eq!(rig.cache.stats().evicted_device_pages, 0);
}

/// What is shorter than a page is nothing, and what is not a whole page is cut off.
#[test]
fn short_and_unaligned_keys() {
    let (mut tree, root) = tree(4);
    let pin = tree.pin(root, Hold::Soft);
    insert(&mut tree, root, &[1, 2, 3], 0);
    assert_eq!(tree.resident(Tier::Device), 0);
    assert_eq!(tree.nodes(), 1, "the root alone");
    let long: Vec<i32> = (0..64).collect();
    insert(&mut tree, root, &long, 0);
    let known = |tree: &Tree, tokens: &[i32]| tree.walk(root, Tokens::I32(tokens)).usable * 4;
    assert_eq!(known(&tree, &long[..63]), 60);
    assert_eq!(known(&tree, &long[..3]), 0);
    assert_eq!(known(&tree, &[]), 0);
    assert_eq!(known(&tree, &long), 64);
    tree.check().unwrap();
    tree.unpin(pin);

    let (mut tree, root) = self::tree(1);
    insert(&mut tree, root, &[5], 0);
    assert_eq!(tree.walk(root, Tokens::I32(&[5])).usable, 1);
}

/// A conversation of 3,000 turns of one page.
#[test]
fn three_thousand_turns_deep() {
    let store = Arc::new(FaultStore::default());
    let shape = Shape { page: 1, device: 3000, host: 3000, queue: 4000, ..Shape::default() };
    let mut rig = Rig::new(shape, Some(&store));
    let tokens: Vec<i32> = (0..3000).map(|token| token % 7).collect();
    let hit = rig.find(&[]);
    rig.load(hit);
    for length in 1..=tokens.len() {
        let slot = rig.cache.allocate(1).unwrap().unwrap();
        rig.memory.write_device(slot[0], &rig.stamp(&tokens, length - 1));
        rig.cache.insert(hit, Tokens::I32(&tokens[length - 1..length]), &slot).unwrap();
    }
    rig.verify(hit, &tokens);
    rig.cache.release(hit, 0).unwrap();
    let again = rig.find(&tokens);
    assert_eq!(rig.view(again).device, 3000);
    rig.load(again);
    assert_eq!(rig.cache.evict(Tier::Device, usize::MAX).unwrap().len(), 0);
    rig.cache.release(again, 0).unwrap();
    rig.settle();
    assert_eq!(store.len(), 3000, "as many prefix hashes");
    assert_eq!(rig.cache.evict(Tier::Device, usize::MAX).unwrap().len(), 3000);
    rig.drained();
}
