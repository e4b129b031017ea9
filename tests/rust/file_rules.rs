//! What a file store promises: removals win, strangers are left alone, another configuration is told in words.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::filed::{US, client, exists, file, get, key, page, pages_below, put};
use common::plain::Plain;
use hicache_core::identity::Identity;
use hicache_core::page::PageSize;
use hicache_core::storage::file::FileStore;
use hicache_core::storage::file::options::{Limits, Step, Steps};
use hicache_core::storage::{Client, Outcome, Store, open};
use std::fs;
use std::sync::{Arc, Condvar, Mutex};

/// A gate that a write waits at, in the store's own steps.
#[derive(Default)]
struct Gate {
    at: Mutex<(bool, bool)>,
    moved: Condvar,
}

impl Gate {
    fn wait(&self) {
        let mut at = self.at.lock().unwrap();
        at.0 = true;
        self.moved.notify_all();
        drop(self.moved.wait_while(at, |at| !at.1).unwrap());
    }

    fn arrived(&self) {
        drop(self.moved.wait_while(self.at.lock().unwrap(), |at| !at.0).unwrap());
    }

    fn open(&self) {
        self.at.lock().unwrap().1 = true;
        self.moved.notify_all();
    }
}

#[test]
fn a_removal_wins_over_a_write_that_began_before_it() {
    for clears in [false, true] {
        let (dir, gate) = (tempfile::tempdir().unwrap(), Arc::new(Gate::default()));
        let at = Arc::clone(&gate);
        let steps = Steps::new(move |step, _| {
            if step == Step::Write {
                at.wait();
            }
            Ok(())
        });
        let store = FileStore::open_with(dir.path(), Limits::default(), &client(), steps).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| put(&store, 1));
            gate.arrived();
            assert_eq!(
                (exists(&store, 1), get(&store, 1)),
                (Outcome::Absent, Outcome::Absent),
                "half a page"
            );
            if clears {
                assert_eq!(store.clear(&US).unwrap(), 0);
            } else {
                assert_eq!(Plain(&store, US).remove(&[key(1)]), [Outcome::Absent]);
            }
            gate.open();
            assert_eq!(writer.join().unwrap(), Outcome::Cancelled);
        });
        assert_eq!((exists(&store, 1), pages_below(dir.path())), (Outcome::Absent, 0));
        assert_eq!(fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0);
        assert_eq!(
            (put(&store, 1), get(&store, 1)),
            (Outcome::Hit, Outcome::Hit),
            "a later write is another one"
        );
    }
}

#[test]
fn clearing_takes_one_identity_and_no_strangers() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path()).unwrap();
    (0..5).for_each(|number| assert_eq!(put(&store, number), Outcome::Hit));
    let other = hicache_core::identity::Fingerprint([2; 32]);
    Plain(&store, other).put(&[key(1)], &[&page(1)]);
    let notes = file(dir.path(), 1).with_file_name("notes.txt");
    fs::write(&notes, "mine").unwrap();
    fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    assert_eq!(store.clear(&US).unwrap(), 5);
    assert_eq!(store.clear(&US).unwrap(), 0);
    assert!(notes.exists() && dir.path().join("notes.txt").exists());
    assert_eq!(common::filed::get_as(&store, other, 1), Outcome::Hit);
    let held = store.list().unwrap();
    assert_eq!((held.len(), held[0].identity, held[0].digest, held[0].bytes), (1, other, key(1), 200));
}

#[test]
fn a_closed_store_touches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path()).unwrap();
    put(&store, 1);
    store.close();
    assert_eq!([get(&store, 1), put(&store, 2), exists(&store, 1)], [Outcome::Failed; 3]);
    assert_eq!(Plain(&store, US).remove(&[key(1)]), [Outcome::Failed]);
    assert_eq!(pages_below(dir.path()), 1);
}

#[test]
fn another_configuration_of_the_same_model_is_told_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}", dir.path().display());
    let client = |dtype: &str| {
        let fields = [("model", "m"), ("dtype", dtype)].map(|(name, value)| (name.into(), value.into()));
        let identity = Identity::of(&fields, &[], &[], PageSize::new(16).unwrap(), &[]);
        Client::new(&identity, vec![], vec![]).unwrap()
    };
    let (theirs, ours) = (client("fp8"), client("bf16"));
    let store = open(&url, &theirs).unwrap();
    Plain(&*store, theirs.identity).put(&[key(1)], &[&page(1)]);
    assert!(!store.describe().contains("another identity"), "{}", store.describe());

    let store = open(&url, &ours).unwrap();
    let said = store.describe();
    assert!(said.contains("dtype is \"fp8\" there, \"bf16\" here") && !said.contains("page_size"), "{said}");
    assert_eq!(Plain(&*store, ours.identity).exists(&[key(1), key(2)]), [Outcome::Absent; 2]);
    assert_eq!(store.statistics().mismatched_pages, 2);
    Plain(&*store, ours.identity).put(&[key(1)], &[&page(1)]);
    assert!(!store.describe().contains("another identity"), "it has pages of ours now");
    assert_eq!(Plain(&*store, ours.identity).exists(&[key(2)]), [Outcome::Absent]);
    assert_eq!(store.statistics().mismatched_pages, 2);
    assert_eq!(fs::read_dir(dir.path().join("identities")).unwrap().count(), 2);
}
