//! The thread that writes in advance: beside puts, over restarts, on a disk that fails.

use super::hostile::{Fate, Hostile};
use super::{MIB, OPTIONS, all, disk, give_back, grow, names, open, opened, take};
use hicache_core::storage::disk::engine::Request;
use hicache_core::storage::disk::threads::Threads;
use hicache_core::storage::disk::{Disk, DiskOptions, Op};
use hicache_core::storage::slab::extents::{ExtentOptions, ExtentStats, Extents, Place};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Waits for what must come; never measures how long.
fn until(extents: &Extents, ready: impl Fn(&ExtentStats) -> bool) -> ExtentStats {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let stats = extents.stats();
        if ready(&stats) {
            return stats;
        }
        assert!(Instant::now() < end, "still {stats:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One more extent, however long the disk keeps a step of zeros waiting.
fn grown(extents: &Extents, slot: u32) -> u32 {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match grow(extents, slot) {
            Some(extent) => return extent,
            None => assert!(Instant::now() < end, "no extent: {:?}", extents.stats()),
        }
    }
}

fn transfer(disk: &Disk, op: Op<'_>) {
    let mut op = Some(op);
    disk.run(1, || op.take(), |_, result| result.unwrap());
}

fn put(disk: &Disk, place: &Place, page: &[u8]) {
    transfer(disk, Op::write(0, Arc::clone(&place.file), place.offset, [page]));
}

fn get(disk: &Disk, place: &Place, bytes: usize) -> Vec<u8> {
    let mut page = vec![0; bytes];
    transfer(disk, Op::read(0, Arc::clone(&place.file), place.offset, [page.as_mut_slice()]));
    page
}

#[test]
fn everything_is_written_in_advance_and_known_to_be_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let extents = open(dir.path());
    let extent = grow(&extents, 73728).unwrap();
    extents.start().unwrap();
    let stats = until(&extents, |stats| stats.extents == 2 && stats.unwritten_bytes == 0);
    assert_eq!((stats.spare, stats.fault), (1, None));
    assert_eq!(stats.prewritten_bytes, 56 * 73728 + 4 * MIB);
    let places = all(&extents, 73728);
    assert_eq!(places.len(), 56);
    for place in &places {
        assert!(place.written && place.extent == extent);
        assert!(get(&disk(dir.path()), place, 73728).iter().all(|&byte| byte == 0));
    }
    assert_eq!(extents.stats().first_written_bytes, 0);
    drop(extents);

    let extents = open(dir.path());
    extents.adopt(extent, 73728, [5]).unwrap();
    let stats = extents.stats();
    assert_eq!((stats.ready_bytes, stats.unwritten_bytes), (55 * 73728 + 4 * MIB, 0));
}

#[test]
fn the_spare_extent_is_made_again_once_it_has_a_class() {
    let dir = tempfile::tempdir().unwrap();
    let extents = open(dir.path());
    extents.start().unwrap();
    for count in 1..=3 {
        until(&extents, |stats| (stats.extents, stats.spare) == (count, 1));
        grown(&extents, 65536);
    }
    assert!(grow(&extents, 65536).is_none());
    until(&extents, |stats| stats.unwritten_bytes == 0);
    assert_eq!(all(&extents, 65536).len(), 3 * 64);
}

/// Puts take slots right where zeros are being written, free some and take them again.
#[test]
fn zeros_never_fall_on_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let options = ExtentOptions { bytes: 32 * MIB, most: 2, free: 0 };
    let disk = disk(dir.path());
    let extents = opened(Arc::clone(&disk), dir.path(), options).unwrap();
    grow(&extents, 65536).unwrap();
    extents.start().unwrap();
    let pages = std::thread::scope(|scope| {
        let put_some = |seed: u8| {
            let (extents, disk) = (&extents, &disk);
            scope.spawn(move || {
                let mut kept = Vec::new();
                for n in 0..160_u8 {
                    let place = take(extents, 65536)
                        .or_else(|| grow(extents, 65536).and_then(|_| take(extents, 65536)));
                    let place = place.expect("no room");
                    let page = vec![n ^ seed | 1; 65000];
                    put(disk, &place, &page);
                    if n % 3 == 0 {
                        extents.free(place.extent, place.slot, true);
                    } else {
                        kept.push((place, page));
                    }
                    std::thread::yield_now();
                }
                kept
            })
        };
        let threads: Vec<_> = [0x10, 0x70, 0x90].into_iter().map(put_some).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    until(&extents, |stats| stats.unwritten_bytes == 0);
    for (place, page) in &pages {
        assert!(&get(&disk, place, 65000) == page, "slot {} of {}", place.slot, place.extent);
    }
    let free = all(&extents, 65536);
    let both: std::collections::BTreeSet<_> =
        pages.iter().map(|page| &page.0).chain(&free).map(|place| (place.extent, place.slot)).collect();
    assert_eq!(both.len(), pages.len() + free.len(), "a page's slot is free");
}

#[test]
fn a_class_changes_while_zeros_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let options = ExtentOptions { bytes: 32 * MIB, most: 1, free: 0 };
    let extents = opened(disk(dir.path()), dir.path(), options).unwrap();
    extents.start().unwrap();
    for round in 0..40_u32 {
        let slot = [65536, 73728, 1 << 20, 12288][round as usize % 4];
        let extent = grown(&extents, slot);
        let place = take(&extents, slot).unwrap();
        assert_eq!(place.offset % u64::from(slot), 0);
        extents.free(extent, place.slot, place.written);
        if round % 5 == 4 {
            assert!(give_back(&extents, extent));
        } else {
            assert!(extents.release(extent));
        }
    }
    grown(&extents, 73728);
    let slots = extents.slots(73728);
    until(&extents, |stats| stats.unwritten_bytes == 0);
    assert_eq!(all(&extents, 73728).len(), slots as usize, "slots were lost");
}

#[test]
fn others_transfers_go_first() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path());
    let extents = opened(Arc::clone(&disk), dir.path(), OPTIONS).unwrap();
    grow(&extents, 65536).unwrap();
    let file = disk.create(&dir.path().join("f")).unwrap();
    let page = vec![1; 4096];
    let mut left = 3;
    let next = || {
        left -= 1;
        if left == 1 {
            extents.start().unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
        (left > 0).then(|| Op::write(0, Arc::clone(&file), 0, [page.as_slice()]))
    };
    let during = || extents.stats().prewritten_bytes;
    let mut seen = 0;
    disk.run(1, next, |_, _| seen = during());
    assert_eq!(seen, 0, "zeros were written while a batch was under way");
    until(&extents, |stats| stats.prewritten_bytes > 0);
}

/// The disk fails: slots stay where they are, unwritten, and pages can go there once it works again.
#[test]
fn what_can_t_be_prewritten_is_still_there() {
    let dir = tempfile::tempdir().unwrap();
    let broken = Arc::new(AtomicBool::new(true));
    let fails = Arc::clone(&broken);
    let judge = move |_: usize, _: &Request<'_>| {
        if fails.load(Ordering::SeqCst) { Fate::Fail(libc::EIO) } else { Fate::Pass }
    };
    let engine = Hostile::new(Arc::new(Threads::new(2).unwrap()), judge);
    let disk = Arc::new(Disk::over(Arc::new(engine), dir.path(), DiskOptions::default()).unwrap());
    let extents = opened(Arc::clone(&disk), dir.path(), OPTIONS).unwrap();
    grow(&extents, 65536).unwrap();
    extents.start().unwrap();
    let stats = until(&extents, |stats| stats.fault.is_some());
    assert!(stats.fault.unwrap().contains("can't be prewritten"));
    assert_eq!(stats.prewritten_bytes, 0);
    broken.store(false, Ordering::SeqCst);
    let places = all(&extents, 65536);
    assert_eq!(places.len(), 64, "slots were lost");
    put(&disk, &places[0], &vec![5; 65536]);
    assert!(get(&disk, &places[0], 65536).iter().all(|&byte| byte == 5));
}

#[test]
fn a_file_system_that_fills_up_gets_the_spare_extent_back() {
    let dir = tempfile::tempdir().unwrap();
    let extents = open(dir.path());
    let used = grow(&extents, 65536).unwrap();
    extents.start().unwrap();
    until(&extents, |stats| stats.spare == 1);
    drop(extents);
    let full = ExtentOptions { free: u64::MAX / 4, ..OPTIONS };
    let extents = opened(disk(dir.path()), dir.path(), full).unwrap();
    extents.adopt(used, 65536, 0..64).unwrap();
    extents.start().unwrap();
    until(&extents, |stats| stats.spare == 0);
    assert_eq!(extents.found(), [used]);
    // Its name goes right after.
    let end = Instant::now() + Duration::from_secs(60);
    while names(dir.path()).len() > 1 {
        assert!(Instant::now() < end);
    }
}

#[test]
fn memory_that_others_see_is_what_was_put() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path());
    let extents = opened(Arc::clone(&disk), dir.path(), OPTIONS).unwrap();
    grow(&extents, 8192).unwrap();
    let place = take(&extents, 8192).unwrap();
    put(&disk, &place, &[9; 8000]);
    place.file.sync().unwrap();
    let mut page = [0; 8192];
    std::fs::File::open(dir.path().join("data-00000"))
        .unwrap()
        .read_exact_at(&mut page, place.offset)
        .unwrap();
    assert!(page[..8000].iter().all(|&byte| byte == 9));
}
