//! Why a request got what it got: tokens by tier, and a reason for every other one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use common::store::FaultStore;
use hicache_core::explain::{Explanation, Reason};
use hicache_core::ids::{HitId, Tier};
use hicache_core::page::Tokens;
use hicache_core::tree::By;
use std::sync::Arc;

const PAGES: Shape = Shape {
    page: 4,
    device: 8,
    host: 8,
    mode: hicache_core::HostMode::Cache,
    layout: hicache_core::host::LayoutKind::PageUnified,
    threads: 2,
    queue: 16,
    deadline: 10.0,
    threshold: 0,
    load: 0,
    engine_owns_slots: false,
    writing: common::rig::MIRRORED,
};

/// Of `count` tokens, the ones after `from`.
fn tokens(from: i32, count: i32) -> Vec<i32> {
    (from..from + count).collect()
}

/// Every token is accounted for.
fn explain(rig: &Rig, hit: HitId) -> Explanation {
    let told = rig.cache.explain(hit).unwrap();
    let computed: u64 = told.computed.iter().map(|(tokens, _)| tokens).sum();
    assert_eq!(told.device + told.host + told.storage + computed, told.tokens, "{told}");
    told
}

fn tiers(told: &Explanation) -> [u64; 4] {
    let computed = told.computed.iter().map(|(tokens, _)| tokens).sum();
    [told.device, told.host, told.storage, computed]
}

fn evicted(tick: u64, by: By) -> Reason {
    Reason::Evicted { tick, by, tier: Tier::Device }
}

/// Sixteen tokens: page 0 on the device, 1 on the host, 2 in the store, 3 nowhere.
fn scattered(store: &Arc<FaultStore>) -> (Rig, Vec<i32>) {
    let prompt = tokens(0, 16);
    let mut rig = Rig::new(PAGES, Some(store));
    rig.serve(&prompt[..12]);
    rig.settle();
    rig.cache.evict(Tier::Device, 2).unwrap();
    rig.cache.evict(Tier::Host, 1).unwrap();
    (rig, prompt)
}

#[test]
fn every_token_is_of_one_tier_and_totals_add_up() {
    let store = Arc::default();
    let (mut rig, prompt) = scattered(&store);
    let before = *rig.cache.stats();
    let hit = rig.fetch(&prompt);
    assert_eq!(tiers(&explain(&rig, hit)), [4, 4, 4, 4], "what a load would find");
    rig.load(hit);
    let told = explain(&rig, hit);
    assert_eq!((tiers(&told), told.loaded), ([4, 4, 4, 4], true));
    assert_eq!(told.computed, [(4, Reason::NotStored)]);
    assert!(rig.compute(hit, &prompt));
    rig.cache.release(hit, 0).unwrap();
    assert_eq!(explain(&rig, hit), told, "it is remembered as it was");

    let again = [prompt.as_slice(), &[99]].concat();
    let hit = rig.find(&again);
    rig.load(hit);
    let told = explain(&rig, hit);
    assert_eq!(tiers(&told), [16, 0, 0, 1]);
    assert_eq!(told.computed, [(1, Reason::PartialPage)]);
    assert_eq!(told.to_string(), "17 tokens: 16 device, 1 computed (no whole page)");
    rig.cache.release(hit, 0).unwrap();

    let (now, then) = (rig.cache.stats(), before);
    let tokens = [
        now.matched_tokens - then.matched_tokens,
        now.hit_device_tokens - then.hit_device_tokens,
        now.hit_host_tokens - then.hit_host_tokens,
        now.hit_storage_tokens - then.hit_storage_tokens,
        now.missed_tokens - then.missed_tokens,
        now.loaded_requests - then.loaded_requests,
    ];
    assert_eq!(tokens, [33, 20, 4, 4, 5, 2]);
}

#[test]
fn what_left_is_told_from_what_never_came() {
    let mut rig = Rig::new(Shape { host: 0, ..PAGES }, None);
    rig.serve(&tokens(0, 16));
    rig.cache.poll(None, 2.0).unwrap();
    rig.cache.evict(Tier::Device, 1).unwrap();
    rig.cache.poll(None, 3.0).unwrap();
    let room = rig.cache.allocate(6).unwrap().unwrap();
    rig.cache.free(&room).unwrap();

    let hit = rig.find(&tokens(0, 23));
    let told = explain(&rig, hit);
    let reasons = [
        (4, evicted(48, By::Allocate)),
        (4, evicted(32, By::Evict)),
        (4, Reason::NeverSeen),
        (3, Reason::PartialPage),
    ];
    assert_eq!((tiers(&told), told.computed.as_slice()), ([8, 0, 0, 15], reasons.as_slice()));
    let line = "23 tokens: 8 device, 15 to compute (4 evicted from the device at tick 48 for pages to compute, \
                4 evicted from the device at tick 32 by the engine, 4 never seen, 3 no whole page)";
    assert_eq!(told.to_string(), line);
    rig.cache.release(hit, 0).unwrap();

    // Other tokens there, or the same ones elsewhere, were never seen.
    for other in [[tokens(0, 8), tokens(40, 8)].concat(), tokens(8, 8)] {
        let hit = rig.find(&other);
        assert!(explain(&rig, hit).computed.iter().all(|(_, reason)| *reason == Reason::NeverSeen));
        rig.cache.release(hit, 0).unwrap();
    }
    // What leaves after a match is not why that match missed it.
    let hit = rig.find(&tokens(40, 4));
    rig.serve(&tokens(40, 4));
    rig.cache.evict(Tier::Device, 8).unwrap();
    assert_eq!(explain(&rig, hit).computed, [(4, Reason::NeverSeen)]);
    rig.cache.release(hit, 0).unwrap();
}

#[test]
fn what_the_host_had_last_left_the_host() {
    let mut rig = Rig::new(PAGES, None);
    rig.serve(&tokens(0, 8));
    rig.settle();
    rig.cache.evict(Tier::Device, 2).unwrap();
    let hit = rig.find(&tokens(0, 8));
    assert_eq!(tiers(&explain(&rig, hit)), [0, 8, 0, 0]);
    rig.cache.release(hit, 0).unwrap();
    rig.cache.evict(Tier::Host, 2).unwrap();
    let hit = rig.find(&tokens(0, 8));
    let reason = Reason::Evicted { tick: 0, by: By::Evict, tier: Tier::Host };
    assert_eq!(explain(&rig, hit).computed, [(8, reason)]);
    rig.cache.release(hit, 0).unwrap();
}

#[test]
fn pages_that_leave_between_match_and_load_are_told() {
    let mut rig = Rig::new(Shape { host: 0, ..PAGES }, None);
    rig.serve(&tokens(0, 16));
    let hit = rig.find(&tokens(0, 16));
    rig.cache.evict(Tier::Device, 1).unwrap();
    rig.load(hit);
    let told = explain(&rig, hit);
    assert_eq!(
        (tiers(&told), told.computed.as_slice()),
        ([12, 0, 0, 4], [(4, Reason::LeftMeanwhile)].as_slice())
    );
    rig.cache.release(hit, 0).unwrap();
}

#[test]
fn limits_and_cursors_count_from_the_beginning() {
    let mut rig = Rig::new(PAGES, None);
    rig.serve(&tokens(0, 8));
    let prompt = tokens(0, 8);
    let hit =
        rig.cache.match_prefix(Tokens::I32(&prompt), &rig.namespace, None, prompt.len() - 1, 0.0).unwrap();
    assert_eq!(explain(&rig, hit).computed, [(4, Reason::Limit)]);
    rig.load(hit);
    assert!(rig.compute(hit, &prompt));
    let cursor = rig.cache.release(hit, 0).unwrap();
    let hit = rig.find_after(&tokens(50, 5), Some(cursor)).unwrap();
    let told = explain(&rig, hit);
    assert_eq!((told.tokens, told.device), (13, 8));
    assert_eq!(told.computed, [(4, Reason::NeverSeen), (1, Reason::PartialPage)]);
    rig.cache.release(hit, 0).unwrap();
    rig.settle();
}

#[test]
fn another_namespace_is_named_but_never_another_tenant() {
    let mut rig = Rig::new(PAGES, None);
    rig.namespace.salt = Some("one".into());
    rig.namespace.adapter = Some("a".into());
    rig.serve(&tokens(0, 8));
    rig.namespace.adapter = None;
    let hit = rig.find(&tokens(0, 12));
    assert_eq!(explain(&rig, hit).computed, [(8, Reason::OtherNamespace), (4, Reason::NeverSeen)]);
    rig.cache.release(hit, 0).unwrap();
    rig.namespace.salt = Some("two".into());
    let hit = rig.find(&tokens(0, 12));
    assert_eq!(explain(&rig, hit).computed, [(12, Reason::NeverSeen)]);
    rig.cache.release(hit, 0).unwrap();
}

#[test]
fn storage_that_was_not_asked_is_no_reason_to_say_never() {
    let store = Arc::default();
    let mut rig = Rig::new(PAGES, Some(&store));
    let hit = rig.find(&tokens(0, 8));
    assert_eq!(explain(&rig, hit).computed, [(8, Reason::NotAsked)]);
    rig.cache.prefetch(hit).unwrap();
    assert_eq!(explain(&rig, hit).computed, [(8, Reason::Waiting)]);
    rig.cache.release(hit, 0).unwrap();
    rig.settle();
}

#[test]
fn new_weights_are_the_reason_for_who_waits() {
    let mut rig = Rig::new(PAGES, None);
    rig.serve(&tokens(0, 8));
    rig.settle();
    let hit = rig.find(&tokens(0, 8));
    rig.cache.bump_epoch(common::rig::config(PAGES).identity).unwrap();
    assert_eq!(explain(&rig, hit).computed, [(8, Reason::NewWeights)]);
    rig.cache.release(hit, 0).unwrap();
    let hit = rig.find(&tokens(0, 8));
    let reason = Reason::Evicted { tick: 0, by: By::NewWeights, tier: Tier::Host };
    assert_eq!(explain(&rig, hit).computed, [(8, reason)]);
    rig.cache.release(hit, 0).unwrap();
}

#[test]
fn the_last_requests_are_remembered_and_no_others() {
    let mut rig = Rig::new(PAGES, None);
    let hits: Vec<HitId> = (0..300)
        .map(|start| {
            let hit = rig.find(&tokens(start, 5));
            rig.cache.release(hit, 0).unwrap();
            hit
        })
        .collect();
    assert_eq!(hits.iter().filter(|&&hit| rig.cache.explain(hit).is_ok()).count(), 256);
    assert!(rig.cache.explain(hits[43]).is_err() && rig.cache.explain(hits[44]).is_ok());
    // A very long one takes the place of many.
    let long = rig.find(&vec![7; (1 << 20) - 40]);
    rig.cache.release(long, 0).unwrap();
    assert!(rig.cache.explain(long).is_ok());
    assert_eq!(hits.iter().filter(|&&hit| rig.cache.explain(hit).is_ok()).count(), 10);
}
