//! The size is the bound, of data and log together, at any moment; and what a log does that can't be replaced.

use super::rig::{LOG, PAGE, Rig, US, get, put};
use hicache_core::storage::Outcome::{Failed, Hit};
use hicache_core::storage::Store;
use hicache_core::storage::slab::Seams;
use hicache_core::storage::slab::media::{Media, Plain};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes of a directory's data and log.
fn taken(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    let ours = files.filter(|file| {
        let name = file.file_name().to_string_lossy().into_owned();
        name.starts_with("data-") || name.starts_with("log-")
    });
    // One may go meanwhile.
    ours.filter_map(|file| file.metadata().ok()).map(|about| about.len()).sum()
}

/// Looks at the directory whenever a file of it was made, or is about to have its name.
#[derive(Default)]
struct Watch {
    dir: OnceLock<PathBuf>,
    most: AtomicU64,
}

impl Watch {
    fn look(&self) {
        if let Some(dir) = self.dir.get() {
            self.most.fetch_max(taken(dir), Ordering::SeqCst);
        }
    }
}

impl Media for Watch {
    fn create(&self, path: &Path, bytes: usize) -> io::Result<File> {
        let made = Plain.create(path, bytes);
        self.look();
        made
    }

    fn reserve(&self, file: &File, bytes: u64) -> io::Result<()> {
        let made = Plain.reserve(file, bytes);
        self.look();
        made
    }

    fn publish(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.look();
        Plain.publish(from, to)
    }
}

#[test]
fn the_size_is_the_bound_at_any_moment() {
    // Of extents with 32 slots each; what their log needs is as much as a few extents in all.
    let (extent, extents) = (32 * PAGE as u64, 44);
    for sizes in [&[PAGE][..], &[PAGE, 3 * PAGE], &[8 * PAGE, PAGE], &[5 * PAGE, 2 * PAGE, PAGE]] {
        let watch = Arc::new(Watch::default());
        let seams = Seams { media: Arc::clone(&watch) as _, ..Seams::default() };
        let change = |options: &mut hicache_core::storage::slab::Options| {
            options.extent = Some(extent);
            options.size = LOG + extents * (extent + 32 * 3 * 64) + extent - 1;
        };
        let mut rig = Rig::with(8, change, seams);
        watch.dir.set(rig.home()).unwrap();
        for (round, bytes) in sizes.iter().cycle().take(4).enumerate() {
            for batch in 0..100 {
                let first = (round * 100 + batch) as u32 * 32;
                let numbers: Vec<u32> = (first..first + 32).collect();
                assert_eq!(put(rig.store(), US, &numbers, &[None; 32], *bytes), [Hit; 32], "{sizes:?}");
                watch.look();
            }
            rig.reopen();
            watch.look();
        }
        let (most, size) = (watch.most.load(Ordering::SeqCst), rig.options.size);
        assert!(most <= size, "{most} of {size}: {sizes:?}");
        assert!(most > size - 4 * extent - LOG, "it uses what it has: {most} of {size}");
    }
}

/// Snapshots don't get their names while it is told so.
#[derive(Default)]
struct Sick {
    sick: AtomicBool,
    tries: AtomicUsize,
}

impl Media for Sick {
    fn publish(&self, from: &Path, to: &Path) -> io::Result<()> {
        if from.ends_with("log-snapshot") && self.sick.load(Ordering::SeqCst) {
            self.tries.fetch_add(1, Ordering::SeqCst);
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        Plain.publish(from, to)
    }
}

#[test]
fn a_log_that_cannot_be_replaced_ends_at_its_bound_and_goes_on_when_it_can() {
    let sick = Arc::new(Sick::default());
    let mut rig = Rig::with(64, |_| {}, Seams { media: Arc::clone(&sick) as _, ..Seams::default() });
    sick.sick.store(true, Ordering::SeqCst);
    let mut last = 0;
    let refused = (0..10_000).find(|&number| {
        last = number;
        rig.put(number) == Failed
    });
    assert!(refused.is_some(), "it grows and grows: {} of {}", taken(&rig.home()), rig.options.size);
    assert!(last > 1000, "{last} pages: it had room for more");
    assert!(taken(&rig.home()) <= rig.options.size);
    let (tries, failed) = (sick.tries.load(Ordering::SeqCst), rig.store().statistics().failed_pages);
    assert_eq!((rig.get(last - 1), rig.remove(last - 1)), (Hit, Failed));
    for _ in 0..1000 {
        assert_eq!((rig.put(20_000), rig.get(last - 2)), (Failed, Hit));
        rig.store().slab().unwrap().keep();
    }
    let again = sick.tries.load(Ordering::SeqCst) - tries;
    assert!((5..40).contains(&again), "{again} snapshots were tried in 1000 seconds");
    assert!(taken(&rig.home()) <= rig.options.size);
    assert_eq!(rig.store().statistics().failed_pages, failed + 1000);
    assert!(rig.about().contains("log can't be written: it has all of its"), "{}", rig.about());

    sick.sick.store(false, Ordering::SeqCst);
    let healed = (0..65).find(|_| {
        rig.store().slab().unwrap().keep();
        rig.put(20_000) == Hit
    });
    assert!(healed.is_some(), "{}", rig.about());
    assert!(!rig.about().contains("can't be written"), "{}", rig.about());
    assert_eq!(rig.put(20_001), Hit);
    rig.reopen();
    assert_eq!(get(rig.store(), US, &[20_000, 20_001], PAGE), [Hit; 2]);
    assert!(!rig.exists(last - 1), "its removal was logged in the end");
}
