//! Every model under every write policy of the host: what is under way between device and host is nobody else's, what finds no
//! room is dropped whole, and what is promised comes back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::every::{kinds, kinds_with, pages, under_every_host_policy};
use common::mixed::Mixed;
use common::models::{STATE, Shape, unified_shapes};
use common::rig::Shape as Rig;
use common::writing::{WRITES, writing};
use hicache_core::ids::{HitId, Slot, Tier};
use hicache_core::page::Tokens;
use hicache_core::policy::{Write, Writing};
use hicache_core::transfer::Direction;
use std::collections::BTreeSet;

/// Device slots whose copy is under way are nobody else's, whoever wants them, and whatever the memory is.
#[test]
fn what_is_being_copied_is_nobody_elses() {
    // A state that is never on the host comes back from nowhere.
    let unified = unified_shapes().into_iter().filter(|shape| shape.parts[0].2 > 0);
    let all: Vec<Shape> = kinds().into_iter().chain(unified).collect();
    for shape in under_every_host_policy(&all) {
        let mut rig = Mixed::new(&shape);
        let tokens = pages(1, 6);
        rig.ask_twice(&tokens);
        rig.step(0.0);
        assert_eq!(rig.cache.stats().backed_up_pages, 6, "{shape:?}");
        assert_eq!(rig.evict_all(Tier::Device), 0, "{shape:?}");
        let others = rig.overwrite_all();
        assert_eq!(rig.cache.tree().resident(Tier::Device), 6, "{shape:?}");
        rig.land();
        rig.give_back(others);
        assert_eq!(rig.evict_all(Tier::Device), 6, "{shape:?}");
        assert_eq!(rig.comes_back(&tokens), 6, "{shape:?}");
        rig.drained();
    }
}

/// A host of exactly what leaves, twice in a row: both come back, with their windows and states.
#[test]
fn what_leaves_twice_in_a_row_comes_back() {
    for shape in under_every_host_policy(&kinds_with([6, 6], [6, 4], [2, 2])) {
        let mut rig = Mixed::new(&shape);
        let paths = [pages(1, 3), pages(2, 3)];
        paths.iter().for_each(|tokens| rig.ask_twice(tokens));
        rig.step(0.0);
        assert_eq!(rig.cache.stats().backed_up_pages, 6, "{shape:?}");
        assert_eq!((rig.evict_all(Tier::Device), rig.evict_all(Tier::Host)), (0, 0), "{shape:?}: under way");
        rig.land();
        for _ in 0..2 {
            assert_eq!(rig.cache.evict(Tier::Device, 3).unwrap().len(), 3, "{shape:?}");
        }
        for tokens in &paths {
            assert_eq!(rig.comes_back(tokens), 3, "{shape:?}");
            rig.evict_all(Tier::Device);
        }
        assert_eq!(rig.cache.stats().dropped_unsaved_pages, 0, "{shape:?}");
        rig.drained();
    }
}

/// What a place inside of a path needs leaves the device no earlier than it is copied.
#[test]
fn what_is_needed_inside_of_a_path_is_copied_before_it_leaves() {
    for shape in under_every_host_policy(&kinds()) {
        let mut rig = Mixed::new(&shape);
        let (inner, outer) = (pages(1, 3), pages(1, 6));
        rig.ask_twice(&inner);
        rig.ask_twice(&outer);
        rig.step(0.0);
        // Under way: whatever leaves now was not needed.
        rig.evict_all(Tier::Device);
        rig.land();
        rig.idle();
        rig.evict_all(Tier::Device);
        assert_eq!(rig.usable(&outer), (0, 6), "{shape:?}");
        assert_eq!((rig.comes_back(&inner), rig.comes_back(&outer)), (3, 6), "{shape:?}");
        rig.drained();
    }
}

/// A host whose pages, windows and states are all being loaded.
fn locked(shape: &Shape) -> (Mixed, HitId) {
    let mut rig = Mixed::new(shape);
    let tokens = pages(1, 4);
    rig.ask_twice(&tokens);
    rig.idle();
    assert_eq!(rig.evict_all(Tier::Device), 4, "{shape:?}");
    let hit = rig.find(&tokens);
    assert_eq!(rig.load(hit).device, 4, "{shape:?}");
    assert_eq!((rig.evict_all(Tier::Host), rig.cache.slots(Tier::Host).free()), (0, 0), "{shape:?}");
    (rig, hit)
}

/// Its load lands, and its request ends.
fn unlock(rig: &mut Mixed, lock: HitId) {
    rig.land();
    assert_eq!(rig.wrong(lock, &pages(1, 4), true), None);
    rig.cache.release(lock, 0).unwrap();
}

/// A parent that finds no room is not there, nor is anything behind it; both are tried again, and then they are.
#[test]
fn no_child_is_there_without_its_parent() {
    let all = under_every_host_policy(&kinds_with([12, 4], [12, 4], [4, 2]));
    // Without a reserve, which would find both by itself, those that are copied when they are asked for.
    let none = all.iter().filter(|shape| shape.writing.host != Write::Back).cloned();
    let none = none.map(|shape| Shape { writing: Writing { clean_reserve: 0.0, ..shape.writing }, ..shape });
    for shape in all.iter().cloned().chain(none) {
        let (mut rig, lock) = locked(&shape);
        let (parent, child) = (pages(2, 2), pages(2, 4));
        rig.ask_twice(&parent);
        rig.ask_twice(&child);
        (0..3).for_each(|_| rig.step(0.0));
        assert_eq!(rig.cache.tree().resident(Tier::Host), 4, "{shape:?}: nothing of it is there");
        unlock(&mut rig, lock);
        rig.evict_all(Tier::Host);
        rig.idle();
        rig.evict_all(Tier::Device);
        assert_eq!(rig.comes_back(&child), 4, "{shape:?}");
        rig.drained();
    }
}

/// Where the host has no room at all, what leaves is gone, counted, and nowhere said to be; what is left is right.
#[test]
fn what_leaves_without_a_copy_is_gone() {
    for shape in under_every_host_policy(&kinds_with([12, 4], [12, 2], [4, 1])) {
        let (mut rig, lock) = locked(&shape);
        let tokens = pages(2, 4);
        rig.ask_twice(&tokens);
        (0..3).for_each(|_| rig.step(0.0));
        let gone = rig.cache.evict(Tier::Device, 2).unwrap();
        assert_eq!(gone.len(), 2, "{shape:?}: the engine needs the room now");
        rig.books();
        // Windows are there for each page, a state at the end alone.
        let left = if shape.parts.iter().any(|part| part.0 == STATE) { 0 } else { 2 };
        assert_eq!(rig.usable(&tokens), (left, left), "{shape:?}");
        assert_eq!(rig.cache.stats().dropped_unsaved_pages, 2, "{shape:?}");
        assert_eq!(rig.comes_back(&tokens), left, "{shape:?}");
        unlock(&mut rig, lock);
        rig.drained();
    }
}

/// A on the host alone, which it fills; B on the device alone, which it fills, where the policy doesn't copy it at once.
/// A comes back whole or is not promised, and nobody is told of a page that isn't there.
#[test]
fn room_for_a_load_is_made_of_others() {
    for shape in under_every_host_policy(&kinds_with([4, 4], [4, 2], [1, 1])) {
        for clean_reserve in [0.0, 1.0] {
            for waits in [false, true] {
                let shape = Shape { writing: Writing { clean_reserve, ..shape.writing }, ..shape.clone() };
                let mut rig = Mixed::new(&shape);
                let (a, b) = (pages(1, 4), pages(2, 4));
                rig.ask_twice(&a);
                let hit = rig.find(&a);
                rig.load(hit);
                rig.cache.backup(hit).unwrap();
                rig.cache.release(hit, 0).unwrap();
                rig.idle();
                assert_eq!(rig.evict_all(Tier::Device), 4, "{shape:?}");
                let waiting = waits.then(|| rig.find(&a));
                rig.ask(&b, 4);
                assert_eq!(rig.usable(&b), (4, 4), "{shape:?}");
                if shape.writing.host != Write::Through {
                    assert_eq!(rig.usable(&a), (0, 4), "{shape:?}");
                    assert_eq!(rig.comes_back(&a), 4, "{shape:?}");
                    assert_eq!(rig.usable(&b), (0, 0), "{shape:?}: it had nowhere to go");
                }
                let (first, second) = (rig.comes_back(&a), rig.comes_back(&b));
                assert!(first + second <= 8 && first + second >= 4, "{first} {second}: {shape:?}");
                waiting.into_iter().for_each(|hit| _ = rig.cache.release(hit, 0).unwrap());
                rig.drained();
            }
        }
    }
}

/// An engine that owns the slots doesn't get back those that a copy reads or fills, in either direction.
#[test]
fn an_engine_gets_no_slot_that_a_copy_uses() {
    let tokens: Vec<i32> = (0..4).collect();
    for host in WRITES {
        let shape = Rig {
            page: 1,
            engine_owns_slots: true,
            writing: writing(host, Write::Through),
            ..Rig::default()
        };
        let mut rig = common::rig::Rig::new(shape, None);
        rig.gate.shut(Direction::Out);
        let slots: Vec<Slot> = (3..7).map(Slot).collect();
        for (page, &slot) in slots.iter().enumerate() {
            rig.memory.write_device(slot, &rig.stamp(&tokens, page));
        }
        let hit = rig.find(&tokens);
        rig.cache.load(&[hit], Some(&[])).unwrap();
        rig.cache.insert(hit, Tokens::I32(&tokens), &slots).unwrap();
        rig.cache.backup(hit).unwrap();
        rig.cache.release(hit, 0).unwrap();
        rig.poll(0.0);
        assert_eq!(rig.evict(Tier::Device, 4), [], "{host:?}: they are read");
        rig.gate.open(Direction::Out);
        rig.settle();
        let gone: BTreeSet<Slot> = rig.evict(Tier::Device, 4).into_iter().collect();
        assert_eq!(gone, slots.into_iter().collect(), "{host:?}: now they are the engine's");

        rig.gate.shut(Direction::In);
        let hit = rig.find(&tokens);
        let given: Vec<Slot> = (9..13).map(Slot).collect();
        rig.cache.load(&[hit], Some(&given)).unwrap();
        rig.cache.release(hit, 0).unwrap();
        assert_eq!(rig.evict(Tier::Device, 4), [], "{host:?}: they are filled");
        rig.gate.open(Direction::In);
        rig.settle();
        assert_eq!(rig.evict(Tier::Device, 4).len(), 4, "{host:?}");
        for (page, &slot) in given.iter().enumerate() {
            assert_eq!(rig.memory.device_page(slot), rig.stamp(&tokens, page));
        }
        rig.books();
    }
}
