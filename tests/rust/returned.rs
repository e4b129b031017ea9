//! An engine that owns the device slots, while memory is cleared and weights change: it learns of each slot that left the
//! cache exactly once, and not before nothing touches it any more.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::owner::Owner;
use common::rig::{MIRRORED, Rig, Shape};
use common::store::FaultStore;
use common::{Seeded, seeds};
use hicache_core::Error;
use hicache_core::ids::{HitId, Slot, Tier};
use hicache_core::page::Tokens;
use hicache_core::policy::{Write, Writing};
use hicache_core::transfer::Direction;
use std::sync::Arc;
use std::time::Duration;

const TOKENS: [i32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

fn owner() -> Owner {
    Owner::new(Shape { writing: MIRRORED, ..Shape::default() }, None)
}

#[test]
fn what_nobody_holds_is_told_at_once() {
    for weights in [false, true] {
        let mut owner = owner();
        owner.serve(&TOKENS);
        owner.rig.settle();
        assert_eq!(owner.told(), 0, "nothing left");
        assert_eq!(owner.end_epoch(weights), 6);
        assert_eq!((owner.told(), owner.told()), (6, 0), "each once");
        assert_eq!(owner.free.len(), 16);
        // And it goes on as ever.
        owner.serve(&TOKENS);
        owner.rig.settle();
        let evicted = owner.rig.evict(Tier::Device, 4);
        owner.give(&evicted);
        assert_eq!((evicted.len(), owner.told()), (4, 0), "evict answers itself");
    }
}

/// What a running request holds, loaded or inserted before or after, is told when it ends, and not before.
#[test]
fn what_runs_is_told_when_it_ends() {
    for weights in [false, true] {
        let mut owner = owner();
        owner.serve(&TOKENS);
        owner.rig.settle();
        let longer = [&TOKENS[..8], &[20, 21]].concat();
        let (running, twin) = (owner.rig.find(&TOKENS[..8]), owner.rig.find(&TOKENS[..4]));
        owner.load(running);
        owner.load(twin);
        assert_eq!(owner.end_epoch(weights), 2, "two of six pages are held by nobody");
        assert_eq!(owner.told(), 2);
        // It goes on in what has ended; others begin anew.
        assert!(owner.compute(running, &longer));
        owner.serve(&longer);
        owner.rig.settle();
        owner.rig.verify(running, &longer);
        assert_eq!(owner.told(), 0);
        owner.release(running);
        assert_eq!(owner.told(), 3, "the twin holds two");
        owner.rig.verify(twin, &TOKENS[..4]);
        owner.release(twin);
        assert_eq!(owner.told(), 2);
        assert_eq!(owner.end_epoch(weights), 5);
        assert_eq!((owner.told(), owner.free.len()), (5, 16));
    }
}

/// A copy under way reads or writes its slots: they are told when it has landed, whatever else has ended before.
#[test]
fn what_is_copied_is_told_when_that_has_landed() {
    for direction in [Direction::Out, Direction::In] {
        let mut owner = owner();
        if direction == Direction::In {
            owner.serve(&TOKENS);
            owner.rig.settle();
            let evicted = owner.rig.evict(Tier::Device, 99);
            owner.give(&evicted);
        }
        owner.rig.gate.shut(direction);
        owner.serve(&TOKENS);
        owner.rig.poll(0.0);
        assert_eq!(owner.rig.cache.in_flight(), 1);
        assert_eq!((owner.end_epoch(false), owner.told()), (0, 0));
        owner.rig.poll(0.0);
        assert_eq!(owner.told(), 0);
        owner.rig.gate.open(direction);
        owner.rig.settle();
        assert_eq!((owner.told(), owner.free.len()), (6, 16));
    }
}

/// A request that goes back gives up what it had in an epoch that has ended.
#[test]
fn what_is_rewound_is_told() {
    let mut owner = owner();
    let hit = owner.rig.find(&TOKENS);
    owner.load(hit);
    assert!(owner.compute(hit, &TOKENS));
    owner.rig.settle();
    assert_eq!((owner.end_epoch(true), owner.told()), (0, 0));
    owner.rig.cache.rewind(hit, 2).unwrap();
    assert_eq!(owner.told(), 4);
    assert!(owner.compute(hit, &TOKENS[..10]));
    owner.release(hit);
    assert_eq!((owner.told(), owner.free.len()), (5, 16));
}

/// What waits to be told is nobody's: it can't be given as the engine's own. Other memory ends all that.
#[test]
fn what_is_not_told_yet_is_refused() {
    let mut owner = owner();
    owner.serve(&TOKENS);
    owner.rig.settle();
    let hit = owner.rig.find(&TOKENS);
    assert_eq!(owner.end_epoch(false), 6);
    let wrong = owner.rig.cache.load(&[hit], Some(&[Slot(0)]));
    assert!(matches!(wrong, Err(Error::Argument { argument: "slots", .. })), "{wrong:?}");
    owner.load(hit);
    let wrong = owner.rig.cache.insert(hit, Tokens::I32(&TOKENS[..2]), &[Slot(0)]);
    assert!(matches!(wrong, Err(Error::Argument { argument: "slots", .. })), "{wrong:?}");
    owner.release(hit);
    owner.rig.cache.detach().unwrap();
    owner.rig.attach_elsewhere(8);
    owner.free = (0..8).map(Slot).collect();
    assert_eq!(owner.told(), 0, "all of the new memory is the engine's");
    owner.serve(&TOKENS);
    owner.rig.cache.close(Duration::from_secs(1));
    assert_eq!(owner.told(), 0);
    let mut ours = Rig::new(Shape::default(), None);
    assert!(matches!(ours.cache.returned_slots(), Err(Error::Argument { argument: "slots", .. })));
}

/// Requests that outlive the cache still say what they held.
#[test]
fn what_is_released_after_the_end_is_told() {
    let mut owner = owner();
    owner.serve(&TOKENS);
    owner.rig.settle();
    let hit = owner.rig.find(&TOKENS);
    owner.load(hit);
    owner.end_epoch(true);
    owner.rig.cache.close(Duration::from_secs(1));
    assert_eq!(owner.told(), 0);
    owner.release(hit);
    assert_eq!((owner.told(), owner.free.len()), (6, 16));
}

/// At random: every slot is at any time in exactly one hand, pages that are read are right, and in the end all come back.
#[test]
fn nothing_leaks_whatever_happens() {
    let (mut at_once, mut later) = (0, 0);
    for seed in seeds(60) {
        let mut random = Seeded(seed);
        let store = Arc::new(FaultStore::default());
        let host = [Write::Through, Write::Selective, Write::Back][random.below(3)];
        let writing = Writing { host, clean_reserve: 0.3, ..Writing::default() };
        let shape = Shape { page: 1, device: 24, host: 20, writing, ..Shape::default() };
        let mut owner = Owner::new(shape, Some(&store));
        let mut running: Vec<(HitId, Vec<i32>)> = Vec::new();
        for _ in 0..250 {
            match random.below(12) {
                0..=3 if running.len() < 4 => {
                    let tokens = random.tokens(6, 3);
                    let hit = owner.rig.find(&tokens);
                    if random.below(2) == 0 {
                        owner.rig.cache.prefetch(hit).unwrap();
                    }
                    owner.load(hit);
                    running.push((hit, tokens));
                }
                4 | 5 if !running.is_empty() => {
                    let at = random.below(running.len());
                    running[at].1.extend([9, 9]);
                    let (hit, tokens) = running[at].clone();
                    if !owner.compute(hit, &tokens) {
                        let size = owner.rig.view(hit).device as usize;
                        running[at].1.truncate(size);
                    }
                }
                6 if !running.is_empty() => {
                    let (hit, _) = running.swap_remove(random.below(running.len()));
                    owner.release(hit);
                    later += owner.told();
                }
                7 => {
                    at_once += owner.end_epoch(random.below(2) == 0);
                    if random.below(2) == 0 {
                        owner.told();
                    }
                }
                8 => owner.rig.gate.shut([Direction::In, Direction::Out][random.below(2)]),
                9 => [Direction::In, Direction::Out].iter().for_each(|&way| owner.rig.gate.open(way)),
                10 => {
                    let slots = owner.rig.evict(Tier::Device, 2);
                    owner.give(&slots);
                }
                _ => {
                    owner.rig.poll(0.0);
                    later += owner.told();
                }
            }
            owner.books();
        }
        [Direction::In, Direction::Out].iter().for_each(|&way| owner.rig.gate.open(way));
        owner.rig.settle();
        for (hit, tokens) in running {
            owner.rig.verify(hit, &tokens);
            owner.release(hit);
        }
        owner.end_epoch(false);
        owner.rig.settle();
        owner.told();
        assert_eq!((owner.free.len(), owner.rig.cache.tree().pins()), (24, 0), "seed {seed}");
    }
    assert!(at_once > 0 && later > 0, "both happen: {at_once} {later}");
}
