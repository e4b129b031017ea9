//! Between the decision to copy a page further down and the copy: whatever comes in between, nothing is wrong, lost
//! without being counted, or held for good.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use common::store::{Fault, FaultStore, Verb};
use common::writing::{path, rig, stored, writing};
use hicache_core::identity::Fingerprint;
use hicache_core::ids::{HitId, Tier};
use hicache_core::policy::{Write, Writing};
use hicache_core::transfer::Direction;
use std::sync::Arc;
use std::time::Duration;

/// Four pages whose copies are decided and not submitted.
fn decided(store: &Arc<FaultStore>) -> (Rig, HitId) {
    let mut rig = rig(writing(Write::Through, Write::Through), 16, 16, Some(store));
    let hit = rig.find(&path(1, 4));
    rig.load(hit);
    assert!(rig.compute(hit, &path(1, 4)));
    assert_eq!((rig.cache.copying(), rig.on(Tier::Host)), (1, 4));
    assert_eq!(rig.cache.progress(Direction::Out).finished(), 0, "nothing is submitted");
    (rig, hit)
}

#[test]
fn a_release_changes_nothing() {
    let store = Arc::new(FaultStore::default());
    let (mut rig, hit) = decided(&store);
    rig.cache.release(hit, 0).unwrap();
    assert_eq!(rig.evict(Tier::Device, usize::MAX), []);
    assert_eq!(rig.evict(Tier::Host, usize::MAX), [], "nothing gives way to which is being copied");
    rig.idle();
    assert_eq!((rig.comes_back_from_the_host(&path(1, 4)), store.len()), (4, 4));
    rig.drained();
}

#[test]
fn an_epoch_that_ends_stores_nothing() {
    let store = Arc::new(FaultStore::default());
    let (mut rig, hit) = decided(&store);
    rig.cache.bump_epoch(Fingerprint([7; 32])).unwrap();
    rig.books();
    rig.idle();
    assert_eq!((rig.view(hit).device, store.len()), (4, 0));
    rig.verify(hit, &path(1, 4));
    rig.cache.release(hit, 0).unwrap();
    assert_eq!(Tier::ALL.map(|tier| rig.on(tier)), [0, 0]);
    rig.drained();
}

#[test]
fn a_device_that_goes_waits_for_it() {
    let store = Arc::new(FaultStore::default());
    let (mut rig, hit) = decided(&store);
    rig.cache.release(hit, 0).unwrap();
    assert!(rig.cache.detach().unwrap_err().to_string().contains("copies are under way"));
    rig.idle();
    rig.wake_elsewhere();
    assert_eq!((rig.comes_back(&path(1, 4)), store.len()), (4, 4));
    rig.drained();
}

#[test]
fn a_fault_leaves_no_page_that_was_not_copied() {
    let store = Arc::new(FaultStore::default());
    let (mut rig, hit) = decided(&store);
    rig.gate.end("unplugged");
    rig.poll(0.0);
    assert_eq!((rig.on(Tier::Host), rig.cache.stats().backup_failed_pages), (0, 4));
    rig.cache.release(hit, 0).unwrap();
    rig.poll(0.0);
    rig.wake_elsewhere();
    assert_eq!((rig.serve(&path(1, 4)).usable, store.len()), (0, 0));
    rig.idle();
    assert_eq!(store.len(), 4);
    rig.drained();
}

#[test]
fn a_close_submits_it() {
    let store = Arc::new(FaultStore::default());
    let (mut rig, hit) = decided(&store);
    rig.cache.close(Duration::from_secs(5));
    assert_eq!(rig.cache.progress(Direction::Out).finished(), 1);
    rig.cache.release(hit, 0).unwrap();
}

/// What a load, a write to storage or a copy reads or fills stays, though the device has it too.
#[test]
fn what_is_read_does_not_give_way() {
    let store = Arc::new(FaultStore::default());
    store.plan(|verb, _| if verb == Verb::Put { Fault::Hang } else { Fault::None });
    let mut rig = rig(writing(Write::Through, Write::Through), 16, 16, Some(&store));
    let tokens = path(1, 4);
    rig.serve(&tokens);
    rig.until("the copies", |rig| rig.cache.copying() == 0);
    assert_eq!(rig.evict(Tier::Host, usize::MAX), [], "it is being written");
    store.release();
    rig.settle();
    assert_eq!(rig.evict(Tier::Device, 4).len(), 4);
    let hit = rig.find(&tokens);
    rig.gate.shut(Direction::In);
    rig.load(hit);
    assert_eq!(rig.evict(Tier::Host, usize::MAX), [], "it is being loaded");
    rig.gate.open(Direction::In);
    rig.settle();
    rig.verify(hit, &tokens);
    assert_eq!(rig.evict(Tier::Host, usize::MAX).len(), 4, "a copy like any other");
    rig.cache.release(hit, 0).unwrap();
    assert_eq!(rig.cache.stats().dropped_unstored_pages, 0);
    rig.drained();
}

/// Without a host nothing is wanted there: nothing is copied, tried, or counted as lost. Who asks for copies gets no cache.
#[test]
fn without_a_host_nothing_is_missed() {
    let mut rig = rig(writing(Write::Through, Write::Through), 8, 0, None);
    for number in 1..=6 {
        rig.serve(&path(number, 4));
        rig.serve(&path(number, 4));
        rig.idle();
    }
    let stats = *rig.cache.stats();
    let all = stats.backed_up_pages + stats.backup_no_room_pages + stats.backups_retried;
    assert_eq!((all, stats.dropped_unsaved_pages), (0, 0));
    rig.drained();
    for (write, host, why) in [
        (Write::Selective, 0, "host: "),
        (Write::Back, 0, "host: "),
        (Write::Back, 1, ""),
        (Write::Through, 0, ""),
    ] {
        let shape = Shape { host, writing: writing(write, Write::Through), ..Shape::default() };
        let refused = common::rig::config(shape).check().err().map(|error| error.to_string());
        assert_eq!(refused.is_some(), !why.is_empty(), "{write:?} {host}");
        assert!(refused.is_none_or(|error| error.starts_with(why)));
    }
}

/// Paths that find no room wait, no more of them than so many.
#[test]
fn what_waits_for_the_host_is_bounded() {
    let mut rig =
        rig(Writing { clean_reserve: 0.0, ..writing(Write::Through, Write::Through) }, 1_200, 4, None);
    rig.gate.shut(Direction::Out);
    rig.serve(&path(0, 4));
    (1..=1_100).for_each(|number| _ = rig.serve(&path(number, 1)));
    (0..3).for_each(|_| rig.poll(0.0));
    let stats = *rig.cache.stats();
    assert_eq!((stats.backup_no_room_pages, stats.backups_forgotten), (1_100, 1_100 - 1_024));
    rig.gate.open(Direction::Out);
    rig.idle();
    rig.drained();
}

/// A prefetch takes the host's room from what is stored already, as far as the reserve reaches; else what it takes is lost
/// to storage, and counted.
#[test]
fn a_prefetch_costs_what_is_not_stored_yet() {
    for (clean_reserve, lost) in [(0.5, 0), (0.0, 4)] {
        let store = Arc::new(FaultStore::default());
        let through = writing(Write::Through, Write::Through);
        let mut before = rig(through, 16, 16, Some(&store));
        before.serve(&path(2, 4));
        before.idle();
        let write = Writing { clean_reserve, ..writing(Write::Through, Write::Back) };
        let mut rig = rig(write, 16, 8, Some(&store));
        rig.serve(&path(1, 8));
        rig.idle();
        rig.evict(Tier::Device, usize::MAX);
        // What the device has, too, isn't about to leave; this is.
        rig.idle();
        let hit = rig.fetch(&path(2, 4));
        assert_eq!((rig.view(hit).usable, rig.cache.stats().dropped_unstored_pages), (4, lost));
        rig.load(hit);
        rig.settle();
        rig.verify(hit, &path(2, 4));
        rig.cache.release(hit, 0).unwrap();
        assert_eq!(rig.comes_back(&path(1, 8)), 4);
        let all = stored(&store, &path(1, 8));
        assert!(all == if lost == 0 { 8 } else { 0 }, "{all} stored");
        rig.drained();
    }
}

/// Two paths whose copies don't fit beside one another: what is tried again takes room from the other one once, so that a
/// cache that is only polled comes to rest; what has no copy gets one before it leaves the device.
#[test]
fn paths_that_do_not_fit_together_come_to_rest() {
    let writing = Writing { clean_reserve: 0.25, ..writing(Write::Through, Write::Through) };
    let mut rig = rig(writing, 32, 8, None);
    for number in 1..=2 {
        rig.serve(&path(number, 12));
        rig.until("the copies", |rig| rig.cache.copying() == 0);
    }
    (0..50).for_each(|_| rig.poll(0.0));
    rig.idle();
    let before = *rig.cache.stats();
    for _ in 0..50 {
        rig.poll(0.0);
        assert_eq!(rig.cache.pending(), 0);
    }
    let after = *rig.cache.stats();
    assert_eq!(
        (after.backed_up_pages, after.backups_retried),
        (before.backed_up_pages, before.backups_retried)
    );
    assert!(after.backed_up_pages <= 2 * 2 * 12, "{}", after.backed_up_pages);
    // Room that comes is used.
    rig.evict(Tier::Device, 12);
    rig.evict(Tier::Host, usize::MAX);
    rig.idle();
    assert_eq!(rig.on(Tier::Host), 8);
    rig.drained();
}
