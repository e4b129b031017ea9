//! What goes to make room, and what doesn't.

use super::rig::{PAGE, Rig, THEM, US, get, put};
use hicache_core::storage::Outcome::{Absent, Declined, Hit};
use hicache_core::storage::slab::SlabStore;
use hicache_core::storage::{Client, Store};
use std::collections::HashMap;
use std::fs;

/// Bytes that the directory takes.
fn taken(rig: &Rig) -> u64 {
    fs::read_dir(rig.home()).unwrap().flatten().map(|entry| entry.metadata().unwrap().len()).sum()
}

#[test]
fn the_oldest_goes_first_and_a_parent_after_its_children() {
    let rig = Rig::new(8);
    assert_eq!(rig.put_chain(&[1, 2, 3, 4]), [Hit; 4]);
    assert_eq!(rig.put_chain(&[11, 12, 13, 14]), [Hit; 4]);
    assert_eq!(rig.put(21), Hit);
    assert_eq!(rig.here(0..30), [1, 2, 3, 11, 12, 13, 14, 21]);
    assert_eq!(rig.get(3), Hit);
    assert_eq!(rig.put(22), Hit);
    assert_eq!(rig.here(0..30), [1, 2, 3, 11, 12, 13, 21, 22], "3 was used since");
    assert_eq!(rig.store().statistics().evicted_pages, 2);
}

#[test]
fn a_chain_that_is_too_long_keeps_its_beginning() {
    let rig = Rig::new(8);
    let numbers: Vec<u32> = (0..12).collect();
    let outcomes = rig.put_chain(&numbers);
    assert_eq!(outcomes, [[Hit; 8].as_slice(), &[Declined; 4]].concat());
    assert_eq!(rig.put_below(8, 7), Declined, "the page that it needs would have to go");
    assert_eq!(rig.here(0..12), (0..8).collect::<Vec<_>>());
    assert_eq!(rig.put(100), Hit);
    assert_eq!(rig.here(0..12), (0..7).collect::<Vec<_>>());
}

#[test]
fn recency_survives_a_restart() {
    for compacted in [false, true] {
        let mut rig = Rig::new(8);
        (0..8).for_each(|number| assert_eq!(rig.put(number), Hit));
        assert_eq!([2, 0, 5].map(|number| rig.get(number)), [Hit; 3]);
        if compacted {
            rig.store().compact().unwrap();
        }
        rig.reopen();
        (10..15).for_each(|number| assert_eq!(rig.put(number), Hit));
        assert_eq!(rig.here(0..20), [0, 2, 5, 10, 11, 12, 13, 14]);
        rig.reopen();
        (20..22).for_each(|number| assert_eq!(rig.put(number), Hit));
        assert_eq!(rig.here(0..30), [5, 10, 11, 12, 13, 14, 20, 21]);
    }
}

#[test]
fn parents_outlive_children_in_any_forest() {
    let mut rig = Rig::new(24);
    let mut parents: HashMap<u32, u32> = HashMap::new();
    let mut seed = 7_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for number in 0..300 {
        let here = rig.here(0..number);
        let parent = here.get(random(here.len() as u64 + 3) as usize).copied();
        let outcome = match parent {
            Some(parent) => rig.put_below(number, parent),
            None => rig.put(number),
        };
        parents.extend(parent.filter(|_| outcome == Hit).map(|parent| (number, parent)));
        if random(4) == 0 && !here.is_empty() {
            rig.get(here[random(here.len() as u64) as usize]);
        }
        if random(40) == 0 {
            rig.reopen();
        }
        for child in rig.here(0..=number) {
            let parent = parents.get(&child);
            assert!(parent.is_none_or(|&parent| rig.exists(parent)), "{child} without {parent:?}");
        }
        assert!(rig.store().statistics().pages <= 24);
        assert!(
            taken(&rig) <= rig.options.size,
            "{} of {}: {:?}",
            taken(&rig),
            rig.options.size,
            fs::read_dir(rig.home())
                .unwrap()
                .flatten()
                .map(|e| (e.file_name(), e.metadata().unwrap().len()))
                .collect::<Vec<_>>()
        );
    }
    assert!(rig.store().statistics().pages > 16);
}

#[test]
fn it_never_takes_more_than_it_was_given() {
    let mut rig = Rig::new(64);
    for round in 0..400_u32 {
        let numbers: Vec<u32> = (round * 16..(round + 1) * 16).collect();
        put(rig.store(), if round % 2 == 0 { US } else { THEM }, &numbers, &[None; 16], PAGE);
        if round % 50 == 49 {
            assert!(taken(&rig) <= rig.options.size, "{} of {}", taken(&rig), rig.options.size);
            rig.store().slab().unwrap().keep();
            assert!(taken(&rig) <= rig.options.size, "{} of {}", taken(&rig), rig.options.size);
        }
    }
    rig.reopen();
    assert_eq!(rig.store().statistics().pages, 64);
}

#[test]
fn classes_take_room_from_each_other() {
    let rig = Rig::new(32);
    let numbers: Vec<u32> = (0..32).collect();
    assert!(put(rig.store(), US, &numbers, &[None; 32], PAGE).iter().all(|outcome| *outcome == Hit));
    for number in 100..150 {
        assert_eq!(put(rig.store(), US, &[number], &[None], 3 * PAGE), [Hit]);
        assert_eq!(get(rig.store(), US, &[number], 3 * PAGE), [Hit]);
    }
    let small = rig.here(0..32).len();
    assert!(small <= 8, "{small} pages that nobody used are still there");
    for number in 200..260 {
        assert_eq!(put(rig.store(), US, &[number], &[None], PAGE), [Hit]);
    }
    assert!(rig.here(200..260).len() >= 16);
}

#[test]
fn a_parent_of_another_class_stays_too() {
    let mut rig = Rig::new(16);
    put(rig.store(), US, &[1], &[None], 2 * PAGE);
    (10..18).for_each(|number| assert_eq!(rig.put_below(number, 1), Hit));
    (20..60).for_each(|number| assert_eq!(put(rig.store(), US, &[number], &[Some(1)], 2 * PAGE), [Hit]));
    assert_eq!(get(rig.store(), US, &[1], 2 * PAGE), [Hit]);
    rig.reopen();
    assert_eq!(get(rig.store(), US, &[1], 2 * PAGE), [Hit]);
}

#[test]
fn less_room_after_a_restart_keeps_what_was_used_last() {
    let mut rig = Rig::with(
        4 * 8,
        |options| {
            options.extent = Some(PAGE as u64);
            options.size = super::rig::LOG + 8 * (PAGE as u64 + 192);
        },
        hicache_core::storage::slab::Seams::default(),
    );
    for number in 0..8 {
        assert_eq!(rig.put(number), Hit);
    }
    rig.close();
    rig.options.size = super::rig::LOG + 3 * (PAGE as u64 + 192);
    rig.options.shrink = false;
    let error = SlabStore::open(rig.options.clone(), &Client::alone(US), &rig.seams).err().unwrap();
    assert!(error.to_string().starts_with("storage: size="), "{error}");
    rig.options.shrink = true;
    rig.reopen();
    assert_eq!(rig.here(0..10), [5, 6, 7], "the oldest went");
    assert_eq!(rig.put(8), Hit);
    assert_eq!(rig.here(0..10), [6, 7, 8]);
    let files = fs::read_dir(rig.home()).unwrap().flatten();
    assert!(files.filter(|file| file.file_name().to_string_lossy().starts_with("data-")).count() <= 3);
    assert_eq!(rig.get(5), Absent);
}
