//! Buffer-only mode: requests that leave, stores and device memory that go, weights that change: at every stage of a read,
//! slots come back when nobody moves bytes there any more, and once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use common::staged::{asking, keys, loaded, nothing_left, over, reads, shape, store_of};
use common::store::{Fault, FaultStore, Verb};
use common::stored::prompt;
use hicache_core::identity::Fingerprint;
use hicache_core::ids::{HitId, Tier};
use hicache_core::storage::Outcome;
use hicache_core::transfer::Direction;
use std::sync::Arc;
use std::time::Duration;

/// How far a prefetch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asked,
    Reading,
    /// Some of it is staged, more is being read.
    Between,
    Staged,
    Loading,
    Loaded,
}

const STAGES: [Stage; 6] =
    [Stage::Asked, Stage::Reading, Stage::Between, Stage::Staged, Stage::Loading, Stage::Loaded];

/// 300 pages: three batches, of which a store lets those through that a stage needs.
fn at(stage: Stage, deadline: f64) -> (Rig, Arc<FaultStore>, HitId, Vec<i32>) {
    let tokens = prompt(1, 300);
    let shape = Shape { threads: 1, deadline, ..shape(320, 500) };
    let (mut rig, store) = over(shape, std::slice::from_ref(&tokens));
    let gets = store.calls(Verb::Get);
    store.plan(move |verb, call| match (stage, verb) {
        (Stage::Asked, Verb::Exists) | (Stage::Reading, Verb::Get) => Fault::Hang,
        (Stage::Between, Verb::Get) if call == gets + 2 => Fault::Hang,
        _ => Fault::None,
    });
    let hit = asking(&mut rig, &tokens, 0.0);
    let asked = move |store: &FaultStore, count| store.calls(Verb::Get) == gets + count;
    match stage {
        Stage::Asked => {}
        Stage::Reading => rig.until("a read", |_| asked(&store, 1)),
        Stage::Between => rig.until("a read", |rig| asked(&store, 2) && rig.view(hit).usable == 128),
        _ => rig.until("all of it", |rig| !rig.view(hit).waiting),
    }
    if matches!(stage, Stage::Loading | Stage::Loaded) {
        rig.gate.shut(Direction::In);
        rig.load(hit);
        if stage == Stage::Loaded {
            rig.gate.open(Direction::In);
            rig.until("the load", |rig| rig.cache.copying() == 0);
        }
    }
    (rig, store, hit, tokens)
}

fn let_go(rig: &mut Rig, store: &FaultStore) {
    store.release();
    rig.gate.open(Direction::In);
    rig.settle();
    assert_eq!(rig.cache.staged()[1], 0);
}

#[test]
fn a_request_leaves() {
    for stage in STAGES {
        let (mut rig, store, hit, tokens) = at(stage, 10.0);
        rig.cache.release(hit, 0).unwrap();
        rig.books();
        let kept = match stage {
            Stage::Asked | Stage::Staged | Stage::Loaded => 0,
            // What waits for a thread is cancelled when the thread gets to it; what is inside the store keeps its slots.
            Stage::Reading | Stage::Loading => 300,
            Stage::Between => 172,
        };
        assert_eq!(reads(&rig), kept, "{stage:?}");
        let_go(&mut rig, &store);
        store.plan(|_, _| Fault::None);
        rig.evict(Tier::Device, usize::MAX);
        let again = asking(&mut rig, &tokens, 0.0);
        rig.until("all of it", |rig| !rig.view(again).waiting);
        assert_eq!(loaded(&mut rig, again, &tokens), 300, "{stage:?}");
        rig.cache.release(again, 0).unwrap();
        nothing_left(&mut rig);
    }
}

/// A load takes what is staged by then.
#[test]
fn a_request_does_not_wait() {
    for stage in [Stage::Asked, Stage::Reading, Stage::Between, Stage::Staged] {
        let (mut rig, store, hit, tokens) = at(stage, 10.0);
        let pages = match stage {
            Stage::Between => 128,
            Stage::Staged => 300,
            _ => 0,
        };
        assert_eq!(loaded(&mut rig, hit, &tokens), pages, "{stage:?}");
        let said = rig.cache.explain(hit).unwrap().to_string();
        assert!(stage == Stage::Staged || said.contains("the request was loaded"), "{said}");
        let_go(&mut rig, &store);
        rig.cache.release(hit, 0).unwrap();
        nothing_left(&mut rig);
    }
}

#[test]
fn the_deadline_passes() {
    for stage in [Stage::Asked, Stage::Reading, Stage::Between] {
        let (mut rig, store, hit, tokens) = at(stage, 10.0);
        rig.poll(11.0);
        assert!(!rig.view(hit).waiting);
        let pages = if stage == Stage::Between { 128 } else { 0 };
        assert_eq!(rig.view(hit).usable, pages, "{stage:?}");
        assert_eq!(loaded(&mut rig, hit, &tokens), pages);
        let_go(&mut rig, &store);
        rig.cache.release(hit, 0).unwrap();
        nothing_left(&mut rig);
    }
}

/// The first page that fails cuts what is staged.
#[test]
fn the_first_failing_page_cuts() {
    for outcome in [Outcome::Failed, Outcome::Absent, Outcome::Corrupt, Outcome::Cancelled, Outcome::TimedOut]
    {
        let tokens = prompt(1, 8);
        let (mut rig, store) = over(shape(16, 20), std::slice::from_ref(&tokens));
        store.spoil(keys(&rig, &tokens)[5], outcome);
        let hit = asking(&mut rig, &tokens, 0.0);
        rig.until("the end", |rig| !rig.view(hit).waiting);
        assert_eq!((rig.view(hit).usable, reads(&rig)), (5, 5), "{outcome:?}");
        assert_eq!(loaded(&mut rig, hit, &tokens), 5);
        assert!(rig.compute(hit, &tokens));
        rig.cache.release(hit, 0).unwrap();
        nothing_left(&mut rig);
    }
}

/// The weights change, or memory is cleared: what was read of before is of no use.
#[test]
fn an_epoch_ends() {
    for clears in [false, true] {
        for stage in STAGES {
            let (mut rig, store, hit, tokens) = at(stage, 10.0);
            if clears {
                rig.cache.clear_memory().unwrap();
            } else {
                rig.cache.bump_epoch(Fingerprint([7; 32])).unwrap();
            }
            rig.books();
            let view = rig.view(hit);
            assert_eq!(view.usable, if view.loaded { 300 } else { 0 }, "{stage:?}");
            assert!(stage != Stage::Staged || reads(&rig) == 0, "given back at once");
            if !view.loaded {
                assert_eq!(rig.load(hit).device, 0);
            }
            let_go(&mut rig, &store);
            if view.loaded {
                rig.verify(hit, &tokens);
            }
            rig.cache.release(hit, 0).unwrap();
            nothing_left(&mut rig);
        }
    }
}

/// The store is detached, or cleared: what is staged is right, and isn't believed stored.
#[test]
fn the_store_goes() {
    for clears in [false, true] {
        for stage in STAGES {
            let (mut rig, store, hit, tokens) = at(stage, 10.0);
            if clears {
                rig.cache.clear_storage().unwrap();
            } else {
                rig.cache.detach_store(Duration::ZERO).unwrap();
            }
            rig.books();
            assert!(!rig.view(hit).waiting);
            let pages = match stage {
                Stage::Asked | Stage::Reading => 0,
                Stage::Between => 128,
                _ => 300,
            };
            assert_eq!(rig.view(hit).usable, pages, "{stage:?}");
            if !rig.view(hit).loaded {
                rig.load(hit);
            }
            let_go(&mut rig, &store);
            rig.verify(hit, &tokens);
            let place = rig.cache.tree();
            assert_eq!(place.resident(Tier::Device), pages as usize);
            rig.cache.release(hit, 0).unwrap();
            rig.settle();
            if !clears {
                nothing_left(&mut rig);
                continue;
            }
            assert_eq!(store.len(), 0, "{stage:?}");
            // It comes again, and is stored anew.
            rig.serve(&tokens);
            rig.until("its pages", |rig| rig.cache.pending() == 0);
            assert_eq!(store.len(), 300, "{stage:?}");
            nothing_left(&mut rig);
        }
    }
}

/// Device memory goes while requests wait: what is staged from the beginning on is of use when there is other memory.
#[test]
fn device_memory_goes() {
    let tokens = prompt(1, 8);
    for there in [0, 3] {
        let (mut rig, _store) = over(shape(16, 12), std::slice::from_ref(&tokens));
        rig.serve(&tokens[..there]);
        rig.settle();
        let hit = asking(&mut rig, &tokens, 0.0);
        rig.until("the prefetch", |rig| !rig.view(hit).waiting);
        rig.cache.detach().unwrap();
        rig.books();
        rig.attach_elsewhere(16);
        assert_eq!(rig.view(hit).usable, if there == 0 { 8 } else { 0 });
        assert_eq!(loaded(&mut rig, hit, &tokens), if there == 0 { 8 } else { 0 });
        rig.cache.release(hit, 0).unwrap();
        nothing_left(&mut rig);
    }
}

/// The device's copier ends for good while it reads what is staged: the slots come back, once.
#[test]
fn a_load_fails() {
    let (mut rig, _store, hit, _) = at(Stage::Loading, 10.0);
    rig.gate.end("a fault, on purpose");
    rig.poll(0.0);
    assert_eq!((reads(&rig), rig.cache.stats().load_failed_pages), (0, 300));
    rig.cache.release(hit, 0).unwrap();
    rig.poll(0.0);
    rig.wake_elsewhere();
    nothing_left(&mut rig);
}

/// Hits may be released after the end.
#[test]
fn the_cache_is_closed() {
    for stage in STAGES {
        let (mut rig, store, hit, _) = at(stage, 10.0);
        store.release();
        rig.cache.close(Duration::from_secs(5));
        rig.books();
        rig.cache.release(hit, 0).unwrap();
        rig.books();
    }
}

/// A store that says it has all and gives nothing: who doubts it reads on without.
#[test]
fn a_store_that_promises() {
    let tokens = prompt(1, 8);
    let store = store_of(std::slice::from_ref(&tokens));
    let mut rig = Rig::new(shape(16, 12), Some(&store));
    store.plan(|verb, _| if verb == Verb::Get { Fault::Answer(Outcome::Failed) } else { Fault::None });
    for _ in 0..4 {
        let hit = asking(&mut rig, &tokens, 0.0);
        rig.until("the end", |rig| !rig.view(hit).waiting);
        assert_eq!((rig.view(hit).usable, reads(&rig)), (0, 0));
        rig.cache.release(hit, 0).unwrap();
    }
    assert!(rig.cache.stats().prefetch_doubted_pages > 0);
    nothing_left(&mut rig);
}
