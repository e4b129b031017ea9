//! Where the host is staging: windows and states go to storage with their pages, and what isn't stored of them isn't believed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::mixed::{ALL, Gives, Mixed};
use common::models::{STATE, Shape, WINDOW};
use common::staging::straight;
use common::store::{Fault, FaultStore, Verb};
use hicache_core::HostMode;
use hicache_core::hash::{chain, of_part};
use hicache_core::ids::Tier;
use hicache_core::page::{PageSize, Tokens};
use hicache_core::policy::Write;
use hicache_core::pool::Needs;
use hicache_core::storage::Outcome;
use std::sync::Arc;

/// A window of two pages, and states.
const BOTH: [(Needs, u32, u32); 2] = [(WINDOW, 24, 8), (STATE, 12, 4)];

fn path(number: i32, pages: i32) -> Vec<i32> {
    (0..2 * pages).map(|token| 1000 * number + token).collect()
}

fn over(store: &Arc<FaultStore>, write: Write, host: u32, parts: &[(Needs, u32, u32)]) -> Mixed {
    let shape = Shape { host, mode: HostMode::BufferOnly, writing: straight(write, 0.0), ..Shape::of(parts) };
    Mixed::over(&shape, Some(store))
}

/// Pages of these tokens that the store has: FULL's, and of each part.
fn stored(store: &FaultStore, tokens: &[i32]) -> [Vec<usize>; 3] {
    let keys = chain(None, Tokens::I32(tokens), PageSize::new(2).unwrap());
    let names = [None, Some("part0"), Some("part1")];
    names.map(|name| {
        let has = |at: &usize| {
            let key = name.map_or(keys[*at], |name| of_part(&keys[*at], name));
            store.page(&key).is_some()
        };
        (0..keys.len()).filter(has).collect()
    })
}

/// Nothing is under way or waits.
fn all_written(rig: &mut Mixed) {
    rig.until("all writes", |rig| {
        assert_eq!(rig.cache.tree().resident(Tier::Host), 0);
        (0..rig.components.len()).for_each(|part| {
            let pool = rig.cache.part_slots(part, Tier::Host).unwrap();
            assert_eq!(pool.capacity() - pool.free(), pool.out());
        });
        rig.cache.pending() == 0
    });
    assert_eq!(rig.cache.staged(), [0; 2]);
}

/// Another cache reads it, and every byte is right.
fn reads_back(store: &Arc<FaultStore>, tokens: &[i32]) -> u32 {
    let mut rig = over(store, Write::Through, 16, &BOTH);
    let hit = rig.fetch(tokens);
    let view = rig.load(hit);
    rig.land();
    assert_eq!(rig.wrong(hit, tokens, true), None);
    rig.cache.release(hit, 0).unwrap();
    all_written(&mut rig);
    rig.drained();
    view.device
}

#[test]
fn windows_and_states_are_stored_at_the_ends_of_what_came() {
    let store = Arc::new(FaultStore::default());
    let mut rig = over(&store, Write::Through, 16, &BOTH);
    rig.serve(&path(1, 9), 3);
    all_written(&mut rig);
    let [full, window, state] = stored(&store, &path(1, 9));
    assert_eq!(full, (0..9).collect::<Vec<_>>());
    assert_eq!((window, state), (vec![1, 2, 4, 5, 7, 8], vec![2, 5, 8]));
    let puts = store.puts();
    // It comes again, and isn't written again.
    rig.serve(&path(1, 9), 3);
    all_written(&mut rig);
    assert_eq!(store.puts(), puts);
    rig.drained();
    assert_eq!(reads_back(&store, &path(1, 9)), 9);
    // Each end is one for a shorter request, too.
    let mut shorter = path(1, 6);
    shorter.extend([-1, -2, -3, -4].map(|token: i32| token.abs() + 90_000));
    assert_eq!(reads_back(&store, &shorter), 6);
}

/// Pools of a few pages: everything goes in pieces, a window whole or not yet.
#[test]
fn all_of_it_passes_through_a_small_pool() {
    for (host, window, state) in [(2, 3, 2), (4, 4, 3), (16, 8, 4)] {
        let store = Arc::new(FaultStore::default());
        let parts = [(WINDOW, 24, window), (STATE, 12, state)];
        let mut rig = over(&store, Write::Through, host, &parts);
        rig.serve(&path(1, 10), 2);
        rig.serve(&path(2, 7), 7);
        all_written(&mut rig);
        assert_eq!(stored(&store, &path(1, 10))[0].len(), 10, "{host}");
        assert_eq!(rig.cache.unwritten(), [0; 2]);
        rig.drained();
        assert_eq!([reads_back(&store, &path(1, 10)), reads_back(&store, &path(2, 7))], [10, 7], "{host}");
    }
}

/// A window that is larger than all that writes may have, and states that are never there: the pages go all the same, and
/// nothing waits for the rest.
#[test]
fn what_never_has_room_is_counted_and_waits_for_nothing() {
    let store = Arc::new(FaultStore::default());
    let parts = [(Needs::Window { tokens: 12 }, 24, 5), (STATE, 12, 0)];
    let mut rig = over(&store, Write::Through, 8, &parts);
    rig.serve(&path(1, 8), 8);
    all_written(&mut rig);
    let [full, window, state] = stored(&store, &path(1, 8));
    assert_eq!((full.len(), window.len(), state.len()), (8, 0, 0));
    let no_room = |part| rig.cache.part_stats(part).unwrap().backup_no_room;
    assert!(no_room(0) >= 6 && no_room(1) >= 1, "{} and {}", no_room(0), no_room(1));
    rig.drained();
}

/// What fails is written when its path comes again: nothing of it counts as stored, though its pages are.
#[test]
fn a_part_that_was_not_stored_is_not_believed_to_be() {
    let store = Arc::new(FaultStore::default());
    let mut rig = over(&store, Write::Through, 16, &BOTH);
    rig.serve(&path(1, 4), 4);
    all_written(&mut rig);
    // Of the second path all goes but once.
    let puts = store.calls(Verb::Put);
    store.plan(move |verb, call| match verb {
        Verb::Put if call <= puts + 2 => Fault::Answer(Outcome::Failed),
        _ => Fault::None,
    });
    rig.serve(&path(2, 4), 4);
    all_written(&mut rig);
    assert_eq!(stored(&store, &path(2, 4)), [const { Vec::<usize>::new() }; 3]);
    rig.serve(&path(2, 4), 4);
    all_written(&mut rig);
    assert_eq!(stored(&store, &path(2, 4)), [vec![0, 1, 2, 3], vec![2, 3], vec![3]]);
    rig.drained();
    assert_eq!(reads_back(&store, &path(2, 4)), 4);
}

/// The engine gives no state at first: what comes to pages that are stored goes there by itself.
#[test]
fn a_state_that_comes_late_is_stored_late() {
    let store = Arc::new(FaultStore::default());
    let mut rig = over(&store, Write::Through, 16, &BOTH);
    let tokens = path(1, 5);
    let none = Gives { windows: 0, states: false };
    let hit = rig.find(&tokens);
    rig.load(hit);
    assert!(rig.compute(hit, &tokens, 5, none));
    rig.cache.release(hit, 0).unwrap();
    all_written(&mut rig);
    assert_eq!(stored(&store, &tokens), [(0..5).collect::<Vec<_>>(), vec![], vec![]]);
    let hit = rig.find(&tokens);
    rig.load(hit);
    assert_eq!(rig.view(hit).device, 0, "no window, no state");
    assert!(rig.compute(hit, &tokens, 5, ALL));
    rig.cache.release(hit, 0).unwrap();
    all_written(&mut rig);
    assert_eq!(stored(&store, &tokens), [(0..5).collect::<Vec<_>>(), vec![3, 4], vec![4]]);
    assert_eq!(store.puts().0, 1, "its pages once");
    rig.drained();
}

/// What another request used a second time, with what a hit there needs.
#[test]
fn selective_and_write_out_take_parts_along() {
    let store = Arc::new(FaultStore::default());
    let mut rig = over(&store, Write::Selective, 16, &BOTH);
    rig.serve(&path(1, 6), 3);
    all_written(&mut rig);
    assert_eq!(store.len(), 0);
    rig.serve(&path(1, 6), 3);
    all_written(&mut rig);
    let [full, window, state] = stored(&store, &path(1, 6));
    assert_eq!((full.len(), window, state), (6, vec![4, 5], vec![2, 5]));
    rig.drained();
    let store = Arc::new(FaultStore::default());
    let mut rig = over(&store, Write::Back, 16, &BOTH);
    rig.serve(&path(1, 6), 3);
    all_written(&mut rig);
    assert_eq!(store.len(), 0);
    rig.cache.write_out().unwrap();
    all_written(&mut rig);
    assert_eq!(rig.cache.unwritten(), [0; 2]);
    rig.drained();
    assert_eq!(reads_back(&store, &path(1, 6)), 6);
}

/// Gone with their store, they are owed to the next one.
#[test]
fn another_store_gets_parts_too() {
    let store = Arc::new(FaultStore::default());
    let mut rig = over(&store, Write::Through, 16, &BOTH);
    rig.serve(&path(1, 6), 3);
    all_written(&mut rig);
    rig.cache.detach_store(std::time::Duration::from_secs(1)).unwrap();
    let other = Arc::new(FaultStore::default());
    let attached: Arc<dyn hicache_core::storage::Store> = Arc::<FaultStore>::clone(&other);
    rig.cache.attach_store(&|| Ok(Arc::clone(&attached))).unwrap();
    rig.serve(&path(1, 6), 3);
    all_written(&mut rig);
    assert_eq!(stored(&other, &path(1, 6)), [(0..6).collect::<Vec<_>>(), vec![4, 5], vec![2, 5]]);
    rig.drained();
    assert_eq!(reads_back(&other, &path(1, 6)), 6);
}

/// A batch is never answered and keeps window slots: nobody waits behind it, and other paths' pages are written.
#[test]
fn a_window_that_has_no_room_beside_what_is_late_is_not_waited_for() {
    let store = Arc::new(FaultStore::default());
    store.plan(|verb, call| if (verb, call) == (Verb::Put, 1) { Fault::Hang } else { Fault::None });
    let shape = Shape {
        host: 20,
        deadline: 1.0,
        mode: HostMode::BufferOnly,
        writing: straight(Write::Through, 0.0),
        ..Shape::of(&[(WINDOW, 24, 3)])
    };
    let mut rig = Mixed::over(&shape, Some(&store));
    rig.serve(&path(1, 4), 4);
    rig.until("the store", |_| store.calls(Verb::Put) == 1);
    rig.cache.poll(None, 2.0).unwrap();
    for number in 2..=4 {
        rig.serve(&path(number, 4), 4);
    }
    rig.until("the others", |rig| rig.cache.pending() == 1);
    for number in 2..=4 {
        assert_eq!(stored(&store, &path(number, 4))[0], [0, 1, 2, 3]);
    }
    assert!(rig.cache.part_stats(0).unwrap().backup_no_room >= 6);
    store.release();
    all_written(&mut rig);
    rig.serve(&path(3, 4), 4);
    all_written(&mut rig);
    assert_eq!(stored(&store, &path(3, 4))[1], [2, 3]);
    rig.drained();
}

/// A slot alone is neither way's: it is refused by the pool's name.
#[test]
fn a_pool_with_one_slot_is_refused() {
    for (slots, refused) in [(0, false), (1, true), (2, false)] {
        let parts = [(WINDOW, 24, slots), (STATE, 12, 4)];
        let shape = Shape {
            host: 16,
            mode: HostMode::BufferOnly,
            writing: straight(Write::Through, 0.0),
            ..Shape::of(&parts)
        };
        let refusal = common::models::config(&shape).check().err().map(|error| error.to_string());
        assert_eq!(
            refusal.is_some_and(|error| error.contains("pool ") && error.contains("two")),
            refused,
            "{slots}"
        );
    }
}
