//! Readers: right whenever nobody writes, sane while somebody does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::Seeded;
use common::rig::{Rig, Shape};
use hicache_core::hash::Namespace;
use hicache_core::ids::Tier;
use hicache_core::page::Tokens;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn namespace(which: usize) -> Namespace {
    Namespace { salt: (which > 0).then(|| which.to_string()), ..Namespace::default() }
}

/// Whenever the writer rests, a reader says exactly what a match finds: after inserts, evictions, loads, in
/// several namespaces, and through several sizes of the table.
#[test]
fn a_reader_says_what_a_match_would_find() {
    let mut rig = Rig::new(Shape { page: 2, device: 900, host: 1_400, ..Shape::default() }, None);
    let mut random = Seeded(5);
    for n in 0..20 {
        rig.serve(&[n, n, 7, 7]);
    }
    let reader = rig.cache.reader();
    let mut seen = [0; 2];
    for step in 0..1_500 {
        rig.namespace = namespace(random.below(3));
        let mut tokens = random.tokens(40, 4);
        if random.below(4) == 0 {
            tokens.insert(0, step);
        }
        match random.below(6) {
            0 => drop(rig.evict(Tier::Device, 1 + random.below(30))),
            1 => drop(rig.evict(Tier::Host, 1 + random.below(20))),
            _ => drop(rig.serve(&tokens)),
        }
        rig.settle();
        let asked = random.tokens(40, 4);
        for tokens in [&tokens, &asked] {
            let hit = rig.find(tokens);
            let view = rig.view(hit);
            let would = reader.would_hit(Tokens::I32(tokens), &rig.namespace).unwrap();
            let pages = |tokens: usize| u32::try_from(tokens / 2).unwrap();
            assert_eq!((pages(would.device), pages(would.usable)), (view.device, view.usable), "{tokens:?}");
            seen[0] += usize::from(view.device > 0);
            seen[1] += usize::from(view.usable > view.device);
            rig.cache.release(hit, 0).unwrap();
        }
    }
    assert!(seen[0] > 100 && seen[1] > 20, "both tiers were asked about: {seen:?}");
    let stats: std::collections::HashMap<_, _> = reader.stats().collect();
    rig.cache.poll(None, 0.0).unwrap();
    assert_eq!(stats["device_slots"], 900);
    assert!(reader.would_hit(Tokens::I32(&[-1]), &Namespace::default()).is_err());
}

/// While the writer works, a reader never reports pages that were never there, and always those that stay.
#[test]
fn a_reader_is_sane_while_the_writer_works() {
    let mut rig = Rig::new(Shape { page: 1, device: 4_000, host: 0, ..Shape::default() }, None);
    // Held for the whole test: must always be found. And one that is never inserted.
    let kept: Vec<i32> = (1..=200).collect();
    let never: Vec<i32> = (1..=100).chain(9_000..9_100).collect();
    rig.serve(&kept);
    let hit = rig.find(&kept);
    rig.cache.load(&[hit], None).unwrap();
    let reader = rig.cache.reader();
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (reader, stop) = (reader.clone(), Arc::clone(&stop));
            let (kept, never) = (kept.clone(), never.clone());
            std::thread::spawn(move || {
                let mut rounds = 0;
                while !stop.load(Ordering::Relaxed) {
                    let all = reader.would_hit(Tokens::I32(&kept), &Namespace::default()).unwrap();
                    assert_eq!((all.device, all.usable), (200, 200));
                    let some = reader.would_hit(Tokens::I32(&never), &Namespace::default()).unwrap();
                    assert_eq!((some.device, some.usable), (100, 100));
                    rounds += 1;
                }
                rounds
            })
        })
        .collect();
    let mut random = Seeded(9);
    for n in 0..600 {
        let tokens: Vec<i32> =
            (0..60).map(|at| if at < 3 { n + at } else { i32::from(random.below(2) == 0) }).collect();
        rig.serve(&tokens);
        if n % 7 == 0 {
            rig.evict(Tier::Device, 300);
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(threads.into_iter().all(|thread| thread.join().unwrap() > 0));
    rig.cache.release(hit, 0).unwrap();
}
