//! Two trees with all components, given the same operations: equal in every decision after each of them.
//!
//! One of the two is looked at all the time, has readers and hashes its pages from the beginning, the other one
//! nothing of it; tables of the two are seeded apart where anything seeds them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::hybrid::Model;
use common::parts::KINDS;
use common::{Seeded, seeds};
use hicache_core::hash::Namespace;
use hicache_core::ids::Tier;
use hicache_core::page::Tokens;

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
