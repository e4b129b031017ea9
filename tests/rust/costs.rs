//! What calls cost and what the tree keeps, by the bytes that they allocate: nothing here reads a clock.
//!
//! Whoever lists the leaves for an eviction or copies a key to walk it allocates more in a larger tree, and is
//! seen here. Whoever only looks is seen in `steps.rs`, and here by an eviction of each order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

#[path = "common/counting.rs"]
mod counting;

mod common;

use common::rig::{Rig, Shape};
use counting::{Counting, live, made};
use hicache_core::hash::Namespace;
use hicache_core::ids::{Slot, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::tree::{Component, Hold, Place, Tree};

#[global_allocator]
static COUNTING: Counting = Counting;

const TIERS: [Tier; 2] = Tier::ALL;

/// Items of the tree that were looked at so far; none is counted in release builds.
fn looked() -> u64 {
    #[cfg(debug_assertions)]
    return hicache_core::looked_at();
    #[cfg(not(debug_assertions))]
    0
}

fn slots(first: u32, count: u32) -> Vec<Slot> {
    (first..first + count).map(Slot).collect()
}

fn tree(components: &[Component]) -> (Tree, Place) {
    let mut tree = Tree::with_components(PageSize::new(1).unwrap(), false, components);
    let root = tree.root(&Namespace::default());
    (tree, root)
}

fn leaves(tier: Tier, count: u32, components: &[Component]) -> Tree {
    let (mut tree, root) = tree(components);
    for leaf in 0..count {
        let end = tree.extend(root, Tokens::U32(&[leaf]), tier, &[Slot(leaf)]).place;
        for component in 0..components.len() {
            tree.attach(component, tier, end, &[0], &[Slot(leaf)]);
        }
    }
    tree
}

/// One page out of twenty thousand leaves costs what one out of a thousand does, in every order of leaving.
#[test]
fn an_eviction_costs_the_same_in_a_tree_of_any_size() {
    let components = [Component::Swa { window: 1 }, Component::State];
    for (tier, order) in TIERS.into_iter().flat_map(|tier| [None, Some(0), Some(1)].map(|o| (tier, o))) {
        let cost = |count: u32| {
            let mut tree = leaves(tier, count, &components);
            let before = looked();
            let cost = made(|| {
                let out = match order {
                    None => tree.evict(tier, 1),
                    Some(component) => tree.evict_component(component, tier, 1),
                };
                assert_eq!((out.slots.len(), out.parts[0].len(), out.parts[1].len()), (1, 1, 1));
            });
            (tree, (cost, looked() - before))
        };
        let ((_, small), (mut tree, large)) = (cost(1_000), cost(20_000));
        assert_eq!(small, large, "{order:?} in {tier:?}: bytes, and items looked at");
        for _ in 1..20_000 {
            assert_eq!(tree.evict(tier, 1).slots.len(), 1);
        }
        assert_eq!(tree.nodes(), 0);
    }
}

/// A match of what is there copies nothing of its key, and one of what isn't copies it once.
#[test]
fn a_match_costs_no_more_than_its_key() {
    let (mut tree, root) = tree(&[]);
    let held = tree.pin(root, Hold::Soft);
    let tokens: Vec<i32> = (0..201_000).collect();
    tree.extend(root, Tokens::I32(&tokens), Tier::Device, &slots(0, 201_000));
    for length in [1, 1_000, 100_000, 200_000] {
        let cost =
            made(|| assert_eq!(tree.walk(root, Tokens::I32(&tokens[..length])).usable as usize, length));
        assert_eq!(cost, 0, "{length}");
    }
    tree.unpin(held);

    let mut rig = Rig::new(Shape { page: 1, device: 1_000, host: 0, ..Shape::default() }, None);
    rig.serve(&tokens[..1_000]);
    let mut cost = |length: usize| {
        let mut hit = None;
        let cost = made(|| hit = Some(rig.find(&tokens[..length])));
        rig.cache.release(hit.unwrap(), 0).unwrap();
        cost
    };
    assert!(cost(1_000) < 1_000, "nothing of what matches");
    let (once, twice) = (cost(101_000) - cost(1_000), cost(201_000) - cost(1_000));
    assert!((400_000..440_000).contains(&once), "4 bytes a token: {once}");
    assert!(twice < 2 * once + once / 10, "{once} {twice}");
}

/// A chain of nodes, made by branches, so that it stays a chain: nothing recurses, nothing grows faster than
/// the chain.
#[test]
fn a_chain_of_thousands_of_edges_costs_what_its_length_does() {
    let run = |depth: u32| {
        let (mut tree, root) = tree(&[Component::Swa { window: 2 }, Component::State]);
        let tokens: Vec<u32> = (0..depth).collect();
        let held = tree.pin(root, Hold::Soft);
        let mut end = root;
        for page in 0..depth {
            let branch = tree.extend(end, Tokens::U32(&[1_000_000 + page]), Tier::Device, &[Slot(page)]);
            assert_eq!(branch.new_pages, 1);
            end = tree.extend(end, Tokens::U32(&[page]), Tier::Device, &[Slot(depth + page)]).place;
            tree.attach(0, Tier::Device, end, &[page], &[Slot(page)]);
            tree.attach(1, Tier::Device, end, &[page], &[Slot(page)]);
        }
        assert!(tree.nodes() > 2 * depth as usize);
        let cost = made(|| {
            let found = tree.walk(root, Tokens::U32(&tokens));
            assert_eq!((found.device, found.usable), (depth, depth));
            let pin = tree.pin(found.place, Hold::Device);
            assert_eq!(tree.slots(found.place, 0..depth, Tier::Device).len(), depth as usize);
            tree.touch_matched(found.place);
            tree.unpin(pin);
        });
        tree.unpin(held);
        tree.start_hashing();
        let place = tree.walk(root, Tokens::U32(&tokens)).place;
        assert_eq!(tree.digests(place, 0..depth).len(), depth as usize);
        tree.check().unwrap();
        assert_eq!(tree.evict(Tier::Device, usize::MAX).slots.len(), 2 * depth as usize);
        assert_eq!(tree.nodes(), 0);
        cost
    };
    let (once, twice) = (run(3_000), run(6_000));
    assert!(twice < 2 * once + 1_000, "{once} {twice}");
}

/// Pages taken and given back: nothing grows, and a page of a large pool costs what one of a small pool does.
#[test]
fn pages_that_come_back_keep_no_memory() {
    let cost = |device: u32| {
        let mut rig = Rig::new(Shape { page: 1, device, host: 0, ..Shape::default() }, None);
        let mut once = || {
            let slots = rig.cache.allocate(1).unwrap().unwrap();
            rig.cache.free(&slots).unwrap();
        };
        once();
        let before = live();
        let cost = made(|| (0..2_000).for_each(|_| once()));
        assert_eq!(live(), before);
        cost
    };
    assert_eq!(cost(100), cost(1_000_000));
}

/// Whether there is room is asked at every step of a full device: pins are walked only if what they share decides,
/// and then not again before one comes or goes.
#[test]
fn whether_there_is_room_is_mostly_known() {
    let (mut tree, root) = tree(&[]);
    let run = |tree: &mut Tree, tokens: std::ops::Range<u32>| {
        let all: Vec<u32> = (0..10).chain(tokens.clone()).collect();
        let end = tree.extend(root, Tokens::U32(&all), Tier::Device, &slots(tokens.start, 20)).place;
        tree.pin(end, Hold::Device)
    };
    // Ten shared pages, then ten for each of three requests, of which 40 are held; and 25 pages that aren't.
    let mut pins = [run(&mut tree, 100..110), run(&mut tree, 200..210), run(&mut tree, 300..310)].map(Some);
    let free: Vec<u32> = (900..925).collect();
    tree.extend(root, Tokens::U32(&free), Tier::Device, &slots(900, 25));
    let ask = |tree: &mut Tree, pages: usize| {
        let mut can = false;
        (made(|| can = tree.can_evict(Tier::Device, pages)), can)
    };
    // The depths of all pins are 60 of 65 pages.
    assert_eq!(ask(&mut tree, 5), (0, true));
    assert_eq!(ask(&mut tree, 66), (0, false));
    let (cost, can) = ask(&mut tree, 25);
    assert!(cost > 0 && can, "here what they share decides");
    assert_eq!(ask(&mut tree, 25), (0, true));
    assert_eq!(ask(&mut tree, 26), (0, false));
    tree.unpin(pins[0].take().unwrap());
    // 20 to 40 are held now: 30.
    assert_eq!(ask(&mut tree, 25), (0, true));
    assert!(matches!(ask(&mut tree, 35), (1.., true)));
    assert_eq!(ask(&mut tree, 36), (0, false));
    pins.into_iter().flatten().for_each(|pin| tree.unpin(pin));
    assert_eq!(ask(&mut tree, 65), (0, true));
}

/// The same for a window of which requests may hold more than there is: what leaves next is mostly enough, however
/// many edges have none of it any more.
#[test]
fn whether_a_part_has_room_costs_the_same_in_a_tree_of_any_size() {
    let cost = |count: u32| {
        let (mut tree, root) = tree(&[Component::Swa { window: 1 }]);
        let mut end = root;
        for page in 0..count {
            end = tree.extend(end, Tokens::U32(&[page]), Tier::Device, &[Slot(page)]).place;
            tree.attach(0, Tier::Device, end, &[page], &[Slot(page)]);
        }
        let held = tree.pin(end, Hold::Device);
        let other = tree.extend(root, Tokens::U32(&[count]), Tier::Device, &[Slot(count)]).place;
        let freed = tree.evict_component(0, Tier::Device, count as usize).parts[0].len();
        assert_eq!(freed, count as usize - 1, "but for the held one");
        tree.attach(0, Tier::Device, other, &[0], &[Slot(count)]);
        let before = looked();
        assert!(tree.can_evict_component(0, Tier::Device, 1));
        let cost = looked() - before;
        assert!(!tree.can_evict_component(0, Tier::Device, 2));
        assert_eq!(tree.evict_component(0, Tier::Device, 2).parts[0].len(), 1);
        tree.check().unwrap();
        tree.unpin(held);
        assert!(tree.can_evict_component(0, Tier::Device, 1));
        cost
    };
    assert_eq!(cost(100), cost(10_000));
}

/// Of prompts of ten thousand pages each only the first page is left, whether their paths were split there before
/// the rest went or not: what the tree keeps is what a page costs, not what a prompt did.
#[test]
fn what_is_left_of_a_prompt_keeps_no_more_than_itself() {
    for (tier, split, hashing) in
        TIERS.into_iter().flat_map(|tier| [(tier, false, true), (tier, true, false)])
    {
        let mut tree = Tree::new(PageSize::new(1).unwrap(), hashing);
        let before = live();
        let mut firsts = Vec::new();
        for prompt in 0..50 {
            let tokens: Vec<u32> = (0..10_000).map(|page| prompt * 10_000 + page).collect();
            let root = tree.root(&Namespace::default());
            let end = tree.extend(root, Tokens::U32(&tokens), tier, &slots(0, 10_000)).place;
            if split {
                tree.extend(root, Tokens::U32(&tokens[..1]), tier, &slots(0, 1));
            }
            firsts.push(tree.pin(tree.ancestor(end, 1), [Hold::Device, Hold::Host][tier as usize]));
            assert_eq!(tree.evict(tier, usize::MAX).slots.len(), 9_999);
        }
        let kept = (live() - before) / 50;
        assert!(kept < 2_000, "{kept} bytes for a page; split: {split}, in {tier:?}");
        firsts.into_iter().for_each(|pin| tree.unpin(pin));
    }
}
