//! What leaves first: every order of leaving beside one that is written down; windows break one at a time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::Seeded;
use common::parts::Parts;
use common::rig::{Rig, Shape};
use hicache_core::ids::Tier;
use hicache_core::tree::{Component, Hold};

const KIND: [Component; 2] = [Component::Swa { window: 2 }, Component::State];
/// FULL's own order, the windows' and the checkpoints'.
const ORDERS: [Option<usize>; 3] = [None, Some(0), Some(1)];

/// Paths of their own, and the order in which they were used, written down.
struct Shelf {
    parts: Parts,
    tier: Tier,
    used: Vec<i32>,
}

impl Shelf {
    fn new(tier: Tier) -> Self {
        Self { parts: Parts::new(1, &KIND), tier, used: Vec::new() }
    }

    fn note(&mut self, name: i32) {
        self.used.retain(|&used| used != name);
        self.used.push(name);
    }

    fn put(&mut self, name: i32) {
        self.parts.request(self.tier, &[name, name, name]);
        self.note(name);
    }

    fn hit(&mut self, name: i32) {
        let found = self.parts.find(&[name, name, name]);
        assert_eq!(found.usable, 3, "{name} is there");
        self.parts.tree.touch_matched(found.place);
        self.note(name);
    }

    /// Makes one path unusable; it must be the one that was used longest ago.
    fn lose_one(&mut self, order: Option<usize>) {
        let oldest = self.used.remove(0);
        self.parts.evict(order, self.tier, 1);
        assert!(self.parts.find(&[oldest; 3]).usable < 3, "{oldest} was used longest ago");
        for at in 0..self.used.len() {
            let name = self.used[at];
            assert_eq!(self.parts.find(&[name; 3]).usable, 3, "{name} was used after {oldest}");
        }
        // What is left of it goes too, before anything else.
        let left = self.parts.find(&[oldest; 3]).place.depth;
        assert_eq!(self.parts.evict(None, self.tier, left as usize), left as usize);
        assert_eq!(self.parts.find(&[oldest; 3]).place.depth, 0);
    }
}

/// Putting counts as a use: of a, b, c and then a again, d and e push out b and c, never what is fresh.
#[test]
fn what_was_just_put_is_not_the_first_to_go() {
    for tier in Tier::ALL {
        for order in ORDERS {
            let mut shelf = Shelf::new(tier);
            [1, 2, 3].into_iter().for_each(|name| shelf.put(name));
            shelf.hit(1);
            shelf.lose_one(order);
            shelf.put(4);
            shelf.lose_one(order);
            shelf.put(5);
            assert_eq!(shelf.used, [1, 4, 5]);
        }
    }
}

/// Any sequence of puts, hits and evictions, in every order of either tier.
#[test]
fn every_order_of_leaving_is_the_order_of_last_use() {
    for tier in Tier::ALL {
        for (order, seed) in ORDERS.into_iter().flat_map(|order| (0..30).map(move |seed| (order, seed))) {
            let (mut shelf, mut random) = (Shelf::new(tier), Seeded(seed));
            for name in 0..60 {
                let count = shelf.used.len();
                match random.below(5) {
                    0 | 1 if count > 0 => shelf.hit(shelf.used[random.below(count)]),
                    2 if count > 0 => shelf.lose_one(order),
                    _ => shelf.put(name),
                }
            }
            while !shelf.used.is_empty() {
                shelf.lose_one(order);
            }
            shelf.parts.emptied();
        }
    }
}

/// Branches behind a trunk, each ending with a window: whatever is taken from the windows' order, at most one
/// branch is broken at a time; all others hit in full.
#[test]
fn windows_break_one_branch_at_a_time() {
    for tier in Tier::ALL {
        for window in 1..=4 {
            let mut parts = Parts::new(1, &[Component::Swa { window }]);
            let branch = |name: i32| [1, 2, 3, 10 + name, 20 + name, 30 + name, 40 + name, 50 + name];
            for name in 0..4 {
                parts.request(tier, &branch(name));
            }
            let mut whole = 4;
            while whole > 0 {
                parts.evict(Some(0), tier, 1);
                let usable: Vec<u32> = (0..4).map(|name| parts.find(&branch(name)).usable).collect();
                let now = usable.iter().filter(|&&usable| usable == 8).count();
                let resident = parts.tree.part_resident(0, tier);
                assert!(now + 1 >= whole, "two at a time: {usable:?}");
                assert!(resident >= now * window as usize);
                assert!(
                    resident < (now + 1) * window as usize,
                    "some is kept that nobody can use: {usable:?}"
                );
                whole = now;
            }
            parts.emptied();
        }
    }
}

/// A conversation whose turns all left their windows, used again and again at its end, beside another chat: what
/// lies before the last window is worth nothing to either, and leaves before what one of them needs.
#[test]
fn windows_that_no_end_needs_leave_first() {
    for tier in Tier::ALL {
        for window in 1..=4_u32 {
            for turns in 3..8 {
                let mut parts = Parts::new(1, &[Component::Swa { window }]);
                let turn = window.cast_signed() + 2;
                let long: Vec<i32> = (1..=turns * turn).collect();
                for end in 1..turns {
                    parts.request(tier, &long[..usize::try_from(end * turn).unwrap()]);
                }
                let other: Vec<i32> = (1..=window.cast_signed() + 1).map(|page| 500 + page).collect();
                parts.request(tier, &other);
                // The last turn begins with a hit of all before it.
                let before = &long[..usize::try_from((turns - 1) * turn).unwrap()];
                let found = parts.find(before);
                parts.tree.touch_matched(found.place);
                parts.request(tier, &long);
                let needed = 2 * window as usize;
                // Of the conversation, a match uses one page more than the window.
                let spare = parts.tree.part_resident(0, tier) - needed - window as usize - 1;
                assert_eq!(parts.evict(Some(0), tier, spare), spare);
                assert_eq!(parts.find(&long).usable, u32::try_from(long.len()).unwrap());
                assert_eq!(parts.find(&other).usable, window + 1, "the colder chat is whole too");
            }
        }
    }
}

/// The same where all of a long prompt came with its windows at once: what its end doesn't need leaves before
/// what a colder chat does, and a pin at its end holds no more than that.
#[test]
fn a_long_prompt_keeps_and_holds_no_more_than_its_last_window() {
    for (tier, hold) in Tier::ALL.into_iter().zip([Hold::Device, Hold::Host]) {
        for (window, pinned) in (1..=4_u32).flat_map(|window| [false, true].map(|pinned| (window, pinned))) {
            let mut parts = Parts::new(1, &[Component::Swa { window }]);
            let long: Vec<i32> = (1..=20).collect();
            let end = parts.extend(tier, &long);
            assert_eq!(parts.attach(0, tier, end, 0..20), 20);
            let other: Vec<i32> = (501..502 + window.cast_signed()).collect();
            parts.request(tier, &other);
            let found = parts.find(&long);
            parts.tree.touch_matched(found.place);
            let pin = pinned.then(|| parts.tree.pin(found.place, hold));
            let spare = 20 - window as usize - 1;
            assert_eq!(parts.evict(Some(0), tier, spare), spare);
            assert_eq!((parts.find(&long).usable, parts.find(&other).usable), (20, window + 1));
            assert_eq!(parts.tree.resident(tier), 20 + other.len(), "and no KV goes for it");
            pin.into_iter().for_each(|pin| parts.tree.unpin(pin));
            parts.emptied();
        }
    }
}

/// A device full of pages that waiting requests hope for still makes room, and what they lose is a miss.
#[test]
fn waiting_requests_never_keep_a_device_from_making_room() {
    for page in [1, 2] {
        let mut rig = Rig::new(Shape { page, device: 8, host: 0, ..Shape::default() }, None);
        let tokens: Vec<i32> = (0..8 * page.cast_signed()).collect();
        rig.serve(&tokens);
        let waiting: Vec<_> = (0..1000).map(|_| rig.find(&tokens)).collect();
        assert_eq!(rig.view(waiting[0]).device, 8);
        let one = rig.cache.allocate(1).unwrap().expect("soft holds give way");
        assert_eq!(rig.view(waiting[999]).usable, 7);
        rig.cache.free(&one).unwrap();
        let other: Vec<i32> = tokens.iter().map(|token| 100 + token).collect();
        rig.serve(&other);
        assert_eq!(rig.view(waiting[0]).usable, 0);
        assert_eq!(rig.load(waiting[0]).device, 0);
        waiting.into_iter().for_each(|hit| assert!(rig.cache.release(hit, 0).is_ok()));
        rig.drained();
    }
}

/// Requests that looked and left, a thousand of them, hold nothing: all of it can go for others.
#[test]
fn requests_that_only_looked_hold_nothing() {
    let mut rig = Rig::new(Shape { page: 1, device: 8, host: 8, ..Shape::default() }, None);
    let tokens: Vec<i32> = (0..8).collect();
    rig.serve(&tokens);
    rig.settle();
    for length in (0..1000).map(|round| round % 9) {
        let hit = rig.find(&tokens[..length]);
        rig.cache.release(hit, 0).unwrap();
    }
    assert_eq!(rig.cache.tree().pins(), 0);
    assert_eq!(rig.cache.tree().evictable(Tier::Device), 8);
    let other: Vec<i32> = (100..108).collect();
    let hit = rig.find(&other);
    rig.load(hit);
    assert!(rig.compute(hit, &other));
    rig.cache.release(hit, 0).unwrap();
    assert_eq!(rig.cache.stats().evicted_device_pages, 8);
    rig.drained();
}

/// A prompt that is asked for without its last page, again and again, is used: what was not used since leaves
/// first, though no insert follows.
#[test]
fn what_is_loaded_from_inside_an_edge_was_used() {
    let mut rig = Rig::new(Shape { page: 1, device: 64, ..Shape::default() }, None);
    let (hot, cold): (Vec<i32>, Vec<i32>) = ((0..10).collect(), (100..110).collect());
    rig.serve(&hot);
    rig.serve(&cold);
    rig.settle();
    for _ in 0..3 {
        let hit = rig.find(&hot[..9]);
        assert_eq!(rig.load(hit).device, 9);
        rig.cache.release(hit, 0).unwrap();
    }
    // The last page of the hot one, which nobody used again, and then the cold one.
    rig.evict(Tier::Device, 11);
    let found = [&hot, &cold].map(|tokens| {
        let hit = rig.find(tokens);
        let found = rig.view(hit).device;
        rig.cache.release(hit, 0).unwrap();
        found
    });
    assert_eq!(found, [9, 0]);
}

/// Hits of one batch that end inside one edge, in any order, from the device and from the host: each gets its own
/// pages, and all of them were used.
#[test]
fn hits_of_one_batch_may_end_on_one_edge() {
    let tokens: Vec<i32> = (0..10).collect();
    for (from_host, ends) in
        [[9, 5, 7], [5, 7, 9], [7, 9, 5], [5, 5, 9]].into_iter().flat_map(|e| [(false, e), (true, e)])
    {
        let mut rig = Rig::new(Shape { page: 1, device: 64, ..Shape::default() }, None);
        rig.serve(&tokens);
        rig.settle();
        if from_host {
            rig.evict(Tier::Device, 6);
        }
        let hits = ends.map(|end| rig.find(&tokens[..end]));
        rig.cache.load(&hits, None).unwrap();
        rig.settle();
        for (hit, end) in hits.into_iter().zip(ends) {
            assert_eq!(rig.view(hit).device as usize, end);
            rig.verify(hit, &tokens[..end]);
            rig.cache.release(hit, 0).unwrap();
        }
        rig.books();
        rig.drained();
    }
}
