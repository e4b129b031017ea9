//! Stores of all kinds under threads that put, read, remove, clear, ask and compact while others close them, a thousand
//! times and more: whatever waits for what, all of it ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::store::FaultStore;
use hicache_core::hash::Digest;
use hicache_core::identity::Fingerprint;
use hicache_core::storage::{Batch, Client, Keys, PageMut, PageRef, Store, Verified, Work, Workers, open};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

const OURS: Fingerprint = Fingerprint([3; 32]);
const PAGE: usize = 512;
const CALLS: usize = 1_000;
const ROUNDS: usize = 10;

/// One call of thread `me`: those that change, and those that ask, in turn.
fn call(store: &dyn Store, me: usize, turn: usize) {
    let digests: Vec<Digest> =
        (0..3).map(|at| Digest([u8::try_from((turn + at) % 16).unwrap(); 32])).collect();
    let keys = Keys { identity: &OURS, digests: &digests };
    let mut bytes = vec![vec![7; PAGE]; 3];
    match (me + turn) % 8 {
        0..=2 => {
            let pages: Vec<PageRef<'_>> = bytes.iter().map(|page| PageRef::new(vec![&page[..]])).collect();
            assert_eq!(store.put(keys, &[None; 3], &pages).len(), 3);
        }
        3 => {
            let mut pages: Vec<PageMut<'_>> =
                bytes.iter_mut().map(|page| PageMut::new(vec![&mut page[..]])).collect();
            assert_eq!(store.get(keys, &mut pages).len(), 3);
        }
        4 => assert_eq!(store.exists(keys).len(), 3),
        5 => assert_eq!(store.remove(keys).len(), 3),
        6 => drop((store.statistics(), store.describe(), store.list(), store.compact())),
        _ => drop(store.clear(&OURS)),
    }
}

/// Ends with the process if the work doesn't: a deadlock can't be undone.
fn bounded(work: impl FnOnce() + Send + 'static) {
    let (told, done) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        work();
        drop(told);
    });
    let late = done.recv_timeout(Duration::from_secs(120)) == Err(mpsc::RecvTimeoutError::Timeout);
    assert!(!late, "they wait for one another");
    thread.join().unwrap();
}

fn storm(make: impl Fn(usize) -> Arc<dyn Store> + Send + 'static) {
    bounded(move || {
        for round in 0..ROUNDS {
            let store = make(round);
            let calls = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for me in 0..3 {
                    let (store, calls) = (&store, &calls);
                    scope.spawn(move || {
                        for turn in 0..CALLS / ROUNDS {
                            call(&**store, me, turn);
                            calls.fetch_add(1, Ordering::SeqCst);
                        }
                    });
                }
                // Two close it, in the middle of that; in some rounds at once.
                for _ in 0..2 {
                    let (store, calls) = (&store, &calls);
                    scope.spawn(move || {
                        while calls.load(Ordering::SeqCst) < round * 30 {
                            std::thread::yield_now();
                        }
                        store.close();
                    });
                }
            });
            assert!(calls.into_inner() >= CALLS / ROUNDS);
        }
    });
}

#[test]
fn stores_of_every_kind() {
    let place = tempfile::tempdir().unwrap();
    for kind in ["memory", "file", "slab", "sim", "verified"] {
        let path = place.path().to_owned();
        storm(move |round| {
            let at = path.join(format!("{kind}-{round}"));
            let url = match kind {
                "file" => format!("file://{}?size=1MiB", at.display()),
                "slab" => format!("slab://{}?size=64MiB", at.display()),
                "sim" => "sim://?latency_us=1".to_owned(),
                _ => "memory://?size=1MiB".to_owned(),
            };
            let store = open(&url, &Client::alone(OURS)).unwrap();
            if kind == "verified" { Arc::new(Verified::new(store)) } else { store }
        });
    }
}

/// The workers over one: batches of every kind, given up and closed by another thread's leave.
#[test]
fn workers_that_leave() {
    bounded(|| {
        for round in 0..CALLS / 10 {
            let store: Arc<dyn Store> = Arc::new(FaultStore::default());
            let mut workers = Workers::start(&store, 3, 4).unwrap();
            for id in 0..10 {
                let keys = vec![Digest([u8::try_from(id).unwrap(); 32])];
                let work = match id % 3 {
                    0 => Work::Exists,
                    1 => Work::Remove,
                    _ => Work::Clear,
                };
                let keys = if matches!(work, Work::Clear) { Vec::new() } else { keys };
                drop(workers.submit(Batch::new(id, OURS, keys, work, Arc::default(), Arc::new(()))));
            }
            if round % 2 == 0 {
                workers.leave(Duration::from_secs(5));
            } else {
                workers.close(Duration::from_secs(5));
            }
            assert!(workers.is_over());
            let ended = std::iter::from_fn(|| workers.completed()).count();
            assert_eq!(ended, 10, "each batch ends once, whatever becomes of it");
        }
    });
}
