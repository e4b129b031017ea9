//! Weights that change under load: nothing of before is found again, in any tier, and nothing is lost.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::Seeded;
use common::rig::{Rig, Shape, config};
use common::store::{Fault, FaultStore, Verb};
use hicache_core::Error;
use hicache_core::hash::Namespace;
use hicache_core::identity::{Fingerprint, Identity};
use hicache_core::ids::{HitId, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::transfer::Direction;
use std::sync::Arc;

const TOKENS: [i32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
const NEXT: Fingerprint = Fingerprint([9; 32]);

fn rig() -> (Rig, Arc<FaultStore>) {
    let store = Arc::new(FaultStore::default());
    (Rig::new(Shape::default(), Some(&store)), store)
}

fn bump(rig: &mut Rig, to: Fingerprint) -> [usize; 2] {
    let gone = rig.cache.bump_epoch(to).unwrap();
    rig.books();
    gone
}

/// What a new request finds of the tokens, in memory and in storage.
fn found(rig: &mut Rig, tokens: &[i32]) -> (u32, u32) {
    let hit = rig.find(tokens);
    let usable = rig.view(hit).usable;
    rig.cache.prefetch(hit).unwrap();
    rig.until("the prefetch", |rig| !rig.view(hit).waiting);
    let after = rig.view(hit).usable;
    rig.cache.release(hit, 0).unwrap();
    (usable, after)
}

#[test]
fn nothing_is_found_in_any_tier() {
    let (mut rig, store) = rig();
    let old = config(Shape::default()).identity;
    let reader = rig.cache.reader();
    let knows = |namespace: &Namespace| reader.would_hit(Tokens::I32(&TOKENS), namespace).unwrap().usable;
    rig.serve(&TOKENS);
    rig.settle();
    assert_eq!((store.of(old), knows(&rig.namespace)), (6, 12));
    assert_eq!(bump(&mut rig, NEXT), [6, 6], "pages that nobody holds leave at once");
    assert_eq!(knows(&rig.namespace), 0);
    assert_eq!(found(&mut rig, &TOKENS), (0, 0), "neither in memory nor in storage");
    // The new epoch's own pages are found, and stored under its identity.
    rig.serve(&TOKENS);
    rig.settle();
    assert_eq!((store.of(old), store.of(NEXT), knows(&rig.namespace)), (6, 6, 12));
    for tier in Tier::ALL {
        rig.evict(tier, usize::MAX);
    }
    assert_eq!(found(&mut rig, &TOKENS), (0, 6));
    rig.drained();
}

#[test]
fn a_running_request_goes_on_and_nobody_finds_what_it_inserts() {
    let (mut rig, store) = rig();
    rig.serve(&TOKENS[..4]);
    rig.settle();
    let running = rig.find(&TOKENS);
    rig.load(running);
    let stored = store.len();
    bump(&mut rig, NEXT);
    assert!(rig.compute(running, &TOKENS), "it inserts behind what it holds");
    rig.verify(running, &TOKENS);
    rig.settle();
    assert_eq!(store.len(), stored, "nothing of it is stored");
    assert_eq!(found(&mut rig, &TOKENS), (0, 0));
    let cursor = rig.cache.release(running, 3).unwrap();
    assert_eq!(rig.cache.tree().resident(Tier::Device), 0, "what it held leaves with it");
    assert_eq!(rig.cache.tree().resident(Tier::Host), 0);
    assert!(matches!(rig.find_after(&TOKENS[..2], Some(cursor)), Err(Error::Stale)));
    rig.drained();
}

#[test]
fn a_cursor_is_stale_while_others_hold_its_place() {
    let (mut rig, _store) = rig();
    rig.serve(&TOKENS[..8]);
    let (one, other) = (rig.find(&TOKENS[..8]), rig.find(&TOKENS[..8]));
    rig.load(one);
    rig.load(other);
    let cursor = rig.cache.release(one, 0).unwrap();
    bump(&mut rig, NEXT);
    assert!(matches!(rig.find_after(&TOKENS[8..], Some(cursor)), Err(Error::Stale)));
    rig.cache.release(other, 0).unwrap();
    rig.drained();
}

#[test]
fn a_waiting_request_finds_nothing_and_computes() {
    let (mut rig, _store) = rig();
    rig.serve(&TOKENS[..8]);
    rig.settle();
    let waiting = rig.find(&TOKENS);
    assert_eq!(rig.view(waiting).usable, 4);
    bump(&mut rig, NEXT);
    assert_eq!(rig.view(waiting).usable, 0);
    assert!(!rig.cache.prefetch(waiting).unwrap());
    assert_eq!(rig.load(waiting).device, 0);
    assert!(rig.compute(waiting, &TOKENS));
    rig.cache.release(waiting, 0).unwrap();
    assert_eq!(found(&mut rig, &TOKENS), (6, 6), "it is of the new epoch");
    rig.settle();
    rig.drained();
}

/// What was read under the old identity comes after the epoch has ended.
#[test]
fn a_prefetch_under_way_brings_nothing() {
    let (mut rig, store) = rig();
    rig.serve(&TOKENS);
    rig.settle();
    for tier in Tier::ALL {
        rig.evict(tier, usize::MAX);
    }
    store.plan(|verb, _| if verb == Verb::Get { Fault::Gated } else { Fault::None });
    let hit = rig.find(&TOKENS);
    rig.cache.prefetch(hit).unwrap();
    let gate = Arc::clone(&store);
    rig.until("the read", move |_| gate.waiting() == 1);
    bump(&mut rig, NEXT);
    assert!(!rig.view(hit).waiting);
    assert!(store.pass(0));
    rig.settle();
    assert_eq!(rig.cache.tree().resident(Tier::Host), 0);
    assert_eq!(rig.load(hit).device, 0);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// A backup that lands after the end of its epoch isn't stored: neither under this identity nor under that.
#[test]
fn a_backup_under_way_is_not_stored() {
    let (mut rig, store) = rig();
    rig.gate.shut(Direction::Out);
    rig.serve(&TOKENS);
    bump(&mut rig, NEXT);
    rig.gate.open(Direction::Out);
    rig.settle();
    assert_eq!(store.len(), 0);
    let held = Tier::ALL.map(|tier| rig.cache.tree().resident(tier));
    assert_eq!(held, [0, 0], "it held the last of the pages, which leave with it");
    assert_eq!(found(&mut rig, &TOKENS), (0, 0));
    rig.drained();
}

/// A store's write that was asked for before is done under the old identity, however late.
#[test]
fn a_write_that_waits_keeps_its_identity() {
    let store = Arc::new(FaultStore::default());
    let shape = Shape { threads: 1, queue: 1, ..Shape::default() };
    let (mut rig, old) = (Rig::new(shape, Some(&store)), config(shape).identity);
    store.plan(|verb, _| if verb == Verb::Put { Fault::Gated } else { Fault::None });
    let of = |first: i32| -> Vec<i32> { (first..first + 4).collect() };
    (0..4).for_each(|turn| _ = rig.serve(&of(100 * turn)));
    let gate = Arc::clone(&store);
    rig.until("a write", move |_| gate.waiting() == 1);
    bump(&mut rig, NEXT);
    store.plan(|_, _| Fault::None);
    while store.waiting() > 0 {
        store.pass(0);
    }
    rig.settle();
    assert_eq!((store.of(old), store.of(NEXT)), (store.len(), 0));
    rig.drained();
}

/// Requests in all states, and epochs that end at any moment: every page that is loaded is of the epoch that its
/// request began in, and in the end nothing is left.
#[test]
fn epochs_end_at_any_moment() {
    for seed in 0..40 {
        let store = Arc::new(FaultStore::default());
        let (host, writing) = ([60, 24][(seed % 2) as usize], common::writing::either(seed));
        let mut rig = Rig::new(Shape { device: 40, host, writing, ..Shape::default() }, Some(&store));
        let (mut random, mut epoch) = (Seeded(seed + 1), 0_u8);
        let mut open: Vec<(HitId, Vec<i32>, u8, bool)> = Vec::new();
        let name = |epoch: u8| Namespace { extra_key: Some(epoch.to_string()), ..Namespace::default() };
        for _ in 0..120 {
            match random.below(9) {
                0..3 => {
                    let (first, pages) = (random.below(3), 1 + random.below(6));
                    let base = i32::try_from(first * 1000).unwrap();
                    let tokens: Vec<i32> = (base..base + i32::try_from(pages * 2).unwrap()).collect();
                    let hit = rig.find(&tokens);
                    rig.cache.prefetch(hit).unwrap();
                    open.push((hit, tokens, epoch, false));
                }
                3..6 if !open.is_empty() => {
                    let at = random.below(open.len());
                    let (hit, tokens, of, loaded) = &mut open[at];
                    if !*loaded {
                        rig.load(*hit);
                        rig.settle();
                        (*loaded, *of) = (true, epoch);
                        // Stamps carry the epoch by its namespace: one page of another epoch is seen.
                        rig.stamps = Some(name(*of));
                        rig.verify(*hit, tokens);
                        rig.compute(*hit, &tokens.clone());
                    }
                }
                6 | 7 if !open.is_empty() => {
                    let (hit, tokens, of, loaded) = open.swap_remove(random.below(open.len()));
                    if loaded {
                        rig.stamps = Some(name(of));
                        rig.verify(hit, &tokens[..rig.view(hit).device as usize * 2]);
                    }
                    rig.cache.release(hit, 0).unwrap();
                    rig.books();
                }
                _ if random.below(4) == 0 => {
                    epoch += 1;
                    bump(&mut rig, Fingerprint([epoch; 32]));
                }
                _ => rig.poll(0.0),
            }
        }
        for (hit, ..) in open {
            rig.cache.release(hit, 0).unwrap();
        }
        rig.settle();
        rig.drained();
    }
}

/// A new process that is told the epoch finds what the old one stored in it.
#[test]
fn a_bumped_identity_is_that_of_the_next_epoch() {
    let size = PageSize::new(2).unwrap();
    let at = |epoch: u64| {
        let fields = [("model", "m".to_owned()), ("weights_epoch", epoch.to_string())];
        Identity::of(&fields.map(|(name, value)| (name.to_owned(), value)), &[0], &[1], size, &[])
    };
    assert_eq!(at(4).bumped().fingerprint(), at(5).fingerprint());
    assert_ne!(at(4).fingerprint(), at(5).fingerprint());
}
