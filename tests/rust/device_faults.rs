//! The device's copier ends for good: waits end, transfers land as failed and give back what they own, nothing that
//! never arrived is believed, and a cache that gets other memory goes on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::models::shapes;
use common::rig::{Rig, Shape};
use common::squall::Squall;
use common::store::FaultStore;
use common::{Seeded, seeds};
use hicache_core::hash::chain;
use hicache_core::ids::{HitId, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::transfer::Direction;
use hicache_core::{Error, Ready};
use std::sync::Arc;
use std::time::Duration;

const TOKENS: [i32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
const WHY: &str = "the device is gone";

/// Every verb that reads or fills device memory says so.
fn refuses(rig: &mut Rig, loaded: Option<HitId>) {
    let gone = || Error::Device(WHY.to_owned());
    assert_eq!(rig.cache.allocate(1), Err(gone()));
    let other = rig.find(&[90, 91]);
    assert_eq!(rig.cache.load(&[other], None), Err(gone()));
    rig.cache.release(other, 0).unwrap();
    if let Some(hit) = loaded {
        assert_eq!(rig.cache.insert(hit, Tokens::I32(&[]), &[]), Err(gone()));
        assert_eq!(rig.cache.hit_slots(hit), Err(gone()));
        assert_eq!(rig.cache.backup(hit), Err(gone()));
    }
    rig.books();
}

/// Stored pages of a prompt, each of which must carry its stamp.
fn stored(rig: &Rig, store: &FaultStore, tokens: &[i32]) -> usize {
    let size = PageSize::new(u32::try_from(rig.size()).unwrap()).unwrap();
    let keys = chain(rig.namespace.seed(), Tokens::I32(tokens), size);
    let pages = keys.iter().enumerate().filter_map(|(page, key)| Some((page, store.page(key)?)));
    pages.inspect(|(page, bytes)| assert_eq!(*bytes, rig.stamp(tokens, *page), "page {page}")).count()
}

#[test]
fn a_backup_that_failed_leaves_nothing_on_the_host_and_nothing_in_storage() {
    let store = Arc::new(FaultStore::default());
    let mut rig = Rig::new(Shape::default(), Some(&store));
    rig.serve(&TOKENS[..4]);
    rig.settle();
    rig.gate.shut(Direction::Out);
    let hit = rig.find(&TOKENS);
    rig.load(hit);
    rig.compute(hit, &TOKENS);
    assert_eq!(rig.cache.tree().resident(Tier::Host), 6, "four are on their way");
    rig.gate.end(WHY);
    refuses(&mut rig, Some(hit));
    // The first two arrived: they stay, whatever the limits say of the others.
    rig.cache.poll(Some(Ready::default()), 0.0).unwrap();
    rig.books();
    assert_eq!((rig.cache.copying(), rig.cache.tree().resident(Tier::Host)), (0, 2));
    assert_eq!(rig.cache.stats().backup_failed_pages, 4);
    refuses(&mut rig, Some(hit));
    assert!(rig.cache.detach().unwrap_err().to_string().contains("1 hits are loaded"));
    rig.cache.release(hit, 0).unwrap();
    rig.settle();
    assert_eq!(rig.cache.tree().resident(Tier::Device), 0);
    assert_eq!(stored(&rig, &store, &TOKENS), 2);
    rig.wake_elsewhere();
    let again = rig.find(&TOKENS);
    assert_eq!(rig.load(again).device, 2);
    rig.settle();
    rig.verify(again, &TOKENS);
    // What was lost is computed and backed up anew.
    rig.compute(again, &TOKENS);
    rig.cache.release(again, 0).unwrap();
    rig.settle();
    assert_eq!(stored(&rig, &store, &TOKENS), 6);
    rig.drained();
}

#[test]
fn a_load_that_failed_is_waited_for_in_vain_at_once_and_its_pages_are_never_used() {
    let mut rig = Rig::new(Shape::default(), None);
    rig.serve(&TOKENS);
    rig.settle();
    rig.evict(Tier::Device, 6);
    rig.gate.shut(Direction::In);
    let hit = rig.find(&TOKENS);
    let ticket = rig.cache.load(&[hit], None).unwrap().ticket;
    let progress = Arc::clone(rig.cache.progress(Direction::In));
    let waiting = std::thread::spawn({
        let progress = Arc::clone(&progress);
        move || progress.wait(ticket, 1, Duration::MAX.min(Duration::from_secs(3600)))
    });
    rig.gate.end(WHY);
    assert!(!waiting.join().unwrap(), "it never arrived");
    assert_eq!(progress.fault().as_deref(), Some(WHY));
    refuses(&mut rig, Some(hit));
    rig.poll(0.0);
    assert_eq!((rig.cache.in_flight(), rig.cache.stats().load_failed_pages), (0, 6));
    refuses(&mut rig, Some(hit));
    rig.cache.release(hit, 0).unwrap();
    rig.poll(0.0);
    assert_eq!(rig.cache.tree().resident(Tier::Device), 0, "pages that were never filled");
    assert_eq!(rig.cache.tree().resident(Tier::Host), 6);
    rig.wake_elsewhere();
    assert!(!progress.wait(ticket, 1, Duration::ZERO), "the old load stays failed");
    let again = rig.find(&TOKENS);
    assert_eq!(rig.load(again).copied, 6);
    rig.settle();
    rig.verify(again, &TOKENS);
    rig.cache.release(again, 0).unwrap();
    rig.drained();
}

/// What a prefetch hung below pages that were still on their way goes with them, and so do later backups.
#[test]
fn what_hangs_below_a_failed_backup_goes_with_it() {
    let store = Arc::new(FaultStore::default());
    let mut writer = Rig::new(Shape::default(), Some(&store));
    writer.serve(&TOKENS);
    writer.settle();
    let mut rig = Rig::new(Shape::default(), Some(&store));
    rig.gate.shut(Direction::Out);
    rig.serve(&TOKENS[..4]);
    let hit = rig.fetch(&TOKENS);
    assert_eq!((rig.view(hit).usable, rig.cache.tree().resident(Tier::Host)), (6, 6));
    // A branch, backed up after that.
    rig.serve(&[1, 2, 3, 4, 70, 71]);
    rig.gate.end(WHY);
    rig.settle();
    assert_eq!((rig.cache.tree().resident(Tier::Host), rig.free(Tier::Host)), (0, 32));
    // The hit that waits moved up to what is left: nothing.
    assert_eq!(rig.view(hit).usable, 0);
    rig.cache.release(hit, 0).unwrap();
    rig.wake_elsewhere();
    let again = rig.fetch(&TOKENS);
    assert_eq!(rig.load(again).device, 6);
    rig.settle();
    rig.verify(again, &TOKENS);
    rig.cache.release(again, 0).unwrap();
    rig.drained();
}

#[test]
fn an_engine_that_owns_its_slots_gets_other_ones() {
    let mut rig = Rig::new(Shape { host: 0, ..Shape::default() }, None);
    rig.gate.end(WHY);
    rig.poll(0.0);
    rig.wake_elsewhere();
    rig.serve(&TOKENS);
    rig.drained();
}

/// Prompts that share prefixes.
fn prompt(random: &mut Seeded) -> Vec<i32> {
    let pages = 1 + random.below(6);
    (0..pages).flat_map(|_| [i32::try_from(1 + random.below(2)).unwrap(), 7]).collect()
}

/// Anything at all is under way when the copier ends, several times. Whatever hits afterwards, from host or
/// storage, has the bytes that it must have.
#[test]
fn nothing_wrong_is_ever_served_after_a_fault() {
    for seed in seeds(150) {
        let mut random = Seeded(seed);
        let store = Arc::new(FaultStore::default());
        let (host, writing) = (6 + u32::try_from(random.below(20)).unwrap(), common::writing::either(seed));
        let shape = Shape { host, writing, ..Shape::default() };
        let mut rig = Rig::new(shape, (random.below(2) == 0).then_some(&store));
        let mut prompts = Vec::new();
        for _ in 0..3 {
            let held = storm(&mut rig, &mut random, &mut prompts);
            rig.gate.end(WHY);
            refuses(&mut rig, None);
            rig.poll(0.0);
            assert_eq!(rig.cache.copying(), 0, "seed {seed}");
            for hit in held {
                rig.cache.release(hit, 0).unwrap();
            }
            rig.poll(0.0);
            assert_eq!(rig.cache.tree().resident(Tier::Device), 0, "seed {seed}");
            rig.wake_elsewhere();
            for tokens in &prompts {
                let hit = rig.fetch(tokens);
                rig.load(hit);
                rig.settle();
                rig.verify(hit, tokens);
                rig.cache.release(hit, 0).unwrap();
                stored(&rig, &store, tokens);
            }
        }
        rig.drained();
    }
}

/// The same with windows and states, whose copies land page by page and end anywhere between two.
#[test]
fn no_wrong_window_or_state_is_ever_served_after_a_fault() {
    for shape in shapes() {
        let (mut loaded, mut faults) = (0, 0);
        for seed in seeds(40) {
            let mut squall = Squall::new(&shape, seed);
            for _ in 0..4 {
                (0..90).for_each(|_| squall.step());
                squall.fault(WHY);
                faults += squall.rig.cache.stats().backup_failed_pages;
            }
            (0..120).for_each(|_| squall.step());
            squall.end();
            squall.rig.drained();
            loaded +=
                (0..shape.parts.len()).map(|p| squall.rig.cache.part_stats(p).unwrap().loaded).sum::<u64>();
        }
        // A state that is never on the host leaves little to load.
        let some = if shape.parts.iter().all(|part| part.2 > 0) { 20 } else { 0 };
        assert!(faults > 100 && loaded > some, "it happens: {faults} {loaded} {shape:?}");
    }
}

/// Requests whose copies pass now or later or never; hits that are still held at the end.
fn storm(rig: &mut Rig, random: &mut Seeded, prompts: &mut Vec<Vec<i32>>) -> Vec<HitId> {
    let mut held = Vec::new();
    for _ in 0..30 {
        let way = [Direction::In, Direction::Out][random.below(2)];
        match random.below(8) {
            0 => rig.gate.shut(way),
            1 => rig.gate.open(way),
            2 => drop(rig.gate.pass(way, 1 + random.below(2))),
            3 => rig.poll(0.0),
            4 => drop(rig.evict(Tier::Device, random.below(6))),
            5 => {
                let hit = rig.find(&prompt(random));
                rig.cache.prefetch(hit).unwrap();
                held.push(hit);
            }
            _ => {
                let tokens = prompt(random);
                let hit = rig.find(&tokens);
                rig.load(hit);
                rig.compute(hit, &tokens);
                prompts.push(tokens);
                held.push(hit);
                if random.below(3) > 0 {
                    rig.cache.release(held.swap_remove(random.below(held.len())), 0).unwrap();
                }
            }
        }
    }
    held
}
