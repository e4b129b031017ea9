//! All components together against a naive model: which boundary is usable in which view, what an
//! eviction may take, that a load makes usable what the match promised. `PROPTEST_CASES` sets the number of
//! seeded runs; 300 are 1.4 million operations.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::hybrid::Model;
use hicache_core::tree::Component;

fn run(components: &[Component]) {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    for seed in 0..cases {
        for size in [1, 2] {
            let mut model = Model::new(size, components, seed, true);
            for _ in 0..300 {
                model.step();
            }
            model.close();
        }
    }
}

#[test]
fn full_alone() {
    run(&[]);
}

#[test]
fn windows() {
    for window in 1..=4 {
        run(&[Component::Swa { window }]);
    }
}

#[test]
fn checkpoints() {
    run(&[Component::State]);
}

#[test]
fn all_together() {
    run(&[Component::Swa { window: 2 }, Component::State]);
    run(&[Component::State, Component::Swa { window: 3 }, Component::Swa { window: 1 }]);
}
