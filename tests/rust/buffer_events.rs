//! Where the host is staging: what routers are told of storage.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::Rig;
use common::router::Router;
use common::staging::{rig, straight};
use common::store::{Fault, FaultStore, Verb};
use common::writing::path;
use hicache_core::events::Medium;
use hicache_core::ids::Tier;
use hicache_core::policy::Write;
use hicache_core::transfer::Direction;
use std::sync::Arc;

fn telling(store: &Arc<FaultStore>) -> Rig {
    let mut rig = rig(straight(Write::Through, 0.0), 8, 8, store);
    rig.cache.keep_events(1000).unwrap();
    rig
}

/// Applies what was told; how many pages of each medium there are then.
fn listen(rig: &mut Rig, router: &mut Router) -> [usize; 3] {
    let size = rig.cache.tree().page_size();
    router.apply(rig.cache.take_events(), size);
    [Medium::Device, Medium::Host, Medium::Storage].map(|medium| router.of(medium).len())
}

fn anew(rig: &mut Rig) -> [usize; 3] {
    let (mut fresh, size) = (Router::default(), rig.cache.tree().page_size());
    fresh.apply(rig.cache.events_from_scratch(), size);
    [Medium::Device, Medium::Host, Medium::Storage].map(|medium| fresh.of(medium).len())
}

/// What left the device while it was written has no place by which it could be told of.
#[test]
fn pages_that_left_while_they_were_written() {
    for left in [1, 2, 4] {
        for late in [false, true] {
            let store = Arc::new(FaultStore::default());
            store.plan(|verb, _| if verb == Verb::Put { Fault::Hang } else { Fault::None });
            let (mut rig, mut router) = (telling(&store), Router::default());
            rig.serve(&path(1, 4));
            rig.until("the store", |_| store.calls(Verb::Put) == 1);
            assert_eq!(rig.evict(Tier::Device, left).len(), left);
            if late {
                rig.poll(11.0);
            }
            assert_eq!(listen(&mut rig, &mut router), [4 - left, 0, 0]);
            assert_eq!(anew(&mut rig), [4 - left, 0, 0], "the store has answered nothing");
            store.release();
            rig.all_written();
            assert_eq!(listen(&mut rig, &mut router), [4 - left, 0, 4 - left]);
            assert_eq!(anew(&mut rig), [4 - left, 0, 4 - left]);
            // It comes back as another page, under the same name as what the write was of.
            rig.serve(&path(1, 4));
            rig.all_written();
            assert_eq!(listen(&mut rig, &mut router), [4, 0, 4]);
            rig.all_back(&[]);
        }
    }
}

/// A router that begins while pages are on their way is told of none that the store hasn't acknowledged.
#[test]
fn who_begins_anew_isnt_told_of_what_is_on_its_way() {
    let store = Arc::new(FaultStore::default());
    store.plan(|verb, _| if verb == Verb::Put { Fault::Hang } else { Fault::None });
    let mut rig = telling(&store);
    rig.gate.shut(Direction::Out);
    rig.serve(&path(1, 4));
    rig.poll(0.0);
    assert_eq!(anew(&mut rig), [4, 0, 0], "being copied");
    rig.gate.open(Direction::Out);
    rig.until("the store", |_| store.calls(Verb::Put) == 1);
    assert_eq!(anew(&mut rig), [4, 0, 0], "inside of the store");
    store.release();
    rig.all_written();
    assert_eq!(anew(&mut rig), [4, 0, 4]);
    rig.all_back(&[]);
}

/// What is read from storage and loaded is told to be there.
#[test]
fn what_was_read_is_in_storage() {
    let store = Arc::new(FaultStore::default());
    let (mut rig, mut router) = (telling(&store), Router::default());
    rig.serve(&path(1, 4));
    rig.all_written();
    rig.all_back(&[]);
    let mut other = telling(&store);
    let hit = other.fetch(&path(1, 4));
    other.load(hit);
    other.settle();
    assert_eq!(listen(&mut other, &mut router), [4, 0, 4]);
    assert_eq!(anew(&mut other), [4, 0, 4]);
    other.all_back(&[hit]);
    // What was read of a storage that was cleared since isn't in it.
    let (mut other, mut router) = (telling(&store), Router::default());
    let hit = other.fetch(&path(1, 4));
    other.cache.clear_storage().unwrap();
    other.load(hit);
    assert_eq!((listen(&mut other, &mut router), anew(&mut other)), ([4, 0, 0], [4, 0, 0]));
    other.settle();
    other.all_back(&[hit]);
}

/// Storage is cleared while pages are copied, and their path comes again: each is written once, and told once.
#[test]
fn what_is_being_copied_goes_to_the_next_store_once() {
    let store = Arc::new(FaultStore::default());
    let mut rig = rig(straight(Write::Through, 0.0), 8, 16, &store);
    rig.cache.keep_events(1000).unwrap();
    rig.gate.shut(Direction::Out);
    rig.serve(&path(1, 4));
    rig.poll(0.0);
    rig.cache.clear_storage().unwrap();
    rig.serve(&path(1, 4));
    assert_eq!(rig.cache.staged(), [4, 0]);
    rig.gate.open(Direction::Out);
    rig.all_written();
    assert_eq!((rig.stored_truly(&store, &path(1, 4)), store.puts()), (4, (1, 4)));
    let mut router = Router::default();
    router.apply(rig.cache.take_events(), rig.cache.tree().page_size());
    assert_eq!(router.of(Medium::Storage).len(), 4);
    rig.all_back(&[]);
}
