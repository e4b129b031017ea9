//! What is wanted further down, what is stored and what is owed: the tree beside a model that keeps sets of pages, over
//! random inserts, splits, copies, uses, evictions and stores that fail.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::marked::Marked;
use common::rig::{Rig, Shape};
use common::seeds;
use common::store::{Fault, FaultStore, Verb};
use common::writing::{path, stored, writing};
use hicache_core::policy::Write;
use hicache_core::storage::Outcome;
use hicache_core::tree::{Saving, Wanted};
use std::sync::Arc;

#[test]
fn marks_are_sets_of_pages() {
    let wants = [Wanted::Nothing, Wanted::UsedAgain, Wanted::Marked, Wanted::All];
    for host in wants {
        for storage in wants {
            let (mut lost, mut debts) = ([0; 2], 0);
            for seed in seeds(8) {
                let give_way = seed % 2 == 0;
                let reserve = if seed % 3 == 0 { Vec::new() } else { vec![4, 4] };
                let mut model =
                    Marked::new(Saving { give_way, straight: false, wanted: [host, storage], reserve }, seed);
                (0..200).for_each(|_| model.step());
                model.end();
                lost = [lost[0] + model.lost[0], lost[1] + model.lost[1]];
                debts += model.debts;
            }
            let losses = [host, storage].map(|wanted| wanted != Wanted::Nothing);
            assert_eq!(lost.map(|lost| lost > 0), losses, "it happens: {host:?} {storage:?}");
            assert!(debts > 20, "it happens: {debts}");
        }
    }
}

/// What failed before pages that didn't is no end of any path, and is written out all the same.
#[test]
fn what_failed_before_what_is_stored_is_written_out() {
    let store = Arc::new(FaultStore::default());
    store.plan(|verb, call| match (verb, call) {
        (Verb::Put, 1 | 2) => Fault::Answer(Outcome::Failed),
        _ => Fault::None,
    });
    let writing = writing(Write::Through, Write::Through);
    let shape = Shape { page: 1, device: 400, host: 400, threads: 1, writing, ..Shape::default() };
    let mut rig = Rig::new(shape, Some(&store));
    let tokens = path(1, 180);
    // One step, two batches: the first one is all of an edge on which the second one hangs.
    rig.serve(&tokens[..128]);
    rig.serve(&tokens);
    rig.idle();
    let stats = *rig.cache.stats();
    assert_eq!((stats.store_failed_pages, stats.stored_pages), (128, 52));
    assert_eq!(rig.cache.unwritten(), [0, 128]);
    assert_eq!(rig.cache.write_out().unwrap(), [0, 128]);
    rig.idle();
    assert_eq!((rig.cache.unwritten(), stored(&store, &tokens)), ([0, 0], 180));
    rig.drained();
}
