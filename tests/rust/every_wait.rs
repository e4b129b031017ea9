//! Every model and every rule of waiting: when a request stops to wait, how it leaves, and who waits with it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::every::{filled, key, kinds, kinds_with, pages};
use common::mixed::Mixed;
use common::models::Shape;
use common::store::{Fault, FaultStore, Verb};
use hicache_core::Cleared;
use hicache_core::ids::{HitId, Tier};
use hicache_core::policy::StopOptions;
use hicache_core::policy::fetching::Verdict;
use std::sync::Arc;

const RULES: [&str; 3] = ["best_effort", "wait_complete", "timeout"];

fn over(shape: &Shape, rule: &str, store: &Arc<FaultStore>) -> Mixed {
    let mut rig = Mixed::over(shape, Some(store));
    rig.cache.stop_by(StopOptions::named(rule).rule().unwrap());
    rig
}

/// Reads of a path: pages, and what the parts have of them.
fn reads(shape: &Shape) -> usize {
    if shape.parts.is_empty() { 1 } else { 2 }
}

/// Whether pages have come, whether parts have, whether the time is over: in how many cases a request runs is what its rule
/// says, whichever parts there are. Of plain pages there are half as many cases.
#[test]
fn who_stops_to_wait_when() {
    let tokens = pages(1, 8);
    for shape in kinds() {
        let store = filled(&shape, 8, std::slice::from_ref(&tokens));
        let plain = shape.parts.is_empty();
        let keys: Vec<_> =
            [None, Some(0)][..reads(&shape)].iter().map(|&part| key(&tokens, 7, part)).collect();
        for (rule, expected) in RULES.into_iter().zip(if plain { [4, 2, 3] } else { [8, 2, 5] }) {
            let mut stopped = 0;
            for case in 0..2_usize << keys.len() {
                let mut rig = over(&shape, rule, &store);
                keys.iter().for_each(|&key| store.holds.hold(key));
                let gets = store.calls(Verb::Get);
                let hit = rig.find(&tokens);
                assert!(rig.cache.prefetch(hit).unwrap());
                rig.until("all reads", |_| store.calls(Verb::Get) == gets + keys.len());
                // It could have run now for the first time.
                assert_eq!(rig.cache.decide(hit, 0).unwrap() == Verdict::Compute, rule == "best_effort");
                let done: Vec<_> = keys.iter().enumerate().filter(|(at, _)| case & (2 << at) > 0).collect();
                done.iter().for_each(|(_, key)| store.holds.free(key));
                let under_way = keys.len() - done.len();
                rig.until("what is let through", |rig| rig.cache.in_flight() == under_way);
                // 1 s, and 0.25 s for each 1,024 of 16 tokens.
                rig.step(if case & 1 > 0 { 1.004 } else { 1.003 });
                let verdicts = [0, 3].map(|others| rig.cache.decide(hit, others).unwrap());
                assert!(verdicts == [Verdict::Compute; 2] || verdicts == [Verdict::Wait, Verdict::Skip]);
                stopped += usize::from(verdicts[0] == Verdict::Compute);
                let all = done.len() == keys.len();
                assert_eq!(rig.load(hit).device, if all { 8 } else { 0 }, "{rule} {case} {shape:?}");
                // Slots that a thread may still write to are nobody else's.
                assert_eq!(rig.reading() > 0, !all, "{rule} {case} {shape:?}");
                keys.iter().for_each(|key| store.holds.free(key));
                rig.settle();
                assert_eq!((rig.reading(), rig.wrong(hit, &tokens, true)), (0, None));
                rig.cache.release(hit, 0).unwrap();
                rig.drained();
            }
            assert_eq!(stopped, expected, "{rule} {shape:?}");
        }
    }
}

/// However far it is when its request leaves, nothing stays, and the next one gets all of it: waiting for a thread, asked about,
/// its pages being read, its parts being read, and read but not let in.
#[test]
fn an_abort_at_any_stage_leaves_nothing() {
    let (tokens, other) = (pages(1, 20), pages(2, 2));
    for shape in kinds() {
        let shape = Shape { threads: 1, ..shape };
        let store = filled(&shape, 4, &[tokens.clone(), other.clone()]);
        let mut rig = Mixed::over(&shape, Some(&store));
        for round in 0..50 {
            let stage = round % 5;
            store.plan(|_, _| Fault::Gated);
            let asking = |rig: &mut Mixed, tokens: &[i32]| {
                let hit = rig.find(tokens);
                assert!(rig.cache.prefetch(hit).unwrap());
                hit
            };
            let blocker = (stage == 0).then(|| asking(&mut rig, &other));
            if blocker.is_some() {
                rig.until("the other's question", |_| store.waiting() == 1);
            }
            let hit = asking(&mut rig, &tokens);
            let read = |rig: &mut Mixed| {
                let gets = store.calls(Verb::Get);
                assert!(store.pass(0));
                rig.until("a read", |_| store.calls(Verb::Get) == gets + 1 && store.waiting() == 1);
            };
            if stage > 0 {
                rig.until("the question", |_| store.waiting() == 1);
            }
            if stage > 1 {
                read(&mut rig);
                assert!(rig.reading() >= 20);
            }
            if stage > 2 && !shape.parts.is_empty() {
                read(&mut rig);
            }
            if stage > 3 {
                assert!(store.pass(0));
                while rig.cache.ready().prefetches == 0 {
                    std::thread::yield_now();
                }
                assert!(rig.view(hit).waiting, "read, and not let in");
            }
            rig.cache.release(hit, 0).unwrap();
            rig.books();
            blocker.into_iter().for_each(|blocker| _ = rig.cache.release(blocker, 0).unwrap());
            rig.until("the end", |rig| {
                store.pass(0);
                rig.cache.in_flight() == 0
            });
            assert_eq!(rig.reading(), 0, "{round} {shape:?}");
            rig.drained();
        }
        store.plan(|_, _| Fault::None);
        let hit = rig.fetch(&tokens);
        assert_eq!(rig.view(hit).usable, 20, "{shape:?}");
        rig.answer(hit, &tokens, 20);
        rig.cache.release(hit, 0).unwrap();
        rig.drained();
    }
}

/// Fifty requests of eight pages, all of them stored, over a host of sixteen: reads never own more than there is, and all end
/// within a bounded number of polls while no time passes, whether the engine asks who runs or waits for all of it.
#[test]
fn many_who_wait_all_end_where_the_host_is_small() {
    let prompts: Vec<Vec<i32>> = (1..=50).map(|number| pages(number, 8)).collect();
    for shape in kinds_with([16, 16], [16, 8], [8, 4]) {
        let store = filled(&shape, 8, &prompts);
        for (rule, asks) in RULES.into_iter().flat_map(|rule| [(rule, true), (rule, false)]) {
            let mut rig = over(&shape, rule, &store);
            let mut waiting: Vec<(HitId, &Vec<i32>)> =
                prompts.iter().map(|tokens| (rig.find(tokens), tokens)).collect();
            waiting.iter().for_each(|&(hit, _)| assert!(rig.cache.prefetch(hit).unwrap()));
            let mut polls = 0;
            while !waiting.is_empty() {
                rig.land();
                assert!(rig.cache.slots(Tier::Host).out() <= 16);
                polls += usize::from(rig.cache.in_flight() == 0);
                assert!(polls < 1_000, "something never ends: {} of {rule} {shape:?}", waiting.len());
                let runs = |rig: &mut Mixed, hit: HitId| {
                    if asks {
                        rig.cache.decide(hit, 0).unwrap() == Verdict::Compute
                    } else {
                        !rig.view(hit).waiting
                    }
                };
                if let Some(at) = (0..waiting.len()).find(|&at| runs(&mut rig, waiting[at].0)) {
                    let (hit, tokens) = waiting.remove(at);
                    rig.load(hit);
                    rig.until("its load", |rig| rig.cache.copying() == 0);
                    rig.answer_rest(hit, tokens);
                    assert_eq!(rig.wrong(hit, tokens, true), None);
                    rig.cache.release(hit, 0).unwrap();
                    rig.until("its copies", |rig| rig.cache.copying() == 0);
                    rig.evict_all(Tier::Device);
                }
            }
            rig.drained();
        }
        // Nobody runs: those who find no room don't wait for ever.
        let mut rig = Mixed::over(&shape, Some(&store));
        let waiting: Vec<HitId> = prompts.iter().map(|tokens| rig.find(tokens)).collect();
        waiting.iter().for_each(|&hit| assert!(rig.cache.prefetch(hit).unwrap()));
        let mut polls = 0;
        while waiting.iter().any(|&hit| rig.view(hit).waiting) {
            rig.land();
            polls += usize::from(rig.cache.in_flight() == 0);
            assert!(polls < 1_000, "somebody waits for ever: {shape:?}");
        }
        waiting.into_iter().for_each(|hit| _ = rig.cache.release(hit, 0).unwrap());
        rig.drained();
    }
}

/// A small request behind a large one whose read hangs has all of it meanwhile.
#[test]
fn a_small_request_does_not_wait_for_a_large_one() {
    let (large, small) = (pages(1, 157), pages(2, 1));
    for shape in kinds_with([512, 512], [512, 512], [64, 64]) {
        let store = filled(&shape, 157, &[large.clone(), small.clone()]);
        let gets = store.calls(Verb::Get);
        store.plan(
            move |verb, call| if verb == Verb::Get && call == gets + 1 { Fault::Gated } else { Fault::None },
        );
        let mut rig = Mixed::over(&shape, Some(&store));
        let first = rig.find(&large);
        assert!(rig.cache.prefetch(first).unwrap());
        rig.until("its read", |_| store.waiting() == 1);
        let second = rig.find(&small);
        assert!(rig.cache.prefetch(second).unwrap());
        rig.until("the small one", |rig| !rig.view(second).waiting);
        assert_eq!((rig.view(second).usable, rig.view(first).waiting), (1, true), "{shape:?}");
        assert!(store.pass(0));
        rig.until("the large one", |rig| !rig.view(first).waiting);
        assert_eq!(rig.view(first).usable, 157, "{shape:?}");
        for (hit, tokens) in [(first, &large), (second, &small)] {
            rig.answer(hit, tokens, 157);
            rig.cache.release(hit, 0).unwrap();
        }
        rig.drained();
    }
}

/// Storage is cleared while a request waits, who asks again: what the first attempt is answered is not the second one's.
#[test]
fn who_asks_again_after_a_clear_hears_its_own_answer() {
    let tokens = pages(1, 6);
    for shape in kinds() {
        for verb in [Verb::Exists, Verb::Get] {
            let shape = Shape { threads: 4, ..shape.clone() };
            let store = filled(&shape, 1, std::slice::from_ref(&tokens));
            store.plan(move |at, _| if at == verb { Fault::Gated } else { Fault::None });
            let mut rig = Mixed::over(&shape, Some(&store));
            let first = if verb == Verb::Get { reads(&shape) } else { 1 };
            let hit = rig.find(&tokens);
            assert!(rig.cache.prefetch(hit).unwrap());
            rig.until("the first attempt", |_| store.waiting() == first);
            let clear = rig.cache.clear_storage().unwrap();
            assert!(!rig.view(hit).waiting);
            rig.until("the clear", |rig| rig.cache.cleared(clear) != Cleared::Waiting);
            store.plan(|_, _| Fault::Gated);
            assert!(rig.cache.prefetch(hit).unwrap());
            rig.until("the second attempt", |_| store.waiting() == first + 1);
            let ended = store.ended();
            (0..first).for_each(|_| assert!(store.pass(0)));
            rig.until("the first one's end", |rig| {
                store.ended() == ended + first && rig.cache.in_flight() == 1
            });
            assert_eq!(
                (rig.view(hit).usable, rig.view(hit).waiting, rig.reading()),
                (0, true, 0),
                "{shape:?}"
            );
            store.plan(|_, _| Fault::None);
            assert!(store.pass(0));
            rig.until("the second one's end", |rig| !rig.view(hit).waiting);
            assert_eq!(rig.view(hit).usable, 0, "{verb:?} {shape:?}");
            rig.answer(hit, &tokens, 6);
            rig.cache.release(hit, 0).unwrap();
            rig.drained();
        }
    }
}
