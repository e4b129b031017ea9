//! Rewinding: a hit goes back to before what was inserted and rejected, and nothing is wrong, held or lost by it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::mixed::{ALL, Gives, Mixed};
use common::models::{STATE, Shape as Model, WINDOW};
use common::rig::{Rig, Shape};
use hicache_core::ids::Tier;

/// Four accepted pages, and two of drafts.
const DRAFTED: [i32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 90, 91, 92, 93];
const ACCEPTED: [i32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

/// What follows is inserted behind the accepted pages; both histories are whole, and each is found.
#[test]
fn another_history_follows_where_the_hit_went_back_to() {
    let mut rig = Rig::new(Shape::default(), None);
    let hit = rig.find(&ACCEPTED);
    rig.load(hit);
    assert!(rig.compute(hit, &DRAFTED));
    rig.cache.rewind(hit, 4).unwrap();
    rig.books();
    assert_eq!((rig.view(hit).device, rig.view(hit).usable), (4, 4));
    assert_eq!(rig.cache.hit_slots(hit).unwrap().len(), 4);
    assert!(rig.compute(hit, &ACCEPTED));
    rig.verify(hit, &ACCEPTED);
    let cursor = rig.cache.release(hit, 0).unwrap();
    assert_eq!(cursor.depth, 6);
    for history in [DRAFTED, ACCEPTED] {
        let found = rig.find(&history);
        assert_eq!(rig.load(found).device, 6, "right for its tokens, so it stays");
        rig.verify(found, &history);
        rig.cache.release(found, 0).unwrap();
    }
    rig.drained();
}

/// What was rejected is held by nobody: it leaves when there is need of room, but for a copy under way.
#[test]
fn what_was_rejected_may_leave() {
    let mut rig = Rig::new(Shape::default(), None);
    let hit = rig.find(&ACCEPTED);
    rig.load(hit);
    assert!(rig.compute(hit, &DRAFTED));
    assert_eq!(rig.evict(Tier::Device, usize::MAX).len(), 0, "all is the hit's");
    rig.cache.rewind(hit, 4).unwrap();
    rig.books();
    rig.settle();
    assert_eq!(rig.evict(Tier::Device, usize::MAX).len(), 2);
    assert_eq!(rig.cache.hit_slots(hit).unwrap().len(), 4);
    rig.verify(hit, &DRAFTED[..8]);
    rig.cache.rewind(hit, 0).unwrap();
    assert_eq!(rig.evict(Tier::Device, usize::MAX).len(), 4);
    assert!(rig.compute(hit, &ACCEPTED));
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}

#[test]
fn what_can_not_be_is_refused_and_changes_nothing() {
    let mut rig = Rig::new(Shape::default(), None);
    let hit = rig.find(&ACCEPTED);
    let refused = |rig: &mut Rig, pages| rig.cache.rewind(hit, pages).unwrap_err().to_string();
    assert!(refused(&mut rig, 0).contains("not loaded"));
    rig.load(hit);
    assert!(rig.compute(hit, &DRAFTED));
    assert!(refused(&mut rig, 7).starts_with("length: "));
    assert_eq!(rig.view(hit).device, 6);
    rig.cache.rewind(hit, 6).unwrap();
    assert_eq!(rig.view(hit).device, 6);
    rig.cache.release(hit, 0).unwrap();
    assert!(refused(&mut rig, 0).contains("released"));
    rig.drained();
}

/// Back to where a state is, and its window: there only, since nothing behind another place could be computed.
#[test]
fn parts_are_there_where_a_hit_goes_back_to() {
    let mut rig = Mixed::new(&Model::of(&[(WINDOW, 16, 32), (STATE, 8, 16)]));
    let tokens: Vec<i32> = (0..16).collect();
    let hit = rig.find(&tokens);
    rig.load(hit);
    assert!(rig.compute(hit, &tokens, 4, ALL));
    assert!(rig.compute(hit, &tokens, 6, Gives { windows: usize::MAX, states: false }));
    assert!(rig.compute(hit, &tokens, 8, ALL));
    let error = rig.cache.rewind(hit, 6).unwrap_err().to_string();
    assert!(error.starts_with("length: "), "{error}");
    rig.cache.rewind(hit, 8).unwrap();
    rig.cache.rewind(hit, 4).unwrap();
    rig.books();
    // Held there, as at any hit's end.
    rig.settle();
    for part in 0..2 {
        rig.cache.evict_part(part, Tier::Device, usize::MAX).unwrap();
    }
    rig.cache.evict(Tier::Device, usize::MAX).unwrap();
    rig.books();
    assert_eq!(rig.view(hit).device, 4);
    assert_eq!(rig.cache.hit_parts(hit).unwrap()[1].len(), 1);
    assert_eq!(rig.wrong(hit, &tokens, true), None);
    let other: Vec<i32> = (0..8).chain(100..108).collect();
    assert!(rig.compute(hit, &other, 8, Gives { windows: usize::MAX, states: false }));
    rig.cache.rewind(hit, 8).unwrap();
    assert_eq!(rig.view(hit).device, 8, "where it is already, whatever is there");
    assert_eq!(rig.wrong(hit, &other, false), None);
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}
