//! The clean reserve while its copies are under way: however often one looks, no more is copied than is to be clean.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::Rig;
use common::store::{Fault, FaultStore, Verb};
use common::writing::{COPIES, path, rig, writing};
use hicache_core::ids::Tier;
use hicache_core::policy::{HostCopies, Write, Writing};
use hicache_core::transfer::Direction;
use std::sync::Arc;

const PAGES: i32 = 16;

fn quarter(storage: Write) -> Writing {
    Writing { clean_reserve: 0.25, ..writing(Write::Back, storage) }
}

/// Sixteen requests of a page each fill the device; so many polls after each, and some at the end.
fn fill(rig: &mut Rig, polls: usize) {
    for number in 1..=PAGES {
        rig.serve(&path(number, 1));
        (0..polls).for_each(|_| rig.poll(0.0));
    }
    (0..10).for_each(|_| rig.poll(0.0));
}

/// To the host: copies that land at once, later, or step by step.
#[test]
fn copies_under_way_count() {
    for host_copies in COPIES {
        for (polls, shut) in [(0, true), (1, true), (3, true), (3, false)] {
            let what = format!("{host_copies:?}, {polls} polls, shut: {shut}");
            let mut rig = rig(Writing { host_copies, ..quarter(Write::Through) }, 16, 16, None);
            if shut {
                rig.gate.shut(Direction::Out);
            }
            fill(&mut rig, polls);
            assert_eq!(rig.cache.stats().backed_up_pages, 4, "{what}");
            while rig.gate.pass(Direction::Out, 1) > 0 {
                (0..3).for_each(|_| rig.poll(0.0));
            }
            rig.gate.open(Direction::Out);
            rig.idle();
            assert_eq!(rig.cache.stats().backed_up_pages, 4, "{what}");
            assert_eq!(rig.evict(Tier::Device, 4).len(), 4);
            assert_eq!(rig.cache.stats().dropped_unsaved_pages, 0, "{what}: those that left were clean");
            // Four are free now, and the next four are looked at when these are used.
            rig.serve(&path(PAGES + 1, 2));
            rig.idle();
            assert_eq!(rig.cache.stats().backed_up_pages, 6, "{what}");
            rig.drained();
        }
    }
}

/// From the host to a store that is slow: the same.
#[test]
fn writes_under_way_count() {
    for host_copies in [HostCopies::Keep, HostCopies::GiveWay] {
        let store = Arc::new(FaultStore::default());
        store.plan(|verb, _| if verb == Verb::Put { Fault::Gated } else { Fault::None });
        let write = Writing { host_copies, host: Write::Through, ..quarter(Write::Back) };
        let mut rig = rig(write, 64, 16, Some(&store));
        for number in 1..=PAGES {
            rig.serve(&path(number, 1));
            rig.until("its copy", |rig| rig.cache.copying() == 0);
            (0..3).for_each(|_| rig.poll(0.0));
        }
        rig.evict(Tier::Device, usize::MAX);
        (0..20).for_each(|_| rig.poll(0.0));
        let left = rig.evict(Tier::Host, usize::MAX).len();
        assert_eq!(left, 12, "four are being written, and no more: {host_copies:?}");
        store.plan(|_, _| Fault::None);
        rig.until("the store", |_| {
            store.pass(0);
            store.len() == 4
        });
        rig.drained();
    }
}
