//! A store in memory that fails as it is told to.

use super::clears::Clears;
use super::holds::Holds;
use hicache_core::error::Result;
use hicache_core::hash::Digest;
use hicache_core::identity::Fingerprint;
use hicache_core::storage::{Keys, Outcome, PageMut, PageRef, Statistics, Store};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Exists,
    Get,
    Put,
}

/// What a call does instead of its work.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    None,
    /// Answers this for every key.
    Answer(Outcome),
    /// One answer too few, all of them good.
    Short,
    /// One answer too many.
    Long,
    Panic,
    /// Does its work when [`FaultStore::release`] was called.
    Hang,
    /// Does its work when [`FaultStore::pass`] named it.
    Gated,
    Slow(Duration),
}

type Plan = Box<dyn Fn(Verb, usize) -> Fault + Send>;

pub struct FaultStore {
    pages: Mutex<HashMap<(Fingerprint, Digest), Vec<u8>>>,
    plan: Mutex<Plan>,
    pub clears: Clears,
    /// What `get` answers for single keys.
    bad: Mutex<HashMap<Digest, Outcome>>,
    calls: [AtomicUsize; 3],
    ended: AtomicUsize,
    released: Mutex<bool>,
    release: Condvar,
    gate: Mutex<Gate>,
    passed: Condvar,
    /// How often each key was put.
    puts: Mutex<HashMap<Digest, usize>>,
    /// The parent that each key was last put with.
    parents: Mutex<HashMap<Digest, Option<Digest>>>,
    /// Whether pages that are put are taken and not kept.
    frozen: AtomicBool,
    pub holds: Holds,
    /// What was asked for so far: the first key, and how many.
    asked: Mutex<Vec<(Verb, Digest, usize)>>,
}

/// Calls that wait at a gate, in order of arrival; those that may pass have left it.
#[derive(Default)]
struct Gate {
    waiting: Vec<usize>,
    made: usize,
}

impl Default for FaultStore {
    fn default() -> Self {
        Self {
            pages: Mutex::default(),
            plan: Mutex::new(Box::new(|_, _| Fault::None)),
            clears: Clears::default(),
            bad: Mutex::default(),
            calls: Default::default(),
            ended: AtomicUsize::new(0),
            released: Mutex::new(false),
            release: Condvar::new(),
            gate: Mutex::default(),
            passed: Condvar::new(),
            puts: Mutex::default(),
            parents: Mutex::default(),
            frozen: AtomicBool::new(false),
            holds: Holds::default(),
            asked: Mutex::default(),
        }
    }
}

impl FaultStore {
    /// From now on, each call (verb, number from 1 on) asks what to do.
    pub fn plan(&self, plan: impl Fn(Verb, usize) -> Fault + Send + 'static) {
        *self.plan.lock().unwrap() = Box::new(plan);
    }

    fn hang(&self) {
        let released = self.released.lock().unwrap();
        drop(self.release.wait_while(released, |released| !*released).unwrap());
    }

    pub fn spoil(&self, key: Digest, outcome: Outcome) {
        self.bad.lock().unwrap().insert(key, outcome);
    }

    pub fn asked(&self) -> Vec<(Verb, Digest, usize)> {
        self.asked.lock().unwrap().clone()
    }

    pub fn release(&self) {
        *self.released.lock().unwrap() = true;
        self.release.notify_all();
    }

    /// Calls that wait at the gate.
    pub fn waiting(&self) -> usize {
        self.gate.lock().unwrap().waiting.len()
    }

    /// Lets one call through the gate, the oldest being number 0; false if there is no such call. One that is
    /// on its way to the gate is given a moment.
    pub fn pass(&self, which: usize) -> bool {
        for _ in 0..5 {
            if self.waiting() > which {
                break;
            }
            std::thread::yield_now();
        }
        let mut gate = self.gate.lock().unwrap();
        let there = which < gate.waiting.len();
        if there {
            gate.waiting.remove(which);
        }
        self.passed.notify_all();
        there
    }

    /// The most that any key was put, and how many puts there were in all.
    pub fn puts(&self) -> (usize, usize) {
        let puts = self.puts.lock().unwrap();
        (puts.values().copied().max().unwrap_or(0), puts.values().sum())
    }

    /// From now on it answers from what it has, whatever is put when.
    pub fn freeze(&self) {
        self.frozen.store(true, Ordering::SeqCst);
    }

    pub fn forget_puts(&self) {
        self.puts.lock().unwrap().clear();
    }

    fn wait_at_gate(&self) {
        let mut gate = self.gate.lock().unwrap();
        gate.made += 1;
        let me = gate.made;
        gate.waiting.push(me);
        drop(self.passed.wait_while(gate, |gate| gate.waiting.contains(&me)).unwrap());
    }

    pub fn calls(&self, verb: Verb) -> usize {
        self.calls[verb as usize].load(Ordering::SeqCst)
    }

    /// Calls that returned, of all verbs.
    pub fn ended(&self) -> usize {
        self.ended.load(Ordering::SeqCst)
    }

    pub fn len(&self) -> usize {
        self.pages.lock().unwrap().len()
    }

    /// Pages of an identity.
    pub fn of(&self, identity: Fingerprint) -> usize {
        self.pages.lock().unwrap().keys().filter(|(of, _)| *of == identity).count()
    }

    pub fn parent(&self, key: &Digest) -> Option<Digest> {
        self.parents.lock().unwrap().get(key).copied().flatten()
    }

    pub fn page(&self, key: &Digest) -> Option<Vec<u8>> {
        let pages = self.pages.lock().unwrap();
        pages.iter().find(|((_, digest), _)| digest == key).map(|(_, page)| page.clone())
    }

    fn call(&self, verb: Verb, keys: Keys<'_>, work: impl FnOnce() -> Vec<Outcome>) -> Vec<Outcome> {
        self.asked.lock().unwrap().push((verb, keys.digests[0], keys.len()));
        let keys = keys.len();
        let call = self.calls[verb as usize].fetch_add(1, Ordering::SeqCst) + 1;
        let fault = (self.plan.lock().unwrap())(verb, call);
        let answers = match fault {
            Fault::None => work(),
            Fault::Answer(outcome) => vec![outcome; keys],
            Fault::Short => vec![Outcome::Hit; keys - 1],
            Fault::Long => vec![Outcome::Hit; keys + 1],
            Fault::Panic => panic!("a store that panics, on purpose"),
            Fault::Hang => {
                self.hang();
                work()
            }
            Fault::Gated => {
                self.wait_at_gate();
                work()
            }
            Fault::Slow(time) => {
                std::thread::sleep(time);
                work()
            }
        };
        self.ended.fetch_add(1, Ordering::SeqCst);
        answers
    }

    fn read(&self, identity: &Fingerprint, key: &Digest, page: &mut PageMut<'_>) -> Outcome {
        // Bytes of a page that isn't a hit are undefined: make them as bad as can be.
        spoil(page);
        self.holds.wait(key);
        if let Some(&outcome) = self.bad.lock().unwrap().get(key) {
            if outcome == Outcome::Corrupt {
                self.pages.lock().unwrap().remove(&(*identity, *key));
            }
            return outcome;
        }
        let pages = self.pages.lock().unwrap();
        let Some(bytes) = pages.get(&(*identity, *key)) else { return Outcome::Absent };
        assert!(page.fill_from(bytes), "a page of another size");
        Outcome::Hit
    }
}

fn spoil(page: &mut PageMut<'_>) {
    page.runs().iter_mut().for_each(|run| run.fill(0xEE));
}

impl Store for FaultStore {
    fn exists(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.call(Verb::Exists, keys, || {
            let pages = self.pages.lock().unwrap();
            let has = |key: &Digest| {
                if pages.contains_key(&(*keys.identity, *key)) { Outcome::Hit } else { Outcome::Absent }
            };
            keys.digests.iter().map(has).collect()
        })
    }

    fn get(&self, keys: Keys<'_>, pages: &mut [PageMut<'_>]) -> Vec<Outcome> {
        pages.iter_mut().for_each(spoil);
        self.call(Verb::Get, keys, || {
            keys.digests.iter().zip(pages).map(|(key, page)| self.read(keys.identity, key, page)).collect()
        })
    }

    fn put(&self, keys: Keys<'_>, parents: &[Option<Digest>], pages: &[PageRef<'_>]) -> Vec<Outcome> {
        assert_eq!(parents.len(), keys.len(), "a parent, or none, for each");
        self.call(Verb::Put, keys, || {
            let mut kept = self.pages.lock().unwrap();
            for (key, page) in keys.digests.iter().zip(pages) {
                *self.puts.lock().unwrap().entry(*key).or_default() += 1;
                if !self.frozen.load(Ordering::SeqCst) {
                    kept.entry((*keys.identity, *key)).or_insert_with(|| page.to_vec());
                }
            }
            for (key, parent) in keys.digests.iter().zip(parents) {
                self.parents.lock().unwrap().insert(*key, *parent);
            }
            vec![Outcome::Hit; keys.len()]
        })
    }

    fn remove(&self, keys: Keys<'_>) -> Vec<Outcome> {
        let mut pages = self.pages.lock().unwrap();
        let remove = |key: &Digest| {
            if pages.remove(&(*keys.identity, *key)).is_some() { Outcome::Hit } else { Outcome::Absent }
        };
        keys.digests.iter().map(remove).collect()
    }

    fn clear(&self, identity: &Fingerprint) -> Result<u64> {
        self.clears.begin(|| self.hang())?;
        let mut pages = self.pages.lock().unwrap();
        let before = pages.len();
        pages.retain(|(of, _), _| of != identity);
        Ok((before - pages.len()) as u64)
    }

    fn statistics(&self) -> Statistics {
        Statistics { pages: self.len() as u64, ..Statistics::default() }
    }

    fn describe(&self) -> String {
        String::from("a store that fails as it is told to")
    }

    fn close(&self) {}
}
