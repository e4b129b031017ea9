//! All components together against a naive model: which boundary is usable in which view, what an
//! eviction may take, that a load makes usable what the match promised. A run of all
//! seeds once is 4,800 operations; `make fuzz` runs thousands.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::hybrid::Model;
use common::seeds;
use hicache_core::tree::Component;

fn run(components: &[Component]) {
    for seed in seeds(40) {
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
