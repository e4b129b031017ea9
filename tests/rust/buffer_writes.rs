//! Where the host is staging: what goes to storage and when, under each policy; and what of it is believed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{self, Shape};
use common::staging::{rig, shape, straight};
use common::store::{Fault, FaultStore, Verb};
use common::writing::path;
use hicache_core::ids::Tier;
use hicache_core::policy::{HostCopies, Write, Writing};
use hicache_core::storage::Outcome;
use hicache_core::transfer::Direction;
use hicache_core::{Config, HostMode};
use std::path::PathBuf;
use std::sync::Arc;

#[test]
fn what_comes_is_stored_with_its_bytes() {
    let store = Arc::new(FaultStore::default());
    let mut rig = rig(straight(Write::Through, 0.0), 8, 8, &store);
    rig.serve(&path(1, 4));
    rig.all_written();
    assert_eq!(rig.stored_truly(&store, &path(1, 4)), 4);
    let stats = *rig.cache.stats();
    assert_eq!((stats.backed_up_pages, stats.stored_pages, stats.backup_no_room_pages), (4, 4, 0));
    // It comes again, and isn't written again.
    rig.serve(&path(1, 4));
    rig.all_written();
    assert_eq!(store.puts(), (1, 4));
    rig.all_back(&[]);
}

/// Nothing of a page is in staging before its bytes are, and a device page is held until they are.
#[test]
fn a_page_is_held_until_its_copy_has_landed_only() {
    let store = Arc::new(FaultStore::default());
    store.plan(|verb, _| if verb == Verb::Put { Fault::Hang } else { Fault::None });
    let mut rig = rig(straight(Write::Through, 0.0), 8, 8, &store);
    rig.gate.shut(Direction::Out);
    rig.serve(&path(1, 4));
    rig.poll(0.0);
    assert_eq!(rig.evict(Tier::Device, 8).len(), 0, "they are being copied");
    rig.gate.open(Direction::Out);
    rig.until("the store", |_| store.calls(Verb::Put) == 1);
    assert_eq!(rig.cache.staged(), [4, 0]);
    assert_eq!(rig.evict(Tier::Device, 8).len(), 4, "their bytes are in staging");
    assert_eq!(rig.cache.tree().nodes(), 1, "a root that a name holds");
    store.release();
    rig.all_written();
    assert_eq!(rig.stored(&store, &path(1, 4)), 4);
    assert_eq!(rig.cache.stats().dropped_unsaved_pages, 0, "they were on their way");
    rig.all_back(&[]);
}

/// In pieces, parents first, by polls alone; never more of it than writes may have slots for.
#[test]
fn a_path_longer_than_the_pool_is_written_in_pieces() {
    for (host, pages) in [(2, 7), (5, 40), (16, 300)] {
        let store = Arc::new(FaultStore::default());
        let mut rig = rig(straight(Write::Through, 0.0), 512, host, &store);
        let tokens = path(1, pages);
        rig.serve(&tokens);
        let (begun, count) = (rig.cache.staged()[0], usize::try_from(pages).unwrap());
        assert_eq!(begun, (host - host.div_ceil(5)) as usize, "at once");
        rig.all_written();
        assert_eq!(rig.stored_truly(&store, &tokens), count);
        assert_eq!(store.puts(), (1, count), "each once");
        let firsts: Vec<_> = store.asked().iter().map(|(_, key, _)| *key).collect();
        let keys = hicache_core::hash::chain(
            None,
            hicache_core::page::Tokens::I32(&tokens),
            hicache_core::page::PageSize::new(1).unwrap(),
        );
        let places: Vec<_> = firsts.iter().map(|key| keys.iter().position(|other| other == key)).collect();
        assert!(places.is_sorted(), "parents first: {places:?}");
        let no_room = usize::try_from(rig.cache.stats().backup_no_room_pages).unwrap();
        assert_eq!(no_room, count - begun, "counted once");
        rig.all_back(&[]);
    }
}

/// Who came first goes on first; what a step's requests bring goes in batches together.
#[test]
fn many_requests_share_a_small_pool_and_batches() {
    let store = Arc::new(FaultStore::default());
    let mut rig = rig(straight(Write::Through, 0.0), 256, 10, &store);
    rig.gate.shut(Direction::Out);
    for number in 1..=4 {
        rig.serve(&path(number, 2));
    }
    rig.gate.open(Direction::Out);
    rig.all_written();
    assert_eq!(store.calls(Verb::Put), 1, "one batch");
    for number in 1..=30 {
        rig.serve(&path(number, 8));
    }
    rig.all_written();
    for number in 1..=30 {
        assert_eq!(rig.stored_truly(&store, &path(number, 8)), 8);
    }
    rig.all_back(&[]);
}

#[test]
fn selective_stores_what_a_second_request_used() {
    let store = Arc::new(FaultStore::default());
    let mut rig = rig(straight(Write::Selective, 0.0), 32, 4, &store);
    let hit = rig.find(&path(1, 9));
    rig.load(hit);
    rig.compute_in_pieces(hit, &path(1, 9), 2);
    rig.cache.release(hit, 0).unwrap();
    rig.all_written();
    assert_eq!(store.len(), 0, "in whatever pieces, it is one use");
    let mut tokens = path(1, 6);
    tokens.extend([7, 7]);
    rig.serve(&tokens);
    rig.all_written();
    assert_eq!((rig.stored_truly(&store, &path(1, 9)), store.len()), (6, 6), "what both used");
    // What was used once is lost when it leaves, and nobody wanted it.
    rig.evict(Tier::Device, usize::MAX);
    assert_eq!(rig.cache.stats().dropped_unsaved_pages, 0);
    rig.all_back(&[]);
}

/// What leaves next is written beforehand; then evictions take what is stored.
#[test]
fn write_back_stores_what_is_about_to_leave() {
    let store = Arc::new(FaultStore::default());
    let mut rig = rig(straight(Write::Back, 0.25), 32, 5, &store);
    rig.serve(&path(1, 12));
    rig.serve(&path(2, 12));
    rig.all_written();
    assert_eq!(store.len(), 0, "8 are free, which is the reserve");
    rig.serve(&path(3, 4));
    rig.until("the reserve", |rig| store.len() == 12 && rig.cache.pending() == 0);
    assert_eq!(rig.stored_truly(&store, &path(1, 12)), 12, "what leaves next, with what it continues");
    for number in 4..=9 {
        rig.serve(&path(number, 4));
        rig.all_written();
    }
    assert_eq!(rig.cache.stats().dropped_unsaved_pages, 0, "{:?}", rig.cache.stats());
    // More at once than the reserve: lost, and counted.
    rig.evict(Tier::Device, usize::MAX);
    let lost = usize::try_from(rig.cache.stats().dropped_unsaved_pages).unwrap();
    let made = 12 + 12 + 7 * 4;
    assert!(lost > 0 && store.len() + lost == made, "{} stored and {lost} lost of {made}", store.len());
    rig.all_back(&[]);
}

/// Twice failed, declined, or answered with nonsense: not believed, and written when the path comes again.
#[test]
fn what_the_store_did_not_take_is_not_believed_stored() {
    for answer in [
        Fault::Answer(Outcome::Failed),
        Fault::Answer(Outcome::Declined),
        Fault::Answer(Outcome::Absent),
        Fault::Short,
        Fault::Panic,
    ] {
        let store = Arc::new(FaultStore::default());
        store.plan(move |verb, call| if verb == Verb::Put && call <= 2 { answer } else { Fault::None });
        let mut rig = rig(straight(Write::Through, 0.0), 8, 8, &store);
        rig.serve(&path(1, 4));
        rig.all_written();
        let declined = matches!(answer, Fault::Answer(Outcome::Declined));
        let tried_once = declined || matches!(answer, Fault::Answer(Outcome::Absent));
        let stats = *rig.cache.stats();
        let [failed, not_taken] = [stats.store_failed_pages, stats.store_declined_pages];
        assert_eq!([failed, not_taken], if declined { [0, 4] } else { [4, 0] }, "{answer:?}");
        assert_eq!(rig.believed(&path(1, 4)), [] as [u32; 0], "{answer:?}");
        rig.serve(&path(1, 4));
        rig.all_written();
        if tried_once {
            // The plan's second answer.
            rig.serve(&path(1, 4));
            rig.all_written();
        }
        assert_eq!(rig.stored_truly(&store, &path(1, 4)), 4, "{answer:?}");
        rig.all_back(&[]);
    }
}

/// A failure is told to those pages that are still there; those that left and came back are on their way by themselves.
#[test]
fn a_failure_is_told_to_what_is_left() {
    let store = Arc::new(FaultStore::default());
    store.plan(|verb, call| match (verb, call) {
        (Verb::Put, 1) => Fault::Hang,
        (Verb::Put, 2 | 3) => Fault::Answer(Outcome::Failed),
        _ => Fault::None,
    });
    let shape = Shape { queue: 1, ..shape(straight(Write::Through, 0.0), 8, 20) };
    let mut rig = rig::Rig::new(shape, Some(&store));
    rig.serve(&path(9, 1));
    rig.until("the store", |_| store.calls(Verb::Put) == 1);
    rig.serve(&path(1, 6));
    rig.until("its copy", |rig| rig.cache.copying() == 0);
    assert_eq!(rig.evict(Tier::Device, 5).len(), 5);
    assert_eq!(rig.believed(&path(1, 6)), [0, 1]);
    rig.gate.shut(Direction::Out);
    rig.serve(&path(1, 4));
    rig.poll(0.0);
    assert_eq!(rig.believed(&path(1, 4)), [0, 1, 2, 3]);
    store.release();
    rig.until("the failure", |rig| rig.cache.stats().store_failed_pages == 6);
    assert_eq!(rig.believed(&path(1, 4)), [2, 3]);
    rig.gate.open(Direction::Out);
    rig.all_written();
    assert_eq!(rig.stored_truly(&store, &path(1, 4)), 2);
    rig.serve(&path(1, 4));
    rig.all_written();
    assert_eq!(rig.stored_truly(&store, &path(1, 4)), 4);
    rig.all_back(&[]);
}

/// A store that never answers: writes get so far and no further, and nothing else waits for it.
#[test]
fn a_store_that_hangs_keeps_only_the_writes_share() {
    for queue in [1, 16] {
        let store = Arc::new(FaultStore::default());
        store.plan(|verb, _| if verb == Verb::Put { Fault::Hang } else { Fault::None });
        let shape = Shape { queue, deadline: 1.0, ..shape(straight(Write::Through, 0.2), 32, 10) };
        let mut rig = rig::Rig::new(shape, Some(&store));
        for number in 1..=20 {
            rig.serve(&path(number, 6));
            rig.poll(f64::from(number));
            assert!(rig.cache.staged()[0] <= 8);
        }
        let (batches, staged) = (rig.cache.in_flight(), rig.cache.staged());
        assert_eq!(staged, [8, 0], "no read lacks its fifth");
        assert!(batches <= queue, "{batches} batches are under way");
        assert!(rig.cache.stats().dropped_unsaved_pages > 0, "the device goes on without it");
        store.release();
        rig.all_written();
        for number in 1..=20 {
            rig.stored_truly(&store, &path(number, 6));
        }
        rig.all_back(&[]);
    }
}

/// What only policies that write later keep back goes too, before an end.
#[test]
fn write_out_stores_what_is_wanted() {
    for (write, wanted) in [(Write::Through, 20), (Write::Selective, 9), (Write::Back, 20)] {
        let store = Arc::new(FaultStore::default());
        let mut rig = rig(straight(write, 0.0), 32, 4, &store);
        rig.gate.shut(Direction::Out);
        rig.serve(&path(1, 11));
        rig.serve(&path(2, 9));
        rig.serve(&path(2, 9));
        rig.cache.write_out().unwrap();
        rig.gate.open(Direction::Out);
        rig.all_written();
        assert_eq!((store.len(), rig.cache.unwritten()), (wanted, [0; 2]), "{write:?}");
        assert_eq!(rig.stored_truly(&store, &path(2, 9)), 9);
        rig.all_back(&[]);
    }
}

/// Each names what is meant, before anything is made.
#[test]
fn what_it_cannot_go_with_is_refused_by_name() {
    let base = || rig::config(shape(Writing::default(), 8, 8));
    let refused = |config: Config, what: &str| {
        let error = config.check().unwrap_err().to_string();
        assert!(error.starts_with(what), "expected {what}, got: {error}");
    };
    assert!(base().check().is_ok());
    for host in [Write::Selective, Write::Back] {
        refused(Config { writing: Writing { host, ..Writing::default() }, ..base() }, "write:");
    }
    let keep = Writing { host_copies: HostCopies::Keep, ..Writing::default() };
    refused(Config { writing: keep, ..base() }, "host_copies:");
    refused(Config { host_slots: 0, ..base() }, "host:");
    refused(Config { host_slots: 1, ..base() }, "host:");
    refused(Config { restart: Some(PathBuf::from("/nowhere")), ..base() }, "host restart:");
    let parts = [(common::models::STATE, 4, 4)];
    let unified = common::models::Shape {
        unified: Some(1 << 16),
        mode: HostMode::BufferOnly,
        writing: Writing::default(),
        ..common::models::Shape::of(&parts)
    };
    refused(common::models::config(&unified), "unified:");
    assert!(HostMode::named("staging").unwrap_err().to_string().starts_with("host_mode:"));
}
