//! Every model and every rule of waiting: whatever becomes of a prefetch, its request gets what is right, and leaves nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::every::{filled, key, kinds, kinds_with, pages, under_every_policy};
use common::mixed::Mixed;
use common::models::Shape;
use common::store::{Fault, FaultStore, Verb};
use hicache_core::ids::{HitId, Tier};
use hicache_core::policy::StopOptions;
use hicache_core::policy::fetching::Verdict;
use hicache_core::storage::Outcome;
use std::sync::Arc;

const RULES: [&str; 3] = ["best_effort", "wait_complete", "timeout"];

fn over(shape: &Shape, rule: &str, store: &Arc<FaultStore>) -> Mixed {
    let mut rig = Mixed::over(shape, Some(store));
    rig.cache.stop_by(StopOptions::named(rule).rule().unwrap());
    rig
}

/// A request runs with what is there, computes the rest, and leaves; what it has is right at each moment.
fn runs(rig: &mut Mixed, hit: HitId, tokens: &[i32]) -> u32 {
    let found = rig.load(hit).device;
    rig.land();
    assert_eq!(rig.wrong(hit, tokens, true), None);
    rig.answer_rest(hit, tokens);
    assert_eq!(rig.wrong(hit, tokens, true), None);
    rig.cache.release(hit, 0).unwrap();
    rig.books();
    found
}

/// Whatever a store answers to whichever of the calls, no slot is lost or free twice, and nothing is used that didn't come.
/// When it is well again, and has what it said, all of it comes.
#[test]
fn whatever_becomes_of_a_read_nothing_is_lost() {
    let faults = [
        Fault::Answer(Outcome::Failed),
        Fault::Answer(Outcome::Absent),
        Fault::Answer(Outcome::Corrupt),
        Fault::Answer(Outcome::Short),
        Fault::Answer(Outcome::TimedOut),
        Fault::Short,
        Fault::Long,
        Fault::Panic,
    ];
    let tokens = pages(1, 6);
    for shape in kinds() {
        let store = filled(&shape, 1, std::slice::from_ref(&tokens));
        for fault in faults {
            for (verb, nth) in [(Verb::Exists, 1), (Verb::Get, 1), (Verb::Get, 2)] {
                let mut rig = Mixed::over(&shape, Some(&store));
                let before = store.calls(verb);
                store.plan(
                    move |at, call| if at == verb && call == before + nth { fault } else { Fault::None },
                );
                let hit = rig.fetch(&tokens);
                let all = nth == 2 && shape.parts.is_empty();
                assert_eq!(
                    rig.view(hit).usable,
                    if all { 6 } else { 0 },
                    "{fault:?} {verb:?} {nth} {shape:?}"
                );
                rig.settle();
                assert_eq!(rig.reading(), 0);
                rig.cache.release(hit, 0).unwrap();
                store.plan(|_, _| Fault::None);
                let hit = rig.fetch(&tokens);
                assert_eq!(runs(&mut rig, hit, &tokens), 6, "{fault:?} {verb:?} {nth} {shape:?}");
                rig.drained();
            }
        }
    }
}

/// A page, a window or a state that is damaged ends what is usable before it; the next request finds all that is left.
#[test]
fn what_is_damaged_cuts_what_is_usable() {
    let tokens = pages(1, 4);
    for shape in kinds() {
        let parts = (0..shape.parts.len()).map(Some);
        for part in std::iter::once(None).chain(parts) {
            for page in 0..4 {
                let store = filled(&shape, 1, std::slice::from_ref(&tokens));
                store.spoil(key(&tokens, page, part), Outcome::Corrupt);
                let mut rig = Mixed::over(&shape, Some(&store));
                let hit = rig.fetch(&tokens);
                rig.settle();
                assert!(rig.view(hit).usable == 4 || rig.view(hit).usable as usize <= page);
                assert_eq!((rig.reading(), rig.view(hit).waiting), (0, false));
                let untouched = rig.cache.stats().corrupt_pages == 0;
                assert_eq!(rig.view(hit).usable == 4, untouched, "{part:?} {page} {shape:?}");
                rig.cache.release(hit, 0).unwrap();
                // The store removed it when it saw the damage: another cache knows from the beginning.
                let mut rig = Mixed::over(&shape, Some(&store));
                let hit = rig.fetch(&tokens);
                let left = if untouched { 4 } else { u32::try_from(page).unwrap() };
                assert_eq!(runs(&mut rig, hit, &tokens), left, "{part:?} {page} {shape:?}");
                rig.drained();
            }
        }
    }
}

/// A request asks again after its deadline: what the first attempt is answered then is not the second one's, and the slots
/// of both come back once.
#[test]
fn an_old_attempts_answer_is_nobodys() {
    let tokens = pages(1, 6);
    for shape in kinds() {
        for verb in [Verb::Exists, Verb::Get] {
            let shape = Shape { deadline: 5.0, threads: 4, ..shape.clone() };
            let store = filled(&shape, 1, std::slice::from_ref(&tokens));
            store.plan(move |at, _| if at == verb { Fault::Gated } else { Fault::None });
            let mut rig = Mixed::over(&shape, Some(&store));
            let reads = if verb == Verb::Get && !shape.parts.is_empty() { 2 } else { 1 };
            let hit = rig.find(&tokens);
            assert!(rig.cache.prefetch(hit).unwrap());
            rig.until("the first attempt", |_| store.waiting() == reads);
            let first = rig.reading();
            rig.step(5.0);
            assert!(!rig.view(hit).waiting);
            assert!(rig.cache.prefetch(hit).unwrap());
            rig.until("the second attempt", |_| store.waiting() == 2 * reads);
            assert_eq!(rig.reading(), 2 * first, "slots of both: {shape:?}");
            let ended = store.ended();
            (0..reads).for_each(|_| assert!(store.pass(0)));
            rig.until("the first one's end", |rig| store.ended() == ended + reads && rig.reading() == first);
            assert_eq!((rig.view(hit).usable, rig.view(hit).waiting), (0, true), "{verb:?} {shape:?}");
            store.plan(|_, _| Fault::None);
            (0..reads).for_each(|_| assert!(store.pass(0)));
            rig.until("the second one's end", |rig| !rig.view(hit).waiting);
            assert_eq!(runs(&mut rig, hit, &tokens), 6, "{verb:?} {shape:?}");
            rig.drained();
        }
    }
}

/// However little room the host has for pages, windows or states, what fits is read, and is usable.
#[test]
fn what_fits_comes() {
    let tokens = pages(1, 6);
    for ([pages, windows, states], plain, hybrid) in [
        ([4, 48, 48], 4, [4, 4, 4]),
        ([1, 48, 48], 1, [1, 1, 1]),
        ([48, 1, 48], 6, [1, 6, 1]),
        ([48, 2, 48], 6, [6, 6, 6]),
        ([48, 0, 48], 6, [0, 6, 0]),
        ([48, 48, 0], 6, [6, 0, 0]),
    ] {
        let expected = [plain, hybrid[0], hybrid[1], hybrid[2]];
        for (shape, most) in kinds_with([48, pages], [48, windows], [48, states]).into_iter().zip(expected) {
            for rule in RULES {
                let store = filled(&shape, 1, std::slice::from_ref(&tokens));
                let mut rig = over(&shape, rule, &store);
                let hit = rig.fetch(&tokens);
                let usable = rig.view(hit).usable;
                // Of a boundary for which there is no room, half is tried.
                assert!(usable <= most && (usable > 0 || most == 0), "{usable} of {most}: {shape:?}");
                assert!(!shape.parts.is_empty() || usable == most, "{usable} of {most}: {shape:?}");
                assert_eq!(rig.cache.decide(hit, 1).unwrap(), Verdict::Compute);
                assert_eq!(runs(&mut rig, hit, &tokens), usable, "{shape:?}");
                rig.drained();
            }
        }
    }
}

/// A store that has less than the threshold: the request is ready with the answer, under each rule, and nothing is read.
#[test]
fn too_little_is_no_reason_to_wait() {
    for shape in kinds() {
        for rule in RULES {
            let shape = Shape { threshold: 8, ..shape.clone() };
            let store = filled(&shape, 1, &[pages(1, 2)]);
            let mut rig = over(&shape, rule, &store);
            let gets = store.calls(Verb::Get);
            let hit = rig.fetch(&pages(1, 8));
            assert_eq!(rig.cache.decide(hit, 1).unwrap(), Verdict::Compute, "{rule} {shape:?}");
            assert_eq!(
                (rig.cache.stats().prefetch_below_threshold, store.calls(Verb::Get)),
                (1, gets),
                "{shape:?}"
            );
            assert_eq!(runs(&mut rig, hit, &pages(1, 8)), 0);
            rig.drained();
        }
    }
}

/// What left every tier of memory is found in storage, whoever wrote it there when.
#[test]
fn what_left_memory_is_found_in_storage() {
    for shape in under_every_policy(&kinds()) {
        let store = Arc::new(FaultStore::default());
        let mut rig = Mixed::over(&shape, Some(&store));
        let tokens = pages(1, 8);
        rig.ask_twice(&tokens);
        rig.write_back();
        Tier::ALL.into_iter().for_each(|tier| _ = rig.evict_all(tier));
        assert_eq!(rig.cache.tree().nodes(), 0, "{shape:?}");
        let hit = rig.fetch(&tokens);
        assert_eq!((rig.view(hit).usable, rig.view(hit).stored), (8, 8), "{shape:?}");
        assert_eq!(runs(&mut rig, hit, &tokens), 8, "{shape:?}");
        rig.drained();
    }
}

/// Pages that a store says to have and never delivers are read twice, whoever asks, and are absent from then on.
#[test]
fn what_never_comes_is_not_read_for_ever() {
    let tokens = pages(1, 6);
    for shape in kinds() {
        for rule in RULES {
            let store = filled(&shape, 1, std::slice::from_ref(&tokens));
            store
                .plan(|verb, _| if verb == Verb::Get { Fault::Answer(Outcome::Failed) } else { Fault::None });
            let mut rig = over(&shape, rule, &store);
            for attempt in 0..6 {
                let before = store.calls(Verb::Get);
                let hit = rig.fetch(&tokens);
                assert_eq!(rig.cache.decide(hit, 1).unwrap(), Verdict::Compute, "{rule} {shape:?}");
                assert_eq!(rig.load(hit).device, 0);
                rig.cache.release(hit, 0).unwrap();
                rig.settle();
                let gets = store.calls(Verb::Get) - before;
                // Parts may be given up before they are read.
                let most = 1 + usize::from(!shape.parts.is_empty());
                assert!(
                    if attempt < 2 { (1..=most).contains(&gets) } else { gets == 0 },
                    "{gets}: {shape:?}"
                );
            }
            // Computed and stored anew, it is tried again.
            store.plan(|_, _| Fault::None);
            rig.ask(&tokens, 6);
            rig.idle();
            Tier::ALL.into_iter().for_each(|tier| _ = rig.evict_all(tier));
            let hit = rig.fetch(&tokens);
            assert_eq!(runs(&mut rig, hit, &tokens), 6, "{rule} {shape:?}");
            rig.drained();
        }
    }
}

/// Between match and load something leaves: less comes, and no error.
#[test]
fn what_left_meanwhile_is_computed() {
    let tokens = pages(1, 6);
    for shape in kinds() {
        for from_host in [false, true] {
            for space in 0..=shape.parts.len() {
                let mut rig = Mixed::new(&shape);
                rig.ask(&tokens, 1);
                rig.settle();
                if from_host {
                    rig.evict_all(Tier::Device);
                }
                let hit = rig.find(&tokens);
                assert_eq!(rig.view(hit).usable, 6);
                let tier = if from_host { Tier::Host } else { Tier::Device };
                match space.checked_sub(1) {
                    None => drop(rig.cache.evict(tier, 2).unwrap()),
                    Some(part) => drop(rig.cache.evict_part(part, tier, 2).unwrap()),
                }
                let left = rig.view(hit).usable;
                assert!(left == 6 || from_host, "the host has it, too");
                assert_eq!(runs(&mut rig, hit, &tokens), left, "{space} {shape:?}");
                rig.drained();
            }
        }
    }
}

/// A budget counts the slots that the load takes itself: all of it comes, or nothing.
#[test]
fn a_load_keeps_to_its_budget() {
    let tokens = pages(1, 6);
    for shape in kinds_with([10, 16], [16, 16], [8, 8]) {
        for (budget, expected) in [(0, 0), (5, 0), (6, 6), (10, 6)] {
            let mut rig = Mixed::new(&shape);
            rig.ask(&tokens, 6);
            rig.settle();
            rig.evict_all(Tier::Device);
            let hit = rig.find(&tokens);
            assert_eq!(rig.view(hit).usable, 6);
            rig.cache.load_within(&[hit], None, Some(budget)).unwrap();
            rig.land();
            assert_eq!(rig.view(hit).device, expected, "{budget} {shape:?}");
            assert_eq!(rig.wrong(hit, &tokens, true), None);
            // 6 more, and these, don't fit into 10 pages.
            assert_eq!(rig.cache.allocate(12 - expected as usize).unwrap(), None);
            rig.cache.release(hit, 0).unwrap();
            rig.drained();
        }
    }
}
