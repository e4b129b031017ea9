//! What keeps windows and states right: copies that are off by one are noticed, wrong calls are refused before anything
//! changed, and what has lost its state is not found.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::mixed::{ALL, Gives, Mixed};
use common::models::{STATE, Shape, WINDOW, config};
use hicache_core::executor::{Executor, HostMemory};
use hicache_core::ids::{NO_SLOT, Slot, Tier};
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
            // A backup that isn't done would hold them.
            rig.settle();
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

/// A request that gave no checkpoint ends where another one gives its own: what its hit shows from then on is held.
#[test]
fn a_checkpoint_that_another_request_gives_is_held_by_every_hit_that_shows_it() {
    let mut rig = Mixed::new(&Shape { host: 0, ..Shape::of(&[(STATE, 2, 0)]) });
    let tokens = pages(0..4);
    let [one, other] = [rig.find(&tokens), rig.find(&tokens)];
    rig.cache.load(&[one, other], None).unwrap();
    assert!(rig.compute(one, &tokens, 4, Gives { states: false, ..ALL }));
    assert_eq!(rig.cache.hit_parts(one).unwrap(), [[]]);
    assert!(rig.compute(other, &tokens, 4, ALL));
    rig.cache.release(other, 0).unwrap();
    let shown = rig.cache.hit_parts(one).unwrap();
    assert_eq!(shown[0].len(), 1);
    assert_eq!(rig.cache.evict_part(0, Tier::Device, 1).unwrap(), []);
    rig.books();
    assert_eq!((rig.cache.hit_parts(one).unwrap(), rig.wrong(one, &tokens, true)), (shown, None));
    rig.cache.release(one, 0).unwrap();
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
    assert!(placed.contains("slots: part0: slot 0 belongs to a cached page"), "{placed}");
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
