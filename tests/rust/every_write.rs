//! Every model under every pair of write policies: what was decided to be stored is stored whole and once, whatever is split,
//! fails or is missing in between; and it needs nothing but polls.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::every::{fork, kinds, pages, served, under_every_policy};
use common::mixed::Mixed;
use common::models::Shape;
use common::store::{Fault, FaultStore, Verb};
use hicache_core::ids::Tier;
use hicache_core::policy::Write;
use hicache_core::storage::Outcome;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn all() -> Vec<Shape> {
    under_every_policy(&kinds())
}

fn backed_up(rig: &Mixed) -> u64 {
    let parts = (0..rig.components.len()).map(|part| rig.cache.part_stats(part).unwrap().backed_up);
    rig.cache.stats().backed_up_pages + parts.sum::<u64>()
}

/// A path that others branch off while its copies are under way, and again while it is written, is stored whole, and no
/// page of it twice.
#[test]
fn what_is_split_on_its_way_is_stored_whole() {
    for shape in all() {
        let store = Arc::new(FaultStore::default());
        store.plan(|verb, _| if verb == Verb::Put { Fault::Hang } else { Fault::None });
        let mut rig = Mixed::over(&shape, Some(&store));
        let tokens = pages(1, 6);
        rig.ask_twice(&tokens);
        rig.step(0.0);
        assert_eq!(rig.cache.stats().backed_up_pages, 6, "{shape:?}");
        let others = [fork(&tokens, 3, 2, 2), fork(&tokens, 1, 3, 2)];
        rig.ask(&others[0], 5);
        rig.drip.finish_all();
        rig.step(0.0);
        if shape.writing.storage != Write::Back {
            let end = Instant::now() + Duration::from_secs(10);
            while store.calls(Verb::Put) == 0 {
                assert!(Instant::now() < end, "it is being written");
            }
        }
        rig.ask(&others[1], 3);
        rig.step(0.0);
        store.release();
        rig.write_back();
        assert_eq!(served(&shape, &store, &tokens), 6, "{shape:?}");
        assert_eq!(store.puts().0, 1, "{shape:?}: each page once");
        rig.drained();
    }
}

/// A request is one use, whatever the pieces that it is computed in; the second one copies, and stores, all of it.
#[test]
fn a_request_is_one_use_whatever_its_pieces() {
    let selective =
        |shape: &Shape| shape.writing.host == Write::Selective || shape.writing.storage == Write::Selective;
    for shape in all().into_iter().filter(selective) {
        for piece in [1, 2, 4, 6] {
            let store = Arc::new(FaultStore::default());
            let mut rig = Mixed::over(&shape, Some(&store));
            let tokens = pages(1, 6);
            rig.ask(&tokens, piece);
            rig.idle();
            assert_eq!(store.len(), 0, "{shape:?} {piece}: used once");
            assert!(shape.writing.host != Write::Selective || backed_up(&rig) == 0, "{shape:?} {piece}");
            rig.ask(&tokens, piece);
            rig.write_back();
            assert_eq!(rig.cache.stats().backed_up_pages, 6, "{shape:?} {piece}");
            assert_eq!(rig.comes_back(&tokens), 6, "{shape:?} {piece}: from the host");
            assert_eq!(served(&shape, &store, &tokens), 6, "{shape:?} {piece}: used twice");
            rig.drained();
        }
    }
}

/// Batches that fail are not believed stored, of parts as of pages; they are stored when their path comes again.
#[test]
fn what_failed_is_stored_when_its_path_comes_again() {
    for shape in all() {
        let store = Arc::new(FaultStore::default());
        // Each try is made twice.
        store.plan(|verb, call| match (verb, call) {
            (Verb::Put, 1 | 2) => Fault::Answer(Outcome::Failed),
            _ => Fault::None,
        });
        let mut rig = Mixed::over(&shape, Some(&store));
        let tokens = pages(1, 6);
        rig.ask_twice(&tokens);
        rig.write_back();
        let stats = *rig.cache.stats();
        assert!(stats.store_failed_pages > 0, "{shape:?}");
        assert_eq!(
            store.len() as u64,
            stats.stored_pages,
            "{shape:?}: nothing is believed stored that isn't"
        );
        rig.ask(&tokens, 6);
        rig.write_back();
        assert_eq!(served(&shape, &store, &tokens), 6, "{shape:?}");
        assert_eq!(rig.cache.tree().in_debt(), 0, "{shape:?}");
        rig.drained();
    }
}

/// Neither tier has to have what the other one has: the host has more of a path than storage, or storage more than the host.
#[test]
fn tiers_need_not_nest() {
    for shape in all() {
        let store = Arc::new(FaultStore::default());
        let mut rig = Mixed::over(&shape, Some(&store));
        rig.ask_twice(&pages(1, 4));
        rig.write_back();
        assert_eq!(served(&shape, &store, &pages(1, 6)), 4, "{shape:?}");
        store.plan(|verb, _| if verb == Verb::Put { Fault::Answer(Outcome::Failed) } else { Fault::None });
        rig.ask_twice(&pages(1, 6));
        rig.write_back();
        assert_eq!(rig.cache.tree().resident(Tier::Host), 6, "{shape:?}");
        assert_eq!(served(&shape, &store, &pages(1, 6)), 4, "{shape:?}");
        store.plan(|_, _| Fault::None);
        rig.ask_twice(&pages(1, 8));
        rig.write_back();
        assert_eq!(rig.cache.tree().resident(Tier::Host), 8, "{shape:?}");
        assert_eq!(served(&shape, &store, &pages(1, 8)), 8, "{shape:?}");
        rig.drained();

        // Storage has eight of a path of which memory has four.
        let mut rig = Mixed::over(&shape, Some(&store));
        rig.ask_twice(&pages(1, 4));
        rig.idle();
        let hit = rig.fetch(&pages(1, 8));
        assert_eq!(rig.view(hit).usable, 8, "{shape:?}");
        rig.answer(hit, &pages(1, 8), 8);
        rig.cache.release(hit, 0).unwrap();
        rig.write_back();
        assert_eq!(rig.comes_back(&pages(1, 8)), 8, "{shape:?}");
        rig.drained();
    }
}

/// Polls alone, and no further request, bring to storage what is wanted there.
#[test]
fn polls_alone_bring_it_to_storage() {
    for shape in all() {
        let store = Arc::new(FaultStore::default());
        let mut rig = Mixed::over(&shape, Some(&store));
        rig.drip.hurry();
        let tokens = pages(1, 4);
        rig.ask_twice(&tokens);
        if shape.writing.storage == Write::Back {
            rig.step(0.0);
            rig.step(0.0);
            rig.evict_all(Tier::Device);
        }
        let end = Instant::now() + Duration::from_secs(10);
        while rig.cache.pending() > 0 || store.len() < 4 {
            rig.step(0.0);
            assert!(Instant::now() < end, "{shape:?}: {} pages", store.len());
        }
        assert_eq!(served(&shape, &store, &tokens), 4, "{shape:?}");
        rig.drained();
    }
}
