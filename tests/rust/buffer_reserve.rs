//! Where the host is staging, the clean reserve counts what is being copied for it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::mixed::{ALL, Mixed};
use common::models::{STATE, Shape, WINDOW};
use common::staging::{rig, straight};
use common::store::FaultStore;
use common::writing::path;
use hicache_core::HostMode;
use hicache_core::policy::Write;
use hicache_core::transfer::Direction;
use std::sync::Arc;

#[test]
fn copies_under_way_count() {
    // With room in staging, and with less than the reserve asks for.
    for (host, begun) in [(40, 4), (4, 3)] {
        let store = Arc::new(FaultStore::default());
        let mut rig = rig(straight(Write::Back, 0.25), 16, host, &store);
        rig.gate.shut(Direction::Out);
        for number in 1..=16 {
            rig.serve(&path(number, 1));
            rig.poll(0.0);
        }
        (0..10).for_each(|_| rig.poll(0.0));
        assert_eq!(rig.cache.stats().backed_up_pages, begun);
        rig.gate.open(Direction::Out);
        rig.all_written();
        assert_eq!(rig.cache.stats().stored_pages, 4, "{host}");
        rig.all_back(&[]);
    }
}

/// What one path has of several kinds goes in several copies.
#[test]
fn copies_of_pages_windows_and_states_count() {
    let store = Arc::new(FaultStore::default());
    let parts = [(WINDOW, 64, 64), (STATE, 64, 64)];
    let shape = Shape {
        device: 16,
        host: 64,
        mode: HostMode::BufferOnly,
        writing: straight(Write::Back, 0.25),
        ..Shape::of(&parts)
    };
    let mut rig = Mixed::over(&shape, Some(&store));
    for number in 0..8 {
        let tokens = [8 * number, 8 * number + 1, 8 * number + 2, 8 * number + 3];
        let hit = rig.find(&tokens);
        rig.load(hit);
        assert!(rig.compute(hit, &tokens, 2, ALL));
        rig.cache.release(hit, 0).unwrap();
        rig.cache.poll(None, 0.0).unwrap();
    }
    (0..10).for_each(|_| _ = rig.cache.poll(None, 0.0).unwrap());
    assert_eq!(rig.cache.stats().backed_up_pages, 4);
    rig.drained();
}
