//! The file store's limits: what a directory really holds decides, whoever filled it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::filed::{HEADER, US, client, exists, get, key, page, pages_below, put, put_after};
use hicache_core::storage::file::FileStore;
use hicache_core::storage::file::options::{Limits, Step, Steps};
use hicache_core::storage::url::Share;
use hicache_core::storage::{Keys, Outcome, PageRef, Store, open};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

const PAGE: u64 = HEADER as u64 + 200;

fn of_pages(pages: u64) -> Limits {
    Limits { size: Some(pages * PAGE), ..Limits::default() }
}

fn limited(dir: &Path, limits: Limits) -> FileStore {
    FileStore::open_with(dir, limits, &client(), Steps::default()).unwrap()
}

#[test]
fn the_oldest_pages_go_first_and_reads_make_younger() {
    let dir = tempfile::tempdir().unwrap();
    let store = limited(dir.path(), of_pages(3));
    (0..3).for_each(|number| assert_eq!(put(&store, number), Outcome::Hit));
    assert_eq!(get(&store, 0), Outcome::Hit);
    assert_eq!(put(&store, 3), Outcome::Hit);
    let left = [0, 1, 2, 3].map(|number| exists(&store, number));
    assert_eq!(left, [Outcome::Hit, Outcome::Absent, Outcome::Hit, Outcome::Hit]);
    let seen = store.statistics();
    assert_eq!((seen.pages, seen.bytes, seen.capacity), (3, 3 * PAGE, Some(3 * PAGE)));
    assert_eq!((seen.written_pages, seen.evicted_pages, seen.declined_pages), (4, 1, 0));
    assert_eq!(pages_below(dir.path()), 3);
}

#[test]
fn a_limit_holds_for_what_earlier_runs_left() {
    let dir = tempfile::tempdir().unwrap();
    let store = limited(dir.path(), Limits::default());
    (0..5).for_each(|number| assert_eq!(put(&store, number), Outcome::Hit));
    assert_eq!((store.statistics().pages, store.statistics().bytes), (5, 5 * PAGE));
    store.close();
    let store = limited(dir.path(), of_pages(3));
    assert_eq!(put(&store, 5), Outcome::Hit);
    assert_eq!(pages_below(dir.path()), 3);
    let left = [0, 1, 2, 3, 4, 5].map(|number| exists(&store, number) == Outcome::Hit);
    assert_eq!(left, [false, false, false, true, true, true], "the oldest went first");
    assert_eq!(store.statistics().bytes, 3 * PAGE);
}

#[test]
fn recency_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = limited(dir.path(), of_pages(4));
    (0..4).for_each(|number| assert_eq!(put(&store, number), Outcome::Hit));
    // Long enough ago for the next use to be written down.
    for (number, ago) in (0..4).zip([400, 300, 200, 100]) {
        let then = SystemTime::now() - Duration::from_secs(ago);
        let times = fs::FileTimes::new().set_accessed(then).set_modified(then);
        fs::File::open(common::filed::file(dir.path(), number)).unwrap().set_times(times).unwrap();
    }
    assert_eq!(get(&store, 0), Outcome::Hit);
    store.close();
    let store = limited(dir.path(), of_pages(4));
    assert_eq!(put(&store, 4), Outcome::Hit);
    let left = [0, 1, 2, 3, 4].map(|number| exists(&store, number) == Outcome::Hit);
    assert_eq!(left, [true, false, true, true, true], "page 0 was read before the restart");
}

#[test]
fn parents_stay_while_children_are_stored() {
    for restart in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut store = limited(dir.path(), of_pages(6));
        // Two prompts of three pages, the first one older.
        for number in 0..6 {
            assert_eq!(put_after(&store, number, (number % 3 > 0).then(|| number - 1)), Outcome::Hit);
        }
        if restart {
            store.close();
            store = limited(dir.path(), of_pages(6));
        }
        for (number, gone) in [(10, 2), (11, 1), (12, 0), (13, 5)] {
            assert_eq!(put(&store, number), Outcome::Hit);
            assert_eq!(exists(&store, gone), Outcome::Absent, "{number} took the place of {gone}");
            assert_eq!(pages_below(dir.path()), 6);
        }
    }
}

#[test]
fn a_batch_never_gives_up_what_it_continues() {
    let dir = tempfile::tempdir().unwrap();
    let store = limited(dir.path(), of_pages(2));
    let (keys, pages): (Vec<_>, Vec<_>) = (0..4).map(|number| (key(number), page(number))).unzip();
    let parents = [None, Some(keys[0]), Some(keys[1]), Some(keys[2])];
    let pages: Vec<PageRef<'_>> = pages.iter().map(|page| PageRef::from(&page[..])).collect();
    let chain = store.put(Keys { identity: &US, digests: &keys }, &parents, &pages);
    // The third one has nothing to take the place of but the two before it; the fourth is worth nothing without it.
    assert_eq!(chain, [Outcome::Hit, Outcome::Hit, Outcome::Declined, Outcome::Declined]);
    assert_eq!((exists(&store, 0), exists(&store, 1)), (Outcome::Hit, Outcome::Hit));
    assert_eq!(store.statistics().declined_pages, 2);
    let small = limited(dir.path(), Limits { size: Some(PAGE - 1), ..Limits::default() });
    assert_eq!(put(&small, 9), Outcome::Declined, "larger than all there may be");
}

#[test]
fn pages_that_vanish_behind_its_back_are_no_fault() {
    let dir = tempfile::tempdir().unwrap();
    let store = limited(dir.path(), of_pages(4));
    (0..4).for_each(|number| assert_eq!(put(&store, number), Outcome::Hit));
    for folder in fs::read_dir(dir.path()).unwrap() {
        fs::remove_dir_all(folder.unwrap().path()).unwrap();
    }
    (0..4).for_each(|number| assert_eq!(exists(&store, number), Outcome::Absent));
    (10..20).for_each(|number| assert_eq!(put(&store, number), Outcome::Hit, "{number}"));
    assert_eq!(pages_below(dir.path()), 4);
    let seen = store.statistics();
    assert_eq!((seen.failed_pages, seen.bytes), (0, 4 * PAGE));
    fs::remove_dir_all(dir.path()).unwrap();
    assert_eq!(
        (get(&store, 19), put(&store, 19), get(&store, 19)),
        (Outcome::Absent, Outcome::Hit, Outcome::Hit)
    );
}

#[test]
fn what_cannot_be_removed_is_declined_not_exceeded() {
    let dir = tempfile::tempdir().unwrap();
    let stuck = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&stuck);
    let steps = Steps::new(move |step, _| match step {
        Step::Remove if asked.load(Ordering::SeqCst) => Err(std::io::ErrorKind::PermissionDenied.into()),
        _ => Ok(()),
    });
    let store = FileStore::open_with(dir.path(), of_pages(2), &client(), steps).unwrap();
    let outcomes = [0, 1, 2].map(|number| put(&store, number));
    assert_eq!(outcomes, [Outcome::Hit, Outcome::Hit, Outcome::Declined]);
    stuck.store(false, Ordering::SeqCst);
    assert_eq!((put(&store, 2), pages_below(dir.path())), (Outcome::Hit, 2));
}

#[test]
fn the_file_system_keeps_its_free_space() {
    let dir = tempfile::tempdir().unwrap();
    // More than there is: nothing may be written, and what is there goes.
    let all = Limits { free: Some(Share::Fraction(1.0)), ..Limits::default() };
    assert_eq!(put(&limited(dir.path(), Limits::default()), 1), Outcome::Hit);
    let store = limited(dir.path(), all);
    assert_eq!(
        (put(&store, 2), exists(&store, 1), pages_below(dir.path())),
        (Outcome::Declined, Outcome::Absent, 0)
    );
    let some = Limits { free: Some(Share::Bytes(1)), ..Limits::default() };
    assert_eq!(put(&limited(dir.path(), some), 2), Outcome::Hit);
}

#[test]
fn pages_have_a_time_to_live() {
    let dir = tempfile::tempdir().unwrap();
    let store = limited(dir.path(), Limits { ttl: Some(Duration::from_secs(3_600)), ..Limits::default() });
    (0..3).for_each(|number| assert_eq!(put(&store, number), Outcome::Hit));
    let age = |number: i32, seconds: u64| {
        let then = SystemTime::now() - Duration::from_secs(seconds);
        fs::File::open(common::filed::file(dir.path(), number)).unwrap().set_modified(then).unwrap();
    };
    age(0, 3_700);
    age(1, 3_500);
    assert_eq!([0, 1, 2].map(|number| exists(&store, number) == Outcome::Hit), [false, true, true]);
    assert_eq!((get(&store, 0), get(&store, 1)), (Outcome::Absent, Outcome::Hit));
    assert_eq!((put(&store, 0), get(&store, 0)), (Outcome::Hit, Outcome::Hit), "written anew");
    age(1, 3_700);
    store.close();
    let store = limited(dir.path(), Limits { ttl: Some(Duration::from_secs(3_600)), ..Limits::default() });
    assert_eq!((pages_below(dir.path()), store.statistics().expired_pages), (2, 1), "swept away");
}

#[test]
fn two_stores_on_one_directory_hold_one_limit() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}?size={}", dir.path().display(), 64 * PAGE);
    let stores = [0, 1].map(|_| open(&url, &client()).unwrap());
    std::thread::scope(|scope| {
        for (thread, store) in stores.iter().enumerate() {
            scope.spawn(move || {
                for number in 0..200 {
                    let number = number + 1_000 * i32::try_from(thread).unwrap();
                    let outcome = common::plain::Plain(&**store, US).put(&[key(number)], &[&page(number)])[0];
                    assert!(matches!(outcome, Outcome::Hit | Outcome::Declined), "{number}: {outcome:?}");
                }
            });
        }
    });
    // What others wrote is known from the next sweep on: then the limit holds for all.
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while pages_below(dir.path()) > 64 {
        assert!(std::time::Instant::now() < end, "{} pages", pages_below(dir.path()));
        std::thread::sleep(Duration::from_millis(20));
    }
    let held = stores[0].list().unwrap();
    assert!(held.iter().all(|held| held.identity == US && held.bytes == 200), "{held:?}");
}
