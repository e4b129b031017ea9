//! When pages are copied to the host under each policy: seen by what is where afterwards, and by
//! the bytes that come back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::Rig;
use common::writing::{WRITES, path, rig, writing};
use hicache_core::ids::Tier;
use hicache_core::policy::{HostCopies, Write, Writing};
use hicache_core::transfer::Direction;

/// One request, however many pieces it comes in, is one use; the second one backs up all of it.
#[test]
fn the_second_request_counts_whatever_the_pieces() {
    for pieces in [1, 2, 3, 8] {
        let mut rig = rig(writing(Write::Selective, Write::Through), 32, 32, None);
        let tokens = path(1, 8);
        let hit = rig.find(&tokens);
        rig.load(hit);
        rig.compute_in_pieces(hit, &tokens, pieces);
        rig.cache.release(hit, 0).unwrap();
        rig.idle();
        assert_eq!((rig.on(Tier::Host), rig.cache.stats().backed_up_pages), (0, 0), "used once");
        rig.serve(&tokens);
        rig.idle();
        assert_eq!((rig.on(Tier::Host), rig.cache.stats().backed_up_pages), (8, 8), "used twice");
        assert_eq!(rig.comes_back_from_the_host(&tokens), 8);
        rig.drained();
    }
}

/// What a second request shares is backed up, not what is its own; a continued turn is another request.
#[test]
fn what_is_shared_is_used_twice() {
    let mut rig = rig(writing(Write::Selective, Write::Through), 32, 32, None);
    let (first, mut second) = (path(1, 6), path(1, 4));
    second.extend([7, 8, 9]);
    rig.serve(&first);
    rig.serve(&second);
    rig.idle();
    assert_eq!(rig.on(Tier::Host), 4, "what both begin with");
    let hit = rig.find(&second);
    rig.load(hit);
    let cursor = rig.cache.release(hit, 0).unwrap();
    let mut turn = rig.find_after(&[10, 11], Some(cursor)).unwrap();
    rig.load(turn);
    second.extend([10, 11]);
    rig.compute(turn, &second);
    rig.cache.release(turn, 0).unwrap();
    rig.idle();
    assert_eq!(rig.on(Tier::Host), 7, "all but what the turn brought");
    turn = rig.find(&second);
    rig.load(turn);
    rig.cache.release(turn, 0).unwrap();
    rig.idle();
    assert_eq!(rig.on(Tier::Host), 9);
    rig.drained();
}

/// Pages that two compute at a time are used by both.
#[test]
fn duplicates_are_used_twice() {
    let mut rig = rig(writing(Write::Selective, Write::Through), 32, 32, None);
    let tokens = path(1, 4);
    let hits = [(); 2].map(|()| rig.find(&tokens));
    hits.iter().for_each(|&hit| _ = rig.load(hit));
    hits.iter().for_each(|&hit| assert!(rig.compute(hit, &tokens)));
    rig.idle();
    assert_eq!(rig.on(Tier::Host), 4);
    hits.into_iter().for_each(|hit| _ = rig.cache.release(hit, 0).unwrap());
    rig.drained();
}

/// What a request comes to again after it went back is no second use; what another one inserted meanwhile is.
#[test]
fn going_back_is_no_second_use() {
    let mut rig = rig(writing(Write::Selective, Write::Through), 32, 32, None);
    let (tokens, mut other) = (path(1, 6), path(1, 4));
    other.extend([7, 8]);
    let hit = rig.find(&tokens);
    rig.load(hit);
    for drafts in [&tokens, &other, &tokens, &other] {
        assert!(rig.compute(hit, drafts));
        rig.cache.rewind(hit, 2).unwrap();
        rig.idle();
    }
    rig.compute_in_pieces(hit, &tokens, 1);
    rig.idle();
    assert_eq!(rig.on(Tier::Host), 0, "one request");
    let second = rig.find(&path(1, 3));
    rig.load(second);
    rig.idle();
    assert_eq!(rig.on(Tier::Host), 3, "two");
    rig.cache.release(second, 0).unwrap();
    rig.cache.rewind(hit, 2).unwrap();
    rig.compute_in_pieces(hit, &tokens, 2);
    rig.idle();
    assert_eq!(rig.on(Tier::Host), 3);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// Write-back copies nothing as long as nothing is about to leave.
#[test]
fn write_back_waits() {
    let write = Writing { clean_reserve: 0.25, ..writing(Write::Back, Write::Through) };
    let mut rig = rig(write, 16, 16, None);
    (1..=3).for_each(|number| _ = rig.serve(&path(number, 4)));
    rig.idle();
    assert_eq!(rig.cache.stats().backed_up_pages, 0, "a quarter of the device is free");
    rig.serve(&path(4, 4));
    rig.idle();
    assert_eq!(rig.cache.stats().backed_up_pages, 4, "the ones that leave next");
    assert_eq!(rig.evict(Tier::Device, 4).len(), 4);
    assert_eq!(rig.cache.stats().dropped_unsaved_pages, 0);
    assert_eq!(rig.comes_back(&path(1, 4)), 4);
    rig.drained();
}

/// A page whose copy is under way stays until that is done.
#[test]
fn nothing_leaves_before_its_copy_is_done() {
    let mut rig = rig(writing(Write::Back, Write::Through), 4, 4, None);
    let tokens = path(1, 4);
    rig.gate.shut(Direction::Out);
    rig.serve(&tokens);
    rig.poll(0.0);
    assert_eq!(rig.gate.waiting(Direction::Out), 1, "one copy for all");
    assert_eq!(rig.evict(Tier::Device, 4), []);
    assert_eq!(rig.cache.allocate(1).unwrap(), None);
    rig.gate.open(Direction::Out);
    rig.settle();
    assert_eq!(rig.evict(Tier::Device, 4).len(), 4);
    assert_eq!(rig.comes_back(&tokens), 4);
    rig.drained();
}

/// Device slots whose copy is under way are nobody else's, whoever wants them.
#[test]
fn a_copy_reads_what_it_was_to_read() {
    for write in WRITES {
        let mut rig = rig(writing(write, Write::Through), 4, 8, None);
        let tokens = path(1, 4);
        rig.gate.shut(Direction::Out);
        rig.serve(&tokens);
        rig.serve(&tokens);
        rig.poll(0.0);
        rig.evict(Tier::Device, 4);
        while let Some(slot) = rig.cache.allocate(1).unwrap() {
            rig.memory.write_device(slot[0], &[0xBB; 24]);
        }
        rig.gate.open(Direction::Out);
        rig.settle();
        let out = rig.cache.slots(Tier::Device).capacity() - rig.free(Tier::Device) - rig.on(Tier::Device);
        assert_eq!(out, 0, "{write:?}: nothing could be had");
        assert_eq!(rig.comes_back_from_the_host(&tokens), 4, "{write:?}");
        rig.drained();
    }
}

fn wholly_locked(write: Write) -> Rig {
    let mut rig = rig(writing(write, Write::Through), 8, 4, None);
    rig.gate.shut(Direction::Out);
    let locked = rig.find(&path(1, 4));
    rig.load(locked);
    rig.compute(locked, &path(1, 4));
    rig.cache.backup(locked).unwrap();
    rig.cache.release(locked, 0).unwrap();
    assert_eq!(rig.free(Tier::Host), 0);
    rig
}

/// Where the host has no room at all, what leaves is gone, counted, and nowhere said to be.
#[test]
fn a_host_without_room_gets_nothing_by_halves() {
    for write in WRITES {
        let mut rig = wholly_locked(write);
        let tokens = path(2, 4);
        rig.serve(&tokens);
        rig.serve(&tokens);
        rig.poll(0.0);
        assert_eq!(rig.evict(Tier::Device, 2).len(), 2, "{write:?}: the engine needs the room now");
        let hit = rig.find(&tokens);
        assert_eq!((rig.view(hit).device, rig.view(hit).usable), (2, 2));
        rig.cache.release(hit, 0).unwrap();
        assert_eq!(rig.cache.stats().dropped_unsaved_pages, 2, "{write:?}");
        rig.gate.open(Direction::Out);
        rig.settle();
        rig.drained();
    }
}

/// A load that needs room takes it from pages that have no copy, where no copy is possible.
#[test]
fn a_load_makes_room_though_nothing_can_be_saved() {
    let mut rig = rig(writing(Write::Back, Write::Through), 4, 4, None);
    let (a, b) = (path(1, 4), path(2, 4));
    rig.serve(&a);
    rig.idle();
    rig.evict(Tier::Device, 4);
    let hold = rig.find(&a);
    rig.serve(&b);
    assert_eq!(rig.on(Tier::Device), 4);
    let found = rig.load(hold);
    rig.settle();
    rig.verify(hold, &a);
    let other = rig.find(&b);
    assert!(found.device as usize + rig.view(other).usable as usize <= 8);
    assert_eq!(found.device, 4);
    rig.cache.release(other, 0).unwrap();
    rig.cache.release(hold, 0).unwrap();
    rig.comes_back(&b);
    rig.drained();
}

/// A parent that found no room is tried again, and before what hangs on it.
#[test]
fn what_found_no_room_is_tried_again() {
    let mut rig = wholly_locked(Write::Through);
    let (parent, child) = (path(2, 2), path(2, 4));
    rig.serve(&parent);
    assert_eq!(rig.cache.stats().backup_no_room_pages, 2);
    rig.serve(&child);
    assert_eq!(rig.on(Tier::Host), 4, "nothing of it is there");
    let counted = rig.cache.stats().backup_no_room_pages;
    (0..5).for_each(|_| rig.poll(0.0));
    assert_eq!(rig.cache.stats().backup_no_room_pages, counted, "pages, not tries");
    rig.gate.open(Direction::Out);
    rig.idle();
    assert!(rig.cache.stats().backups_retried > 0);
    assert_eq!(rig.comes_back_from_the_host(&child), 4);
    assert_eq!(rig.cache.stats().backups_forgotten, 0);
    rig.drained();
}

/// Slots that had one page before take two, and the other way round.
#[test]
fn slots_are_used_again_for_other_lengths() {
    let mut rig = rig(writing(Write::Through, Write::Through), 4, 2, None);
    for number in 1..=6 {
        let tokens = path(number, 1 + number % 2);
        rig.serve(&tokens);
        assert_eq!(rig.comes_back_from_the_host(&tokens), tokens.len());
    }
    rig.drained();
}

/// With copies that stay, the host gives up nothing that the device has; else that goes first.
#[test]
fn copies_give_way_or_stay() {
    for (host_copies, left) in [(HostCopies::GiveWay, 1), (HostCopies::Keep, 4)] {
        let write = Writing { host_copies, clean_reserve: 0.0, ..writing(Write::Through, Write::Through) };
        let mut rig = rig(write, 8, 8, None);
        rig.serve(&path(1, 4));
        rig.settle();
        assert_eq!(rig.evict(Tier::Host, 3).len(), 4 - left, "{host_copies:?}");
        assert_eq!(rig.on(Tier::Host), left);
        assert_eq!(rig.comes_back(&path(1, 4)), 4, "the device has it");
        rig.drained();
    }
}
