//! Who asked for something first may leave before it has come: whoever else counts on it gets it all the same, and memory that
//! a read was given up for is nobody's until that has ended.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use common::store::{Fault, FaultStore, Verb};
use common::stored::{asking, prompt, stored};
use hicache_core::ids::{HitId, Tier};
use hicache_core::page::Tokens;
use std::sync::Arc;

const PAGES: u32 = 6;

/// What a leader is, and how it leaves.
#[derive(Clone, Copy, Debug)]
enum Leader {
    /// A request that is aborted.
    Released,
    /// One that stops to wait, and computes.
    Computes,
    /// A prefix that is warmed, for nobody any more.
    Warmed,
}

/// Gates every call of a verb from now on.
fn gate(store: &FaultStore, verb: Verb) {
    store.plan(move |at, _| if at == verb { Fault::Gated } else { Fault::None });
}

fn open(store: &FaultStore) {
    store.plan(|_, _| Fault::None);
    while store.pass(0) {}
}

/// Lets what waits at the gate pass until `done`.
fn until(rig: &mut Rig, store: &FaultStore, what: &str, mut done: impl FnMut(&Rig) -> bool) {
    rig.until(what, |rig| {
        store.pass(0);
        done(rig)
    });
}

fn verified(rig: &mut Rig, hit: HitId, tokens: &[i32], pages: u32) {
    assert_eq!(rig.load(hit).device, pages);
    rig.settle();
    rig.verify(hit, tokens);
    rig.cache.release(hit, 0).unwrap();
}

/// In each state of the leader's question and read: the follower ends, with all of it.
#[test]
fn followers_get_what_the_leader_left() {
    let tokens = prompt(1, 2 * i32::try_from(PAGES).unwrap());
    for verb in [Verb::Exists, Verb::Get] {
        for leader in [Leader::Released, Leader::Computes, Leader::Warmed] {
            for threads in [1, 3] {
                let shape = Shape { threads, ..Shape::default() };
                let (mut rig, store) = stored(shape, std::slice::from_ref(&tokens));
                gate(&store, verb);
                let namespace = rig.namespace.clone();
                let warmed = matches!(leader, Leader::Warmed)
                    .then(|| rig.cache.warm(Tokens::I32(&tokens), &namespace, false, 0.0).unwrap().unwrap());
                let first = warmed.is_none().then(|| asking(&mut rig, &tokens));
                rig.until("the leader's call", |_| store.waiting() == 1);
                let follower = asking(&mut rig, &tokens);
                rig.poll(0.0);
                match (first, warmed) {
                    (Some(hit), _) if matches!(leader, Leader::Computes) => {
                        assert_eq!(rig.load(hit).device, 0, "nothing had come");
                        rig.cache.release(hit, 0).unwrap();
                    }
                    (Some(hit), _) => drop(rig.cache.release(hit, 0).unwrap()),
                    (None, warmed) => rig.cache.cool(warmed.unwrap()),
                }
                rig.books();
                let what = format!("{verb:?} {leader:?} {threads}");
                until(&mut rig, &store, &what, |rig| !rig.view(follower).waiting);
                assert_eq!(rig.view(follower).usable, PAGES, "{what}");
                open(&store);
                verified(&mut rig, follower, &tokens, PAGES);
                rig.drained();
            }
        }
    }
}

/// A read that was given up goes on writing when it likes. Its slots are handed to nobody meanwhile: whatever others put
/// on the host, up to all that is left of it, is there when it has ended.
#[test]
fn memory_of_a_read_that_was_given_up_is_nobodys() {
    let tokens = prompt(1, 2 * i32::try_from(PAGES).unwrap());
    for computes in [false, true] {
        let shape = Shape { device: 32, host: 16, threads: 2, ..Shape::default() };
        let (mut rig, store) = stored(shape, std::slice::from_ref(&tokens));
        gate(&store, Verb::Get);
        let hit = asking(&mut rig, &tokens);
        rig.until("the read", |_| store.waiting() == 1);
        if computes {
            rig.load(hit);
        }
        rig.cache.release(hit, 0).unwrap();
        assert_eq!(rig.cache.slots(Tier::Host).out(), PAGES as usize);
        // All the rest of the host: ten pages of others.
        let others: Vec<Vec<i32>> = (2..7).map(|number| prompt(number, 4)).collect();
        for other in &others {
            rig.serve(other);
        }
        rig.until("their copies", |rig| rig.cache.copying() == 0);
        assert_eq!(rig.free(Tier::Host), 0, "there is no more");
        rig.evict(Tier::Device, usize::MAX);
        let waiting = rig.cache.slots(Tier::Host).out();
        assert_eq!(waiting, PAGES as usize, "and nobody got those");
        open(&store);
        rig.settle();
        assert_eq!(rig.cache.slots(Tier::Host).out(), 0);
        for other in &others {
            let hit = rig.find(other);
            verified(&mut rig, hit, other, 2);
        }
        rig.drained();
    }
}

/// Three requests for the same pages of which the first two leave, one after the other, each at its own stage; the books of
/// what is under way are the last one's alone in the end.
#[test]
fn the_last_of_many_is_served() {
    let tokens = prompt(1, 2 * i32::try_from(PAGES).unwrap());
    let (mut rig, store) = stored(Shape { threads: 4, ..Shape::default() }, std::slice::from_ref(&tokens));
    let gets = store.calls(Verb::Get);
    gate(&store, Verb::Get);
    let hits: Vec<HitId> = (0..3).map(|_| asking(&mut rig, &tokens)).collect();
    rig.until("their reads", |_| store.waiting() >= 1);
    rig.cache.release(hits[0], 0).unwrap();
    rig.poll(0.0);
    rig.cache.release(hits[1], 0).unwrap();
    until(&mut rig, &store, "the last one", |rig| !rig.view(hits[2]).waiting);
    assert_eq!(rig.view(hits[2]).usable, PAGES);
    open(&store);
    rig.settle();
    assert!(store.calls(Verb::Get) - gets <= 3, "each asked for itself at most");
    assert_eq!(rig.cache.tree().resident(Tier::Host), PAGES as usize, "and it is there once");
    verified(&mut rig, hits[2], &tokens, PAGES);
    let store: Arc<FaultStore> = store;
    drop(store);
    rig.drained();
}
