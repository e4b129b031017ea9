//! Several threads at once: right bytes, removals that win, and no slot lost.

use super::rig::{PAGE, Rig, THEM, US, get, key, put};
use hicache_core::storage::slab::index::State;
use hicache_core::storage::{Keys, Outcome, Store};
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages of one thread's own: nobody else puts them.
const OWN: u32 = 40;

fn random(seed: &mut u64, below: u32) -> u32 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*seed >> 33) % u64::from(below)) as u32
}

fn one_thread(rig: &Rig, me: u32, hits: &AtomicU64) {
    let mut seed = u64::from(me) + 1;
    for _ in 0..250 {
        let shared: Vec<u32> = (0..=random(&mut seed, 8)).map(|_| random(&mut seed, 60)).collect();
        let parents: Vec<Option<u32>> =
            shared.iter().map(|number| (*number > 5).then(|| number / 2)).collect();
        let own = 1000 + me * OWN + random(&mut seed, OWN);
        let us = if random(&mut seed, 3) == 0 { THEM } else { US };
        let bytes = if us == THEM { 2 * PAGE + 5 } else { PAGE };
        match random(&mut seed, 10) {
            0..4 => _ = put(rig.store(), us, &shared, &parents, bytes),
            4..8 => {
                let outcomes = get(rig.store(), us, &shared, bytes);
                let known = outcomes.iter().all(|outcome| matches!(outcome, Outcome::Hit | Outcome::Absent));
                assert!(known, "{outcomes:?}");
                hits.fetch_add(
                    outcomes.iter().filter(|o| **o == Outcome::Hit).count() as u64,
                    Ordering::Relaxed,
                );
            }
            8 => {
                // Nobody else puts it: what is removed is gone.
                rig.put(own);
                rig.remove(own);
                assert!(!rig.exists(own));
            }
            _ => {
                let digests: Vec<_> = shared.iter().map(|number| key(*number)).collect();
                rig.store().remove(Keys { identity: &us, digests: &digests });
            }
        }
        if random(&mut seed, 60) == 0 {
            rig.store().clear(&us).unwrap();
        }
        if random(&mut seed, 60) == 0 {
            rig.store().compact().unwrap();
        }
    }
}

/// Free, written and held slots are all there are.
fn nothing_is_lost(rig: &Rig) {
    let slab = rig.store().slab().unwrap();
    let (slots, used, pages) = slab.look(|index| {
        let slots: u64 =
            index.ground.iter().map(|(_, slots)| u64::from(slots.class) * slots.pages.len() as u64).sum();
        let used: u64 =
            index.ground.iter().map(|(_, slots)| u64::from(slots.class) * u64::from(slots.used)).sum();
        assert_eq!(index.under_way(), 0);
        let pages: Vec<_> = (0..index.numbers()).map(|page| *index.page(page)).collect();
        assert!(
            pages.iter().all(|page| page.readers == 0 && matches!(page.state, State::Free | State::Here))
        );
        let here = pages.iter().filter(|page| page.state == State::Here).map(|page| page.written.bytes);
        (slots, used, here.map(|bytes| u64::from(bytes.next_multiple_of(4096))).sum::<u64>())
    });
    assert_eq!(used, pages, "slots of no page");
    let stats = slab.space();
    let spare = u64::from(stats.spare) * rig.options.extent.unwrap();
    assert_eq!(stats.ready_bytes + stats.unwritten_bytes - spare, slots - used, "slots that nobody has");
}

#[test]
fn four_threads() {
    for threads in [false, true] {
        let mut rig = Rig::with(
            64,
            |options| {
                options.disk.io = if threads {
                    hicache_core::storage::disk::Io::Threads
                } else {
                    hicache_core::storage::disk::Io::default()
                };
                options.sync = threads;
            },
            hicache_core::storage::slab::Seams::default(),
        );
        let hits = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for me in 0..4 {
                let (rig, hits) = (&rig, &hits);
                scope.spawn(move || one_thread(rig, me, hits));
            }
        });
        assert!(hits.into_inner() > 200, "hardly anything was found");
        nothing_is_lost(&rig);
        let here = rig.here(0..60);
        rig.reopen();
        assert_eq!(rig.here(0..60), here, "the log tells the same");
        nothing_is_lost(&rig);
        get(rig.store(), US, &here, PAGE);
        assert_eq!(rig.store().statistics().corrupt_pages, 0);
    }
}

/// A removal that comes while a put is under way wins, whatever the order in which they end.
#[test]
fn a_removal_wins_over_a_put_that_began_before_it() {
    use super::hostile::{Fate, Hostile};
    use std::sync::{Arc, Mutex, mpsc};
    let (arrived, arrival) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    let (arrived, gate) = (Mutex::new(Some(arrived)), Mutex::new(gate));
    let engine = Arc::new(hicache_core::storage::disk::threads::Threads::new(2).unwrap());
    let hostile = Hostile::new(engine, move |_, request| {
        if request.write
            && request.runs[0].bytes == 3 * PAGE
            && let Some(arrived) = arrived.lock().unwrap().take()
        {
            arrived.send(()).unwrap();
            gate.lock().unwrap().recv().unwrap();
        }
        Fate::Pass
    });
    let seams = hicache_core::storage::slab::Seams { engine: Some(Arc::new(hostile)), ..Default::default() };
    let mut rig = Rig::with(64, |_| {}, seams);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| put(rig.store(), US, &[1], &[None], 3 * PAGE));
        arrival.recv().unwrap();
        assert_eq!(get(rig.store(), US, &[1], 3 * PAGE), [Outcome::Absent], "it is half there");
        rig.remove(1);
        go.send(()).unwrap();
        assert_eq!(writing.join().unwrap(), [Outcome::Cancelled]);
    });
    assert!(!rig.exists(1));
    nothing_is_lost(&rig);
    rig.reopen();
    assert!(!rig.exists(1));
}
