//! When a waiting request runs: the rules by which it stops to wait, what has landed by then, and what becomes of the rest.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::mixed::Mixed;
use common::models;
use common::rig::{Rig, Shape};
use common::store::{Fault, FaultStore, Verb};
use hicache_core::explain::{Reason, Revoked};
use hicache_core::hash::{Digest, chain, of_part};
use hicache_core::ids::Tier;
use hicache_core::page::{PageSize, Tokens};
use hicache_core::policy::StopOptions;
use hicache_core::policy::fetching::Verdict;
use std::sync::Arc;

const POLICIES: [&str; 3] = ["best_effort", "wait_complete", "timeout"];

fn key(tokens: &[i32], page: usize, size: u32) -> Digest {
    chain(None, Tokens::I32(tokens), PageSize::new(size).unwrap())[page]
}

/// A store that holds the pages of these prompts, and a fresh cache over it that follows a policy.
fn stored(shape: Shape, policy: &str, prompts: &[Vec<i32>]) -> (Rig, Arc<FaultStore>) {
    let store = Arc::new(FaultStore::default());
    let mut writer = Rig::new(Shape { device: 4096, host: 4096, threshold: 0, ..shape }, Some(&store));
    prompts.iter().for_each(|tokens| _ = writer.serve(tokens));
    writer.settle();
    let mut rig = Rig::new(shape, Some(&store));
    rig.cache.stop_by(StopOptions::named(policy).rule().unwrap());
    (rig, store)
}

/// Pages and the window of a hybrid are two reads. Whether either has come and the time is over decides as each rule says,
/// and whatever runs on is right, and leaves nothing.
#[test]
fn who_stops_to_wait_when() {
    let tokens: Vec<i32> = (0..16).collect();
    let parts = [(models::WINDOW, 16, 32)];
    let store = Arc::new(FaultStore::default());
    let mut writer = Mixed::over(&models::Shape::of(&parts), Some(&store));
    writer.serve(&tokens, 2);
    writer.drained();
    let (page, window) = (key(&tokens, 0, 2), of_part(&key(&tokens, 7, 2), "part0"));
    for (policy, expected) in POLICIES.into_iter().zip([8, 2, 5]) {
        let mut stopped = 0;
        for case in 0..8 {
            let [main, side, late] = [1, 2, 4].map(|bit| case & bit != 0);
            let mut rig = Mixed::over(&models::Shape::of(&parts), Some(&store));
            rig.cache.stop_by(StopOptions::named(policy).rule().unwrap());
            [page, window].into_iter().for_each(|key| store.holds.hold(key));
            let gets = store.calls(Verb::Get);
            let hit = rig.find(&tokens);
            assert!(rig.cache.prefetch(hit).unwrap());
            rig.until("both reads", |_| store.calls(Verb::Get) == gets + 2);
            // It could have run now for the first time.
            let first = rig.cache.decide(hit, 0).unwrap();
            assert_eq!(first == Verdict::Compute, policy == "best_effort");
            for (key, done) in [(page, main), (window, side)] {
                if done {
                    store.holds.free(&key);
                }
            }
            let under_way = usize::from(!main) + usize::from(!side);
            rig.until("what is let through", |rig| rig.cache.in_flight() == under_way);
            // 1 s, and 0.25 s for each 1,024 of 16 tokens.
            rig.cache.poll(None, if late { 1.004 } else { 1.003 }).unwrap();
            let verdict = rig.cache.decide(hit, 0).unwrap();
            assert!(verdict == Verdict::Compute || verdict == Verdict::Wait);
            stopped += usize::from(verdict == Verdict::Compute);
            // All or nothing is usable: a window without its pages is worth nothing, nor they without it.
            assert_eq!(rig.load(hit).device, if main && side { 8 } else { 0 }, "{policy} {case}");
            assert!(!rig.view(hit).waiting);
            // Slots that a thread may still write to are nobody else's.
            let out = rig.cache.slots(Tier::Host).out() + rig.cache.part_slots(0, Tier::Host).unwrap().out();
            assert_eq!(out, if main { 0 } else { 8 } + if side { 0 } else { 2 }, "{policy} {case}");
            [page, window].iter().for_each(|key| store.holds.free(key));
            rig.settle();
            assert_eq!(rig.wrong(hit, &tokens, true), None);
            rig.cache.release(hit, 0).unwrap();
            rig.drained();
        }
        assert_eq!(stopped, expected, "{policy}");
    }
}

/// The time begins with the first question, grows with what was asked for, and is over when it has passed, not before.
#[test]
fn a_timeout_counts_from_the_first_question() {
    let tokens: Vec<i32> = (0..2048).collect();
    let shape =
        Shape { page: 16, device: 160, host: 160, threshold: 256, deadline: 100.0, ..Shape::default() };
    let (mut rig, store) = stored(shape, "timeout", std::slice::from_ref(&tokens));
    store.plan(|verb, _| if verb == Verb::Get { Fault::Hang } else { Fault::None });
    let hit = rig.find(&tokens);
    assert!(rig.cache.prefetch(hit).unwrap());
    rig.poll(50.0);
    assert_eq!(rig.cache.decide(hit, 0).unwrap(), Verdict::Wait, "it could not have run before");
    rig.poll(51.5);
    assert_eq!(rig.cache.decide(hit, 0).unwrap(), Verdict::Wait, "1.0 s + 2 * 0.25 s have not passed");
    assert_eq!(rig.cache.decide(hit, 3).unwrap(), Verdict::Skip, "others can run");
    rig.poll(51.5015);
    assert_eq!(rig.cache.decide(hit, 3).unwrap(), Verdict::Compute);
    assert!(rig.view(hit).waiting, "a question ends nothing");
    assert_eq!(rig.load(hit).device, 0);
    let revoked = Revoked::Policy { policy: "timeout".into(), waited_ms: 1501 };
    assert_eq!(rig.cache.explain(hit).unwrap().computed, [(2048, Reason::Revoked(revoked))]);
    rig.cache.release(hit, 0).unwrap();
    store.release();
    rig.drained();
}

/// Whatever a policy says, the deadline is the end; and a hit without a prefetch computes.
#[test]
fn no_wait_outlasts_the_deadline() {
    let tokens: Vec<i32> = (0..16).collect();
    for policy in POLICIES {
        let shape = Shape { deadline: 5.0, ..Shape::default() };
        let (mut rig, store) = stored(shape, policy, std::slice::from_ref(&tokens));
        let other = rig.find(&[900, 901]);
        assert_eq!(rig.cache.decide(other, 4).unwrap(), Verdict::Compute);
        rig.cache.release(other, 0).unwrap();
        assert!(rig.cache.decide(other, 4).is_err(), "released");
        store.plan(|_, _| Fault::Hang);
        let hit = rig.find(&tokens);
        assert!(rig.cache.prefetch(hit).unwrap());
        rig.poll(5.0);
        assert_eq!(rig.cache.decide(hit, 4).unwrap(), Verdict::Compute, "{policy}");
        rig.cache.release(hit, 0).unwrap();
        store.release();
        rig.drained();
    }
}

/// What a request's own prefetch brought until it runs is used, and what comes later isn't.
#[test]
fn what_has_landed_is_used() {
    let tokens: Vec<i32> = (0..300).collect();
    let shape = Shape { page: 1, device: 320, host: 600, threads: 1, ..Shape::default() };
    let (mut rig, store) = stored(shape, "best_effort", std::slice::from_ref(&tokens));
    store.plan(|verb, _| if verb == Verb::Get { Fault::Gated } else { Fault::None });
    let hit = rig.find(&tokens);
    assert!(rig.cache.prefetch(hit).unwrap());
    rig.until("the first read", |_| store.waiting() == 1);
    assert!(store.pass(0));
    rig.until("the second read", |rig| store.waiting() == 1 && rig.view(hit).usable == 128);
    assert_eq!(rig.cache.decide(hit, 0).unwrap(), Verdict::Compute);
    assert_eq!(rig.load(hit).device, 128);
    rig.verify(hit, &tokens[..128]);
    assert!(rig.compute(hit, &tokens));
    // What had not begun was given back at once; what is under way when it ends.
    rig.until("the third read's end", |rig| rig.cache.slots(Tier::Host).out() == 128);
    assert!(store.pass(0));
    rig.settle();
    assert_eq!(store.calls(Verb::Get), 2, "the last read never began");
    rig.verify(hit, &tokens);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// A store that has less than the threshold: the request is ready with the answer, under each rule.
#[test]
fn too_little_in_the_store_is_no_reason_to_wait() {
    let tokens: Vec<i32> = (0..16).collect();
    for policy in POLICIES {
        let shape = Shape { threshold: 8, ..Shape::default() };
        let (mut rig, store) = stored(shape, policy, &[tokens[..4].to_vec()]);
        let hit = rig.find(&tokens);
        assert!(rig.cache.prefetch(hit).unwrap());
        rig.until("the answer", |rig| !rig.view(hit).waiting);
        assert_eq!(rig.cache.decide(hit, 1).unwrap(), Verdict::Compute, "{policy}");
        assert_eq!((rig.cache.stats().prefetch_below_threshold, store.calls(Verb::Get)), (1, 0));
        let reason = Reason::BelowPrefetchThreshold { tokens: 4, threshold: 8 };
        assert_eq!(rig.cache.explain(hit).unwrap().computed[0], (4, reason));
        rig.cache.release(hit, 0).unwrap();
        rig.drained();
    }
}

/// What was evicted everywhere is found in storage again.
#[test]
fn pages_that_left_every_tier_are_found_in_storage() {
    let tokens: Vec<i32> = (0..16).collect();
    let store = Arc::new(FaultStore::default());
    let mut rig = Rig::new(Shape::default(), Some(&store));
    rig.serve(&tokens);
    rig.settle();
    Tier::ALL.into_iter().for_each(|tier| drop(rig.evict(tier, usize::MAX)));
    let hit = rig.fetch(&tokens);
    assert_eq!((rig.view(hit).stored, rig.load(hit).device), (8, 8));
    rig.verify(hit, &tokens);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// Fewer tokens than the threshold are computed, and counted; as many are loaded.
#[test]
fn a_short_load_is_declined() {
    for (pages, expected) in [(9, 0), (10, 10)] {
        let mut rig = Rig::new(Shape { page: 1, load: 10, ..Shape::default() }, None);
        let tokens: Vec<i32> = (0..pages).collect();
        rig.serve(&tokens);
        rig.settle();
        rig.evict(Tier::Device, usize::MAX);
        let hit = rig.find(&tokens);
        assert_eq!(rig.load(hit).device, expected);
        let declined = u64::from(pages.unsigned_abs() - expected);
        assert_eq!(rig.cache.stats().load_declined_pages, declined);
        assert_eq!(rig.cache.stats().hit_host_tokens, u64::from(expected), "what is declined is no hit");
        if expected == 0 {
            let reason = Reason::BelowLoadThreshold { tokens: 9, threshold: 10 };
            assert_eq!(rig.cache.explain(hit).unwrap().computed, [(9, reason)]);
        }
        assert!(rig.compute(hit, &tokens));
        rig.settle();
        rig.verify(hit, &tokens);
        rig.cache.release(hit, 0).unwrap();
        rig.drained();
    }
}

/// A budget counts the slots that the load takes itself: all of it fits, or none is copied. Never half.
#[test]
fn a_load_keeps_to_its_budget() {
    let tokens: Vec<i32> = (0..12).collect();
    for (budget, expected) in [(4, 0), (5, 0), (6, 6)] {
        let mut rig = Rig::new(Shape { page: 1, device: 10, host: 16, ..Shape::default() }, None);
        rig.serve(&tokens[..6]);
        rig.settle();
        rig.evict(Tier::Device, usize::MAX);
        let hit = rig.find(&tokens);
        assert_eq!(rig.view(hit).usable, 6);
        rig.cache.load_within(&[hit], None, Some(budget)).unwrap();
        rig.books();
        assert_eq!(rig.view(hit).device, expected);
        assert_eq!(rig.cache.stats().load_declined_pages, u64::from(6 - expected));
        let budget = budget as u64;
        let reason = Reason::OverBudget { tokens: 6, budget };
        let why = rig.cache.explain(hit).unwrap().computed;
        assert_eq!(why.contains(&(6, reason)), expected == 0, "{why:?}");
        // 6 more and these don't fit into 10 pages.
        let more = rig.cache.allocate(12 - expected as usize).unwrap();
        assert_eq!(more, None);
        rig.cache.release(hit, 0).unwrap();
        rig.drained();
    }
}

/// What is on the device and held by nobody becomes unavailable, too; what others hold already doesn't.
#[test]
fn a_budget_counts_what_is_newly_held() {
    let tokens: Vec<i32> = (0..8).collect();
    for (held, budget, expected) in [(false, 7, 4), (false, 8, 8), (true, 3, 4), (true, 4, 8)] {
        let mut rig = Rig::new(Shape { page: 1, device: 16, host: 16, ..Shape::default() }, None);
        rig.serve(&tokens);
        rig.settle();
        rig.evict(Tier::Device, 4);
        let other = held.then(|| rig.find(&tokens[..4]));
        other.iter().for_each(|&other| _ = rig.load(other));
        let hit = rig.find(&tokens);
        rig.cache.load_within(&[hit], None, Some(budget)).unwrap();
        rig.books();
        assert_eq!(rig.view(hit).device, expected, "{held} {budget}");
        rig.settle();
        rig.verify(hit, &tokens);
        other.into_iter().chain([hit]).for_each(|hit| _ = rig.cache.release(hit, 0).unwrap());
        rig.drained();
    }
}
