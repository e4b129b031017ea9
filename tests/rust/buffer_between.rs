//! Buffer-only mode: what is written of pages that are still being read, prefixes that are warmed, turns that follow a cursor.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::Rig;
use common::staged::{asking, loaded, nothing_left, over, reads, shape};
use common::store::{Fault, Verb};
use common::stored::prompt;
use hicache_core::Warmed;
use hicache_core::ids::Tier;
use hicache_core::page::Tokens;
use hicache_core::transfer::Direction;

/// Storage is cleared while a load brings pages that it had, and another request continues these: what is written then is
/// what follows; they themselves are when they are there.
#[test]
fn nothing_is_written_before_it_has_arrived() {
    let tokens = prompt(1, 12);
    let (mut rig, store) = over(shape(32, 40), std::slice::from_ref(&tokens[..8].to_vec()));
    let hit = asking(&mut rig, &tokens[..8], 0.0);
    rig.until("the prefetch", |rig| !rig.view(hit).waiting);
    rig.gate.shut(Direction::In);
    rig.load(hit);
    rig.cache.clear_storage().unwrap();
    rig.until("the clear", |_| store.len() == 0);
    let other = rig.find(&tokens);
    assert_eq!(rig.load(other).device, 8);
    assert!(rig.compute(other, &tokens));
    rig.until("what follows", |_| store.len() == 4);
    (0..20).for_each(|_| rig.poll(0.0));
    assert_eq!(rig.stored(&store, &tokens), 4, "with their stamps, and no others");
    rig.gate.open(Direction::In);
    rig.until("the load", |rig| rig.cache.copying() == 0);
    rig.cache.release(hit, 0).unwrap();
    rig.cache.release(other, 0).unwrap();
    // It comes again.
    rig.serve(&tokens);
    rig.until("the rest", |rig| rig.cache.pending() == 0);
    assert_eq!(rig.stored_truly(&store, &tokens), 12);
    nothing_left(&mut rig);
}

/// The same of what was staged when it was cleared.
#[test]
fn what_was_staged_of_a_cleared_store_is_stored_anew() {
    let tokens = prompt(1, 8);
    let (mut rig, store) = over(shape(32, 40), std::slice::from_ref(&tokens));
    let hit = asking(&mut rig, &tokens, 0.0);
    rig.until("the prefetch", |rig| !rig.view(hit).waiting);
    rig.cache.clear_storage().unwrap();
    rig.until("the clear", |_| store.len() == 0);
    rig.gate.shut(Direction::In);
    rig.load(hit);
    (0..20).for_each(|_| rig.poll(0.0));
    assert_eq!(store.len(), 0, "it isn't there yet");
    rig.gate.open(Direction::In);
    rig.until("the load", |rig| rig.cache.copying() == 0);
    rig.verify(hit, &tokens);
    rig.cache.release(hit, 0).unwrap();
    rig.serve(&tokens);
    rig.until("its pages", |rig| rig.cache.pending() == 0);
    assert_eq!(rig.stored_truly(&store, &tokens), 8);
    nothing_left(&mut rig);
}

fn warm(rig: &mut Rig, tokens: &[i32]) -> u64 {
    let namespace = rig.namespace.clone();
    rig.cache.warm(Tokens::I32(tokens), &namespace, true, 0.0).unwrap().unwrap()
}

/// A prefix that is warmed goes through staging to the device, in free room there, and stays nowhere else.
#[test]
fn a_prefix_is_warmed() {
    for (device, host, pages) in [(16, 20, 8), (16, 5, 4), (6, 20, 6)] {
        let tokens = prompt(1, 8);
        let (mut rig, _store) = over(shape(device, host), std::slice::from_ref(&tokens));
        let number = warm(&mut rig, &tokens);
        rig.until("the prefix", |rig| !rig.cache.warmed(number).unwrap().under_way);
        let ended = Warmed { under_way: false, usable: pages, device: pages };
        assert_eq!(rig.cache.warmed(number), Some(ended));
        rig.settle();
        assert_eq!((reads(&rig), rig.cache.stats().warmed_device_pages), (0, u64::from(pages)));
        let hit = rig.find(&tokens);
        assert_eq!(rig.view(hit).device, pages);
        assert_eq!(loaded(&mut rig, hit, &tokens), pages);
        rig.cache.release(hit, 0).unwrap();
        nothing_left(&mut rig);
    }
}

#[test]
fn warming_the_host_means_nothing() {
    let (mut rig, _store) = over(shape(16, 20), &[prompt(1, 4)]);
    let refused = rig.cache.warm(Tokens::I32(&[1]), &rig.namespace.clone(), false, 0.0).unwrap_err();
    assert!(refused.to_string().contains("device: nothing stays on the host"), "{refused}");
    rig.books();
}

/// What warms leaves the room that it has to a request that finds none.
#[test]
fn who_waits_goes_before_what_warms() {
    let prompts = [prompt(1, 8), prompt(2, 4)];
    let (mut rig, store) = over(shape(32, 5), &prompts);
    // The second half of it never comes.
    store.plan(|verb, _| if verb == Verb::Get { Fault::Gated } else { Fault::None });
    let number = warm(&mut rig, &prompts[0]);
    rig.until("a read", |_| store.waiting() == 1);
    assert_eq!(reads(&rig), 4);
    let hit = asking(&mut rig, &prompts[1], 0.0);
    store.pass(0);
    rig.until("the prefix", |rig| !rig.cache.warmed(number).unwrap().under_way);
    assert_eq!(rig.cache.warmed(number).unwrap().device, 4);
    rig.until("the request's read", |_| store.waiting() == 1);
    store.pass(0);
    rig.until("the request", |rig| !rig.view(hit).waiting);
    assert_eq!(rig.view(hit).usable, 4);
    rig.cache.release(hit, 0).unwrap();
    nothing_left(&mut rig);
}

/// A turn that follows a cursor: its rest begins there.
#[test]
fn what_follows_a_cursor_comes_too() {
    let tokens = prompt(1, 10);
    let (mut rig, _store) = over(shape(16, 20), std::slice::from_ref(&tokens));
    let first = rig.find(&tokens[..4]);
    rig.load(first);
    assert!(rig.compute(first, &tokens[..4]));
    let cursor = rig.cache.release(first, 0).unwrap();
    let hit = rig.find_after(&tokens[4..], Some(cursor)).unwrap();
    assert!(rig.cache.prefetch(hit).unwrap());
    rig.until("the prefetch", |rig| !rig.view(hit).waiting);
    assert_eq!((rig.view(hit).device, rig.view(hit).usable), (4, 10));
    assert_eq!(loaded(&mut rig, hit, &tokens), 10);
    let cursor = rig.cache.release(hit, 0).unwrap();
    assert_eq!(cursor.depth, 10);
    rig.settle();
    rig.evict(Tier::Device, 1);
    assert!(rig.find_after(&[1], Some(cursor)).is_err(), "stale");
    nothing_left(&mut rig);
}
