//! Windows and states while shapes change: splits, evictions, aborts and the same pages inserted again, with copies
//! under way that land page by page. Every page, window and state that is served carries the stamp of exactly its
//! prefix; nothing is lost and every reference comes back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::mixed::{Mixed, Shape};
use common::seeds;
use common::squall::{Squall, shapes};

#[test]
fn what_is_served_is_exactly_its_prefix() {
    for shape in shapes() {
        let (mut brought, mut loaded, mut backed_up, mut no_room) = ([0; 2], 0, 0, 0);
        for seed in seeds(60) {
            let page = [1, 2][(seed % 2) as usize];
            let mut squall = Squall::new(Mixed::new(&Shape { page, ..shape.clone() }), seed);
            for _ in 0..400 {
                squall.step();
            }
            squall.end();
            squall.rig.drained();
            brought = [brought[0] + squall.brought[0], brought[1] + squall.brought[1]];
            for part in 0..shape.parts.len() {
                let stats = squall.rig.cache.part_stats(part).unwrap();
                loaded += stats.loaded;
                backed_up += stats.backed_up;
                no_room += stats.backup_no_room + stats.load_no_room;
            }
        }
        // A state that is never on the host leaves little to load.
        let some = if shape.parts.iter().all(|part| part.2 > 0) { 100 } else { 0 };
        let seen = format!("{brought:?} {loaded} {backed_up} {no_room}: {shape:?}");
        assert!(brought[0] > 100 && loaded > some && backed_up > 100 && no_room > 10, "it happens: {seen}");
    }
}
