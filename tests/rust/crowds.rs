//! Many who wait, little room on the host, a store that never answers: everybody ends, and nothing grows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::Shape;
use common::store::{Fault, Verb};
use common::stored::{asking, prompt, stored};
use hicache_core::ids::{HitId, Tier};
use hicache_core::policy::fetching::Verdict;
use hicache_core::storage::Outcome;
use hicache_core::transfer::Direction;

/// Fifty requests of eight pages, all of them stored, over a host of sixteen: reads never own more than there is, none takes
/// what another one waits for, and all end within a bounded number of polls, whatever the engine does.
#[test]
fn long_hits_take_turns_where_the_host_is_small() {
    let prompts: Vec<Vec<i32>> = (0..50).map(|number| prompt(number, 8)).collect();
    for admits in [false, true] {
        let shape = Shape { page: 1, device: 16, host: 16, ..Shape::default() };
        let (mut rig, _store) = stored(shape, &prompts);
        let mut waiting: Vec<(HitId, &Vec<i32>)> =
            prompts.iter().map(|tokens| (asking(&mut rig, tokens), tokens)).collect();
        let mut polls = 0;
        while waiting.iter().any(|&(hit, _)| rig.view(hit).waiting) {
            rig.poll(0.0);
            polls += usize::from(rig.cache.in_flight() == 0);
            assert!(polls < 500, "something never ends");
            let ready = waiting.iter().position(|&(hit, _)| !rig.view(hit).waiting);
            if let Some(at) = ready.filter(|_| admits) {
                let (hit, tokens) = waiting.remove(at);
                rig.load(hit);
                rig.until("its load", |rig| rig.cache.copying() == 0);
                rig.verify(hit, tokens);
                rig.cache.release(hit, 0).unwrap();
                rig.evict(Tier::Device, usize::MAX);
            }
        }
        let stats = *rig.cache.stats();
        if admits {
            assert!(stats.hit_storage_tokens > 16, "room is used again: {}", stats.hit_storage_tokens);
        } else {
            assert_eq!(waiting.iter().filter(|&&(hit, _)| rig.view(hit).usable == 8).count(), 2);
            assert_eq!(stats.prefetched_pages, 16, "nothing is fetched to be thrown away");
        }
        waiting.into_iter().for_each(|(hit, _)| _ = rig.cache.release(hit, 0).unwrap());
        rig.drained();
    }
}

/// Where all of the host is held, a prefetch finds no room, at once and for as long as that lasts: nobody waits for it, and it
/// goes on when there is room.
#[test]
fn a_full_host_keeps_nobody_waiting() {
    let (held, tokens) = (prompt(1, 8), prompt(2, 4));
    let shape = Shape { page: 1, device: 32, host: 8, ..Shape::default() };
    let (mut rig, _store) = stored(shape, std::slice::from_ref(&tokens));
    rig.serve(&held);
    rig.settle();
    rig.evict(Tier::Device, usize::MAX);
    rig.gate.shut(Direction::In);
    let loading = rig.find(&held);
    rig.load(loading);
    let hit = asking(&mut rig, &tokens);
    rig.until("the answer", |rig| rig.cache.in_flight() == 1);
    rig.poll(0.0);
    assert!(rig.view(hit).waiting, "a load that is under way may leave room");
    assert_eq!(rig.cache.decide(hit, 0).unwrap(), Verdict::Compute, "but that is no reason to wait");
    rig.gate.open(Direction::In);
    rig.until("the load", |rig| rig.cache.copying() == 0);
    assert!(rig.view(hit).waiting, "somebody runs, who may leave room");
    rig.cache.release(loading, 0).unwrap();
    rig.evict(Tier::Device, usize::MAX);
    rig.until("the prefetch", |rig| !rig.view(hit).waiting);
    assert_eq!(rig.view(hit).usable, 4);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// A store that never answers: requests come, wait and leave, and what waits stays as little as those who are there.
#[test]
fn nothing_grows_while_a_store_never_answers() {
    let shape = Shape { page: 1, device: 64, host: 64, threads: 2, queue: 2, ..Shape::default() };
    let (mut rig, store) = stored(shape, &[prompt(1, 8)]);
    store.plan(|_, _| Fault::Hang);
    for round in 0..200 {
        let tokens = prompt(1 + round % 3, 600);
        let hit = asking(&mut rig, &tokens);
        rig.poll(f64::from(round) * 0.01);
        assert!(rig.cache.in_flight() <= 2 + 4, "{} under way", rig.cache.in_flight());
        assert!(matches!(rig.cache.decide(hit, 0).unwrap(), Verdict::Wait));
        rig.load(hit);
        rig.cache.release(hit, 0).unwrap();
        rig.poll(f64::from(round) * 0.01);
        assert!(rig.cache.in_flight() <= 2, "two threads hang, and nothing else waits");
        assert_eq!(rig.cache.slots(Tier::Host).out(), 0);
    }
    store.release();
    rig.drained();
}

/// A prefetch that can't succeed ends, each time, and the request goes on without. Pages that a store says to have and never
/// delivers are asked for twice, whoever asks, and are absent from then on.
#[test]
fn a_doomed_prefetch_ends() {
    let tokens = prompt(1, 12);
    let (mut rig, store) = stored(Shape::default(), std::slice::from_ref(&tokens));
    store.plan(|verb, _| if verb == Verb::Get { Fault::Answer(Outcome::Failed) } else { Fault::None });
    for _ in 0..4 {
        let hit = rig.fetch(&tokens);
        assert!(!rig.view(hit).waiting);
        assert_eq!(rig.load(hit).device, 0);
        rig.cache.release(hit, 0).unwrap();
    }
    assert_eq!((store.calls(Verb::Get), store.calls(Verb::Exists)), (2, 4));
    assert_eq!(rig.cache.stats().prefetch_doubted_pages, 12);
    // Computed and stored anew: it is tried again, and comes.
    store.plan(|_, _| Fault::None);
    rig.serve(&tokens);
    rig.settle();
    Tier::ALL.into_iter().for_each(|tier| drop(rig.evict(tier, usize::MAX)));
    let hit = rig.fetch(&tokens);
    assert_eq!(rig.load(hit).device, 6);
    rig.verify(hit, &tokens);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}
