//! Whatever happens to the files while the store is closed: right pages or misses.

use super::rig::{PAGE, Rig, US, get};
use hicache_core::storage::Outcome::{Absent, Hit};
use hicache_core::storage::slab::SlabStore;
use hicache_core::storage::slab::replay::segments;
use hicache_core::storage::slab::tail::path;
use hicache_core::storage::{Client, Store};
use std::fs;
use std::path::{Path, PathBuf};

/// Pages that were put; every third was removed.
const PAGES: u32 = 60;

/// A closed store whose log has several segments, all of which say something that still counts.
fn several() -> Rig {
    let mut rig = Rig::with(64, |_| {}, hicache_core::storage::slab::Seams::default());
    for round in 0..3 {
        let numbers: Vec<u32> = (round * 20..(round + 1) * 20).collect();
        assert!(rig.put_chain(&numbers).iter().all(|outcome| *outcome == Hit));
        numbers
            .iter()
            .filter(|number| *number % 3 == 0)
            .for_each(|number| assert_eq!(rig.remove(*number), Hit));
        // Reopening begins a segment.
        rig.reopen();
    }
    rig.put(1000);
    rig.close();
    assert_eq!(segments(&rig.home()).unwrap().len(), 4);
    rig
}

/// Opened after the damage: pages that are there are right, others can be put again. Which were there.
fn survivors(rig: &mut Rig) -> Vec<u32> {
    rig.reopen();
    let before = rig.here(0..PAGES);
    let outcomes = get(rig.store(), US, &(0..PAGES).collect::<Vec<_>>(), PAGE);
    let right: Vec<u32> = (0..PAGES).filter(|number| outcomes[*number as usize] == Hit).collect();
    assert!(right.iter().all(|number| before.contains(number)));
    assert_eq!(rig.here(0..PAGES), right, "what was wrong is gone");
    for number in 0..PAGES {
        assert_eq!(rig.put(number), Hit, "{number} can't be mended");
    }
    let held = rig.here(0..PAGES);
    rig.reopen();
    assert_eq!(rig.here(0..PAGES), held, "{}", rig.store().describe());
    let outcomes = get(rig.store(), US, &(0..PAGES).collect::<Vec<_>>(), PAGE);
    assert_eq!(outcomes, vec![Hit; PAGES as usize]);
    right
}

fn expected(range: std::ops::Range<u32>) -> Vec<u32> {
    range.filter(|number| number % 3 != 0).collect()
}

fn segment(rig: &Rig, which: usize) -> PathBuf {
    path(&rig.home(), segments(&rig.home()).unwrap()[which])
}

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 4;
    fs::write(file, bytes).unwrap();
}

#[test]
fn nothing_happened() {
    assert_eq!(survivors(&mut several()), expected(0..PAGES));
}

#[test]
fn a_torn_end_loses_the_end() {
    // In the first segment: 20 pages in a group, then removals.
    let mut rig = Rig::new(64);
    rig.put_chain(&(0..10).collect::<Vec<_>>());
    rig.put_chain(&(10..20).collect::<Vec<_>>());
    rig.close();
    let file = segment(&rig, 0);
    let length = fs::read(&file).unwrap().iter().rposition(|byte| *byte != 0).unwrap();
    let mut bytes = fs::read(&file).unwrap();
    bytes[length - 100..].fill(0);
    fs::write(&file, bytes).unwrap();
    assert_eq!(survivors(&mut rig), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_bit_flipped_anywhere() {
    for (which, at) in
        [(0, 3), (0, 20), (0, 50), (0, 70), (0, 300), (1, 90), (1, 700), (2, 1000), (3, 30), (3, 100)]
    {
        let mut rig = several();
        flip(&segment(&rig, which), at);
        let survivors = survivors(&mut rig);
        // What was removed stays so: the damage is in front of something, so all before that is forgotten.
        let known = expected(0..PAGES);
        assert!(
            survivors.iter().all(|number| known.contains(number)),
            "segment {which}, byte {at}: {survivors:?}"
        );
        let lost = if which == 3 { 0 } else { 20 * (which as u32 + 1) };
        assert_eq!(survivors, expected(lost..PAGES), "segment {which}, byte {at}");
    }
}

#[test]
fn missing_swapped_cut_and_foreign_segments() {
    let mut rig = several();
    fs::remove_file(segment(&rig, 1)).unwrap();
    assert_eq!(survivors(&mut rig), expected(40..PAGES));

    let mut rig = several();
    let (one, two, tmp) = (segment(&rig, 0), segment(&rig, 1), rig.home().join("tmp"));
    fs::rename(&one, &tmp).unwrap();
    fs::rename(&two, &one).unwrap();
    fs::rename(&tmp, &two).unwrap();
    assert_eq!(survivors(&mut rig), expected(40..PAGES));

    for length in [0, 10, 64, 100, 2000] {
        let mut rig = several();
        fs::File::options().write(true).open(segment(&rig, 1)).unwrap().set_len(length).unwrap();
        assert_eq!(survivors(&mut rig), expected(40..PAGES), "cut to {length}");
    }

    let mut rig = several();
    let other = several();
    fs::copy(segment(&other, 2), segment(&rig, 2)).unwrap();
    assert_eq!(survivors(&mut rig), expected(0..0), "another store's, and after it nothing but page 1000");

    let mut rig = several();
    fs::write(rig.home().join("log-00000999"), b"somebody else's").unwrap();
    fs::write(rig.home().join("log-+7"), b"somebody else's").unwrap();
    fs::create_dir(rig.home().join("log-00000555")).unwrap();
    assert_eq!(survivors(&mut rig), expected(0..PAGES));
}

#[test]
fn a_damaged_snapshot_costs_pages() {
    let mut rig = several();
    rig.reopen();
    rig.store().compact().unwrap();
    assert_eq!(segments(&rig.home()).unwrap().len(), 1);
    rig.put(2000);
    rig.close();
    let before = fs::read(segment(&rig, 0)).unwrap();
    assert_eq!(survivors(&mut rig), expected(0..PAGES));
    rig.close();
    let mut rig = several();
    rig.reopen();
    rig.store().compact().unwrap();
    rig.put(2000);
    rig.close();
    assert!(before.len() < 64 * 70, "a snapshot is small");
    flip(&segment(&rig, 0), 400);
    rig.reopen();
    assert_eq!(rig.get(2000), Hit, "what came after it");
    assert!(rig.store().describe().contains("1 damaged segments"), "{}", rig.store().describe());
}

#[test]
fn payloads_that_are_not_what_was_written() {
    let mut rig = several();
    for entry in fs::read_dir(rig.home()).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("data-") {
            let mut bytes = fs::read(entry.path()).unwrap();
            // Every other slot: a flipped bit, zeros, another page.
            bytes[7] ^= 1;
            bytes[2 * PAGE..3 * PAGE].fill(0);
            let other = bytes[5 * PAGE..6 * PAGE].to_vec();
            bytes[4 * PAGE..5 * PAGE].copy_from_slice(&other);
            fs::write(entry.path(), bytes).unwrap();
        }
    }
    rig.reopen();
    let there = rig.here(0..PAGES).len();
    assert_eq!(there, 40);
    let survivors = survivors(&mut rig).len();
    assert!((10..30).contains(&survivors), "{survivors}");
}

#[test]
fn data_files_that_are_gone_or_cut() {
    let mut rig = several();
    let data = |number: u32| format!("data-{number:05}");
    fs::remove_file(rig.home().join(data(1))).unwrap();
    fs::File::options().write(true).open(rig.home().join(data(3))).unwrap().set_len(5000).unwrap();
    fs::File::options().write(true).open(rig.home().join(data(4))).unwrap().set_len(1 << 20).unwrap();
    let survivors = survivors(&mut rig).len();
    assert!((10..40).contains(&survivors), "{survivors}");

    // All of them, behind its back.
    let mut rig = several();
    rig.reopen();
    for entry in fs::read_dir(rig.home()).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("data-") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    rig.reopen();
    assert_eq!((rig.here(0..PAGES), rig.get(1)), (vec![], Absent));
    assert_eq!(rig.put(1), Hit);
}

#[test]
fn a_store_that_forgot_what_it_is_begins_anew() {
    for damage in
        [None, Some(&b"hicache-slab 9\n"[..]), Some(b""), Some(b"hicache-slab 1\nstore 12\nextent 77\n")]
    {
        let mut rig = several();
        let file = rig.home().join("STORE");
        damage.map_or_else(|| fs::remove_file(&file), |text| fs::write(&file, text)).unwrap();
        assert_eq!(survivors(&mut rig), expected(0..0));
    }
}

#[test]
fn a_store_that_cannot_be_asked_what_it_is_stays_as_it_is() {
    let mut rig = several();
    let (file, kept) = (rig.home().join("STORE"), rig.home().join("kept"));
    fs::rename(&file, &kept).unwrap();
    std::os::unix::fs::symlink("STORE", &file).unwrap();
    let error = SlabStore::open(rig.options.clone(), &Client::alone(US), &rig.seams).err().unwrap();
    assert!(error.to_string().contains("STORE"), "{error}");
    fs::rename(&kept, &file).unwrap();
    assert_eq!(survivors(&mut rig), expected(0..PAGES));
}

#[test]
fn a_full_file_system_does_not_keep_a_store_shut() {
    let mut rig = several();
    let file = rig.home().join("LOCK");
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/full", &file).unwrap();
    assert_eq!(survivors(&mut rig), expected(0..PAGES));
}
