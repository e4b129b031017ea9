//! Windows and states through the verbs: what is inserted is found, loaded, backed up and evicted as a whole or not
//! at all, and every byte is the right one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::mixed::{ALL, Gives, Mixed, STATE, Shape, WINDOW, config};
use hicache_core::executor::{Executor, HostMemory};
use hicache_core::ids::{HitId, NO_SLOT, Slot, Tier};
use hicache_core::page::Tokens;
use hicache_core::transfer::Direction;
use hicache_core::{Config, GivenPart, HiCache, HitView};

const BOTH: [(hicache_core::pool::Needs, u32, u32); 2] = [(WINDOW, 16, 32), (STATE, 8, 16)];

fn pages(range: std::ops::Range<i32>) -> Vec<i32> {
    range.flat_map(|page| [2 * page, 2 * page + 1]).collect()
}

fn lengths(view: HitView) -> (u32, u32, u32) {
    (view.device, view.usable, view.matched)
}

/// On the device alone: found where windows and states agree, and what a load holds is whole.
#[test]
fn what_was_inserted_is_found_without_a_host() {
    let mut rig = Mixed::new(&Shape { host: 0, ..Shape::of(&[(WINDOW, 16, 0), (STATE, 8, 0)]) });
    let tokens = pages(0..8);
    let hit = rig.find(&tokens);
    rig.load(hit);
    assert!(rig.compute(hit, &tokens, 3, ALL));
    assert!(rig.compute(hit, &tokens, 6, Gives { windows: 1, states: true }));
    assert!(rig.compute(hit, &tokens, 8, Gives { windows: 2, states: false }));
    let parts = rig.cache.hit_parts(hit).unwrap();
    assert_eq!((parts[0].len(), parts[1].len()), (8, 0), "no state at the end: none was given");
    assert!(parts[0][..6].iter().all(|&slot| slot == NO_SLOT), "no token behind it sees these");
    assert_eq!(rig.wrong(hit, &tokens, false), None);
    rig.cache.release(hit, 0).unwrap();

    let hit = rig.find(&tokens);
    // At 8 there is no state, at 6 half a window: 3 it is.
    assert_eq!(lengths(rig.view(hit)), (3, 3, 8));
    assert_eq!(rig.view(hit).checkpoint_at, Some(8));
    let view = rig.load(hit);
    assert_eq!((lengths(view), view.copied), ((3, 3, 8), 0));
    assert_eq!(rig.wrong(hit, &tokens, true), None);
    // Held: neither window nor state can go.
    for part in 0..2 {
        rig.cache.evict_part(part, Tier::Device, usize::MAX).unwrap();
    }
    rig.cache.evict(Tier::Device, usize::MAX).unwrap();
    rig.books();
    assert_eq!(rig.wrong(hit, &tokens, true), None);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// An insert over what is known mends holes, and says whose slots the tree has.
#[test]
fn an_insert_mends_holes() {
    let mut rig = Mixed::new(&Shape::of(&BOTH));
    let tokens = pages(0..4);
    let (one, two) = (rig.find(&tokens), rig.find(&tokens));
    rig.cache.load(&[one, two], None).unwrap();
    assert!(rig.compute(one, &tokens, 4, Gives { windows: 1, states: true }));
    assert_eq!(rig.cache.hit_parts(one).unwrap()[0][2], NO_SLOT);
    let slots = rig.cache.allocate(4).unwrap().unwrap();
    let windows = rig.cache.allocate_part(0, 3).unwrap().unwrap();
    let state = rig.cache.allocate_part(1, 1).unwrap().unwrap();
    let given: [GivenPart; 2] = [
        (0, [None].into_iter().chain(windows.iter().copied().map(Some)).collect()),
        (1, vec![Some(state[0])]),
    ];
    let done = rig.cache.insert_parts(two, Tokens::I32(&tokens), &slots, &given).unwrap();
    let known = rig.cache.hit_parts(one).unwrap();
    assert_eq!(
        done.parts[0],
        [NO_SLOT, windows[0], windows[1], known[0][3]],
        "the hole, mended, and a known one"
    );
    assert_eq!(done.parts[1], known[1]);
    rig.cache.free(&slots).unwrap();
    rig.cache.free_part(0, &windows[2..]).unwrap();
    rig.cache.free_part(1, &state).unwrap();
    for hit in [one, two] {
        rig.cache.release(hit, 0).unwrap();
    }
    rig.drained();
}

/// A document of 64 pages and 36 of one's own; ten requests. The document's checkpoint is made by the second one,
/// where the KV is on the host already; then the device loses everything.
#[test]
fn ten_of_ten_find_the_shared_document() {
    let mut rig = Mixed::new(&Shape { device: 256, host: 512, ..Shape::of(&[(STATE, 8, 16)]) });
    let document = pages(0..64);
    let prompt =
        |request: i32| [document.clone(), pages(1000 * (request + 1)..1000 * (request + 1) + 36)].concat();
    rig.serve(&prompt(0), 100);
    let second = prompt(1);
    let hit = rig.find(&second);
    let found = rig.load(hit);
    assert_eq!((lengths(found), found.checkpoint_at), ((0, 0, 64), Some(64)));
    let before = rig.cache.stats().backed_up_pages;
    assert!(rig.compute(hit, &second, 64, ALL));
    assert_eq!(rig.cache.stats().backed_up_pages, before, "its KV is there");
    assert_eq!(rig.cache.part_stats(0).unwrap().backed_up, 2, "the checkpoint goes by itself");
    assert!(rig.compute(hit, &second, 100, ALL));
    rig.cache.release(hit, 0).unwrap();
    rig.land();

    let (mut hits, mut tokens, mut all) = (0, 0, 0);
    for request in 2..12 {
        rig.cache.evict_part(0, Tier::Device, usize::MAX).unwrap();
        let prompt = prompt(request);
        let hit = rig.find(&prompt);
        assert_eq!(lengths(rig.view(hit)), (0, 64, 64), "the device has no checkpoint left");
        let view = rig.load(hit);
        rig.land();
        assert_eq!((view.device, view.copied), (64, 64));
        assert_eq!(rig.wrong(hit, &prompt, true), None);
        rig.cache.release(hit, 0).unwrap();
        (hits, tokens, all) = (hits + 1, tokens + view.device as usize, all + prompt.len() / 2);
    }
    assert_eq!((hits, tokens, all), (10, 640, 1000), "64 %");
    rig.drained();
}

/// Window pages and states leave the device one by one and come back one by one, with no page of theirs copied.
#[test]
fn windows_and_states_come_back_one_by_one() {
    let mut rig = Mixed::new(&Shape::of(&BOTH));
    let tokens = pages(0..6);
    rig.serve(&tokens, 6);
    // What follows, and is held, makes it an inner edge: a part leaves it alone.
    let longer = pages(0..9);
    rig.serve(&longer, 3);
    let held = rig.find(&longer);
    assert_eq!(rig.load(held).device, 9);
    let stats = |rig: &Mixed| [0, 1].map(|part| rig.cache.part_stats(part).unwrap().loaded);
    for (part, count) in [(0, 1), (1, 1), (0, 2), (0, 1)] {
        let before = stats(&rig);
        let mut gone = 0;
        while gone < count || rig.usable(&tokens).0 == 6 {
            gone += rig.cache.evict_part(part, Tier::Device, 1).unwrap().len();
            assert!(gone < 9);
        }
        let hit = rig.find(&tokens);
        let view = rig.view(hit);
        assert!(view.device < 6 && view.usable == 6, "{view:?}");
        rig.load(hit);
        rig.land();
        assert_eq!(rig.wrong(hit, &tokens, true), None);
        let after = stats(&rig);
        assert!(after[part] > before[part]);
        assert_eq!(after[1 - part], before[1 - part], "the other one was there");
        rig.cache.release(hit, 0).unwrap();
    }
    rig.cache.release(held, 0).unwrap();
    rig.drained();
}

/// Where a window or a state finds no room on the device, the hit ends where it misses nothing, and nobody else
/// loses anything.
#[test]
fn without_room_a_hit_ends_where_it_misses_nothing() {
    let mut rig = Mixed::new(&Shape::of(&[(STATE, 4, 16)]));
    let tokens = pages(0..6);
    rig.serve(&tokens, 3);
    let deep = pages(0..9);
    rig.serve(&deep, 3);
    rig.cache.evict_part(0, Tier::Device, 3).unwrap();
    let hit = rig.find(&deep);
    rig.load(hit);
    rig.land();
    rig.cache.release(hit, 0).unwrap();
    // The state at 9 alone is on the device; the engine has the other slots.
    let out = rig.cache.allocate_part(0, 3).unwrap().unwrap();
    let held = rig.find(&deep);
    assert_eq!(rig.load(held).device, 9);
    assert_eq!(rig.cache.allocate_part(0, 1).unwrap(), None, "all are out or held");
    let hit = rig.find(&tokens);
    assert_eq!(lengths(rig.view(hit)), (0, 6, 6));
    let digest = rig.cache.tree().part_resident(0, Tier::Device);
    let view = rig.load(hit);
    assert_eq!((view.device, view.copied, view.loaded), (0, 0, true));
    assert_eq!(rig.cache.tree().part_resident(0, Tier::Device), digest);
    assert_eq!(rig.cache.part_stats(0).unwrap().load_no_room, 1);
    rig.cache.free_part(0, &out).unwrap();
    let other = rig.find(&tokens);
    assert_eq!(rig.load(other).device, 6, "now there is");
    rig.land();
    assert_eq!(rig.wrong(other, &tokens, true), None);
    for hit in [held, hit, other] {
        rig.cache.release(hit, 0).unwrap();
    }
    rig.drained();
}

/// Hits of one batch don't evict each other, however short the room is.
#[test]
fn hits_of_a_batch_do_not_evict_each_other() {
    let mut rig = Mixed::new(&Shape { device: 8, ..Shape::of(&[(STATE, 2, 16), (WINDOW, 6, 16)]) });
    let prompts = [pages(0..3), pages(100..103), pages(200..203)];
    prompts.iter().for_each(|prompt| _ = rig.serve(prompt, 3));
    rig.cache.evict(Tier::Device, usize::MAX).unwrap();
    let hits: Vec<HitId> = prompts.iter().map(|prompt| rig.find(prompt)).collect();
    assert!(hits.iter().all(|&hit| rig.view(hit).usable == 3));
    let loaded = rig.cache.load(&hits, None).unwrap();
    rig.books();
    assert!(loaded.ticket > 0);
    rig.land();
    let found: Vec<u32> = hits.iter().map(|&hit| rig.view(hit).device).collect();
    assert_eq!(
        found.iter().filter(|&&depth| depth == 3).count(),
        2,
        "as many as there are states: {found:?}"
    );
    for (&hit, tokens) in hits.iter().zip(&prompts) {
        assert_eq!(rig.wrong(hit, tokens, true), None);
    }
    hits.into_iter().for_each(|hit| _ = rig.cache.release(hit, 0).unwrap());
    rig.drained();
}

/// A part that finds no room on the host is counted and tried again; what is there isn't torn apart for it.
#[test]
fn a_part_without_room_on_the_host_is_tried_again() {
    let mut rig = Mixed::new(&Shape::of(&[(STATE, 8, 1)]));
    let (one, two) = (pages(0..3), pages(100..103));
    rig.serve(&one, 3);
    let hit = rig.find(&two);
    rig.load(hit);
    assert!(rig.compute(hit, &two, 3, ALL));
    let stats = *rig.cache.part_stats(0).unwrap();
    assert_eq!((stats.backed_up, stats.backup_no_room), (1, 1), "the other one mirrors the device's");
    rig.land();
    assert_eq!(rig.cache.backup(hit).unwrap(), 0);
    // Once the device has given up the other one, the host may too.
    rig.cache.evict_part(0, Tier::Device, 1).unwrap();
    assert_eq!(rig.cache.backup(hit).unwrap(), 1);
    rig.land();
    rig.cache.release(hit, 0).unwrap();
    rig.cache.evict(Tier::Device, usize::MAX).unwrap();
    let hit = rig.find(&two);
    assert_eq!(lengths(rig.view(hit)), (0, 3, 3));
    rig.load(hit);
    rig.land();
    assert_eq!(rig.wrong(hit, &two, true), None);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

/// A copier that is one slot off, in any space and either way, is noticed.
#[test]
fn a_page_a_window_or_a_state_one_off_is_noticed() {
    for space in 0..3 {
        for way in [Direction::In, Direction::Out] {
            let mut rig = Mixed::new(&Shape::of(&BOTH));
            let tokens = pages(0..4);
            let other = pages(100..104);
            rig.serve(&other, 2);
            rig.drip.plant(way, space);
            rig.serve(&tokens, 2);
            rig.cache.evict(Tier::Device, usize::MAX).unwrap();
            let hit = rig.find(&tokens);
            rig.load(hit);
            rig.land();
            let wrong = rig.wrong(hit, &tokens, true).expect("it is one off");
            assert!(wrong.contains(&format!("space {space}")), "{way:?}: {wrong}");
        }
    }
}

#[test]
fn a_path_keeps_as_many_checkpoints_as_it_may() {
    let mut rig = Mixed::new(&Shape { cap: 2, ..Shape::of(&[(STATE, 16, 16)]) });
    let tokens = pages(0..6);
    let hit = rig.find(&tokens);
    rig.load(hit);
    for page in 1..=6 {
        assert!(rig.compute(hit, &tokens, page, ALL));
        // What is being copied would stay.
        rig.land();
    }
    rig.cache.release(hit, 0).unwrap();
    assert_eq!(rig.cache.tree().part_resident(0, Tier::Device), 2);
    assert_eq!(rig.cache.tree().part_resident(0, Tier::Host), 6, "the host keeps them");
    assert_eq!(rig.cache.part_stats(0).unwrap().evicted_device, 4);
    rig.drained();
}

/// A cursor whose place has lost its window or state is stale: what is before it isn't passed again.
#[test]
fn a_cursor_is_stale_when_its_state_has_gone() {
    let mut rig = Mixed::new(&Shape { host: 0, ..Shape::of(&[(STATE, 8, 0)]) });
    let tokens = pages(0..4);
    rig.serve(&tokens, 4);
    let hit = rig.find(&tokens);
    rig.load(hit);
    let cursor = rig.cache.release(hit, 0).unwrap();
    let hit = rig.find_after(&pages(50..51), Some(cursor), 0.0).unwrap();
    assert_eq!(lengths(rig.view(hit)), (4, 4, 4));
    rig.cache.release(hit, 0).unwrap();
    let longer = pages(0..5);
    rig.serve(&longer, 1);
    rig.cache.evict_part(0, Tier::Device, 1).unwrap();
    assert_eq!(rig.find_after(&pages(50..51), Some(cursor), 0.0), Err(hicache_core::Error::Stale));
    rig.drained();
}

/// Wrong parts are refused before anything changed, by name.
#[test]
fn wrong_parts_are_refused() {
    let mut rig = Mixed::new(&Shape::of(&BOTH));
    let tokens = pages(0..2);
    let hit = rig.find(&tokens);
    rig.load(hit);
    let slots = rig.cache.allocate(2).unwrap().unwrap();
    let windows = rig.cache.allocate_part(0, 2).unwrap().unwrap();
    let state = rig.cache.allocate_part(1, 1).unwrap().unwrap()[0];
    let (window, other) = (Some(windows[0]), Some(windows[1]));
    let wrong: [(Vec<GivenPart>, &str); 8] = [
        (vec![(2, vec![])], "there is no part 2"),
        (vec![(1, vec![None]), (1, vec![None])], "part1 is named twice"),
        (vec![(0, vec![window])], "part0: needs 2 slots, one for each whole page"),
        (vec![(1, vec![Some(state), None])], "part1: needs 1 slots, one for the end of the last whole page"),
        (vec![(0, vec![window, window])], "part0: slot 0 is named twice"),
        (vec![(0, vec![window, Some(Slot(9))])], "part0: slot 9 is free"),
        (vec![(0, vec![window, other]), (1, vec![Some(NO_SLOT)])], "part1: slot 4294967295 does not exist"),
        (vec![(0, vec![window, other]), (1, vec![Some(Slot(3))])], "part1: slot 3 is free"),
    ];
    let digest = rig.cache.tree().digest();
    for (parts, reason) in &wrong {
        let error = rig.cache.insert_parts(hit, Tokens::I32(&tokens), &slots, parts).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}, not {reason}");
        assert_eq!(rig.cache.tree().digest(), digest);
        rig.books();
    }
    let nothing = rig.cache.insert_parts(hit, Tokens::EMPTY, &[], &[(1, vec![Some(state)])]);
    assert!(nothing.unwrap_err().to_string().contains("no whole page"));
    rig.cache.insert_parts(hit, Tokens::EMPTY, &[], &[(0, vec![]), (1, vec![None])]).unwrap();
    let given = [(0, vec![window, other]), (1, vec![Some(state)])];
    rig.cache.insert_parts(hit, Tokens::I32(&tokens), &slots, &given).unwrap();
    let placed = rig.cache.free_part(0, &windows).unwrap_err().to_string();
    assert!(placed.contains("part0: slot 0 belongs to a cached page"), "{placed}");
    assert!(rig.cache.allocate_part(7, 1).is_err() && rig.cache.evict_part(2, Tier::Host, 1).is_err());
    assert!(rig.cache.free_part(2, &[]).is_err() && rig.cache.part_slots(2, Tier::Host).is_err());
    rig.cache.free_part(1, &[]).unwrap();
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

#[test]
fn parts_need_a_cache_that_owns_its_slots() {
    let own = Config { engine_owns_slots: true, ..config(&Shape::of(&BOTH)) };
    let executor = Executor::detached(HostMemory::default());
    let refused = HiCache::new(own, executor, false).err().unwrap().to_string();
    assert!(refused.contains("slots of windows and states are the cache's"), "{refused}");
}
