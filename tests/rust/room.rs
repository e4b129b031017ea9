//! Room for waiting allocations in a unified buffer: how many prefixes stay beside a fixed split of the same bytes, who
//! pays for whom, and that nothing leaves that need not.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::tenants::{Tenants, prompt, related};
use common::{Seeded, seeds};
use hicache_core::hash::Namespace;
use hicache_core::host::SlotPool;
use hicache_core::ids::Tier;
use hicache_core::page::{PageSize, Tokens};
use hicache_core::room::{Room, Wanted, make_room};
use hicache_core::tree::{Component, Hold, Tree};
use hicache_core::unified::{End, Geometry, Grows, Part};

/// A state is as large as 4 pages of KV; a page is 2 bytes.
const PAGE: u64 = 2;
const STATE: u64 = 4 * PAGE;

fn parts(kv_slots: Option<u32>, states: Option<u32>) -> [Part; 2] {
    let part = |name: &str, grows, entry_bytes, slots| {
        let name = name.into();
        Part { name, grows, entry_bytes, page: 1, slots, least: 1 }
    };
    [part("kv", Grows::Down, PAGE, kv_slots), part("state", Grows::Up, STATE, states)]
}

/// A buffer with the sink and so many bytes in pages of KV.
fn buffer(pages: u64) -> Geometry {
    Geometry::new(STATE + pages * PAGE, 1, &parts(None, None)).unwrap()
}

/// A fixed split of 188 + 10 · 4 = 228 pages of bytes: each kind evicts from its own pool.
struct Split {
    tree: Tree,
    kv: SlotPool,
    states: SlotPool,
}

impl Split {
    fn new(pages: u32, states: u32) -> Self {
        let tree = Tree::with_components(PageSize::new(1).unwrap(), false, &[Component::State]);
        Self { tree, kv: SlotPool::new(pages), states: SlotPool::new(states) }
    }

    fn serve(&mut self, tokens: &[i32]) {
        let lacking = tokens.len().saturating_sub(self.kv.free());
        for gone in [self.tree.evict(Tier::Device, lacking), {
            let lacking = 1_usize.saturating_sub(self.states.free());
            self.tree.evict_component(0, Tier::Device, lacking)
        }] {
            self.kv.give_back(&gone.slots);
            self.states.give_back(&gone.parts[0]);
        }
        let (pages, state) = (self.kv.take(tokens.len()).unwrap(), self.states.take(1).unwrap());
        let root = self.tree.root(&Namespace::default());
        let end = self.tree.extend(root, Tokens::I32(tokens), Tier::Device, &pages).place;
        self.tree.attach(0, Tier::Device, end, &[end.depth - 1], &state);
    }

    fn keeps(&mut self, tokens: &[i32]) -> bool {
        let root = self.tree.root(&Namespace::default());
        self.tree.walk(root, Tokens::I32(tokens)).usable as usize == tokens.len()
    }
}

/// How many of `count` prefixes of `pages` pages are whole after all were served: (unified, split).
fn kept(count: usize, pages: usize, split: (u32, u32)) -> (usize, usize) {
    let mut split = Split::new(split.0, split.1);
    let mut unified = Tenants::new(buffer(228), Component::State);
    for number in 0..count {
        split.serve(&prompt(number, pages));
        unified.serve(&prompt(number, pages), 1).unwrap();
        unified.check();
    }
    let mut counts = (0, 0);
    for number in 0..count {
        counts.0 += usize::from(unified.keeps(&prompt(number, pages)));
        counts.1 += usize::from(split.keeps(&prompt(number, pages)));
    }
    counts
}

/// 28 returning requests of 8 pages. With one state of 4 pages each they take 12 pages of bytes: 19 · 12 = 228. Split
/// into 188 pages and 10 states, the states are full when 80 pages are: 10 prefixes, and 108 pages that
/// nobody can use. The buffer's sink is 4 pages; two pools would have 5 for the same purpose.
#[test]
fn nineteen_of_28_prefixes_are_kept_where_a_fixed_split_keeps_ten() {
    assert_eq!(kept(28, 8, (188, 10)), (19, 10));
}

/// The other way round: long prefixes in a split made for short ones (27 states, 120 pages).
#[test]
fn a_split_for_short_prefixes_keeps_fewer_long_ones() {
    assert_eq!(kept(28, 8, (120, 27)), (19, 15));
    // 36 pages and a state are 40: five fit. 120 pages hold three.
    assert_eq!(kept(8, 36, (120, 27)), (5, 3));
}

/// From many short prefixes to a few long ones: KV needs the bytes of states between which others still live.
#[test]
fn what_is_wanted_changes_and_bytes_follow_by_moves() {
    let mut tenants = Tenants::new(buffer(228), Component::State);
    for number in 0..28 {
        tenants.serve(&prompt(number, 2), 1).unwrap();
    }
    // Every other one is used again: the rest leaves first, and its states leave holes.
    for number in (0..28).step_by(2) {
        let found = tenants.find(&prompt(number, 2));
        tenants.tree.touch_matched(found.place);
    }
    assert_eq!(tenants.moved, 0);
    tenants.serve(&prompt(100, 100), 1).unwrap();
    tenants.check();
    assert!(tenants.moved > 0, "states made way");
    // 28 · 6 + 104 are 44 more than 228: seven short ones and the last page of an eighth, with its state, give 47.
    let stays = (0..28).filter(|&number| tenants.keeps(&prompt(number, 2))).count();
    assert_eq!((stays, tenants.keeps(&prompt(100, 100))), (20, true));
}

#[test]
fn a_state_is_paid_for_with_pages_and_not_more_than_it_takes() {
    let mut tenants = Tenants::new(buffer(28), Component::State);
    tenants.serve(&prompt(0, 20), 0).unwrap();
    tenants.serve(&prompt(1, 4), 1).unwrap();
    let (room, evicted) = tenants.room(0, 1);
    assert_eq!((room, evicted.slots.len(), evicted.parts[0].len()), (Room::Made, 4, 0));
    assert!(tenants.keeps(&prompt(1, 4)), "the state that is there stays");
}

#[test]
fn pages_are_paid_for_with_states_when_no_page_may_leave() {
    let mut tenants = Tenants::new(buffer(28), Component::State);
    tenants.serve(&prompt(0, 8), 1).unwrap();
    let (end, _) = tenants.serve(&prompt(0, 12), 1).unwrap();
    let pin = tenants.tree.pin(end, Hold::Device);
    // 12 pages and two states are 20 of 28. The state at 8 may go; the one at 12 and all pages are held.
    let (room, evicted) = tenants.room(9, 0);
    assert_eq!((room, evicted.slots.len(), evicted.parts[0].len()), (Room::Made, 0, 1));
    tenants.take(End::Down, 9);
    assert!(tenants.keeps(&prompt(0, 12)));
    tenants.tree.unpin(pin);
}

/// A leaf's state goes with its last page: 5 pages of bytes come for one.
#[test]
fn what_goes_along_ends_the_walk() {
    let mut tenants = Tenants::new(buffer(24), Component::State);
    tenants.serve(&prompt(0, 8), 1).unwrap();
    tenants.serve(&prompt(1, 8), 1).unwrap();
    let (room, evicted) = tenants.room(5, 0);
    assert_eq!((room, evicted.slots.len(), evicted.parts[0].len()), (Room::Made, 1, 1));
    assert!(tenants.keeps(&prompt(1, 8)));
}

#[test]
fn slots_that_are_short_are_bought_with_no_other_kind() {
    let geometry = Geometry::new(STATE + 100 * PAGE, 1, &parts(Some(20), Some(2))).unwrap();
    let mut tenants = Tenants::new(geometry, Component::State);
    tenants.serve(&prompt(0, 4), 1).unwrap();
    tenants.serve(&prompt(1, 4), 1).unwrap();
    tenants.serve(&prompt(2, 4), 0).unwrap();
    let (room, evicted) = tenants.room(0, 1);
    assert_eq!((room, evicted.parts[0].len()), (Room::Made, 1));
    assert!(!tenants.keeps(&prompt(0, 4)) && tenants.keeps(&prompt(1, 4)));
    // 20 slots: 8 in use by now, and 13 are wanted, though there are bytes for 70.
    let (room, evicted) = tenants.room(13, 0);
    assert_eq!((room, evicted.slots.len()), (Room::Made, 1));
    tenants.check();
}

#[test]
fn nothing_leaves_for_what_can_not_be_had() {
    let mut tenants = Tenants::new(buffer(28), Component::State);
    let (end, _) = tenants.serve(&prompt(0, 8), 1).unwrap();
    tenants.serve(&prompt(1, 8), 1).unwrap();
    tenants.transfer(end);
    let digest = tenants.tree.digest();
    for (pages, parts) in [(17, 0), (0, 5), (13, 1), (usize::MAX >> 1, 0), (0, usize::MAX >> 1)] {
        let (room, evicted) = tenants.room(pages, parts);
        assert_eq!((room, evicted.slots.len()), (Room::Impossible, 0), "{pages} {parts}");
    }
    assert_eq!(tenants.tree.digest(), digest);
    assert_eq!(tenants.room(12, 1).0, Room::Made);
    tenants.land(0);
    assert_eq!(tenants.room(24, 1).0, Room::Made);
    let unknown = make_room(&mut tenants.tree, &mut tenants.buffer, 1, Wanted { pages: 1, parts: 0 });
    assert!(unknown.unwrap_err().to_string().starts_with("component: 1"));
}

/// Related prompts, transfers under way, both kinds of components: what is made can be taken, what is impossible is so
/// with everything evicted, and every page keeps its bytes.
#[test]
fn a_storm_of_requests() {
    let mut evictions = 0;
    for seed in seeds(60) {
        for component in [Component::State, Component::Swa { window: 2 }] {
            let mut random = Seeded(seed);
            let mut tenants = Tenants::new(buffer(16 + random.below(40) as u64), component);
            for _ in 0..60 {
                storm(&mut tenants, &mut random);
                tenants.check();
            }
            evictions += tenants.count;
            let (parts, pages) = (random.below(8), random.below(24));
            if tenants.room(pages, parts).0 == Room::Made {
                tenants.settle();
                tenants.take(End::Up, parts);
                tenants.take(End::Down, pages);
                continue;
            }
            let all = tenants.tree.evict_component(0, Tier::Device, usize::MAX);
            tenants.receive(&all);
            let all = tenants.tree.evict(Tier::Device, usize::MAX);
            tenants.receive(&all);
            assert!(!tenants.buffer.fits([parts, pages]), "seed {seed}: it would have been possible");
        }
    }
    assert!(evictions > 500, "{evictions} pages left: the buffers are too large to be a test");
}

fn storm(tenants: &mut Tenants, random: &mut Seeded) {
    let tokens = related(random);
    match random.below(5) {
        0 => {
            let found = tenants.find(&tokens);
            if found.device > 0 && tenants.transfers.len() < 3 {
                let end = tenants.tree.ancestor(found.place, found.device);
                tenants.transfer(end);
            }
        }
        1 if !tenants.transfers.is_empty() => tenants.land(random.below(tenants.transfers.len())),
        2 => tenants.forward(),
        _ => {
            let parts = random.below(3).min(tokens.len());
            let parts = if tenants.tree.components() == [Component::State] { parts.min(1) } else { parts };
            let digest = tenants.tree.digest();
            match tenants.serve(&tokens, parts) {
                Ok((_, evicted)) => tenants.count += evicted.slots.len(),
                Err(room) => assert_eq!((room, tenants.tree.digest()), (Room::Impossible, digest)),
            }
        }
    }
}
