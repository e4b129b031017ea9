//! Extents: slots that are free are nobody's, what was written before is known, and zeros never fall on a page.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

#[path = "common/hostile.rs"]
mod hostile;
#[path = "extents/prewriting.rs"]
mod prewriting;

use hicache_core::storage::disk::{Direct, Disk, DiskOptions, Io};
use hicache_core::storage::slab::extents::{ExtentOptions, Extents, Place};
use hicache_core::storage::slab::lend::Asked;
use hicache_core::storage::slab::media::Plain;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const OPTIONS: ExtentOptions = ExtentOptions { bytes: 4 * MIB, most: 3, free: 0 };

fn disk(dir: &Path) -> Arc<Disk> {
    let options = DiskOptions { io: Io::Auto, direct: Direct::Auto, depth: 8, threads: 2 };
    Arc::new(Disk::open(dir, options).unwrap())
}

fn open(dir: &Path) -> Extents {
    opened(disk(dir), dir, OPTIONS).unwrap()
}

fn opened(disk: Arc<Disk>, dir: &Path, options: ExtentOptions) -> hicache_core::error::Result<Extents> {
    Extents::open(disk, Arc::new(Plain), dir, options)
}

/// Has what is asked for made, or waits for it.
fn asked<T>(ask: impl Fn() -> Asked<T>, have: impl Fn() -> bool) -> Option<T> {
    loop {
        match ask() {
            Asked::Have(it) => return Some(it),
            Asked::Wait if have() => {}
            Asked::Wait | Asked::None => return None,
        }
    }
}

fn take(extents: &Extents, slot: u32) -> Option<Place> {
    asked(|| extents.take(slot), || extents.settle(slot))
}

fn grow(extents: &Extents, slot: u32) -> Option<u32> {
    asked(|| extents.grow(slot, u32::MAX), || extents.provide(u32::MAX))
}

/// Takes it from its class, and has its file removed.
fn give_back(extents: &Extents, extent: u32) -> bool {
    extents.release(extent);
    extents.give_back(extent)
}

fn refused(dir: &Path, options: ExtentOptions) -> String {
    opened(disk(dir), dir, options).err().expect("it was opened").to_string()
}

fn all(extents: &Extents, slot_bytes: u32) -> Vec<Place> {
    std::iter::from_fn(|| take(extents, slot_bytes)).collect()
}

fn names(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_class_has_the_slots_of_its_extents_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let extents = open(dir.path());
    assert!(take(&extents, 65536).is_none(), "nothing was grown");
    assert_eq!((extents.slots(65536), extents.slots(3 << 20), extents.slots(8 << 20)), (64, 1, 0));
    assert_eq!((extents.slots(0), extents.slots(5000)), (0, 0), "no slot sizes");
    assert_eq!((grow(&extents, 0), grow(&extents, 5000), grow(&extents, 8 << 20)), (None, None, None));

    let numbers = [grow(&extents, 65536).unwrap(), grow(&extents, 65536).unwrap()];
    let other = grow(&extents, 73728).unwrap();
    assert!(grow(&extents, 65536).is_none(), "three there may be");
    let places = all(&extents, 65536);
    let slots: BTreeSet<(u32, u32)> = places.iter().map(|place| (place.extent, place.slot)).collect();
    assert_eq!((places.len(), slots.len()), (128, 128), "a slot was given twice, or not at all");
    for place in &places {
        assert!(numbers.contains(&place.extent) && place.slot < 64 && !place.written);
        assert_eq!(place.offset, u64::from(place.slot) * 65536);
        let again = extents.place(place.extent, place.slot).unwrap();
        assert_eq!((again.offset, again.file.file().metadata().unwrap().len()), (place.offset, 4 * MIB));
    }
    let others = all(&extents, 73728);
    assert_eq!(others.len(), 56);
    assert!(others.iter().all(|place| place.extent == other));
    assert_eq!(extents.stats().first_written_bytes, 128 * 65536 + 56 * 73728);
}

#[test]
fn a_slot_that_is_given_back_comes_again_written_ones_first() {
    let dir = tempfile::tempdir().unwrap();
    let extents = open(dir.path());
    let extent = grow(&extents, 1 << 20).unwrap();
    let taken = all(&extents, 1 << 20);
    extents.free(extent, 1, false);
    extents.free(extent, 3, true);
    let again: Vec<(u32, bool)> =
        all(&extents, 1 << 20).iter().map(|place| (place.slot, place.written)).collect();
    assert_eq!((taken.len(), again), (4, vec![(3, true), (1, false)]));
    extents.free(77, 0, true);
    assert!(take(&extents, 1 << 20).is_none());
}

#[test]
fn a_released_extent_keeps_what_was_written_for_another_class() {
    let dir = tempfile::tempdir().unwrap();
    let extents = open(dir.path());
    let extent = grow(&extents, 1 << 20).unwrap();
    all(&extents, 1 << 20).iter().for_each(|place| extents.free(extent, place.slot, place.slot != 2));
    let place = take(&extents, 1 << 20).unwrap();
    assert!(!extents.release(extent) && !give_back(&extents, extent), "a slot of it is in use");
    extents.free(extent, place.slot, place.written);
    assert!(extents.release(extent));
    assert!(!extents.release(extent), "it is spare already");
    assert!(take(&extents, 1 << 20).is_none());
    assert!(extents.place(extent, 0).is_none());
    assert_eq!(extents.stats().spare, 1);
    assert_eq!(grow(&extents, 512 << 10), Some(extent), "the spare one goes first");
    let written: Vec<u32> =
        all(&extents, 512 << 10).iter().filter(|place| place.written).map(|place| place.slot).collect();
    assert_eq!(written, [0, 1, 2, 3, 6, 7]);
}

#[test]
fn an_extent_given_back_is_gone_but_for_those_who_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let extents = open(dir.path());
    let extent = grow(&extents, 4 << 20).unwrap();
    let place = take(&extents, 4 << 20).unwrap();
    extents.free(extent, 0, false);
    assert_eq!(names(dir.path()), BTreeSet::from(["data-00000".to_owned()]));
    assert!(give_back(&extents, extent));
    assert!(names(dir.path()).is_empty());
    assert_eq!((extents.found(), extents.stats().extents), (vec![], 0));
    assert_eq!(place.file.file().metadata().unwrap().len(), 4 * MIB);
    assert_eq!(grow(&extents, 65536), Some(0), "its number is free again");
    assert!(!give_back(&extents, 7));
}

#[test]
fn what_is_in_use_stays_so_after_a_restart_and_all_else_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let extents = open(dir.path());
    let extent = grow(&extents, 65536).unwrap();
    drop(extents);
    // Slots 0 to 9, and 20: pages, of which the log knows some.
    let file = File::options().write(true).open(dir.path().join("data-00000")).unwrap();
    file.write_all_at(&vec![7; 10 * 65536], 0).unwrap();
    file.write_all_at(&vec![7; 65536], 20 * 65536).unwrap();

    let extents = open(dir.path());
    assert_eq!(extents.found(), [extent]);
    assert_eq!(extents.stats().ready_bytes, 11 * 65536, "the file system knows what was written");
    extents.adopt(extent, 65536, [0, 3, 20, 63]).unwrap();
    let free = all(&extents, 65536);
    let slots: BTreeSet<u32> = free.iter().map(|place| place.slot).collect();
    assert_eq!((free.len(), slots.len()), (60, 60));
    assert!([0, 3, 20, 63].iter().all(|used| !slots.contains(used)), "a page's slot was given away");
    let written: Vec<u32> = free.iter().filter(|place| place.written).map(|place| place.slot).collect();
    assert_eq!(written, [1, 2, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn a_slot_whose_page_was_lost_is_not_taken_for_written() {
    let dir = tempfile::tempdir().unwrap();
    grow(&open(dir.path()), 65536).unwrap();
    let extents = open(dir.path());
    // A log tells of a page where the file system knows of no byte.
    extents.adopt(0, 65536, [5]).unwrap();
    let lost = |extents: &Extents| all(extents, 65536).into_iter().find(|place| place.slot == 5).unwrap();
    extents.free(0, 5, true);
    assert!(!lost(&extents).written);
    extents.free(0, 5, true);
    assert!(lost(&extents).written, "it was written since");
}

#[test]
fn what_can_t_be_adopted_is_named() {
    let dir = tempfile::tempdir().unwrap();
    grow(&open(dir.path()), 65536).unwrap();
    let extents = open(dir.path());
    let bad = [
        extents.adopt(1, 65536, []),
        extents.adopt(0, 65536, [64]),
        extents.adopt(0, 65536, [3, 3]),
        extents.adopt(0, 65536, [4, 3]),
        extents.adopt(0, 5000, []),
        extents.adopt(0, 0, []),
        extents.adopt(0, 8 << 20, []),
    ];
    for error in bad {
        assert!(error.unwrap_err().to_string().starts_with("storage: extent "));
    }
    assert!(take(&extents, 65536).is_none(), "something was adopted");
    extents.adopt(0, 65536, 0..64).unwrap();
    assert!(extents.adopt(0, 65536, []).unwrap_err().to_string().starts_with("storage: extent 0"));
    assert!(take(&extents, 65536).is_none(), "all is in use");
}

#[test]
fn a_directory_s_other_files_are_left_alone_but_our_own_remains() {
    let dir = tempfile::tempdir().unwrap();
    let foreign = ["data-1", "data-000001", "data-", "data-+0001", "log-00000001", "data-00001.bak"];
    for name in foreign.iter().chain(&["data-00002.new"]) {
        File::create(dir.path().join(name)).unwrap();
    }
    let extents = open(dir.path());
    assert_eq!(extents.found(), Vec::<u32>::new());
    assert_eq!(names(dir.path()), foreign.iter().map(|&name| name.to_owned()).collect());
}

#[test]
fn files_of_another_size_are_refused_and_named() {
    let dir = tempfile::tempdir().unwrap();
    grow(&open(dir.path()), 65536).unwrap();
    let error = refused(dir.path(), ExtentOptions { bytes: 8 * MIB, ..OPTIONS });
    assert!(error.starts_with("storage: ") && error.contains("data-00000 has 4194304 bytes"), "{error}");
    for options in [
        ExtentOptions { bytes: 0, ..OPTIONS },
        ExtentOptions { bytes: 5000, ..OPTIONS },
        ExtentOptions { most: 0, ..OPTIONS },
    ] {
        assert!(refused(dir.path(), options).starts_with("storage: need extents"));
    }
}

#[test]
fn a_smaller_size_than_before_says_how_many_are_too_many() {
    let dir = tempfile::tempdir().unwrap();
    let extents = open(dir.path());
    assert_eq!([(); 3].map(|()| grow(&extents, 65536)), [Some(0), Some(1), Some(2)]);
    drop(extents);
    let extents = opened(disk(dir.path()), dir.path(), ExtentOptions { most: 1, ..OPTIONS }).unwrap();
    assert_eq!((extents.found(), extents.files()), (vec![0, 1, 2], 3));
    assert!(give_back(&extents, 2) && give_back(&extents, 0));
    assert_eq!((extents.files() as usize, names(dir.path()).len()), (1, 1));
    extents.adopt(1, 65536, []).unwrap();
    assert!(grow(&extents, 65536).is_none());
}

#[test]
fn a_full_file_system_gets_no_extent_and_no_remains() {
    let dir = tempfile::tempdir().unwrap();
    let full = ExtentOptions { free: u64::MAX / 4, ..OPTIONS };
    let extents = opened(disk(dir.path()), dir.path(), full).unwrap();
    assert!(grow(&extents, 65536).is_none());
    assert!(extents.short_of_space());
    let fault = extents.stats().fault.unwrap();
    assert!(fault.contains("the file system has"), "{fault}");
    drop(extents);
    let huge = ExtentOptions { bytes: 1 << 62, ..OPTIONS };
    let extents = opened(disk(dir.path()), dir.path(), huge).unwrap();
    assert!(grow(&extents, 65536).is_none());
    assert!(names(dir.path()).is_empty());
}
