//! Forwards that are under way while other verbs are called, over one buffer that is too small: what a forward reads
//! and writes stays where it looked it up, whoever moves, leaves or gives back what meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::forward::Forward;
use common::models::{STATE, Shape, config, unified_shapes};
use common::own::Own;
use common::squall::Squall;
use common::tenants::prompt;
use common::{Seeded, seeds};
use hicache_core::ids::{ForwardId, Tier};
use hicache_core::pool::{Needs, Plane, PoolSpec, Rows, SlotsOf};
use hicache_core::unified::End;
use hicache_core::{Config, Error};

/// Requests in every state, copies that land late, and up to three forwards at once that end in any order.
#[test]
fn nothing_changes_under_a_forward() {
    for shape in unified_shapes() {
        let (mut moved, mut given_back, mut read) = (0, 0, 0);
        for seed in seeds(60) {
            let (mut squall, mut random) = (Squall::new(&shape, seed), Seeded(seed ^ 0xF0));
            let mut open: Vec<Forward> = Vec::new();
            for _ in 0..400 {
                squall.step();
                open.iter().for_each(|forward| assert_eq!(squall.changed(forward), None));
                match random.below(5) {
                    0 if open.len() < 3 => open.push(squall.begin(true)),
                    1 if !open.is_empty() => {
                        let forward = open.swap_remove(random.below(open.len()));
                        let left = squall.left(&forward);
                        (moved, given_back) = (moved + left[0], given_back + left[1]);
                        read += forward.pages();
                        squall.through(forward);
                    }
                    _ => {}
                }
            }
            open.into_iter().for_each(|forward| squall.through(forward));
            squall.end();
            squall.rig.drained();
        }
        let seen = format!("{read} pages read, {moved} of them moved; {given_back} given back: {shape:?}");
        println!("{seen}");
        assert!(read > 1000 && moved > 10 && given_back > 100, "it happens: {seen}");
    }
}

/// The same forwards, and nobody is told of them: bytes change under some, which is noticed.
#[test]
fn a_forward_that_nobody_was_told_of_reads_other_bytes() {
    for shape in unified_shapes() {
        let mut changed = 0;
        for seed in seeds(60) {
            let (mut squall, mut random) = (Squall::new(&shape, seed), Seeded(seed ^ 0xF0));
            let mut open: Vec<Forward> = Vec::new();
            for _ in 0..400 {
                squall.step();
                match random.below(5) {
                    0 if open.len() < 3 => open.push(squall.begin(false)),
                    1 if !open.is_empty() => {
                        let forward = open.swap_remove(random.below(open.len()));
                        changed += usize::from(squall.changed(&forward).is_some());
                    }
                    _ => {}
                }
            }
        }
        println!("{changed}: {shape:?}");
        assert!(changed > 20, "{changed}: {shape:?}");
    }
}

/// Copies end for good while forwards are under way: none begins any more, those that have begun end, and all go on.
#[test]
fn a_fault_under_a_forward() {
    for shape in unified_shapes() {
        for seed in seeds(10) {
            let mut squall = Squall::new(&shape, seed);
            for round in 0..3 {
                (0..60).for_each(|_| squall.step());
                let forwards = [squall.begin(true), squall.begin(true)];
                (0..20).for_each(|_| squall.step());
                squall.rig.drip.end("gone");
                assert_eq!(squall.rig.cache.begin_forward(), Err(Error::Device("gone".to_owned())));
                forwards.into_iter().for_each(|forward| squall.through(forward));
                squall.fault("gone");
                let buffer = squall.rig.cache.unified().unwrap();
                assert_eq!((buffer.gates(), squall.rig.cache.forwards()), (0, 0), "round {round}");
            }
            squall.end();
            squall.rig.drained();
        }
    }
}

/// A state is as large as 4 pages of KV; a page is one token of 2 bytes.
fn small(pages: u64) -> Config {
    let plane = |layer, bytes_per_token| Plane { layer, role: 0, bytes_per_token };
    let state = PoolSpec::new("state", vec![plane(1, 8)]).unwrap();
    let kv = PoolSpec::new("kv", vec![plane(0, 1), plane(2, 1)]).unwrap();
    Config {
        pools: vec![kv, state.with(Rows::Page, SlotsOf::Own, Needs::Last)],
        unified: Some(8 + 2 * pages),
        ..config(&Shape { page: 1, device: 228, host: 0, ..Shape::of(&[(STATE, 57, 0)]) })
    }
}

/// What a forward writes doesn't move: who needs that finds no room, and finds it when the forward is through.
#[test]
fn room_that_needs_a_move_of_what_a_forward_writes_comes_when_it_is_through() {
    let mut own = Own::new(&small(20));
    let states = own.cache.allocate_part(0, 3).unwrap().unwrap();
    own.cache.free_part(0, &states[..2]).unwrap();
    let (ours, frame) = (states[2], own.cache.frames(1).unwrap()[states[2].0 as usize]);
    let forward = own.cache.begin_forward().unwrap();
    assert_eq!((own.cache.device_free(0), own.cache.allocate(16).unwrap()), (16, None));
    assert_eq!(own.cache.allocate(8).unwrap().map(|slots| slots.len()), Some(8), "in the gap");
    assert_eq!(own.cache.frames(1).unwrap()[ours.0 as usize], frame);
    // It writes where it looked.
    own.write(1, ours, &[7; 8]);
    own.cache.check().unwrap();
    own.cache.end_forward(forward).unwrap();
    assert_eq!(own.cache.allocate(8).unwrap().map(|slots| slots.len()), Some(8));
    assert_ne!(own.cache.frames(1).unwrap()[ours.0 as usize], frame, "it made way");
    assert_eq!(own.read(1, ours), [7; 8]);
    own.cache.check().unwrap();
}

/// What a forward reads may move. Its old place is nobody's until the forward is through.
#[test]
fn what_a_forward_reads_moves_and_is_still_where_it_was() {
    let mut own = Own::new(&small(20));
    let first = own.cache.allocate_part(0, 2).unwrap().unwrap();
    own.serve(&prompt(1, 2), None);
    own.cache.free_part(0, &first).unwrap();
    let (hit, view) = own.load(&prompt(1, 2));
    assert_eq!(view.device, 2);
    let state = own.cache.hit_parts(hit).unwrap()[0][0];
    let (before, bytes) = (own.cache.frames(1).unwrap()[state.0 as usize], own.read(1, state));
    let old = own.place(state);
    let forward = own.cache.begin_forward().unwrap();
    let moved = own.cache.stats().moved_pages;
    assert_eq!(own.cache.allocate(12).unwrap(), None, "its old place is not to be had");
    assert_eq!(own.cache.stats().moved_pages, moved + 1);
    assert_ne!(own.cache.frames(1).unwrap()[state.0 as usize], before);
    let others = own.cache.allocate(4).unwrap().unwrap();
    others.iter().for_each(|&slot| own.write(0, slot, &[9; 2]));
    assert_eq!((own.bytes_at(old, 8), own.read(1, state)), (bytes.clone(), bytes.clone()));
    own.verify(hit, &prompt(1, 2));
    own.cache.end_forward(forward).unwrap();
    let more = own.cache.allocate(8).unwrap().unwrap();
    more.iter().for_each(|&slot| own.write(0, slot, &[9; 2]));
    assert_ne!(own.bytes_at(old, 8), bytes, "somebody else's now");
    own.verify(hit, &prompt(1, 2));
    own.cache.check().unwrap();
}

/// A hit that is released or moves along leaves what it held to the forwards that were under way then.
#[test]
fn what_a_hit_held_outlives_it_until_the_last_forward_of_then_is_through() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]] {
        let mut own = Own::new(&small(40));
        own.serve(&prompt(1, 4), None);
        let (hit, _) = own.load(&prompt(1, 4));
        let forwards: Vec<ForwardId> = (0..2).map(|_| own.cache.begin_forward().unwrap()).collect();
        own.cache.release(hit, 0).unwrap();
        let later = own.cache.begin_forward().unwrap();
        own.cache.check().unwrap();
        let all = [forwards[0], forwards[1], later];
        for (through, &at) in order.iter().enumerate() {
            let pending = order[through..].iter().filter(|&&at| at < 2).count();
            let gone = own.cache.evict(Tier::Device, 9).unwrap().len();
            assert_eq!(gone, if pending > 0 { 0 } else { own_pages(through, &order) }, "{order:?} {through}");
            own.cache.end_forward(all[at]).unwrap();
            own.cache.check().unwrap();
        }
        own.cache.evict(Tier::Device, 9).unwrap();
        assert_eq!(End::BOTH.map(|end| own.cache.unified().unwrap().span(end)), [0, 0]);
    }
}

/// Pages that leave before the `through`th forward ends: all four, as soon as those of then are through.
fn own_pages(through: usize, order: &[usize; 3]) -> usize {
    let last = order.iter().rposition(|&at| at < 2).unwrap();
    if through == last + 1 { 4 } else { 0 }
}

/// The checkpoint that a forward started from stays when the hit that held it goes on to the next one.
#[test]
fn a_checkpoint_stays_under_the_forward_that_starts_from_it() {
    let mut own = Own::new(&small(40));
    own.serve(&prompt(1, 2), None);
    let (hit, _) = own.load(&prompt(1, 2));
    let source = own.cache.hit_parts(hit).unwrap()[0][0];
    let forward = own.cache.begin_forward().unwrap();
    assert!(own.compute(hit, &prompt(1, 4), None));
    assert_ne!(own.cache.hit_parts(hit).unwrap()[0][0], source);
    assert_eq!(own.cache.evict_part(0, Tier::Device, 1).unwrap(), [], "held by the forward, and by the hit");
    own.cache.check().unwrap();
    own.cache.end_forward(forward).unwrap();
    assert_eq!(own.cache.evict_part(0, Tier::Device, 1).unwrap(), [source]);
    own.cache.release(hit, 0).unwrap();
    own.cache.check().unwrap();
}

#[test]
fn what_a_forward_writes_comes_back_with_it() {
    let mut own = Own::new(&small(20));
    let slots = own.cache.allocate(4).unwrap().unwrap();
    let forward = own.cache.begin_forward().unwrap();
    own.cache.free(&slots).unwrap();
    assert_eq!(own.cache.allocate(17).unwrap(), None);
    assert_eq!(own.cache.allocate(16).unwrap().map(|slots| slots.len()), Some(16), "all but these");
    own.cache.end_forward(forward).unwrap();
    assert_eq!(own.cache.allocate(4).unwrap().map(|slots| slots.len()), Some(4));
}

#[test]
fn wrong_calls_change_nothing() {
    let mut own = Own::new(&small(20));
    let says = |error: Error, what: &str| assert!(error.to_string().contains(what), "{error}");
    let forward = own.cache.begin_forward().unwrap();
    says(own.cache.end_forward(ForwardId(9)).unwrap_err(), "forward: forward 9 is not under way");
    says(own.cache.detach().unwrap_err(), "1 forwards are under way: end them");
    own.cache.end_forward(forward).unwrap();
    says(own.cache.end_forward(forward).unwrap_err(), "forward 1 is not under way");
    assert_eq!(own.cache.forwards(), 0);
    own.cache.detach().unwrap();
    says(own.cache.begin_forward().unwrap_err(), &Error::Detached.to_string());

    let mut closed = Own::new(&small(20));
    let forward = closed.cache.begin_forward().unwrap();
    closed.cache.close(std::time::Duration::ZERO);
    says(closed.cache.begin_forward().unwrap_err(), &Error::Closed.to_string());
    closed.cache.end_forward(forward).unwrap();
    closed.cache.check().unwrap();

    let mut apart = common::mixed::Mixed::new(&Shape::of(&[(STATE, 4, 4)]));
    says(apart.cache.begin_forward().unwrap_err(), "unified: device memory is not one buffer");
}
