//! Stores that aren't trusted with bytes: whatever they do, no wrong ones are served.
#![allow(clippy::unwrap_used, reason = "a test that fails is loud")]

use hicache_core::Result;
use hicache_core::hash::Digest;
use hicache_core::identity::Fingerprint;
use hicache_core::storage::{Held, Keys, Outcome, PageMut, PageRef, Statistics, Store, Verified, seal};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const OURS: Fingerprint = Fingerprint([1; 32]);
const THEIRS: Fingerprint = Fingerprint([2; 32]);

fn keys(count: u8) -> Vec<Digest> {
    (0..count).map(|at| Digest([at; 32])).collect()
}

fn named(digests: &[Digest]) -> Keys<'_> {
    Keys { identity: &OURS, digests }
}

type Name = ([u8; 32], [u8; 32]);

/// Objects by name, which tests may touch. What it keeps is judged by nobody.
#[derive(Default)]
struct Objects(Mutex<BTreeMap<Name, Vec<u8>>>);

impl Objects {
    fn each(
        &self,
        keys: Keys<'_>,
        act: impl Fn(usize, Name, &mut BTreeMap<Name, Vec<u8>>) -> bool,
    ) -> Vec<Outcome> {
        let mut objects = self.0.lock().unwrap();
        let outcome = |hit| if hit { Outcome::Hit } else { Outcome::Absent };
        let name = |key: &Digest| (keys.identity.0, key.0);
        keys.digests.iter().enumerate().map(|(at, key)| outcome(act(at, name(key), &mut objects))).collect()
    }
}

impl Store for Objects {
    fn exists(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.each(keys, |_, name, objects| objects.contains_key(&name))
    }
    fn get(&self, keys: Keys<'_>, pages: &mut [PageMut<'_>]) -> Vec<Outcome> {
        let pages = Mutex::new(pages);
        self.each(keys, |at, name, objects| {
            let Some(object) = objects.get(&name) else { return false };
            let mut cut = object.clone();
            cut.resize(pages.lock().unwrap()[at].bytes(), 0);
            pages.lock().unwrap()[at].fill_from(&cut)
        })
    }
    fn put(&self, keys: Keys<'_>, _: &[Option<Digest>], pages: &[PageRef<'_>]) -> Vec<Outcome> {
        self.each(keys, |at, name, objects| {
            objects.entry(name).or_insert_with(|| pages[at].to_vec());
            true
        })
    }
    fn remove(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.each(keys, |_, name, objects| objects.remove(&name).is_some())
    }
    fn clear(&self, _: &Fingerprint) -> Result<u64> {
        Ok(0)
    }
    fn statistics(&self) -> Statistics {
        Statistics { read_pages: 10, read_bytes: 10_000, ..Statistics::default() }
    }
    fn describe(&self) -> String {
        String::from("objects")
    }
    fn list(&self) -> Result<Vec<Held>> {
        let held = |(name, object): (&Name, &Vec<u8>)| Held {
            identity: Fingerprint(name.0),
            digest: Digest(name.1),
            bytes: object.len() as u64,
            age: 0,
        };
        Ok(self.0.lock().unwrap().iter().map(held).collect())
    }
    fn close(&self) {}
}

type Mistake = Box<dyn Fn(&mut BTreeMap<Name, Vec<u8>>)>;

fn read(store: &Verified, identity: &Fingerprint, key: u8, size: usize) -> (Outcome, Vec<u8>) {
    let mut buffer = vec![0; size];
    let (left, right) = buffer.split_at_mut(size / 3);
    let digests = [Digest([key; 32])];
    let keys = Keys { identity, digests: &digests };
    let outcome = store.get(keys, &mut [PageMut::new(vec![left, right])])[0];
    (outcome, buffer)
}

/// Every byte of an object, seal and payload, and every other mistake: none is served, and each is mended.
#[test]
fn no_mistake_of_a_store_is_served() {
    let page = b"seven bytes and more".to_vec();
    let fresh = || {
        let objects = Arc::new(Objects::default());
        let store = Verified::new(Arc::clone(&objects) as Arc<dyn Store>);
        for key in [0, 1] {
            let payload = if key == 0 { page.clone() } else { vec![key; page.len()] };
            store.put(named(&[Digest([key; 32])]), &[None], &[PageRef::from(&payload[..])]);
        }
        (objects, store)
    };
    let (ours, theirs, other) = ((OURS.0, [0; 32]), (THEIRS.0, [0; 32]), (OURS.0, [1; 32]));
    let mut mistakes: Vec<Mistake> = Vec::new();
    for at in 0..seal::BYTES + page.len() {
        mistakes.push(Box::new(move |objects| objects.get_mut(&ours).unwrap()[at] ^= 0x40));
    }
    mistakes.push(Box::new(move |objects| objects.get_mut(&ours).unwrap().truncate(3)));
    mistakes.push(Box::new(move |objects| objects.get_mut(&ours).unwrap().clear()));
    mistakes.push(Box::new(move |objects| {
        let wrong = objects[&other].clone();
        objects.insert(ours, wrong);
    }));
    for mistake in mistakes {
        let (objects, store) = fresh();
        assert_eq!(read(&store, &OURS, 0, page.len()), (Outcome::Hit, page.clone()));
        mistake(&mut objects.0.lock().unwrap());
        assert_eq!(read(&store, &OURS, 0, page.len()).0, Outcome::Corrupt);
        assert_eq!(store.statistics().corrupt_pages, 1);
        assert_eq!(store.statistics().read_pages, 9, "what was rejected is no page read");
        assert_eq!(read(&store, &OURS, 0, page.len()).0, Outcome::Absent, "it was taken away");
        store.put(named(&keys(1)), &[None], &[PageRef::from(&page[..])]);
        assert_eq!(read(&store, &OURS, 0, page.len()), (Outcome::Hit, page.clone()));
    }
    let (objects, store) = fresh();
    let stolen = objects.0.lock().unwrap()[&ours].clone();
    objects.0.lock().unwrap().insert(theirs, stolen);
    assert_eq!(read(&store, &THEIRS, 0, page.len()).0, Outcome::Corrupt, "another identity's page");
    // Another length than was put.
    assert_eq!(read(&store, &OURS, 0, page.len() - 1).0, Outcome::Corrupt);
}

#[test]
fn sizes_are_those_of_payloads() {
    let store = Verified::new(Arc::new(Objects::default()));
    store.put(named(&keys(2)), &[None; 2], &[PageRef::from(&[1; 77][..]), PageRef::from(&[][..])]);
    let sizes: Vec<u64> = store.list().unwrap().iter().map(|held| held.bytes).collect();
    assert_eq!(sizes, [77, 0]);
    assert_eq!(store.exists(named(&keys(3))), [Outcome::Hit, Outcome::Hit, Outcome::Absent]);
    assert!(store.describe().contains("verified"));
}
