//! Memory in small pages goes through buffers in huge ones, and comes whole.

#![allow(unsafe_code, reason = "mappings as slices")]

use super::dir;
use super::moves::stamped;
use hicache_core::huge::{HUGE, Mapping, Sight};
use hicache_core::storage::disk::{Disk, DiskOptions, Op};
use memmap2::{Advice, MmapMut};
use std::path::Path;
use std::sync::Arc;

const PAGE: usize = 1 << 20;

fn disk(dir: &Path) -> Option<Disk> {
    let disk = Disk::open(dir, DiskOptions::default()).unwrap();
    disk.direct().then_some(disk)
}

fn small(bytes: usize) -> MmapMut {
    let memory = MmapMut::map_anon(bytes).unwrap();
    memory.advise(Advice::NoHugePage).unwrap();
    memory
}

/// MiB that a disk says it copied.
fn copied(disk: &Disk) -> u64 {
    let about = disk.describe();
    let number = about.rsplit_once('(').and_then(|(_, rest)| rest.split_once(" MiB so far"));
    number.map_or(0, |(number, _)| number.parse().unwrap())
}

/// Writes pages and reads them back into as much other memory, which is given back.
fn there_and_back(disk: &Disk, dir: &Path, from: &[u8], into: &mut [u8]) {
    let file = disk.create(&dir.join("data")).unwrap();
    let mut pages = from.chunks(PAGE).enumerate();
    let next = || pages.next().map(|(n, page)| Op::write(n, Arc::clone(&file), (n * PAGE) as u64, [page]));
    disk.run(32, next, |_, done| done.unwrap());
    let mut pages = into.chunks_mut(PAGE).enumerate();
    // Each in two runs.
    let next = || {
        let (n, page) = pages.next()?;
        let (one, other) = page.split_at_mut(PAGE / 4);
        Some(Op::read(n, Arc::clone(&file), (n * PAGE) as u64, [one, other]))
    };
    disk.run(32, next, |_, done| done.unwrap());
}

#[test]
fn small_pages_are_copied_and_whole_in_more_than_a_batch_may_copy_at_once() {
    let dir = dir();
    let Some(disk) = disk(dir.path()) else { return println!("no direct I/O here") };
    let (mut from, mut into) = (small(40 * PAGE), small(40 * PAGE));
    from.chunks_mut(PAGE).enumerate().for_each(|(n, page)| page.copy_from_slice(&stamped(n, PAGE)));
    into.fill(0xFF);
    there_and_back(&disk, dir.path(), &from, &mut into);
    assert!(from[..] == into[..]);
    let about = disk.describe();
    let lies = about.contains("used as it lies");
    assert_eq!(lies, !Sight::open().sees(), "{about}");
    // Where huge pages have run out it says so.
    assert!(lies || about.contains("too few") || copied(&disk) == 80, "{about}");
}

#[test]
fn what_is_in_huge_pages_or_tiny_is_not_copied() {
    let dir = dir();
    let Some(disk) = disk(dir.path()) else { return println!("no direct I/O here") };
    let (from, into) = (Mapping::anonymous(4 * PAGE).unwrap(), Mapping::anonymous(4 * PAGE).unwrap());
    let sight = Sight::open();
    for memory in [&from, &into] {
        memory.touch(1).unwrap();
        assert_eq!(memory.base().addr() % HUGE, 0);
        if !sight.sees() || sight.small(memory.base(), memory.bytes()) {
            return println!("no huge pages to be had here");
        }
    }
    // SAFETY: each mapping is ours and so long.
    let slice = |memory: &Mapping| unsafe { std::slice::from_raw_parts_mut(memory.base(), memory.bytes()) };
    let (from, into) = (slice(&from), slice(&into));
    from.chunks_mut(PAGE).enumerate().for_each(|(n, page)| page.copy_from_slice(&stamped(n, PAGE)));
    there_and_back(&disk, dir.path(), from, into);
    assert!(from == into);
    let mut page = small(8 << 10);
    page.fill(7);
    let file = disk.create(&dir.path().join("tiny")).unwrap();
    for n in 0..200_usize {
        let mut op = Some(Op::write(n, Arc::clone(&file), (n << 13) as u64, [&page[..]]));
        disk.run(1, || op.take(), |_, done| done.unwrap());
    }
    assert_eq!(copied(&disk), 0, "{}", disk.describe());
}

#[test]
fn sight_tells_small_pages_from_huge_ones_and_from_none() {
    let sight = Sight::open();
    if !sight.sees() {
        return println!("this kernel doesn't tell");
    }
    let mut memory = small(4 * HUGE);
    assert!(sight.small(memory.as_ptr(), memory.len()), "nothing is there");
    memory.fill(1);
    assert!(sight.small(memory.as_ptr(), 1));
    assert!(sight.small(memory[HUGE - 5..].as_ptr(), 10));
    let memory = Mapping::anonymous(HUGE).unwrap();
    memory.touch(1).unwrap();
    if sight.small(memory.base(), HUGE) {
        return println!("no huge pages to be had here");
    }
    assert!(!sight.small(memory.base().wrapping_add(4096), 100_000), "remembered, too");
    assert!(sight.small(memory.base().wrapping_add(HUGE - 10), 4096 + 10), "beyond its end");
}
