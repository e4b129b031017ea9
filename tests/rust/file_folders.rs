//! Twenty thousand pages: no folder has too many, and nothing on a request's path lists one. The kernel counts.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::filed::{US, client, key, page};
use common::plain::Plain;
use hicache_core::hash::Digest;
use hicache_core::storage::file::FileStore;
use hicache_core::storage::file::options::{Limits, Steps};
use hicache_core::storage::{Outcome, Store};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use std::fs;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

/// What is asked at a time.
const BATCH: usize = 1_000;

/// All folders below one, it included.
fn folders(root: &Path) -> Vec<PathBuf> {
    let inside = fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
    let inside = inside.filter(|entry| entry.file_type().unwrap().is_dir());
    std::iter::once(root.to_owned()).chain(inside.flat_map(|entry| folders(&entry.path()))).collect()
}

/// Listings of folders, as the kernel sees them.
struct Listings(OwnedFd);

impl Listings {
    fn of(root: &Path) -> Self {
        let folders = folders(root);
        let watch = init(CreateFlags::NONBLOCK).unwrap();
        for folder in folders {
            add_watch(&watch, &folder, WatchFlags::ACCESS).unwrap();
        }
        Self(watch)
    }

    /// Since the last time. (Files that are read are told, too.)
    fn seen(&self) -> usize {
        let mut memory = vec![MaybeUninit::uninit(); 1 << 16];
        let mut events = Reader::new(&self.0, &mut memory);
        let mut listings = 0;
        while let Ok(event) = events.next() {
            assert!(!event.events().contains(ReadFlags::QUEUE_OVERFLOW), "too many to be counted");
            listings += usize::from(event.events().contains(ReadFlags::ISDIR));
        }
        listings
    }
}

fn batches(
    pages: i32,
    act: impl Fn(&[Digest], &[Vec<u8>]) -> Vec<Outcome>,
    expected: Outcome,
    mut after: impl FnMut(),
) {
    let numbers: Vec<i32> = (0..pages).collect();
    for batch in numbers.chunks(BATCH) {
        let (keys, pages): (Vec<_>, Vec<_>) = batch.iter().map(|&number| (key(number), page(number))).unzip();
        assert!(act(&keys, &pages).iter().all(|outcome| *outcome == expected));
        after();
    }
}

#[test]
fn twenty_thousand_pages_and_no_listing() {
    // The second one knows what there is by a sweep, and gives pages up.
    for (many, limits) in
        [(20_000, Limits::default()), (2_000, Limits { size: Some(1 << 30), ..Limits::default() })]
    {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open_with(dir.path(), limits, &client(), Steps::default()).unwrap();
        let plain = Plain(&store, US);
        let write = |keys: &[Digest], pages: &[Vec<u8>]| {
            plain.put(keys, &pages.iter().map(Vec::as_slice).collect::<Vec<_>>())
        };
        batches(many, write, Outcome::Hit, || {});
        let most = folders(dir.path()).iter().map(|folder| fs::read_dir(folder).unwrap().count()).max();
        assert!(most <= Some(256), "{most:?} entries in one folder");

        let listings = Listings::of(dir.path());
        // Setting the watches up doesn't list; a listing is seen, or this test could not fail.
        assert_eq!(listings.seen(), 0);
        assert_eq!(fs::read_dir(dir.path().join(&format!("{US:?}")[..32])).unwrap().count(), 256);
        assert!(listings.seen() > 0, "listings aren't seen here");

        let none = || assert_eq!(listings.seen(), 0, "a folder was listed ({})", store.describe());
        batches(many, |keys, _| plain.exists(keys), Outcome::Hit, none);
        let absent: Vec<Digest> = (many..many + 1_000).map(key).collect();
        assert_eq!(plain.exists(&absent), vec![Outcome::Absent; 1_000]);
        none();
        let read = |keys: &[Digest], pages: &[Vec<u8>]| {
            let mut memory: Vec<Vec<u8>> = pages.iter().map(|page| vec![0; page.len()]).collect();
            let found = plain.get(keys, &mut memory.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
            assert!(memory == pages, "other bytes");
            found
        };
        batches(many, read, Outcome::Hit, none);
        batches(many, write, Outcome::Hit, none);
        assert_eq!(plain.remove(&[key(1), key(-1)]), [Outcome::Hit, Outcome::Absent]);
        none();
    }
}
