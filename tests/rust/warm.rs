//! Prefixes that are brought up without a request: after everybody else, in free room only, and apart from all hits.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use common::store::{Fault, FaultStore, Verb};
use hicache_core::ids::Tier;
use hicache_core::page::Tokens;
use hicache_core::{MOST_WARM, Warmed};
use std::sync::Arc;
use std::time::Duration;

const TOKENS: [i32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

fn warm(rig: &mut Rig, tokens: &[i32], to_device: bool) -> Option<u64> {
    let namespace = rig.namespace.clone();
    let number = rig.cache.warm(Tokens::I32(tokens), &namespace, to_device, 0.0).unwrap();
    rig.books();
    number
}

/// A rig whose store has these tokens, and whose memory is empty.
fn stored(shape: Shape) -> (Rig, Arc<FaultStore>) {
    let store = Arc::new(FaultStore::default());
    let mut rig = Rig::new(shape, Some(&store));
    rig.serve(&TOKENS);
    rig.settle();
    Tier::ALL.into_iter().for_each(|tier| drop(rig.evict(tier, 99)));
    (rig, store)
}

fn ended(rig: &mut Rig, number: u64) -> Warmed {
    rig.until("the prefix", |rig| !rig.cache.warmed(number).unwrap().under_way);
    rig.cache.warmed(number).unwrap()
}

#[test]
fn a_prefix_comes_up_and_is_counted_apart() {
    for to_device in [false, true] {
        let (mut rig, _store) = stored(Shape::default());
        let before = *rig.cache.stats();
        let number = warm(&mut rig, &TOKENS, to_device).unwrap();
        assert_eq!(rig.cache.warmed(number), Some(Warmed { under_way: true, usable: 0, device: 0 }));
        let device = if to_device { 6 } else { 0 };
        assert_eq!(ended(&mut rig, number), Warmed { under_way: false, usable: 6, device });
        rig.settle();
        let stats = *rig.cache.stats();
        assert_eq!((stats.warm_prefixes, stats.warmed_host_pages), (1, 6));
        assert_eq!(stats.warmed_device_pages, u64::from(device));
        let request = |stats: &hicache_core::stats::Stats| {
            let hits = [stats.hit_device_tokens, stats.hit_host_tokens, stats.hit_storage_tokens];
            (stats.requests, stats.matched_tokens, stats.loaded_requests, stats.missed_tokens, hits)
        };
        assert_eq!(request(&stats), request(&before));
        // The request that comes then finds it where it was brought.
        let hit = rig.find(&TOKENS);
        assert_eq!(rig.view(hit).device, device);
        rig.load(hit);
        rig.settle();
        rig.verify(hit, &TOKENS);
        rig.cache.release(hit, 0).unwrap();
        rig.drained();
    }
}

/// Nothing leaves for it: on either tier it takes what is free.
#[test]
fn it_takes_no_room_from_anybody() {
    let (mut rig, _store) = stored(Shape { device: 8, host: 8, ..Shape::default() });
    rig.serve(&[50, 51, 52, 53, 54, 55, 56, 57, 58, 59]);
    rig.settle();
    let left = [rig.free(Tier::Device), rig.free(Tier::Host)];
    assert_eq!(left, [3, 3]);
    let number = warm(&mut rig, &TOKENS, true).unwrap();
    let ended = ended(&mut rig, number);
    assert_eq!((ended.usable, ended.device), (3, 3));
    rig.settle();
    let hit = rig.find(&[50, 51, 52, 53, 54, 55, 56, 57, 58, 59]);
    assert_eq!(rig.view(hit).device, 5, "what was there is");
    rig.cache.release(hit, 0).unwrap();
    let number = warm(&mut rig, &[TOKENS, [90; 12]].concat(), true).unwrap();
    assert_eq!(self::ended(&mut rig, number).usable, 3, "full: nothing comes");
    rig.drained();
}

/// It isn't even asked for while a request waits.
#[test]
fn requests_go_first() {
    let (mut rig, store) = stored(Shape::default());
    store.plan(|verb, _| if verb == Verb::Get { Fault::Gated } else { Fault::None });
    let hit = rig.find(&TOKENS[..6]);
    rig.cache.prefetch(hit).unwrap();
    rig.until("the read", |_| store.waiting() == 1);
    let asked = store.calls(Verb::Exists);
    let number = warm(&mut rig, &TOKENS, false).unwrap();
    for _ in 0..20 {
        rig.poll(0.0);
    }
    assert_eq!(store.calls(Verb::Exists), asked);
    store.plan(|_, _| Fault::None);
    assert!(store.pass(0));
    assert_eq!(ended(&mut rig, number).usable, 6);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// Bounded, cancelled in every state, and ended by whatever ends all else.
#[test]
fn it_ends_in_any_state() {
    for verb in [None, Some(Verb::Exists), Some(Verb::Get)] {
        for end in 0..5 {
            let (mut rig, store) = stored(Shape::default());
            let before = verb.map_or(0, |verb| store.calls(verb));
            store.plan(move |at, _| if Some(at) == verb { Fault::Hang } else { Fault::None });
            let number = warm(&mut rig, &TOKENS, end % 2 == 0).unwrap();
            if let Some(verb) = verb {
                rig.until("the call", |_| store.calls(verb) > before);
            }
            match end {
                0 => rig.cache.cool(number),
                1 => drop(rig.cache.detach_store(Duration::from_millis(5)).unwrap()),
                2 => drop(rig.cache.clear_memory().unwrap()),
                3 => drop(rig.cache.poll(None, 100.0).unwrap()),
                _ => rig.cache.close(Duration::from_millis(5)),
            }
            rig.books();
            if end < 4 {
                let ended = ended(&mut rig, number);
                assert!(ended.usable == 0 || verb.is_none(), "{verb:?} {end}: {ended:?}");
                store.release();
                rig.drained();
            } else {
                assert_eq!(rig.cache.tree().pins(), 0);
                store.release();
            }
        }
    }
    let (mut rig, store) = stored(Shape::default());
    store.plan(|verb, _| if verb == Verb::Exists { Fault::Hang } else { Fault::None });
    let numbers: Vec<u64> = (0..MOST_WARM).map(|_| warm(&mut rig, &TOKENS, false).unwrap()).collect();
    assert_eq!(warm(&mut rig, &TOKENS, false), None);
    rig.cache.cool(numbers[0]);
    assert!(warm(&mut rig, &TOKENS, false).is_some());
    assert_eq!(rig.cache.warmed(12345), None);
    store.release();
    for number in &numbers[1..] {
        assert_eq!(ended(&mut rig, *number).usable, 6);
    }
    rig.drained();
}

/// Without a store there is still the way to the device; and nonsense is refused.
#[test]
fn what_is_on_the_host_is_brought_to_the_device() {
    let mut rig = Rig::new(Shape::default(), None);
    rig.serve(&TOKENS);
    rig.settle();
    rig.evict(Tier::Device, 99);
    let number = warm(&mut rig, &TOKENS, true).unwrap();
    assert_eq!(ended(&mut rig, number), Warmed { under_way: false, usable: 6, device: 6 });
    let namespace = rig.namespace.clone();
    assert!(rig.cache.warm(Tokens::I32(&[1, -1, 3, 4]), &namespace, false, 0.0).is_err());
    rig.drained();
}
