//! What events say, in order, one situation each; and that a cache that isn't asked keeps none.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use common::store::{Fault, FaultStore, Verb};
use hicache_core::Error;
use hicache_core::events::{Event, Medium, Stored, Whose};
use hicache_core::hash::{Digest, Namespace, chain};
use hicache_core::ids::Tier;
use hicache_core::page::{PageSize, Tokens};
use hicache_core::policy::Writing;
use hicache_core::transfer::Direction;
use std::sync::Arc;

const PROMPT: [i32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

fn rig(store: Option<&Arc<FaultStore>>) -> Rig {
    let mut rig = Rig::new(Shape { page: 4, ..Shape::default() }, store);
    rig.cache.keep_events(100).unwrap();
    rig
}

fn keys(namespace: &Namespace, tokens: &[i32]) -> Vec<Digest> {
    chain(namespace.seed(), Tokens::I32(tokens), PageSize::new(4).unwrap())
}

/// Pages of a prompt that came somewhere.
fn came(medium: Medium, tokens: &[i32], pages: std::ops::Range<usize>) -> Event {
    let keys = keys(&Namespace::default(), tokens);
    let parent = pages.start.checked_sub(1).map(|before| keys[before]);
    let tokens = tokens[4 * pages.start..4 * pages.end].iter().map(|&token| token.unsigned_abs().into());
    let tokens = tokens.collect();
    Event::Stored(Stored { medium, whose: Whose::default(), parent, pages: keys[pages].to_vec(), tokens })
}

fn went(medium: Medium, tokens: &[i32], pages: &[usize]) -> Event {
    let keys = keys(&Namespace::default(), tokens);
    Event::Removed { medium, pages: pages.iter().map(|&page| keys[page]).collect() }
}

const fn cleared(medium: Medium) -> Event {
    Event::Cleared { medium }
}

#[test]
fn each_tier_is_told_of_when_it_changes() {
    let store = Arc::default();
    let mut rig = rig(Some(&store));
    rig.serve(&PROMPT);
    rig.settle();
    let told = [
        came(Medium::Device, &PROMPT, 0..3),
        came(Medium::Host, &PROMPT, 0..3),
        came(Medium::Storage, &PROMPT, 0..3),
    ];
    assert_eq!(rig.cache.take_events(), told);
    rig.evict(Tier::Device, 2);
    rig.evict(Tier::Host, 1);
    let told = [went(Medium::Device, &PROMPT, &[2, 1]), went(Medium::Host, &PROMPT, &[2])];
    assert_eq!(rig.cache.take_events(), told);
    // What is prefetched is told of too, and that the store has it: the cache had forgotten that it knew.
    let hit = rig.fetch(&PROMPT);
    assert_eq!(
        rig.cache.take_events(),
        [came(Medium::Host, &PROMPT, 2..3), came(Medium::Storage, &PROMPT, 2..3)]
    );
    rig.load(hit);
    assert_eq!(rig.cache.take_events(), [came(Medium::Device, &PROMPT, 1..3)]);
    rig.cache.release(hit, 0).unwrap();
    // A page that is there already isn't told of again.
    rig.serve(&PROMPT);
    rig.settle();
    assert_eq!(rig.cache.take_events(), []);
}

#[test]
fn a_branch_names_the_page_that_it_continues() {
    let mut rig = rig(None);
    rig.serve(&PROMPT);
    rig.cache.take_events();
    let other = [&PROMPT[..4], &[50, 51, 52, 53]].concat();
    rig.serve(&other);
    let told = [came(Medium::Device, &other, 1..2), came(Medium::Host, &other, 1..2)];
    assert_eq!(rig.cache.take_events(), told, "the split moved nothing");
    rig.settle();
    // Evictions of one call are one event, whatever edges they are of.
    rig.evict(Tier::Device, 16);
    let told = rig.cache.take_events();
    assert!(
        matches!(&told[..], [Event::Removed { medium: Medium::Device, pages }] if pages.len() == 4),
        "{told:?}"
    );
}

#[test]
fn the_tenants_secret_is_not_told() {
    let mut rig = rig(None);
    let text = |text: &str| Some(text.to_owned());
    rig.namespace = Namespace { extra_key: text("key"), salt: text("secret"), adapter: text("lora") };
    rig.serve(&PROMPT[..4]);
    let told = rig.cache.take_events();
    assert!(!format!("{told:?}").contains("secret"));
    let Event::Stored(Stored { whose, parent, pages, .. }) = &told[0] else { panic!("{told:?}") };
    assert_eq!((whose.seed, *parent), (rig.namespace.seed(), None));
    assert_eq!((whose.extra_key.as_deref(), whose.adapter.as_deref()), (Some("key"), Some("lora")));
    assert_eq!(*pages, keys(&rig.namespace, &PROMPT[..4]));
}

#[test]
fn a_clear_says_so_and_what_requests_hold_is_not_told_of_any_more() {
    let store = Arc::default();
    let mut rig = rig(Some(&store));
    let hit = rig.find(&PROMPT);
    rig.load(hit);
    assert!(rig.compute(hit, &PROMPT[..8]));
    rig.settle();
    rig.cache.take_events();
    rig.cache.clear_memory().unwrap();
    assert!(rig.compute(hit, &PROMPT));
    rig.cache.release(hit, 0).unwrap();
    rig.settle();
    assert_eq!(rig.cache.take_events(), [cleared(Medium::Device), cleared(Medium::Host)]);
    assert_eq!(rig.cache.tree().resident(Tier::Device), 0);
}

/// A write that had ended in the store before the clear began is no page of a store that was cleared.
#[test]
fn what_lands_after_a_clear_of_storage_is_not_told() {
    let store = Arc::new(FaultStore::default());
    let mut rig = rig(Some(&store));
    rig.serve(&PROMPT);
    // The write begins in it; what becomes of that enters through the next one.
    rig.poll(0.0);
    while store.ended() == 0 {
        std::thread::yield_now();
    }
    rig.cache.clear_storage().unwrap();
    rig.settle();
    let told = rig.cache.take_events();
    let storage: Vec<&Event> = told.iter().filter(|event| format!("{event:?}").contains("Storage")).collect();
    assert_eq!(storage, [&cleared(Medium::Storage)]);
    // Memory gets there anew.
    rig.serve(&PROMPT);
    rig.cache.write_out().unwrap();
    rig.settle();
    assert_eq!(rig.cache.take_events(), [came(Medium::Storage, &PROMPT, 0..3)]);
}

#[test]
fn only_what_the_store_took_is_told() {
    let store = Arc::new(FaultStore::default());
    store.plan(|verb, _| {
        if verb == Verb::Put { Fault::Answer(hicache_core::storage::Outcome::Failed) } else { Fault::None }
    });
    let mut rig = rig(Some(&store));
    rig.serve(&PROMPT);
    rig.settle();
    let told = [came(Medium::Device, &PROMPT, 0..3), came(Medium::Host, &PROMPT, 0..3)];
    assert_eq!(rig.cache.take_events(), told);
    store.plan(|_, _| Fault::None);
    rig.serve(&PROMPT);
    rig.settle();
    assert_eq!(rig.cache.take_events(), [came(Medium::Storage, &PROMPT, 0..3)]);
}

/// A read that others overtook brings what is known to be stored.
#[test]
fn what_is_read_again_is_not_told_again() {
    let store = Arc::new(FaultStore::default());
    let shape = Shape { page: 4, writing: Writing::default(), ..Shape::default() };
    let mut rig = Rig::new(shape, Some(&store));
    rig.cache.keep_events(100).unwrap();
    rig.serve(&PROMPT);
    rig.settle();
    rig.evict(Tier::Device, 3);
    rig.evict(Tier::Host, 3);
    store.plan(|verb, _| if verb == Verb::Get { Fault::Hang } else { Fault::None });
    let hit = rig.find(&PROMPT);
    rig.cache.prefetch(hit).unwrap();
    rig.until("the read", |_| store.calls(Verb::Get) == 1);
    rig.cache.take_events();
    rig.serve(&PROMPT);
    rig.until("the others' write", |rig| rig.cache.stats().stored_pages == 6);
    rig.evict(Tier::Host, 3);
    let told = [
        came(Medium::Device, &PROMPT, 0..3),
        came(Medium::Host, &PROMPT, 0..3),
        came(Medium::Storage, &PROMPT, 0..3),
        went(Medium::Host, &PROMPT, &[2, 1, 0]),
    ];
    assert_eq!(rig.cache.take_events(), told);
    store.release();
    rig.until("the prefetch", |rig| !rig.view(hit).waiting);
    assert_eq!(rig.cache.take_events(), [came(Medium::Host, &PROMPT, 0..3)]);
}

#[test]
fn copies_that_fail_take_their_pages_back() {
    let mut rig = rig(None);
    rig.gate.shut(Direction::Out);
    rig.serve(&PROMPT);
    rig.cache.take_events();
    rig.gate.end("on purpose");
    rig.poll(0.0);
    let told = rig.cache.take_events();
    assert!(told.contains(&went(Medium::Host, &PROMPT, &[2, 1, 0])), "{told:?}");
    assert!(told.contains(&went(Medium::Device, &PROMPT, &[2, 1, 0])), "{told:?}");
}

#[test]
fn a_list_that_nobody_takes_is_bounded() {
    let mut rig = Rig::new(Shape { page: 4, ..Shape::default() }, None);
    rig.cache.keep_events(5).unwrap();
    rig.serve(&PROMPT);
    rig.settle();
    rig.evict(Tier::Device, 1);
    let told = rig.cache.take_events();
    assert_eq!(told, [Event::Lost { pages: 6 }, went(Medium::Device, &PROMPT, &[2])]);
    assert_eq!(rig.cache.tree().lost_events(), 6);
    let whole = rig.cache.events_from_scratch();
    let clears = [Medium::Device, Medium::Host, Medium::Storage].map(cleared);
    assert_eq!(whole[..3], clears);
    assert_eq!(whole[3..], [came(Medium::Device, &PROMPT, 0..2), came(Medium::Host, &PROMPT, 0..3)]);
    assert_eq!(rig.cache.take_events(), []);
}

#[test]
fn a_cache_that_is_not_asked_keeps_none_and_hashes_nothing() {
    let mut rig = Rig::new(Shape::default(), None);
    rig.serve(&PROMPT);
    assert_eq!(rig.cache.take_events(), []);
    assert_eq!(rig.cache.events_from_scratch(), []);
    assert_eq!(rig.cache.stats().hashed_pages, 0);
    let refused = |result: hicache_core::Result<()>| match result {
        Err(Error::Argument { argument, .. }) => argument == "events",
        _ => false,
    };
    assert!(refused(rig.cache.keep_events(100)), "nobody was told of what is there");
    let mut rig = Rig::new(Shape::default(), None);
    assert!(refused(rig.cache.keep_events(0)));
}
