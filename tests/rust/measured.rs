//! Histograms: each thing is seen once, where it happens, and nothing that was seen is forgotten.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use common::store::{Fault, FaultStore, Verb};
use hicache_core::histogram::Histogram;
use hicache_core::ids::Tier;
use hicache_core::storage::{Outcome, Store};
use hicache_core::transfer::Direction;
use std::sync::Arc;
use std::time::Duration;

const PAGES: Shape = Shape {
    page: 4,
    device: 8,
    host: 8,
    layout: hicache_core::host::LayoutKind::PageUnified,
    threads: 2,
    queue: 16,
    deadline: 10.0,
    threshold: 0,
    load: 0,
    writing: common::rig::MIRRORED,
    engine_owns_slots: false,
    mode: hicache_core::HostMode::Cache,
};

fn seen(rig: &Rig, name: &str) -> Histogram {
    rig.cache.histograms().into_iter().find(|(of, _)| *of == name).unwrap().1
}

/// How many, and all together.
fn counted(rig: &Rig, name: &str) -> (u64, u64) {
    let seen = seen(rig, name);
    (seen.count(), seen.sum())
}

/// Pieces of work of each kind and their pages; each took some time, however short.
fn work(rig: &Rig) -> [(u64, u64); 5] {
    ["backup", "load", "store", "read", "exists"].map(|kind| {
        let pages = counted(rig, &format!("{kind}_pages"));
        assert_eq!(counted(rig, &format!("{kind}_seconds")).0, pages.0, "{kind}");
        pages
    })
}

fn tokens(count: i32) -> Vec<i32> {
    (0..count).collect()
}

#[test]
fn every_tier_is_seen_once() {
    let store = Arc::default();
    let mut rig = Rig::new(PAGES, Some(&store));
    assert_eq!(work(&rig), [(0, 0); 5]);
    // Page 0 on the device, page 1 on the host, page 2 in the store, page 3 nowhere.
    let prompt = tokens(16);
    rig.serve(&prompt[..12]);
    rig.settle();
    assert_eq!(work(&rig), [(1, 3), (0, 0), (1, 3), (0, 0), (0, 0)]);
    rig.evict(Tier::Device, 2);
    rig.evict(Tier::Host, 1);
    let before = ["prompt", "device", "host", "storage"].map(|of| counted(&rig, &of_request(of)));
    assert_eq!(before, [(1, 12), (1, 0), (1, 0), (1, 0)], "nothing was there: 0 is seen, too");
    let hit = rig.fetch(&prompt);
    assert_eq!(work(&rig), [(1, 3), (0, 0), (1, 3), (1, 1), (1, 2)], "asked for two pages, one is there");
    rig.load(hit);
    rig.settle();
    let after = ["prompt", "device", "host", "storage"].map(|of| counted(&rig, &of_request(of)));
    assert_eq!(after, [(2, 28), (2, 4), (2, 4), (2, 4)]);
    assert_eq!(work(&rig)[1], (1, 2), "one copy brings both");
    rig.cache.release(hit, 0).unwrap();
    assert_eq!(seen(&rig, "request_storage_tokens").places()[..2], [1, 1], "one of 0, one of up to 16");
}

fn of_request(what: &str) -> String {
    format!("request_{what}_tokens")
}

#[test]
fn a_wait_begins_with_the_first_question_and_ends_with_the_load() {
    let store = Arc::new(FaultStore::default());
    let mut rig = Rig::new(PAGES, Some(&store));
    rig.serve(&tokens(16));
    rig.settle();
    rig.evict(Tier::Device, 4);
    rig.evict(Tier::Host, 4);
    assert_eq!(counted(&rig, "request_wait_seconds"), (1, 0), "that one was never asked whether it can run");
    store.plan(|verb, _| if verb == Verb::Get { Fault::Hang } else { Fault::None });
    rig.poll(3.0);
    let hit = rig.find(&tokens(16));
    rig.cache.prefetch(hit).unwrap();
    rig.poll(4.0);
    // Its wait is the request's own until it is asked.
    rig.cache.decide(hit, 0).unwrap();
    rig.poll(5.5);
    rig.cache.decide(hit, 0).unwrap();
    rig.poll(6.25);
    store.release();
    rig.load(hit);
    assert_eq!(counted(&rig, "request_wait_seconds"), (2, 2_250_000));
    rig.cache.release(hit, 0).unwrap();
    let waits = seen(&rig, "request_wait_seconds");
    let at = |bound: u64| waits.scale().bounds().iter().position(|&of| of == bound).unwrap();
    assert_eq!((waits.places()[at(0)], waits.places()[at(2_500_000)]), (1, 1));
    // A request that goes without a load has waited for nothing that this is about.
    let hit = rig.find(&tokens(4));
    rig.cache.decide(hit, 0).unwrap();
    rig.cache.release(hit, 0).unwrap();
    assert_eq!(counted(&rig, "request_wait_seconds").0, 2);
}

#[test]
fn what_is_not_done_is_not_seen() {
    let store = Arc::new(FaultStore::default());
    let mut rig = Rig::new(PAGES, Some(&store));
    rig.gate.shut(Direction::Out);
    rig.serve(&tokens(16));
    rig.poll(0.0);
    assert_eq!(work(&rig), [(0, 0); 5], "the copy is held back");
    // A write that fails is tried twice: that is one piece of work.
    store.plan(|verb, _| if verb == Verb::Put { Fault::Answer(Outcome::Failed) } else { Fault::None });
    rig.gate.open(Direction::Out);
    rig.settle();
    assert_eq!(work(&rig), [(1, 4), (0, 0), (1, 4), (0, 0), (0, 0)]);
    // A copier that ends finishes nothing.
    rig.gate.shut(Direction::In);
    rig.evict(Tier::Device, 4);
    let hit = rig.find(&tokens(16));
    rig.load(hit);
    rig.gate.end("on purpose");
    rig.poll(1.0);
    assert_eq!(work(&rig)[1], (0, 0));
    rig.cache.release(hit, 0).unwrap();
    rig.poll(2.0);
    rig.wake_elsewhere();
    assert_eq!(work(&rig)[0], (1, 4), "what the copier before it did is still counted");
    rig.serve(&tokens(16));
    rig.settle();
    assert_eq!(work(&rig)[1], (1, 4));
}

#[test]
fn nothing_ever_goes_down() {
    let store = Arc::new(FaultStore::default());
    let mut rig = Rig::new(PAGES, Some(&store));
    let mut before: Vec<(&'static str, Histogram)> = rig.cache.histograms();
    let mut grown = |rig: &Rig, what: &str| {
        let now = rig.cache.histograms();
        for ((name, was), (_, is)) in before.iter().zip(&now) {
            let places = was.places().iter().zip(is.places());
            assert!(places.clone().all(|(was, is)| was <= is), "{name} after {what}");
            assert!(was.sum() <= is.sum(), "{name} after {what}");
        }
        before = now;
    };
    for round in 0..3 {
        rig.serve(&tokens(16));
        rig.settle();
        rig.evict(Tier::Device, 4);
        rig.evict(Tier::Host, 4);
        rig.serve(&tokens(12));
        let hit = rig.fetch(&tokens(16));
        rig.load(hit);
        rig.cache.release(hit, 0).unwrap();
        rig.settle();
        grown(&rig, "work");
        rig.cache.clear_memory().unwrap();
        grown(&rig, "a clear of memory");
        let slots = u32::try_from(rig.cache.slots(Tier::Device).capacity()).unwrap();
        rig.cache.detach().unwrap();
        grown(&rig, "a detach");
        rig.attach_elsewhere(slots);
        grown(&rig, "an attach");
        rig.cache.clear_storage().unwrap();
        rig.settle();
        grown(&rig, "a clear of storage");
        rig.cache.detach_store(Duration::from_secs(10)).unwrap();
        grown(&rig, "a detached store");
        let again: Arc<dyn Store> = Arc::<FaultStore>::clone(&store);
        rig.cache.attach_store(&|| Ok(Arc::clone(&again))).unwrap();
        grown(&rig, "another store");
        assert_eq!(work(&rig)[0], (2 * (round + 1), 7 * (round + 1)), "none was lost");
    }
    rig.cache.close(Duration::from_secs(10));
    grown(&rig, "the end");
    assert!(counted(&rig, "store_pages").0 >= 3);
}

/// Threads that hang in a store which was detached still tell what they did, when they have.
#[test]
fn what_comes_late_is_seen_once() {
    let store = Arc::new(FaultStore::default());
    let mut rig = Rig::new(PAGES, Some(&store));
    store.plan(|verb, _| if verb == Verb::Put { Fault::Hang } else { Fault::None });
    rig.serve(&tokens(16));
    rig.until("the write", |_| store.calls(Verb::Put) == 1);
    rig.cache.detach_store(Duration::ZERO).unwrap();
    for _ in 0..3 {
        let other: Arc<dyn Store> = Arc::new(FaultStore::default());
        rig.cache.attach_store(&|| Ok(Arc::clone(&other))).unwrap();
        rig.cache.detach_store(Duration::from_secs(10)).unwrap();
    }
    assert_eq!(counted(&rig, "store_pages"), (0, 0));
    store.release();
    rig.settle();
    assert_eq!(counted(&rig, "store_pages"), (1, 4));
}
