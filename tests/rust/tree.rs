//! The tree's smaller promises: late hashing, and a digest of its decisions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::Seeded;
use hicache_core::hash::{Namespace, chain};
use hicache_core::ids::{Slot, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::tree::{Component, Hold, PinId, Tree};

fn extend(tree: &mut Tree, tokens: &[i32], first: u32) {
    let root = tree.root(&Namespace::default());
    let held = tree.pin(root, Hold::Soft);
    let slots: Vec<Slot> = (first..).take(tokens.len() / tree.page_size().tokens()).map(Slot).collect();
    tree.extend(root, Tokens::I32(tokens), Tier::Device, &slots);
    tree.unpin(held);
}

/// Random shapes: what a late store finds hashed is what it would have been from the start.
#[test]
fn late_hashing_gives_the_same_chain() {
    let size = PageSize::new(2).unwrap();
    let (mut random, mut late) = (Seeded(3), Tree::new(size, false));
    let keys: Vec<Vec<i32>> = (0..60).map(|_| random.tokens(16, 2)).collect();
    for (key, n) in keys.iter().zip(0..) {
        extend(&mut late, key, n * 100);
    }
    late.start_hashing();
    late.check().unwrap();
    // Pages that come now continue the chain.
    extend(&mut late, &[1, 1, 2, 2, 1, 1, 2, 2, 9, 9], 10_000);
    late.check().unwrap();
    for key in &keys {
        let root = late.root(&Namespace::default());
        let place = late.walk(root, Tokens::I32(key)).place;
        assert_eq!(late.digests(place, 0..place.depth), chain(None, Tokens::I32(key), size));
    }
    late.start_hashing();
    late.check().unwrap();
}

/// A chain never restarts in the middle, so that a key never claims a prefix that it doesn't cover.
#[test]
fn a_late_chain_starts_at_the_beginning() {
    let size = PageSize::new(1).unwrap();
    let mut tree = Tree::new(size, false);
    extend(&mut tree, &[1, 2, 3, 4], 0);
    tree.start_hashing();
    extend(&mut tree, &[1, 2, 3, 4, 5, 6, 7, 8], 10);
    let root = tree.root(&Namespace::default());
    let place = tree.walk(root, Tokens::I32(&[1, 2, 3, 4, 5, 6, 7, 8])).place;
    let whole = tree.digests(place, 4..8);
    let alone = chain(None, Tokens::I32(&[5, 6, 7, 8]), size);
    assert!(whole.iter().all(|digest| !alone.contains(digest)));
}

/// The same decisions, the same digest; one other slot, page or order of slots, another one.
#[test]
fn the_digest_tells_decisions_apart() {
    let build = |change: usize| {
        let mut tree = Tree::with_components(PageSize::new(1).unwrap(), false, &[Component::State]);
        extend(&mut tree, &[1, 2, 3], if change == 1 { 50 } else { 0 });
        extend(&mut tree, if change == 2 { &[1, 2, 4] } else { &[1, 3, 4] }, 10);
        let root = tree.root(&Namespace::default());
        let end = tree.walk(root, Tokens::I32(&[1, 2, 3])).place;
        if change != 3 {
            tree.attach(0, Tier::Device, end, &[2], &[Slot(0)]);
        }
        tree.mirror(end, if change == 4 { &[Slot(1), Slot(0)] } else { &[Slot(0), Slot(1)] });
        tree.evict(Tier::Device, if change == 5 { 2 } else { 1 });
        tree.check().unwrap();
        tree.digest()
    };
    assert_eq!(build(0), build(0));
    let all: std::collections::HashSet<u64> = (0..=5).map(build).collect();
    assert_eq!(all.len(), 6);
    // Nor do other tokens, or another namespace, of the same shape pass for the same.
    let one = |tokens: &[i32], salt: Option<&str>| {
        let mut tree = Tree::new(PageSize::new(2).unwrap(), false);
        let root = tree.root(&Namespace { salt: salt.map(str::to_owned), ..Namespace::default() });
        tree.extend(root, Tokens::I32(tokens), Tier::Device, &[Slot(0)]);
        tree.digest()
    };
    let plain = one(&[1, 2], None);
    assert_eq!(plain, one(&[1, 2], None));
    assert!(![one(&[5, 6], None), one(&[1, 3], None), one(&[1, 2], Some("a"))].contains(&plain));
    // Looking changes nothing.
    let mut tree = Tree::new(PageSize::new(1).unwrap(), false);
    extend(&mut tree, &[1, 2], 0);
    let before = tree.digest();
    let root = tree.root(&Namespace::default());
    let found = tree.walk(root, Tokens::I32(&[1, 2]));
    tree.touch_matched(found.place);
    assert_eq!(tree.digest(), before);
}

/// Pins of every kind on one edge, in chains of equal ones and not, through splits, evictions and lost pages: what
/// stays is what the deepest of those that are left holds.
#[test]
fn the_deepest_pin_of_an_edge_decides() {
    for seed in 0..40 {
        let (mut random, mut tree) = (Seeded(seed), Tree::new(PageSize::new(1).unwrap(), false));
        let tokens: Vec<i32> = (0..60).collect();
        for tier in Tier::ALL {
            let root = tree.root(&Namespace::default());
            let slots: Vec<Slot> = (0..60).map(Slot).collect();
            tree.extend(root, Tokens::I32(&tokens), tier, &slots);
        }
        let mut pins: Vec<(PinId, Hold)> = Vec::new();
        // Few depths or many.
        let depths = [2, 60][random.below(2)];
        for round in 0..600 {
            let root = tree.root(&Namespace::default());
            let place = tree.walk(root, Tokens::I32(&tokens)).place;
            let tier = Tier::ALL[random.below(2)];
            match random.below(20) {
                0 if round > 300 => {
                    let held =
                        pins.iter().filter(|(_, hold)| *hold == [Hold::Device, Hold::Host][tier as usize]);
                    let held = held.map(|(pin, _)| tree.pinned(pin).depth).max().unwrap_or(0) as usize;
                    let mirrored = if tier == Tier::Host { tree.resident(Tier::Device) } else { 0 };
                    let may_go = tree.resident(tier) - held.max(mirrored.min(tree.resident(tier)));
                    let wanted = random.below(4);
                    assert_eq!(tree.evictable(tier), may_go);
                    assert_eq!(tree.evict(tier, wanted).slots.len(), wanted.min(may_go));
                }
                1 if place.depth > 1 => {
                    // Splits it.
                    let cut = 1 + random.below(place.depth as usize - 1);
                    let known =
                        tree.resident_depth(tree.ancestor(place, u32::try_from(cut).unwrap()), Tier::Device);
                    let slots: Vec<Slot> = (0..known).map(Slot).collect();
                    tree.extend(root, Tokens::I32(&tokens[..known as usize]), Tier::Device, &slots);
                }
                2..=10 if !pins.is_empty() => tree.unpin(pins.swap_remove(random.below(pins.len())).0),
                _ => {
                    let hold = [Hold::Soft, Hold::Device, Hold::Host, Hold::Name][random.below(4)];
                    let lives = match hold {
                        Hold::Device => tree.resident_depth(place, Tier::Device),
                        Hold::Host => tree.resident_depth(place, Tier::Host),
                        Hold::Soft | Hold::Name => place.depth,
                    };
                    let depth = lives.saturating_sub(u32::try_from(random.below(depths)).unwrap());
                    pins.push((tree.pin(tree.ancestor(place, depth), hold), hold));
                }
            }
            tree.check().unwrap();
        }
        pins.into_iter().for_each(|(pin, _)| tree.unpin(pin));
        Tier::ALL.into_iter().for_each(|tier| drop(tree.evict(tier, 60)));
        assert_eq!(tree.nodes(), 0);
    }
}
