//! Which read is next: fair between large and small, before writes, in batches, ended at any stage.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::Shape;
use common::store::{Fault, FaultStore, Verb};
use common::stored::{asking, prompt, stored};
use hicache_core::hash::Digest;
use hicache_core::identity::Fingerprint;
use hicache_core::ids::Tier;
use hicache_core::storage::{Batch, Store, Work, Workers};
use std::sync::Arc;

fn gated(store: &FaultStore, verb: Verb) {
    store.plan(move |at, _| if at == verb { Fault::Gated } else { Fault::None });
}

/// With two threads, a small request behind a large one whose read hangs has all of it meanwhile.
#[test]
fn a_small_request_does_not_wait_for_a_large_one() {
    let (large, small) = (prompt(1, 157), prompt(2, 1));
    let shape = Shape { page: 1, device: 512, host: 512, threads: 2, ..Shape::default() };
    let (mut rig, store) = stored(shape, &[large.clone(), small.clone()]);
    store.plan(|verb, call| if verb == Verb::Get && call == 1 { Fault::Gated } else { Fault::None });
    let first = asking(&mut rig, &large);
    rig.until("its read", |_| store.waiting() == 1);
    let second = asking(&mut rig, &small);
    rig.until("the small one", |rig| !rig.view(second).waiting);
    assert!(rig.view(first).waiting && store.waiting() == 1, "the large one is under way");
    assert_eq!(rig.view(second).usable, 1);
    assert!(store.pass(0));
    rig.until("the large one", |rig| !rig.view(first).waiting);
    assert_eq!(rig.view(first).usable, 157);
    for (hit, tokens) in [(first, large), (second, small)] {
        rig.load(hit);
        rig.settle();
        rig.verify(hit, &tokens);
        rig.cache.release(hit, 0).unwrap();
    }
    rig.drained();
}

/// With a single thread, they take turns, a batch each.
#[test]
fn requests_take_turns() {
    let (large, small) = (prompt(1, 500), prompt(2, 1));
    let shape = Shape { page: 1, device: 2048, host: 2048, threads: 1, ..Shape::default() };
    let (mut rig, store) = stored(shape, &[large.clone(), small.clone()]);
    gated(&store, Verb::Get);
    let first = asking(&mut rig, &large);
    rig.until("its read", |_| store.waiting() == 1);
    let second = asking(&mut rig, &small);
    // Its question and its read come before the large one's second batch.
    assert!(store.pass(0));
    rig.until("the next read", |_| store.waiting() == 1);
    if store.calls(Verb::Get) == 2 && store.asked().last().unwrap().2 > 1 {
        // The large one's second batch had begun before the small one's question was answered.
        assert!(store.pass(0));
        rig.until("the next read", |_| store.waiting() == 1);
    }
    assert_eq!(store.asked().last().unwrap().2, 1, "the small one's turn");
    assert!(store.pass(0));
    rig.until("the small one", |rig| !rig.view(second).waiting);
    assert!(rig.view(first).waiting);
    store.plan(|_, _| Fault::None);
    rig.until("the large one", |rig| {
        store.pass(0);
        !rig.view(first).waiting
    });
    assert_eq!((rig.view(first).usable, rig.view(second).usable), (500, 1));
    [first, second].into_iter().for_each(|hit| _ = rig.cache.release(hit, 0).unwrap());
    rig.drained();
}

/// A question goes before writes that wait for longer.
#[test]
fn reads_go_before_writes() {
    let tokens = prompt(1, 16);
    let (mut rig, store) =
        stored(Shape { threads: 1, device: 64, ..Shape::default() }, std::slice::from_ref(&tokens));
    let puts = store.calls(Verb::Put);
    store.plan(|_, _| Fault::Gated);
    for number in 2..6 {
        rig.serve(&prompt(number, 2));
    }
    rig.until("a write", |_| store.waiting() == 1);
    let hit = asking(&mut rig, &tokens);
    assert!(store.pass(0));
    rig.until("the question", |_| store.waiting() == 1 && store.calls(Verb::Put) == puts + 1);
    assert!(matches!(store.asked().last().unwrap().0, Verb::Exists));
    rig.until("the prefetch", |rig| {
        store.pass(0);
        !rig.view(hit).waiting
    });
    store.plan(|_, _| Fault::None);
    rig.until("the writes", |rig| {
        store.pass(0);
        rig.cache.in_flight() == 0
    });
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// A long prompt is asked for and read in batches, and no question follows the first page that isn't there.
#[test]
fn questions_and_reads_come_in_batches() {
    let (whole, size) = (prompt(1, 900), 1);
    let shape = Shape { page: size, device: 2048, host: 2048, threads: 1, ..Shape::default() };
    let (mut rig, store) = stored(shape, &[whole[..200].to_vec()]);
    let before = store.asked().len();
    let hit = rig.fetch(&whole);
    let asked = store.asked().split_off(before);
    assert!(asked.iter().all(|&(_, _, keys)| keys <= 128));
    let of = |verb| asked.iter().filter(|one| one.0 == verb).map(|one| one.2).collect::<Vec<_>>();
    // Four questions wait at a time; the second one's answer ends it.
    assert!(of(Verb::Exists).len() < 6, "{:?}", of(Verb::Exists));
    assert_eq!(of(Verb::Get), [128, 72]);
    assert_eq!(rig.view(hit).usable, 200);
    rig.load(hit);
    rig.settle();
    rig.verify(hit, &whole);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// However far it is when its request leaves, nothing stays, and the next one gets all of it: waiting for a thread, being
/// asked about, being read, and read but not let in.
#[test]
fn an_abort_at_any_stage_leaves_nothing() {
    let (tokens, other) = (prompt(1, 100), prompt(2, 4));
    let shape = Shape { page: 1, device: 256, host: 128, threads: 1, ..Shape::default() };
    let (mut rig, store) = stored(shape, &[tokens.clone(), other.clone()]);
    for round in 0..50 {
        store.plan(|_, _| Fault::Gated);
        let blocker = (round % 4 == 0).then(|| asking(&mut rig, &other));
        if blocker.is_some() {
            rig.until("the other's question", |_| store.waiting() == 1);
        }
        let calls = store.asked().len();
        let hit = asking(&mut rig, &tokens);
        if round % 4 > 0 {
            rig.until("the question", |_| store.waiting() == 1);
        }
        if round % 4 > 1 {
            assert!(store.pass(0));
            let gets = store.calls(Verb::Get);
            rig.until("the read", |_| store.calls(Verb::Get) == gets + 1 && store.waiting() == 1);
            assert_eq!(rig.cache.slots(Tier::Host).out(), 100);
        }
        if round % 4 == 3 {
            assert!(store.pass(0));
            while rig.cache.ready().prefetches == 0 {
                std::thread::yield_now();
            }
            assert!(rig.view(hit).waiting, "read, and not let in");
        }
        rig.cache.release(hit, 0).unwrap();
        rig.books();
        if let Some(blocker) = blocker {
            // Ended at once, though the only thread is somewhere else.
            rig.poll(0.0);
            assert_eq!((rig.cache.in_flight(), store.asked().len()), (1, calls));
            rig.cache.release(blocker, 0).unwrap();
        }
        rig.until("the end", |rig| {
            store.pass(0);
            rig.cache.in_flight() == 0
        });
        assert_eq!((rig.cache.slots(Tier::Host).out(), rig.free(Tier::Host)), (0, 128), "{round}");
    }
    store.plan(|_, _| Fault::None);
    let hit = rig.fetch(&tokens);
    assert_eq!(rig.view(hit).usable, 100);
    rig.load(hit);
    rig.settle();
    rig.verify(hit, &tokens);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// Threads without work sleep, and are woken for work alone, so that they take nothing from the engine's thread.
#[test]
fn idle_threads_stay_asleep() {
    let store: Arc<dyn Store> = Arc::new(FaultStore::default());
    let mut workers = Workers::start(&store, 4, 16).unwrap();
    let identity = Fingerprint([7; 32]);
    for id in 0..100 {
        let keys = vec![Digest([1; 32])];
        let batch = Batch::new(id, identity, keys, Work::Exists, Arc::default(), Arc::new(()));
        assert!(workers.submit(batch).is_none());
    }
    let mut ended = 0;
    while ended < 100 {
        ended += usize::from(workers.completed().is_some());
    }
    // Those that were woken for work that another one had done already are asleep again, too.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let woken = workers.wakeups();
    assert!(woken <= 100, "{woken}");
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!((workers.wakeups(), workers.waiting()), (woken, [0; 3]));
    workers.close(std::time::Duration::from_secs(5));
}
