//! Stores that come and go while a cache lives, from any state, also when they hang.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use common::store::{Fault, FaultStore, Verb};
use hicache_core::explain::{Reason, Revoked};
use hicache_core::ids::Tier;
use hicache_core::page::{PageSize, Tokens};
use hicache_core::storage::Store;
use hicache_core::transfer::Direction;
use hicache_core::{LeftBehind, hash};
use std::sync::Arc;
use std::time::{Duration, Instant};

const TOKENS: [i32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
const SHORT: Duration = Duration::from_millis(20);

fn attach(rig: &mut Rig, store: &Arc<FaultStore>) {
    let store: Arc<dyn Store> = Arc::<FaultStore>::clone(store);
    rig.cache.attach_store(&|| Ok(Arc::clone(&store))).unwrap();
    rig.books();
}

fn detach(rig: &mut Rig) -> LeftBehind {
    let began = Instant::now();
    let left = rig.cache.detach_store(SHORT).unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "bounded");
    rig.books();
    left
}

/// Digests of a history from its namespace's seed on.
fn chain(rig: &Rig, tokens: &[i32]) -> Vec<hash::Digest> {
    let size = PageSize::new(u32::try_from(rig.size()).unwrap()).unwrap();
    hash::chain(rig.namespace.seed(), Tokens::I32(tokens), size)
}

/// Pages that were there before the store continue their namespace's chain: what is stored below them is
/// found under the digests of the whole prefix, and under no others.
#[test]
fn pages_from_before_the_store_have_the_digests_of_their_whole_prefix() {
    let store = Arc::new(FaultStore::default());
    let mut rig = Rig::new(Shape::default(), None);
    rig.serve(&TOKENS[..4]);
    rig.settle();
    attach(&mut rig, &store);
    rig.serve(&TOKENS);
    rig.settle();
    let digests = chain(&rig, &TOKENS);
    assert_eq!(digests.iter().filter(|digest| store.page(digest).is_some()).count(), store.len());
    assert!(digests[2..].iter().all(|digest| store.page(digest).is_some()));
    assert_eq!(store.parent(&digests[2]), Some(digests[1]));
    rig.drained();
}

/// Everything that was stored before the detach is found after another attach, and nothing else is believed.
#[test]
fn a_store_goes_and_comes_back() {
    let store = Arc::new(FaultStore::default());
    let mut rig = Rig::new(Shape::default(), Some(&store));
    rig.serve(&TOKENS);
    rig.settle();
    assert_eq!(detach(&mut rig), LeftBehind::default());
    assert!(!rig.cache.has_store() && rig.cache.about_store().is_none());
    assert!(rig.cache.detach_store(SHORT).is_err());
    // Without it the cache goes on.
    rig.serve(&[50, 51, 52, 53]);
    rig.settle();
    assert_eq!(store.len(), 6);
    Tier::ALL.into_iter().for_each(|tier| drop(rig.evict(tier, 99)));
    let hit = rig.find(&TOKENS);
    assert!(!rig.cache.prefetch(hit).unwrap());
    attach(&mut rig, &store);
    let again: Arc<dyn Store> = Arc::new(FaultStore::default());
    assert!(rig.cache.attach_store(&|| Ok(Arc::clone(&again))).is_err(), "there is one");
    assert!(rig.cache.prefetch(hit).unwrap());
    rig.until("the prefetch", |rig| !rig.view(hit).waiting);
    assert_eq!(rig.load(hit).device, 6);
    rig.settle();
    rig.verify(hit, &TOKENS);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// What is in memory, and was in the store that went, is not believed to be in the one that comes: it gets all of it, asked
/// for at once or when its path comes again.
#[test]
fn another_store_gets_what_the_first_one_had() {
    for asked in [true, false] {
        let [store, other] = [(); 2].map(|()| Arc::new(FaultStore::default()));
        let mut rig = Rig::new(Shape::default(), Some(&store));
        rig.serve(&TOKENS);
        rig.settle();
        assert_eq!(detach(&mut rig), LeftBehind::default());
        attach(&mut rig, &other);
        assert_eq!(rig.cache.unwritten(), [0, 6], "none of it is there");
        if asked {
            rig.cache.write_out().unwrap();
        } else {
            rig.serve(&TOKENS);
        }
        rig.settle();
        assert_eq!((store.len(), other.len()), (6, 6), "{asked}");
        assert_eq!(rig.cache.unwritten(), [0, 0]);
        assert!(chain(&rig, &TOKENS).iter().all(|digest| other.page(digest) == store.page(digest)));
        // A fresh cache over that one finds it.
        let mut fresh = Rig::new(Shape::default(), Some(&other));
        let hit = fresh.fetch(&TOKENS);
        assert_eq!(fresh.load(hit).device, 6);
        fresh.settle();
        fresh.verify(hit, &TOKENS);
        fresh.cache.release(hit, 0).unwrap();
        fresh.drained();
        rig.drained();
    }
}

/// Gone from every state of a prefetch: the wait is over at once and explained, and what the old store still
/// holds comes back when it answers, though another one is attached by then.
#[test]
fn a_prefetch_ends_with_its_store_and_its_slots_come_back() {
    for verb in [Verb::Exists, Verb::Get] {
        let store = Arc::new(FaultStore::default());
        let mut rig = Rig::new(Shape::default(), Some(&store));
        rig.serve(&TOKENS);
        rig.settle();
        Tier::ALL.into_iter().for_each(|tier| drop(rig.evict(tier, 99)));
        store.plan(move |at, _| if at == verb { Fault::Hang } else { Fault::None });
        let hit = rig.find(&TOKENS);
        rig.cache.prefetch(hit).unwrap();
        rig.until("the hanging call", |_| store.calls(verb) == 1 + usize::from(verb == Verb::Put));
        let left = detach(&mut rig);
        assert_eq!(left, LeftBehind { unwritten_pages: 0, inside: 1 }, "{verb:?}");
        assert!(!rig.view(hit).waiting);
        let why = rig.cache.explain(hit).unwrap().computed;
        assert_eq!(why, [(12, Reason::Revoked(Revoked::Detached))], "{verb:?}");
        let reading = if verb == Verb::Get { 6 } else { 0 };
        assert_eq!(rig.cache.slots(Tier::Host).out(), reading);

        // Another one works at once, as does the request.
        let other = Arc::new(FaultStore::default());
        attach(&mut rig, &other);
        assert_eq!(rig.load(hit).device, 0);
        assert!(rig.compute(hit, &TOKENS));
        rig.cache.release(hit, 0).unwrap();
        rig.until("the other store", |_| other.len() == 6);
        assert!(rig.cache.in_flight() > 0, "it still hangs");
        let before = rig.cache.stats().prefetched_pages;
        store.release();
        rig.settle();
        assert_eq!(rig.cache.stats().prefetched_pages, before, "late is never believed");
        assert_eq!(rig.cache.slots(Tier::Host).out(), 0);
        rig.drained();
    }
}

/// Writes that wait are given up, and what is inside keeps its pages until it comes out.
#[test]
fn queued_writes_are_cancelled_and_not_believed() {
    let store = Arc::new(FaultStore::default());
    store.plan(|verb, _| if verb == Verb::Put { Fault::Hang } else { Fault::None });
    let mut rig = Rig::new(Shape { threads: 1, queue: 2, device: 64, ..Shape::default() }, Some(&store));
    rig.serve(&[0, 1, 0, 2]);
    rig.until("the first write", |_| store.calls(Verb::Put) == 1);
    for first in 1..5 {
        rig.serve(&[first, 1, first, 2]);
        rig.poll(0.0);
    }
    let left = detach(&mut rig);
    assert_eq!(left, LeftBehind { unwritten_pages: 8, inside: 1 });
    rig.poll(0.0);
    let stats = *rig.cache.stats();
    assert_eq!((stats.stored_pages, stats.store_cancelled_pages, stats.store_failed_pages), (0, 2, 0));
    // Only the one inside holds its host pages.
    rig.evict(Tier::Device, 99);
    assert_eq!(rig.evict(Tier::Host, 99).len(), 8);
    // The same store again, while it hangs.
    attach(&mut rig, &store);
    store.plan(|_, _| Fault::None);
    rig.serve(&TOKENS);
    rig.until("writes of the second attempt", |_| store.len() == 6);
    store.release();
    rig.settle();
    assert_eq!(store.len(), 8);
    rig.drained();
}

/// Who comes and goes between two polls counts only what it was to get itself.
#[test]
fn what_was_given_up_before_is_not_counted_again() {
    let store = Arc::new(FaultStore::default());
    store.plan(|verb, _| if verb == Verb::Put { Fault::Hang } else { Fault::None });
    let mut rig = Rig::new(Shape { threads: 1, queue: 2, device: 64, ..Shape::default() }, Some(&store));
    rig.serve(&[0, 1, 0, 2]);
    rig.until("the first write", |_| store.calls(Verb::Put) == 1);
    for first in 1..5 {
        rig.serve(&[first, 1, first, 2]);
        rig.poll(0.0);
    }
    assert_eq!(detach(&mut rig), LeftBehind { unwritten_pages: 8, inside: 1 });
    let other = Arc::new(FaultStore::default());
    attach(&mut rig, &other);
    assert_eq!(detach(&mut rig), LeftBehind { unwritten_pages: 10, inside: 1 });
    store.release();
    rig.settle();
    rig.drained();
}

/// A backup that is under way when the store goes is stored in the one that has come, or nowhere.
#[test]
fn a_backup_under_way_goes_to_the_store_that_is_there_when_it_lands() {
    for another in [true, false] {
        let [store, other] = [(); 2].map(|()| Arc::new(FaultStore::default()));
        let mut rig = Rig::new(Shape::default(), Some(&store));
        rig.gate.shut(Direction::Out);
        rig.serve(&TOKENS);
        detach(&mut rig);
        if another {
            attach(&mut rig, &other);
        }
        rig.gate.open(Direction::Out);
        rig.settle();
        assert_eq!((store.len(), other.len()), (0, if another { 6 } else { 0 }));
        rig.drained();
    }
}

/// A store that panics, or hangs, when it is closed is left behind; a cache without a host tier has no use for one.
#[test]
fn what_cannot_be_is_refused_and_closed() {
    let store = Arc::new(FaultStore::default());
    let open: Arc<dyn Store> = Arc::<FaultStore>::clone(&store);
    let mut rig = Rig::new(Shape { host: 0, ..Shape::default() }, None);
    let error = rig.cache.attach_store(&|| Ok(Arc::clone(&open))).unwrap_err();
    assert!(error.to_string().starts_with("host"), "{error}");
    // What can't be opened leaves the cache as it was.
    let mut rig = Rig::new(Shape::default(), None);
    let refuse = || Err(hicache_core::Error::Argument { argument: "storage", reason: "not up yet".into() });
    assert!(rig.cache.attach_store(&refuse).is_err());
    assert!(!rig.cache.has_store());
    rig.serve(&TOKENS);
    attach(&mut rig, &store);
    rig.serve(&[40, 41]);
    rig.until("it works", |_| store.len() > 0);
    rig.cache.close(Duration::from_secs(5));
    assert!(rig.cache.attach_store(&|| Ok(Arc::clone(&open))).is_err());
    assert!(rig.cache.detach_store(SHORT).is_err());
}
