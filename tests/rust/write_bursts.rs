//! How large a burst between two polls may be before `write_storage="write_back"` loses pages: the host's reserve follows
//! what left, so that only the first ones of a row of bursts lose any.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use common::store::FaultStore;
use common::writing::path;
use hicache_core::policy::{HostCopies, Write, Writing};
use std::sync::Arc;
use std::time::{Duration, Instant};

const HOST: u32 = 400;
const PIECE: i32 = 5;

struct Bursts {
    rig: Rig,
    paths: i32,
}

impl Bursts {
    fn new(clean_reserve: f64) -> Self {
        let host_copies = HostCopies::Keep;
        let writing = Writing { host: Write::Through, storage: Write::Back, host_copies, clean_reserve };
        let shape = Shape { page: 1, device: 120, host: HOST, writing, ..Shape::default() };
        Self { rig: Rig::new(shape, Some(&Arc::new(FaultStore::default()))), paths: 0 }
    }

    /// So many new pages, a poll, and whatever that began is done before the next burst. Pages lost to storage so far.
    fn burst(&mut self, pages: i32) -> u64 {
        for _ in 0..pages / PIECE {
            self.paths += 1;
            self.rig.serve(&path(self.paths, PIECE));
        }
        self.rig.poll(0.0);
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let ready = self.rig.cache.ready();
            if ready.backups + ready.loads + ready.stores == self.rig.cache.in_flight() {
                return self.rig.cache.stats().dropped_unstored_pages;
            }
            assert!(Instant::now() < end, "stores that are never done");
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Pages that were lost while so many came, and while as many came again.
    fn lost(&mut self, pages: i32, of: i32) -> [u64; 2] {
        let mut lost = [0; 2];
        for lost in &mut lost {
            (0..of / pages).for_each(|_| *lost = self.burst(pages));
        }
        self.rig.drained();
        [lost[0], lost[1] - lost[0]]
    }
}

#[test]
fn only_the_first_bursts_lose_pages() {
    // A reserve of 20 pages; and 100 more at most for bursts.
    let lost = |pages| Bursts::new(0.05).lost(pages, 1000);
    assert_eq!(lost(10), [0, 0], "half of the reserve: the other half is on its way");
    for pages in [20, 50] {
        let [first, later] = lost(pages);
        assert!(
            first > 0 && first < 4 * u64::try_from(pages).unwrap() && later == 0,
            "{pages}: {first} {later}"
        );
    }
    assert!(lost(100)[1] > 0, "more than the host lets go at a time");
}

/// Without a reserve nothing is stored beforehand, whatever leaves; and pages that an engine evicts are no burst.
#[test]
fn what_leaves_for_no_room_is_no_burst() {
    assert_eq!(Bursts::new(0.0).lost(20, 400), [0, 400]);
    let mut calm = Bursts::new(0.05);
    (0..30).for_each(|_| _ = calm.burst(10));
    let stored = calm.rig.cache.stats().stored_pages;
    calm.rig.cache.evict(hicache_core::ids::Tier::Device, 100).unwrap();
    calm.rig.cache.evict(hicache_core::ids::Tier::Host, 100).unwrap();
    (0..2).for_each(|_| _ = calm.burst(5));
    assert_eq!(calm.rig.cache.stats().stored_pages, stored, "there is room");
    calm.rig.drained();
}
