//! The file store: whole pages, verified, or none; whatever happens to its directory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::filed::{HEADER, US, exists, file, get, get_as, key, page, put};
use common::plain::Plain;
use hicache_core::hash::Digest;
use hicache_core::identity::Fingerprint;
use hicache_core::storage::file::FileStore;
use hicache_core::storage::{Client, Outcome, Store, open};
use std::fs;
use std::path::PathBuf;

fn root() -> (tempfile::TempDir, FileStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path()).unwrap();
    (dir, store)
}

#[test]
fn a_round_trip_through_a_fresh_instance() {
    let (dir, store) = root();
    let keys: Vec<Digest> = (0..5).map(key).collect();
    let pages: Vec<Vec<u8>> = (0..5).map(page).collect();
    let views: Vec<&[u8]> = pages.iter().map(Vec::as_slice).collect();
    assert_eq!(Plain(&store, US).exists(&keys), [Outcome::Absent; 5]);
    assert_eq!(Plain(&store, US).put(&keys, &views), [Outcome::Hit; 5]);
    drop(store);
    let store = FileStore::open(dir.path()).unwrap();
    assert_eq!(Plain(&store, US).exists(&keys), [Outcome::Hit; 5]);
    for number in 0..5 {
        assert_eq!(get(&store, number), Outcome::Hit);
        assert!(file(dir.path(), number).is_file());
    }
    assert_eq!(get(&store, 5), Outcome::Absent);
    let left = fs::read_dir(dir.path().join("tmp")).unwrap().count();
    assert_eq!(left, 0, "nothing half-written stays");
}

#[test]
fn a_key_is_written_once() {
    let (_dir, store) = root();
    assert_eq!(put(&store, 1), Outcome::Hit);
    assert_eq!(Plain(&store, US).put(&[key(1)], &[&[7; 200]]), [Outcome::Hit]);
    assert_eq!(get(&store, 1), Outcome::Hit);
}

#[test]
fn exists_tells_of_a_removal_at_once() {
    let (_dir, store) = root();
    put(&store, 1);
    assert_eq!(exists(&store, 1), Outcome::Hit);
    assert_eq!(Plain(&store, US).remove(&[key(1), key(2)]), [Outcome::Hit, Outcome::Absent]);
    assert_eq!((exists(&store, 1), get(&store, 1)), (Outcome::Absent, Outcome::Absent));
    assert_eq!((put(&store, 1), get(&store, 1)), (Outcome::Hit, Outcome::Hit));
}

/// Damages a stored page: it must not be served, and the next put mends it.
fn damage(what: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let (dir, store) = root();
    put(&store, 1);
    let path = file(dir.path(), 1);
    let mut bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len(), HEADER + 200);
    change(&mut bytes);
    let bytes_left = bytes.len();
    fs::write(&path, bytes).unwrap();
    let short = bytes_left < HEADER + 200;
    assert_eq!(get(&store, 1), if short { Outcome::Short } else { Outcome::Corrupt }, "{what}");
    assert_eq!((exists(&store, 1), get(&store, 1)), (Outcome::Absent, Outcome::Absent), "{what}: removed");
    assert_eq!((put(&store, 1), get(&store, 1)), (Outcome::Hit, Outcome::Hit), "{what}: mended");
}

#[test]
fn every_flipped_bit_is_seen() {
    // Every field of the header (magic, version, codec, identity, key, size, checksum) and the payload.
    for at in (0..HEADER).chain([HEADER, HEADER + 99, HEADER + 199]) {
        damage(&format!("byte {at}"), |bytes| bytes[at] ^= 1 << (at % 8));
    }
}

#[test]
fn every_wrong_length_is_seen() {
    for length in [0, 1, HEADER - 1, HEADER, HEADER + 1, HEADER + 199] {
        damage(&format!("{length} bytes"), |bytes| bytes.truncate(length));
    }
    damage("a byte too many", |bytes| bytes.push(0));
    damage("twice", |bytes| bytes.extend_from_within(..));
    damage("noise", |bytes| {
        bytes.iter_mut().zip((0u8..=255).cycle()).for_each(|(byte, noise)| *byte = noise.wrapping_mul(31));
    });
}

#[test]
fn another_keys_file_is_not_this_ones() {
    let (dir, store) = root();
    put(&store, 1);
    put(&store, 2);
    fs::copy(file(dir.path(), 2), file(dir.path(), 1)).unwrap();
    assert_eq!((get(&store, 1), get(&store, 2)), (Outcome::Corrupt, Outcome::Hit));
}

#[test]
fn another_identity_finds_nothing_and_reads_nothing() {
    let (_dir, store) = root();
    put(&store, 1);
    let mut theirs = US;
    theirs.0[31] ^= 1;
    // The directory's name has half of the identity: this one shares it, and is told apart by the header.
    assert_eq!(get_as(&store, theirs, 1), Outcome::Corrupt);
    put(&store, 1);
    let far = Fingerprint([2; 32]);
    assert_eq!(Plain(&store, far).exists(&[key(1)]), [Outcome::Absent]);
    assert_eq!(get_as(&store, far, 1), Outcome::Absent);
    assert_eq!(Plain(&store, far).put(&[key(1)], &[&page(1)]), [Outcome::Hit]);
    assert_eq!((get(&store, 1), get_as(&store, far, 1)), (Outcome::Hit, Outcome::Hit));
    assert_eq!(store.clear(&far).unwrap(), 1);
    assert_eq!((get(&store, 1), get_as(&store, far, 1)), (Outcome::Hit, Outcome::Absent), "only theirs went");
}

#[test]
fn remains_that_nobody_writes_any_more_vanish() {
    let (dir, store) = root();
    put(&store, 1);
    drop(store);
    let tmp = dir.path().join("tmp");
    // Of a process that had our number before the container was started anew, and of one elsewhere.
    let (abandoned, fresh) = (tmp.join(format!("{}-0", std::process::id())), tmp.join("1-0-0"));
    fs::write(&fresh, "being written").unwrap();
    let hours_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(7_200);
    fs::File::create(&abandoned).unwrap().set_modified(hours_ago).unwrap();
    let store = FileStore::open(dir.path()).unwrap();
    assert!(!abandoned.exists() && fresh.exists());
    assert_eq!(get(&store, 1), Outcome::Hit);
}

#[test]
fn a_place_that_cannot_be_used_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    for path in [file.clone(), file.join("below"), PathBuf::from("/proc/none/here")] {
        let error = FileStore::open(&path).unwrap_err().to_string();
        assert!(error.starts_with("storage:"), "{error}");
    }
    for url in ["file://relative/path", "ftp:///x", "no/scheme", "/bare?size=1GiB", ""] {
        let Err(error) = open(url, &Client::alone(US)) else { panic!("{url} was opened") };
        assert!(error.to_string().starts_with("storage:"), "{error}");
    }
    open(&format!("file://{}", dir.path().display()), &Client::alone(US)).unwrap();
    open(&dir.path().display().to_string(), &Client::alone(US)).unwrap();
}

/// Two stores on one directory, each used by two threads, writing the same and other pages at once.
#[test]
fn two_stores_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let stores: Vec<FileStore> = (0..2).map(|_| FileStore::open(dir.path()).unwrap()).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &stores[thread % 2];
            scope.spawn(move || {
                let first = if thread < 2 { 0 } else { 50 };
                for number in first..first + 100 {
                    assert_eq!(put(store, number), Outcome::Hit, "page {number}");
                }
            });
        }
    });
    for store in &stores {
        for number in 0..150 {
            assert_eq!(get(store, number), Outcome::Hit, "page {number}");
        }
    }
    assert_eq!(fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0);
}

/// Opening a store must not touch what another one is writing.
#[test]
fn opening_disturbs_no_writer() {
    let (dir, store) = root();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..300).map(|number| put(&store, number)).collect::<Vec<_>>());
        while !writer.is_finished() {
            FileStore::open(dir.path()).unwrap();
        }
        let written = writer.join().unwrap();
        assert_eq!(written.iter().filter(|&&outcome| outcome != Outcome::Hit).count(), 0);
    });
    for number in 0..300 {
        assert_eq!(get(&store, number), Outcome::Hit, "page {number}");
    }
}

#[test]
fn directories_that_vanish_are_a_miss_and_come_back() {
    let (dir, store) = root();
    put(&store, 1);
    for gone in
        [file(dir.path(), 1).parent().unwrap().to_owned(), dir.path().join("tmp"), dir.path().to_owned()]
    {
        fs::remove_dir_all(&gone).unwrap();
        Plain(&store, US).remove(&[key(1)]);
        assert_eq!((exists(&store, 1), get(&store, 1)), (Outcome::Absent, Outcome::Absent));
        assert_eq!((put(&store, 1), get(&store, 1)), (Outcome::Hit, Outcome::Hit), "{}", gone.display());
    }
}

/// A directory in a page's place is neither served nor a crash.
#[test]
fn a_directory_in_a_pages_place_is_no_page() {
    let (dir, store) = root();
    fs::create_dir_all(file(dir.path(), 1)).unwrap();
    assert_ne!(get(&store, 1), Outcome::Hit);
    assert_ne!(put(&store, 1), Outcome::Hit, "what can't be read again was not written");
}

/// Fan-out: no directory grows with the number of pages beyond a 256th of it.
#[test]
fn pages_spread_over_directories() {
    let (dir, store) = root();
    (0..2_000).for_each(|number| assert_eq!(put(&store, number), Outcome::Hit));
    let pages = dir.path().join(&format!("{US:?}")[..32]);
    let count = |dir: fs::DirEntry| fs::read_dir(dir.path()).unwrap().count();
    let most = fs::read_dir(pages).unwrap().map(|dir| count(dir.unwrap())).max();
    assert!(most < Some(40), "{most:?}");
}
