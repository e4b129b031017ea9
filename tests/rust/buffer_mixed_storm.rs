//! Buffer-only mode for models with windows and states, both ways at once: copies that land page by page, stores that end in any
//! order, late or never, and fail now and then. Whatever is served, and whatever is stored, is exactly its prefix.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::models::{Shape, shapes};
use common::seeds;
use common::squall::Squall;
use common::staging::straight;
use common::store::FaultStore;
use common::writing::WRITES;
use hicache_core::HostMode;
use hicache_core::ids::Tier;
use std::sync::Arc;

/// A pool of a few pages, under each policy of storage.
fn small(shape: &Shape, seed: u64) -> Shape {
    let pick = |from: [u32; 3]| from[usize::try_from(seed % 3).unwrap()];
    let storage = WRITES[usize::try_from(seed / 3 % 3).unwrap()];
    let part = |of: u32, few| if of == 0 { 0 } else { few };
    let parts = shape.parts.iter().map(|&(needs, device, of)| (needs, device, part(of, pick([4, 6, 12]))));
    Shape {
        host: pick([3, 8, 14]),
        parts: parts.collect(),
        mode: HostMode::BufferOnly,
        writing: straight(storage, [0.0, 0.5][usize::try_from(seed / 2 % 2).unwrap()]),
        ..shape.clone()
    }
}

#[test]
fn whatever_happens_bytes_and_books_are_right() {
    for shape in shapes() {
        let (mut served, mut usable) = (0, 0);
        for seed in seeds(24) {
            let page = [1, 2][usize::try_from(seed % 2).unwrap()];
            let parts = shape.parts.iter().map(|&(needs, device, host)| (needs, device, 10 * host)).collect();
            let roomy = Shape { page, host: 260, parts, deadline: 3.0, ..shape.clone() };
            let store = Arc::new(FaultStore::default());
            // What is in the store from an earlier time.
            let mut squall = Squall::over(&roomy, &store, seed, 0);
            (0..200).for_each(|_| squall.step());
            squall.end();
            squall.rig.drained();
            let made = std::mem::take(&mut squall.made);
            let faulty = [0, 0, 3, 5][usize::try_from(seed % 4).unwrap()];
            let shape = Shape { page, deadline: 3.0, ..small(&shape, seed) };
            let mut squall = Squall::over(&shape, &store, seed + 1_000_000, faulty);
            squall.made = made;
            squall.late = seed % 3 > 0;
            for _ in 0..300 {
                squall.step();
                assert_eq!(squall.rig.cache.tree().resident(Tier::Host), 0);
            }
            squall.end();
            squall.rig.drained();
            assert_eq!(squall.rig.cache.staged(), [0; 2]);
            served += squall.rig.cache.stats().hit_storage_tokens;
            usable += squall.readable(&shape);
        }
        let never = shape.parts.iter().any(|part| part.2 == 0);
        assert!(never || (served > 20 && usable > 50), "it happens: {served} {usable}: {shape:?}");
    }
}
