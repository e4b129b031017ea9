//! Two trees with all components, given the same operations: equal in every decision after each of them.
//!
//! One of the two is looked at all the time, has readers and hashes its pages from the beginning, the other one
//! nothing of it; tables of the two are seeded apart where anything seeds them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::hybrid::Model;
use common::parts::KINDS;
use common::{Seeded, seeds};
use hicache_core::hash::{Namespace, chain};
use hicache_core::ids::{Slot, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::tree::{Hold, Tree};

/// Questions change nothing.
fn look(model: &Model, random: &mut Seeded) {
    let tree = &model.tree;
    let tokens = random.tokens(16, 2);
    if let Some(root) = tree.known_root(&Namespace::default()) {
        let found = tree.walk(root, Tokens::I32(&tokens));
        let _ = tree.checkpoint_at(&found);
        assert_eq!(tree.digests(found.place, 0..found.place.depth).len(), found.place.depth as usize);
        for component in 0..tree.components().len() {
            Tier::ALL.into_iter().for_each(|tier| drop(tree.missing(component, tier, found.place)));
        }
    }
    Tier::ALL.into_iter().for_each(|tier| assert!(tree.evictable(tier) <= tree.resident(tier)));
    tree.check().unwrap();
}

#[test]
fn equal_operations_make_equal_trees() {
    for kind in KINDS {
        for seed in seeds(20) {
            let size = 1 + u32::try_from(seed % 2).unwrap();
            let mut watched = Model::new(size, kind, seed, true);
            let mut alone = Model::new(size, kind, seed, false);
            let mut random = Seeded(seed);
            assert!(watched.tree.start_publishing().is_empty());
            for step in 0..200 {
                watched.step();
                look(&watched, &mut random);
                alone.step();
                assert_eq!(watched.tree.digest(), alone.tree.digest(), "step {step} of {kind:?} {seed}");
                assert_eq!(watched.pages, alone.pages);
            }
            watched.close();
            alone.close();
        }
    }
}

/// One operation on a tree whose tokens are as `letter` writes them, and all that it answers.
fn apply(
    tree: &mut Tree,
    op: usize,
    letters: &[usize],
    letter: &dyn Fn(usize) -> i64,
    made: u32,
) -> Vec<usize> {
    let tokens: Vec<i64> = letters.iter().map(|&at| letter(at)).collect();
    let root = tree.root(&Namespace::default());
    let held = tree.pin(root, Hold::Soft);
    let pages = tokens.len() / tree.page_size().tokens();
    let slots: Vec<Slot> = (made..).take(pages).map(Slot).collect();
    let number = |slots: &[Slot]| slots.iter().map(|slot| slot.0 as usize).collect::<Vec<_>>();
    let answer = match op {
        0..=3 => {
            let done = tree.extend(root, Tokens::I64(&tokens), Tier::Device, &slots);
            [number(&done.slots), number(&done.duplicates(&slots)), vec![done.new_pages]].concat()
        }
        4 => {
            let end = tree.walk(root, Tokens::I64(&tokens)).place;
            let [device, host] = Tier::ALL.map(|tier| tree.resident_depth(end, tier));
            vec![tree.mirror(end, &slots[..device.saturating_sub(host) as usize]).depth as usize]
        }
        5 => number(&tree.evict(Tier::Device, 1 + letters.len() % 4).slots),
        6 => number(&tree.evict(Tier::Host, 1 + letters.len() % 4).slots),
        _ => {
            let found = tree.walk(root, Tokens::I64(&tokens));
            tree.touch_matched(found.place);
            let chain = chain(
                None,
                Tokens::I64(&tokens[..found.usable as usize * tree.page_size().tokens()]),
                tree.page_size(),
            );
            assert_eq!(tree.digests(found.place, 0..found.usable), chain);
            vec![found.device as usize, found.usable as usize]
        }
    };
    tree.unpin(held);
    tree.check().unwrap();
    answer
}

/// Tokens that need 64 bits, here and there in a path, shape a tree exactly as narrow ones do.
#[test]
fn wide_tokens_shape_a_tree_as_narrow_ones_do() {
    let narrow = |letter: usize| i64::try_from(letter).unwrap();
    let mixed = |letter: usize| narrow(letter) + if letter == 2 { 1 << 40 } else { 0 };
    let wide = |letter: usize| i64::MAX - narrow(letter);
    for seed in seeds(60) {
        let (mut random, size) = (Seeded(seed), PageSize::new(1 + u32::try_from(seed % 3).unwrap()).unwrap());
        let mut trees = [(); 3].map(|()| Tree::new(size, true));
        let ways: [&dyn Fn(usize) -> i64; 3] = [&narrow, &mixed, &wide];
        for step in 0..150 {
            let op = random.below(10);
            let letters: Vec<usize> = (0..random.below(24)).map(|_| random.below(3)).collect();
            let answers: Vec<_> = trees
                .iter_mut()
                .zip(ways)
                .map(|(tree, way)| apply(tree, op, &letters, way, step * 100))
                .collect();
            assert_eq!((&answers[0], &answers[0]), (&answers[1], &answers[2]), "step {step} of {seed}: {op}");
        }
    }
}
