//! Reads that take long: whatever becomes of their pages meanwhile, they end with the right bytes or without any.
//! And batches of one more than whatever has a size.

use super::hostile::{Fate, Hostile};
use super::rig::{PAGE, Rig, US, get, key};
use hicache_core::storage::Outcome::{Absent, Hit};
use hicache_core::storage::disk::threads::Threads;
use hicache_core::storage::disk::{Disk, DiskOptions, Io};
use hicache_core::storage::slab::Seams;
use hicache_core::storage::{Keys, Store};
use std::sync::{Arc, Mutex, mpsc};

/// A store of so many pages whose first read of a page tells that it has begun, and waits.
fn slow(slots: u64) -> (Rig, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (arrived, arrival) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    let (arrived, gate) = (Mutex::new(Some(arrived)), Mutex::new(gate));
    let hostile = Hostile::new(Arc::new(Threads::new(2).unwrap()), move |_, request| {
        // Not held while it waits: others read meanwhile.
        let first = if request.write { None } else { arrived.lock().unwrap().take() };
        if let Some(arrived) = first {
            arrived.send(()).unwrap();
            // Whatever becomes of the test.
            let _ = gate.lock().unwrap().recv();
        }
        Fate::Pass
    });
    let seams = Seams { engine: Some(Arc::new(hostile)), ..Seams::default() };
    (Rig::with(slots, |_| {}, seams), arrival, go)
}

#[test]
fn a_page_that_goes_while_it_is_read_leaves_its_slot_to_nobody() {
    for way in ["removed", "cleared", "crowded", "too long for its reader"] {
        let (rig, arrival, go) = slow(8);
        (0..8).for_each(|number| assert_eq!(rig.put(number), Hit));
        std::thread::scope(|scope| {
            let (go, rig) = (go, &rig);
            let reading = scope.spawn(|| rig.get(0));
            arrival.recv().unwrap();
            match way {
                "removed" => assert_eq!(rig.remove(0), Hit),
                "cleared" => assert_eq!(rig.store().clear(&US), Ok(8)),
                "crowded" => {}
                _ => _ = get(rig.store(), US, &[0], PAGE - 1),
            }
            // More pages than there are slots, three times over: all of them that are given out come again.
            for number in 100..124 {
                rig.put(number);
                assert!(matches!(rig.get(number), Hit | Absent), "{way}");
            }
            // What is being read isn't given up for others; else it can't be found any more.
            assert_eq!(rig.exists(0), way == "crowded", "{way}");
            go.send(()).unwrap();
            // `get` has compared the bytes.
            assert_eq!(reading.join().unwrap(), Hit, "{way}");
        });
        assert_eq!(rig.get(0) == Hit, way == "crowded", "{way}");
        assert_eq!(rig.store().statistics().corrupt_pages, u64::from(way.starts_with("too")), "{way}");
        // Its slot comes back: all eight can be had.
        let numbers: Vec<u32> = (200..208).collect();
        assert!(rig.put_all(&numbers, &[None; 8]).iter().all(|outcome| *outcome == Hit));
        assert_eq!(rig.here(0..300), numbers, "{way}");
    }
}

/// Depths, threads and queues have sizes; batches of one more, and of the same, come through.
#[test]
fn a_batch_of_one_more_than_anything_has_room_for() {
    for io in [Io::Threads, Io::Uring] {
        let dir = tempfile::tempdir().unwrap();
        let disk = DiskOptions { io, threads: 2, ..DiskOptions::default() };
        if Disk::open(dir.path(), disk).is_err() {
            eprintln!("no io_uring here");
            continue;
        }
        for depth in [1, 2, 7, 32, 128] {
            let rig = Rig::with(
                512,
                |options| {
                    options.extent = Some(512 * PAGE as u64);
                    options.disk = DiskOptions { depth, ..disk };
                },
                Seams::default(),
            );
            for count in [depth, depth + 1, 2 * depth + 1, 129, 257] {
                let numbers: Vec<u32> = (0..count as u32).collect();
                assert_eq!(rig.put_chain(&numbers), vec![Hit; count], "{io:?}, depth {depth}");
                assert_eq!(get(rig.store(), US, &numbers, PAGE), vec![Hit; count], "{io:?}, depth {depth}");
                let digests: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
                let keys = Keys { identity: &US, digests: &digests };
                assert_eq!(rig.store().exists(keys), vec![Hit; count]);
                assert_eq!(rig.store().remove(keys), vec![Hit; count]);
            }
        }
    }
}
