//! Buffer-only mode: what storage has goes through a few host pages to the device, and none stays.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use common::staged::{asking, loaded, nothing_left, over, reads, shape, store_of};
use common::store::{Fault, FaultStore, Verb};
use common::stored::prompt;
use hicache_core::ids::{HitId, Tier};
use hicache_core::policy::fetching::Verdict;
use hicache_core::transfer::Direction;

/// Reads end when the store is released.
fn hold_reads(store: &FaultStore) {
    store.plan(|verb, _| if verb == Verb::Get { Fault::Hang } else { Fault::None });
}

fn explained(rig: &Rig, hit: HitId) -> String {
    rig.cache.explain(hit).unwrap().to_string()
}

#[test]
fn what_is_stored_comes_through_a_few_host_pages() {
    let tokens = prompt(1, 8);
    let (mut rig, _store) = over(shape(16, 12), std::slice::from_ref(&tokens));
    let hit = asking(&mut rig, &tokens, 0.0);
    assert!(rig.view(hit).waiting);
    rig.until("the prefetch", |rig| !rig.view(hit).waiting);
    let view = rig.view(hit);
    assert_eq!((view.device, view.usable, view.stored, reads(&rig)), (0, 8, 8, 8));
    assert_eq!(rig.cache.tree().nodes(), 1, "nothing of it is the tree's: the root is held");
    assert_eq!(explained(&rig, hit), "8 tokens: 8 storage");

    rig.gate.shut(Direction::In);
    let view = rig.load(hit);
    assert_eq!((view.device, view.usable, view.copied), (8, 8, 8));
    assert_eq!((rig.cache.tree().resident(Tier::Host), reads(&rig)), (0, 8), "the copy reads them");
    rig.poll(0.0);
    rig.gate.open(Direction::In);
    rig.until("the load", |rig| rig.cache.copying() == 0);
    assert_eq!(reads(&rig), 0);
    rig.verify(hit, &tokens);
    let stats = *rig.cache.stats();
    assert_eq!((stats.hit_storage_tokens, stats.prefetched_pages, stats.prefetch_dropped_pages), (8, 8, 0));
    rig.cache.release(hit, 0).unwrap();
    assert_eq!(explained(&rig, hit), "8 tokens: 8 storage");
    // The next one finds it on the device, and nothing of it is stored anew.
    assert_eq!(rig.serve(&tokens).device, 8);
    rig.settle();
    assert_eq!(rig.cache.stats().stored_pages, 0);
    nothing_left(&mut rig);
}

/// Behind what the device has; a hit that ends with what comes is inserted behind.
#[test]
fn what_comes_continues_the_device() {
    let tokens = prompt(1, 10);
    let (mut rig, _store) = over(shape(16, 6), std::slice::from_ref(&tokens[..8].to_vec()));
    rig.serve(&tokens[..5]);
    rig.settle();
    let hit = asking(&mut rig, &tokens, 0.0);
    rig.until("the prefetch", |rig| !rig.view(hit).waiting);
    assert_eq!((rig.view(hit).device, rig.view(hit).usable, reads(&rig)), (5, 8, 3));
    assert_eq!(explained(&rig, hit), "10 tokens: 5 device, 3 storage, 2 to compute (not stored)");
    assert_eq!(loaded(&mut rig, hit, &tokens), 8);
    assert!(rig.compute(hit, &tokens));
    rig.verify(hit, &tokens);
    rig.cache.release(hit, 0).unwrap();
    nothing_left(&mut rig);
}

/// Two of five pages are the writes': a request gets a prefix that fits, soon, and is told so.
#[test]
fn a_pool_that_is_too_small_gives_a_prefix() {
    let tokens = prompt(1, 8);
    for (host, fits) in [(2, 1), (5, 4), (6, 4), (10, 8)] {
        let (mut rig, _store) = over(shape(16, host), std::slice::from_ref(&tokens));
        let hit = asking(&mut rig, &tokens, 0.0);
        let mut polls = 0;
        rig.until("the prefetch", |rig| {
            polls += usize::from(rig.cache.in_flight() == 0);
            !rig.view(hit).waiting
        });
        assert!(polls <= 3, "nobody else has room: {polls}");
        assert_eq!((rig.view(hit).usable, reads(&rig)), (fits, fits as usize), "{host}");
        let said = explained(&rig, hit);
        let full =
            format!("8 tokens: {fits} storage, {} to compute (stored, but the host is full)", 8 - fits);
        assert_eq!(said, if fits == 8 { "8 tokens: 8 storage".into() } else { full });
        assert_eq!(rig.cache.stats().prefetch_no_room, u64::from(fits < 8));
        assert_eq!(loaded(&mut rig, hit, &tokens), fits);
        assert!(rig.compute(hit, &tokens));
        rig.cache.release(hit, 0).unwrap();
        nothing_left(&mut rig);
    }
}

/// Both read them; what the first one brought to the device the second one doesn't copy.
#[test]
fn two_requests_for_the_same_pages() {
    let tokens = prompt(1, 6);
    for together in [false, true] {
        let (mut rig, _store) = over(shape(16, 20), std::slice::from_ref(&tokens));
        let hits = [asking(&mut rig, &tokens, 0.0), asking(&mut rig, &tokens[..4], 0.0)];
        rig.until("both", |rig| hits.iter().all(|&hit| !rig.view(hit).waiting));
        assert_eq!(reads(&rig), 10, "each its own");
        if together {
            rig.cache.load(&[hits[1], hits[0]], None).unwrap();
            rig.books();
        } else {
            rig.load(hits[0]);
            assert_eq!((rig.view(hits[1]).usable, reads(&rig)), (4, 10));
            rig.load(hits[1]);
        }
        assert_eq!(rig.cache.tree().resident(Tier::Device), 6);
        rig.until("the load", |rig| rig.cache.copying() == 0);
        assert_eq!(reads(&rig), 0);
        assert_eq!(rig.cache.stats().prefetch_dropped_pages, 4);
        for (hit, pages) in hits.into_iter().zip([6, 4]) {
            assert_eq!(rig.view(hit).device, pages);
            rig.verify(hit, &tokens);
            rig.cache.release(hit, 0).unwrap();
        }
        nothing_left(&mut rig);
    }
}

/// Before a prefetch is through others brought the path: it stops to read what is there.
#[test]
fn what_others_compute_meanwhile_is_not_read() {
    let tokens = prompt(1, 8);
    let (mut rig, store) = over(shape(32, 5), std::slice::from_ref(&tokens));
    hold_reads(&store);
    let first = asking(&mut rig, &tokens, 0.0);
    rig.until("a read", |rig| reads(rig) == 4);
    rig.serve(&tokens[..6]);
    store.release();
    rig.until("the rest", |rig| !rig.view(first).waiting);
    assert_eq!((rig.view(first).device, rig.view(first).usable), (6, 8));
    assert_eq!(reads(&rig), 2, "what the device has by now is given back");
    assert_eq!(loaded(&mut rig, first, &tokens), 8);
    rig.cache.release(first, 0).unwrap();
    nothing_left(&mut rig);
}

/// The path leaves between prefetch and load: what is staged behind the hole is of no use.
#[test]
fn a_hole_in_front_of_what_is_staged() {
    let tokens = prompt(1, 8);
    let (mut rig, _store) = over(shape(16, 10), std::slice::from_ref(&tokens));
    rig.serve(&tokens[..4]);
    rig.settle();
    let hit = asking(&mut rig, &tokens, 0.0);
    rig.until("the prefetch", |rig| !rig.view(hit).waiting);
    assert_eq!((rig.view(hit).usable, reads(&rig)), (8, 4));
    rig.evict(Tier::Device, 1);
    assert_eq!(rig.view(hit).usable, 3);
    assert_eq!(rig.load(hit).device, 3);
    assert_eq!(reads(&rig), 0, "given back at once: no copy reads them");
    let said = explained(&rig, hit);
    assert!(said.contains("4 of no use: the path before left the device"), "{said}");
    assert!(rig.compute(hit, &tokens));
    rig.verify(hit, &tokens);
    rig.cache.release(hit, 0).unwrap();
    nothing_left(&mut rig);
}

/// The path leaves while more is read: no more is, and what comes is given back.
#[test]
fn a_hole_while_reading() {
    let tokens = prompt(1, 12);
    let (mut rig, store) = over(shape(16, 5), std::slice::from_ref(&tokens));
    rig.serve(&tokens[..4]);
    rig.settle();
    hold_reads(&store);
    let hit = asking(&mut rig, &tokens, 0.0);
    rig.until("a read", |rig| reads(rig) == 4);
    rig.evict(Tier::Device, 2);
    store.release();
    rig.until("the end", |rig| !rig.view(hit).waiting);
    rig.settle();
    assert_eq!((rig.view(hit).usable, reads(&rig)), (2, 0));
    let said = explained(&rig, hit);
    assert!(said.contains("of no use: the path before left the device"), "{said}");
    rig.cache.release(hit, 0).unwrap();
    nothing_left(&mut rig);
}

/// Why it isn't loaded; a threshold, a budget, what a policy wants, device slots; how many pages are.
type Case = (&'static str, usize, Option<usize>, Option<usize>, u32, u32);

/// Declined for the threshold, the budget, a policy of the engine's, or no room on the device: computed, and given back.
#[test]
fn what_is_not_loaded_is_given_back() {
    let tokens = prompt(1, 8);
    let store = store_of(std::slice::from_ref(&tokens));
    let cases: [Case; 6] = [
        ("below the threshold", 9, None, None, 16, 0),
        ("over the budget", 0, Some(7), None, 16, 0),
        ("8 storage", 8, Some(8), None, 16, 8),
        ("wants a prefix of 3 tokens", 0, None, Some(3), 16, 3),
        ("wants a prefix of 0 tokens", 0, None, Some(0), 16, 0),
        ("the device is full", 0, None, None, 6, 6),
    ];
    for (why, threshold, budget, most, device, pages) in cases {
        let mut rig = Rig::new(Shape { load: threshold, ..shape(device, 20) }, Some(&store));
        rig.cache.ask_outside("a policy".to_owned(), false);
        let hit = asking(&mut rig, &tokens, 0.0);
        rig.until("the prefetch", |rig| !rig.view(hit).waiting);
        most.into_iter().for_each(|most| rig.cache.at_most(hit, most).unwrap());
        rig.gate.shut(Direction::In);
        rig.cache.load_within(&[hit], None, budget).unwrap();
        rig.books();
        assert_eq!((rig.view(hit).device, reads(&rig)), (pages, pages as usize), "{why}");
        let said = explained(&rig, hit);
        assert!(said.contains(why), "{said}");
        rig.gate.open(Direction::In);
        rig.until("the load", |rig| rig.cache.copying() == 0);
        rig.verify(hit, &tokens);
        rig.cache.release(hit, 0).unwrap();
        nothing_left(&mut rig);
    }
}

/// Asked again: only for what is neither on the device nor staged.
#[test]
fn a_second_prefetch_goes_on_behind_what_is_staged() {
    let tokens = prompt(1, 12);
    let (mut rig, store) = over(shape(32, 10), std::slice::from_ref(&tokens));
    let other = asking(&mut rig, &tokens[..4], 0.0);
    rig.until("the other one", |rig| !rig.view(other).waiting);
    let hit = asking(&mut rig, &tokens, 0.0);
    rig.until("what fits", |rig| reads(rig) == 8 && rig.cache.in_flight() == 0);
    assert_eq!(rig.view(hit).usable, 4);
    while rig.view(hit).waiting {
        rig.poll(0.0);
    }
    assert!(rig.cache.stats().prefetch_no_room > 0, "somebody is ready, and nobody takes it");
    rig.cache.release(other, 0).unwrap();
    assert_eq!(reads(&rig), 4);
    let asked = store.asked().len();
    assert!(rig.cache.prefetch(hit).unwrap());
    rig.until("more", |rig| !rig.view(hit).waiting);
    assert_eq!((rig.view(hit).usable, rig.view(hit).stored), (8, 8));
    assert_eq!(store.asked()[asked].2, 8, "of twelve, four are staged");
    assert_eq!(rig.cache.decide(hit, 0).unwrap(), Verdict::Compute);
    assert_eq!(loaded(&mut rig, hit, &tokens), 8);
    rig.cache.release(hit, 0).unwrap();
    nothing_left(&mut rig);
}

/// The path leaves before storage is asked: nothing is, and the reason is said.
#[test]
fn what_a_prefetch_would_continue_is_gone() {
    let tokens = prompt(1, 8);
    let (mut rig, _store) = over(shape(16, 12), std::slice::from_ref(&tokens));
    rig.serve(&tokens[..4]);
    rig.settle();
    let hit = rig.find(&tokens);
    assert_eq!(rig.evict(Tier::Device, 2).len(), 2);
    assert!(!rig.cache.prefetch(hit).unwrap());
    let said = explained(&rig, hit);
    let reasons = "(2 evicted between match and load, 4 of no use: the path before left the device)";
    assert_eq!(said, format!("8 tokens: 2 device, 6 to compute {reasons}"));
    rig.cache.release(hit, 0).unwrap();
    nothing_left(&mut rig);
}
