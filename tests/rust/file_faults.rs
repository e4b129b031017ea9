//! What happens to a file store's directory: crashes, full disks, damage.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::filed::{HEADER, US, client, exists, file, get, key, page, put};
use common::plain::Plain;
use hicache_core::storage::file::FileStore;
use hicache_core::storage::file::options::{Limits, Step, Steps};
use hicache_core::storage::file::page::{HEADER as OURS, Header};
use hicache_core::storage::{Outcome, Store};
use proptest::prelude::*;
use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

const CHILD: &str = "HICACHE_TEST_CHILD";

fn with_steps(dir: &Path, ask: impl Fn(Step, &Path) -> io::Result<()> + Send + Sync + 'static) -> FileStore {
    FileStore::open_with(dir, Limits::default(), &client(), Steps::new(ask)).unwrap()
}

fn batch(store: &dyn Store, numbers: std::ops::Range<i32>) -> Vec<Outcome> {
    let keys: Vec<_> = numbers.clone().map(key).collect();
    let pages: Vec<_> = numbers.map(page).collect();
    Plain(store, US).put(&keys, &pages.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

fn full() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOSPC)
}

/// Not a test by itself: the process that is killed, in the middle of its sixth page.
#[test]
fn a_child_that_is_killed() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let writes = AtomicUsize::new(0);
    let store = with_steps(Path::new(&dir), move |step, _| {
        if step == Step::Publish && writes.fetch_add(1, Ordering::SeqCst) == 5 {
            println!("\nin the middle");
            std::thread::sleep(Duration::from_secs(60));
        }
        Ok(())
    });
    assert_eq!(batch(&store, 0..6), [Outcome::Hit; 6]);
}

#[test]
fn a_process_that_is_killed_leaves_what_it_finished() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_child_that_is_killed", "--nocapture"])
        .env(CHILD, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "in the middle"));
    child.kill().unwrap();
    child.wait().unwrap();

    let tmp = dir.path().join("tmp");
    fs::write(tmp.join("stray.tmp"), "x").unwrap();
    fs::write(dir.path().join("stray.tmp"), "not ours").unwrap();
    fs::create_dir_all(file(dir.path(), 7).parent().unwrap()).unwrap();
    fs::write(file(dir.path(), 7), "").unwrap();
    for stray in fs::read_dir(&tmp).unwrap() {
        let long_ago = SystemTime::now() - Duration::from_secs(3_600);
        fs::File::options().write(true).open(stray.unwrap().path()).unwrap().set_modified(long_ago).unwrap();
    }

    let store = FileStore::open_with(dir.path(), Limits::default(), &client(), Steps::default()).unwrap();
    let seen = store.statistics();
    assert_eq!((seen.pages, seen.bytes), (5, 5 * (HEADER as u64 + 200)));
    let usable = (0..8).take_while(|&number| exists(&store, number) == Outcome::Hit).count();
    assert_eq!(usable, 5);
    (0..5).for_each(|number| assert_eq!(get(&store, number), Outcome::Hit));
    assert_eq!((get(&store, 5), get(&store, 7)), (Outcome::Absent, Outcome::Absent));
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0, "remains are gone");
    assert!(dir.path().join("stray.tmp").exists(), "strangers' files are left alone");
    assert_eq!(batch(&store, 0..6), [Outcome::Hit; 6]);
    assert_eq!(get(&store, 5), Outcome::Hit);
}

#[test]
fn a_full_disk_costs_single_pages() {
    for full_at in [Step::Create, Step::Write, Step::Publish] {
        let dir = tempfile::tempdir().unwrap();
        let (is_full, third) = (Arc::new(AtomicBool::new(true)), file(dir.path(), 2));
        let asked = Arc::clone(&is_full);
        let store = with_steps(dir.path(), move |step, path| {
            if step == full_at && path == third && asked.load(Ordering::SeqCst) {
                Err(full())
            } else {
                Ok(())
            }
        });
        let hits = batch(&store, 0..5).iter().map(|&outcome| outcome == Outcome::Hit).collect::<Vec<_>>();
        assert_eq!(hits, [true, true, false, true, true], "{full_at:?}");
        let usable = (0..5).take_while(|&number| exists(&store, number) == Outcome::Hit).count();
        assert_eq!((usable, store.statistics().failed_pages), (2, 1));
        assert_eq!(fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0, "{full_at:?}: nothing stays");
        is_full.store(false, Ordering::SeqCst);
        assert_eq!(batch(&store, 0..5), [Outcome::Hit; 5]);
        (0..5).for_each(|number| assert_eq!(get(&store, number), Outcome::Hit));
        assert_eq!(store.statistics().written_pages, 5);
    }
}

/// The real thing: the system refuses the bytes of one page. In a process of its own, since the limit is the process's.
#[test]
#[cfg(unix)]
fn a_child_whose_files_may_not_grow() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let store = FileStore::open(Path::new(&dir)).unwrap();
    let keys: Vec<_> = (0..5).map(key).collect();
    let pages: Vec<Vec<u8>> = (0..5).map(|number| vec![1; if number == 2 { 100_000 } else { 200 }]).collect();
    let outcomes = Plain(&store, US).put(&keys, &pages.iter().map(Vec::as_slice).collect::<Vec<_>>());
    println!("\n{}", outcomes.iter().map(|outcome| outcome.name()).collect::<Vec<_>>().join(" "));
}

#[test]
#[cfg(unix)]
fn bytes_that_the_system_refuses_cost_one_page() {
    let dir = tempfile::tempdir().unwrap();
    let test = std::env::current_exe().unwrap();
    let limited = format!(
        "trap '' XFSZ; ulimit -f 64; exec '{}' --exact a_child_whose_files_may_not_grow --nocapture",
        test.display()
    );
    let output = Command::new("sh").args(["-c", &limited]).env(CHILD, dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("hit hit failed hit hit"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_read_is_a_miss_and_mended() {
    for at in [Step::Open, Step::Read] {
        let dir = tempfile::tempdir().unwrap();
        let store = with_steps(dir.path(), {
            let (broken, second) = (AtomicUsize::new(0), file(dir.path(), 1));
            move |step, path| {
                let now = step == at && path == second && broken.fetch_add(1, Ordering::SeqCst) == 0;
                if now { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
            }
        });
        batch(&store, 0..3);
        let keys: Vec<_> = (0..3).map(key).collect();
        let mut bytes = vec![vec![0; 200]; 3];
        let outcomes =
            Plain(&store, US).get(&keys, &mut bytes.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        assert_eq!(outcomes, [Outcome::Hit, Outcome::Failed, Outcome::Hit], "{at:?}");
        assert_eq!(store.statistics().failed_pages, 1);
        assert_eq!((put(&store, 1), get(&store, 1)), (Outcome::Hit, Outcome::Hit), "{at:?}: mended");
    }
}

#[test]
fn strange_things_in_a_pages_place_are_corrupt_and_go() {
    let marker = std::env::temp_dir().join(format!("hicache-pickle-{}", std::process::id()));
    // What `pickle` would run: os.system("touch marker").
    let pickle = format!("cposix\nsystem\n(S'touch {}'\ntR.", marker.display());
    let mut long = pickle.clone().into_bytes();
    long.resize(HEADER + 200, b'\n');
    for (content, outcome) in
        [(pickle.as_bytes(), Outcome::Short), (&long, Outcome::Corrupt), (&[0; 5_000], Outcome::Corrupt)]
    {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path()).unwrap();
        put(&store, 1);
        fs::write(file(dir.path(), 1), content).unwrap();
        assert_eq!((get(&store, 1), get(&store, 1)), (outcome, Outcome::Absent));
        assert_eq!((put(&store, 1), get(&store, 1)), (Outcome::Hit, Outcome::Hit));
        let seen = store.statistics();
        assert_eq!(seen.short_pages + seen.corrupt_pages, 1);
        assert!(!marker.exists());
    }
}

/// Opening a pipe waits for a writer; a store's thread must not.
#[test]
#[cfg(unix)]
fn a_pipe_in_a_pages_place_keeps_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path()).unwrap();
    put(&store, 1);
    let path = file(dir.path(), 1);
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert_eq!(get(&store, 1), Outcome::Corrupt);
    assert_eq!((put(&store, 1), get(&store, 1)), (Outcome::Hit, Outcome::Hit));
}

proptest! {
    /// Whatever bytes a header has: it decodes to what encodes to the same bytes, or to nothing.
    #[test]
    fn headers_decode_to_themselves(bytes in prop::collection::vec(any::<u8>(), OURS), flip in 0..OURS * 8) {
        let mut header: [u8; OURS] = bytes.try_into().unwrap();
        prop_assert!(Header::decode(&header).is_none(), "noise is no header");
        let (page, parent) = ([7; 64], key(2));
        for parent in [None, Some(parent)] {
            let right = Header::of(&US, &key(1), parent, &(&page[..]).into());
            header = right.encode();
            prop_assert_eq!(Header::decode(&header), Some(right));
            header[flip / 8] ^= 1 << (flip % 8);
            prop_assert_ne!(Header::decode(&header), Some(right));
        }
    }
}
