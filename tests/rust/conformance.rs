//! The specification of `Store`, clause by clause, over every kind of store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::Seeded;
use common::kinds::{BYTES, ID, KINDS, THEM, each, exists, get, key, put, remove};
use hicache_core::storage::{Keys, Outcome, PageMut, PageRef};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn all(outcome: Outcome, many: usize) -> Vec<Outcome> {
    vec![outcome; many]
}

#[test]
fn clause_1_every_key_is_answered_in_its_order() {
    each(None, |kind, _, store| {
        let even: Vec<usize> = (0..300).filter(|number| number % 2 == 0).collect();
        let every: Vec<usize> = (0..300).collect();
        let expected: Vec<Outcome> =
            every.iter().map(|at| if at % 2 == 0 { Outcome::Hit } else { Outcome::Absent }).collect();
        assert_eq!(put(&*store, &ID, &even), all(Outcome::Hit, 150), "{}", kind.name);
        assert_eq!(exists(&*store, &ID, &every), expected);
        assert_eq!(get(&*store, &ID, &every), expected);
        assert_eq!(
            get(&*store, &ID, &[4, 4, 5, 4]),
            [Outcome::Hit, Outcome::Hit, Outcome::Absent, Outcome::Hit]
        );
        assert_eq!(remove(&*store, &ID, &every), expected);
        for answers in [put(&*store, &ID, &[]), get(&*store, &ID, &[]), exists(&*store, &ID, &[])] {
            assert_eq!(answers, []);
        }
    });
}

/// Writers and readers of the same pages at once: a reader finds a page whole, or none.
#[test]
fn clause_2_whole_or_absent() {
    each(None, |kind, _, store| {
        let writing = AtomicBool::new(true);
        let round = |round: usize| {
            let numbers: Vec<usize> = (round * 10..round * 10 + 10).collect();
            let answers = put(&*store, &ID, &numbers);
            remove(&*store, &ID, &numbers[5..]);
            answers
        };
        let writer = || (0..20).map(&round).collect::<Vec<_>>();
        std::thread::scope(|scope| {
            let writers = [scope.spawn(writer), scope.spawn(writer)];
            let reader = scope.spawn(|| {
                let mut random = Seeded(1);
                while writing.load(Ordering::SeqCst) {
                    let number = usize::try_from(random.next() % 200).unwrap();
                    let outcome = get(&*store, &ID, &[number])[0];
                    assert!(matches!(outcome, Outcome::Hit | Outcome::Absent), "{}: {outcome:?}", kind.name);
                }
            });
            let answers = writers.map(std::thread::ScopedJoinHandle::join);
            writing.store(false, Ordering::SeqCst);
            reader.join().unwrap();
            for answers in answers.into_iter().flat_map(Result::unwrap) {
                assert_eq!(answers[..5], all(Outcome::Hit, 5), "{}", kind.name);
                let removed = |answer: &Outcome| matches!(answer, Outcome::Hit | Outcome::Cancelled);
                assert!(answers.iter().all(removed), "{}: {answers:?}", kind.name);
            }
        });
        let kept: Vec<usize> = (0..200).filter(|number| number % 10 < 5).collect();
        assert_eq!(get(&*store, &ID, &kept), all(Outcome::Hit, 100));
    });
}

#[test]
fn clause_3_the_very_bytes_of_this_identity_and_this_size() {
    each(None, |kind, _, store| {
        assert_eq!(put(&*store, &ID, &[1]), [Outcome::Hit]);
        assert_eq!(
            (get(&*store, &THEM, &[1]), exists(&*store, &THEM, &[1])),
            (vec![Outcome::Absent], vec![Outcome::Absent])
        );
        assert_eq!(put(&*store, &THEM, &[1]), [Outcome::Hit]);
        assert_eq!(
            (get(&*store, &ID, &[1]), get(&*store, &THEM, &[1])),
            (vec![Outcome::Hit], vec![Outcome::Hit])
        );
        // A page of another size was written under this key: it is taken away, and the next put mends.
        for (bytes, outcome) in
            [(BYTES - 1, Outcome::Short), (BYTES + 1, Outcome::Corrupt), (1, Outcome::Short)]
        {
            remove(&*store, &ID, &[2]);
            let (keys, page) = ([key(2)], vec![7; bytes]);
            let keys = Keys { identity: &ID, digests: &keys };
            assert_eq!(store.put(keys, &[None], &[PageRef::from(&page[..])]), [Outcome::Hit]);
            assert_eq!(get(&*store, &ID, &[2]), [outcome], "{}: {bytes}", kind.name);
            assert_eq!(
                (exists(&*store, &ID, &[2]), get(&*store, &ID, &[2])),
                (vec![Outcome::Absent], vec![Outcome::Absent])
            );
            assert_eq!(
                (put(&*store, &ID, &[2]), get(&*store, &ID, &[2])),
                (vec![Outcome::Hit], vec![Outcome::Hit])
            );
        }
        let seen = store.statistics();
        assert_eq!((seen.short_pages, seen.corrupt_pages, seen.failed_pages), (2, 1, 0), "{}", kind.name);
    });
}

#[test]
fn clause_4_written_once() {
    each(None, |kind, _, store| {
        assert_eq!(put(&*store, &ID, &[1, 2]), all(Outcome::Hit, 2));
        let (keys, other) = ([key(1)], vec![7; BYTES]);
        let keys = Keys { identity: &ID, digests: &keys };
        assert_eq!(store.put(keys, &[None], &[PageRef::from(&other[..])]), [Outcome::Hit]);
        assert_eq!(get(&*store, &ID, &[1, 2]), all(Outcome::Hit, 2), "{}: the first bytes", kind.name);
        assert_eq!((store.statistics().written_pages, store.statistics().pages), (2, 2), "{}", kind.name);
    });
}

#[test]
fn clause_5_what_was_acknowledged_is_there_after_a_reopening() {
    for kind in KINDS.iter().filter(|kind| kind.outlives) {
        for close in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let store = kind.open(dir.path(), Some(1_000));
            let numbers: Vec<usize> = (0..100).collect();
            assert_eq!(put(&*store, &ID, &numbers), all(Outcome::Hit, 100));
            assert_eq!(remove(&*store, &ID, &[50]), [Outcome::Hit]);
            if close {
                store.close();
            }
            drop(store);
            let store = kind.open(dir.path(), Some(1_000));
            let answers = get(&*store, &ID, &numbers);
            let hits = answers.iter().filter(|&&answer| answer == Outcome::Hit).count();
            assert_eq!((hits, answers[50]), (99, Outcome::Absent), "{}", kind.name);
            assert_eq!(store.statistics().pages, 99, "{}", kind.name);
        }
    }
}

#[test]
fn clause_6_removal_wins() {
    each(None, |kind, _, store| {
        put(&*store, &ID, &[1, 2]);
        put(&*store, &THEM, &[1]);
        assert_eq!(remove(&*store, &ID, &[1, 3]), [Outcome::Hit, Outcome::Absent]);
        assert_eq!(exists(&*store, &ID, &[1, 2]), [Outcome::Absent, Outcome::Hit]);
        assert_eq!(get(&*store, &THEM, &[1]), [Outcome::Hit]);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let answer = put(&*store, &ID, &[9])[0];
                        assert!(
                            matches!(answer, Outcome::Hit | Outcome::Cancelled),
                            "{}: {answer:?}",
                            kind.name
                        );
                        get(&*store, &ID, &[9]);
                    }
                });
            }
            scope.spawn(|| (0..100).for_each(|_| drop(remove(&*store, &ID, &[9]))));
        });
        remove(&*store, &ID, &[9]);
        assert_eq!(
            (exists(&*store, &ID, &[9]), get(&*store, &ID, &[9])),
            (vec![Outcome::Absent], vec![Outcome::Absent])
        );
        assert_eq!((store.clear(&ID).unwrap(), store.clear(&ID).unwrap()), (1, 0), "{}", kind.name);
        assert_eq!(
            (get(&*store, &THEM, &[1]), store.statistics().pages),
            (vec![Outcome::Hit], 1),
            "{}",
            kind.name
        );
    });
}

/// Chains of pages far beyond what there is room for, then a look at who stayed.
#[test]
fn clause_7_bounded_and_parents_stay() {
    each(Some(64), |kind, _, store| {
        let mut random = Seeded(7);
        let mut taken = 0;
        for round in 0..60 {
            let numbers: Vec<usize> =
                (0..=usize::try_from(random.next() % 8).unwrap()).map(|at| round * 10 + at).collect();
            let answers = put(&*store, &ID, &numbers);
            assert!(
                answers.iter().all(|answer| matches!(answer, Outcome::Hit | Outcome::Declined)),
                "{answers:?}"
            );
            taken += answers.iter().filter(|&&answer| answer == Outcome::Hit).count();
            let seen = store.statistics();
            assert!(seen.bytes <= seen.capacity.unwrap() && seen.pages <= 64, "{}: {seen:?}", kind.name);
        }
        let there: HashSet<usize> =
            (0..600).filter(|&number| exists(&*store, &ID, &[number])[0] == Outcome::Hit).collect();
        assert!(
            there.iter().all(|&number| number % 10 == 0 || there.contains(&(number - 1))),
            "{}",
            kind.name
        );
        let seen = store.statistics();
        assert_eq!(seen.pages, there.len() as u64, "{}", kind.name);
        assert_eq!(seen.evicted_pages, (taken - there.len()) as u64, "{}", kind.name);
        assert!(there.len() > 48 && there.contains(&590), "{}: {} pages are left", kind.name, there.len());
        // What doesn't fit beside what it continues is declined, and what follows it.
        let long: Vec<usize> = (1_000..1_100).collect();
        let answers = put(&*store, &ID, &long);
        let hits = answers.iter().take_while(|&&answer| answer == Outcome::Hit).count();
        assert!((32..=64).contains(&hits), "{}: {hits}", kind.name);
        assert!(
            answers[hits..].iter().all(|&answer| answer == Outcome::Declined),
            "{}: {answers:?}",
            kind.name
        );
        assert_eq!(get(&*store, &ID, &long[..hits]), all(Outcome::Hit, hits));
    });
}

#[test]
fn clause_8_any_thread_at_once() {
    each(Some(100), |kind, dir, store| {
        let second = if kind.shared { kind.open(dir, Some(100)) } else { Arc::clone(&store) };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let store = if thread < 2 { &store } else { &second };
                scope.spawn(move || {
                    let mut random = Seeded(thread);
                    for _ in 0..150 {
                        let first = usize::try_from(random.next() % 200).unwrap();
                        let numbers: Vec<usize> = (first..first + 4).collect();
                        let whose = if random.next().is_multiple_of(2) { &ID } else { &THEM };
                        let answers = match random.next() % 8 {
                            0..4 => put(&**store, whose, &numbers),
                            4 => remove(&**store, whose, &numbers),
                            5 => exists(&**store, whose, &numbers),
                            _ => get(&**store, whose, &numbers),
                        };
                        assert!(!answers.contains(&Outcome::Failed), "{}: {answers:?}", kind.name);
                        let damaged = |answer: &Outcome| matches!(answer, Outcome::Short | Outcome::Corrupt);
                        assert!(!answers.iter().any(damaged), "{}: {answers:?}", kind.name);
                    }
                });
            }
        });
        let seen = store.statistics();
        assert_eq!(
            (seen.failed_pages, seen.corrupt_pages, seen.short_pages),
            (0, 0, 0),
            "{}: {seen:?}",
            kind.name
        );
    });
}

#[test]
fn clause_9_closed() {
    each(None, |kind, _, store| {
        put(&*store, &ID, &[1]);
        let began = Instant::now();
        store.close();
        store.close();
        assert!(began.elapsed() < Duration::from_secs(10), "{}", kind.name);
        for answers in [
            put(&*store, &ID, &[2, 3]),
            get(&*store, &ID, &[1, 2]),
            exists(&*store, &ID, &[1, 2]),
            remove(&*store, &ID, &[1, 2]),
        ] {
            assert_eq!(answers, [Outcome::Failed; 2], "{}", kind.name);
        }
    });
}

/// A pool may have no bytes: its pages are still there or not.
#[test]
fn a_page_without_bytes_is_a_page() {
    each(None, |kind, _, store| {
        let (digests, identity) = ([key(1), key(2)], ID);
        let keys = Keys { identity: &identity, digests: &digests };
        let answers =
            store.put(keys, &[None, Some(digests[0])], &[PageRef::new(vec![]), PageRef::new(vec![])]);
        assert_eq!(answers, [Outcome::Hit; 2], "{}", kind.name);
        assert_eq!(store.exists(keys), [Outcome::Hit; 2], "{}", kind.name);
        let mut pages = [PageMut::new(vec![]), PageMut::new(vec![])];
        assert_eq!(store.get(keys, &mut pages), [Outcome::Hit; 2], "{}", kind.name);
    });
}
