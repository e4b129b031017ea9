//! Removals and writes among the workers: removal wins, whatever waits or is under way; time-outs are tried once more.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::filed::{US, key};
use common::store::{Fault, FaultStore, Verb};
use hicache_core::hash::Digest;
use hicache_core::storage::{Batch, Completion, Outcome, Page, Store, Work, Workers};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Workers over a store that does as it is told, and memory whose pages outlive both.
struct Bench {
    store: Arc<FaultStore>,
    workers: Workers,
    memory: Vec<Vec<u8>>,
    next: u64,
}

impl Bench {
    fn new(threads: usize) -> Self {
        let store = Arc::new(FaultStore::default());
        let stored: Arc<dyn Store> = Arc::<FaultStore>::clone(&store);
        let workers = Workers::start(&stored, threads, 64).unwrap();
        Self { store, workers, memory: (0..16).map(|page| vec![page; 64]).collect(), next: 0 }
    }

    fn put(&mut self, numbers: &[i32]) -> u64 {
        let keys: Vec<Digest> = numbers.iter().copied().map(key).collect();
        let memory = &mut self.memory;
        let pages = numbers
            .iter()
            .map(|&number| Page(vec![(memory[usize::try_from(number).unwrap()].as_mut_ptr(), 64)]))
            .collect();
        let parents = vec![None; keys.len()];
        self.next += 1;
        let work = Work::Put(pages, parents);
        let batch = Batch::new(self.next, US, keys, work, Arc::default(), Arc::new(()));
        assert!(self.workers.submit(batch).is_none());
        self.next
    }

    fn remove(&mut self, numbers: &[i32]) -> u64 {
        self.next += 1;
        self.workers.remove(self.next, US, numbers.iter().copied().map(key).collect());
        self.next
    }

    /// The next completion, which must be this batch's.
    fn ended(&self, id: u64) -> Vec<Outcome> {
        let done = self.any();
        assert_eq!(done.id, id);
        done.outcomes
    }

    fn any(&self) -> Completion {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(done) = self.workers.completed() {
                return done;
            }
            assert!(Instant::now() < end, "nothing ends");
            std::thread::yield_now();
        }
    }

    fn until(&self, what: impl Fn(&FaultStore) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !what(&self.store) {
            assert!(Instant::now() < end, "it never happens");
            std::thread::yield_now();
        }
    }

    fn has(&self, number: i32) -> bool {
        self.store.page(&key(number)).is_some()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.store.release();
        self.workers.close(Duration::from_secs(20));
    }
}

fn gate_first_put(bench: &Bench) {
    bench.store.plan(|verb, call| if (verb, call) == (Verb::Put, 1) { Fault::Gated } else { Fault::None });
}

#[test]
fn a_write_inside_the_store_is_undone_by_a_removal() {
    let mut bench = Bench::new(2);
    gate_first_put(&bench);
    let put = bench.put(&[1, 2]);
    bench.until(|store| store.waiting() == 1);
    let removal = bench.remove(&[1]);
    assert_eq!(bench.ended(removal), [Outcome::Absent]);
    assert!(bench.store.pass(0));
    assert_eq!(bench.ended(put), [Outcome::Cancelled, Outcome::Hit]);
    assert_eq!((bench.has(1), bench.has(2)), (false, true));
    let put = bench.put(&[1]);
    assert_eq!((bench.ended(put), bench.has(1)), (vec![Outcome::Hit], true), "a later write is another one");
}

#[test]
fn a_write_that_waits_is_cancelled_by_a_removal() {
    // One thread, which is busy: the write waits behind it, and the removal overtakes it.
    let mut bench = Bench::new(1);
    gate_first_put(&bench);
    let busy = bench.put(&[9]);
    bench.until(|store| store.waiting() == 1);
    let waits = bench.put(&[1, 2]);
    let removal = bench.remove(&[1]);
    assert!(bench.store.pass(0));
    assert_eq!(bench.ended(busy), [Outcome::Hit]);
    assert_eq!(bench.ended(removal), [Outcome::Absent]);
    assert_eq!(bench.ended(waits), [Outcome::Cancelled, Outcome::Hit]);
    assert_eq!((bench.has(1), bench.has(2)), (false, true));
}

/// The executor keeps writes that found the queue full: they were asked for when they came to it.
#[test]
fn a_write_was_asked_for_when_it_was_enlisted() {
    let mut bench = Bench::new(1);
    let pages = vec![Page(vec![(bench.memory[1].as_mut_ptr(), 64)])];
    let work = Work::Put(pages, vec![None]);
    let mut batch = Batch::new(77, US, vec![key(1)], work, Arc::default(), Arc::new(()));
    bench.workers.enlist(&mut batch);
    let removal = bench.remove(&[1]);
    assert_eq!(bench.ended(removal), [Outcome::Absent]);
    assert!(bench.workers.submit(batch).is_none());
    assert_eq!((bench.ended(77), bench.has(1)), (vec![Outcome::Cancelled], false));
}

#[test]
fn a_later_write_is_not_undone_for_an_older_ones_sake() {
    let mut bench = Bench::new(3);
    gate_first_put(&bench);
    let old = bench.put(&[1]);
    bench.until(|store| store.waiting() == 1);
    let removal = bench.remove(&[1]);
    assert_eq!(bench.ended(removal), [Outcome::Absent]);
    // While the old one is inside, whose page is whose can't be told: the new one is given up, not lost.
    let new = bench.put(&[1]);
    assert_eq!(bench.ended(new), [Outcome::Cancelled]);
    assert!(bench.store.pass(0));
    assert_eq!((bench.ended(old), bench.has(1)), (vec![Outcome::Cancelled], false));
    let new = bench.put(&[1]);
    assert_eq!((bench.ended(new), bench.has(1)), (vec![Outcome::Hit], true));
}

/// Whatever the order: a page whose last answers were Hit for a write after the last removal is there, and one that
/// was removed last is not.
#[test]
fn threads_agree_on_who_was_last() {
    let mut bench = Bench::new(4);
    let mut random = common::Seeded(5);
    for round in 0..300 {
        let number = i32::try_from(random.next() % 4).unwrap();
        let (mut ids, mut last) = (Vec::new(), None);
        for _ in 0..6 {
            let removes = random.next() % 3 == 0;
            let id = if removes { bench.remove(&[number]) } else { bench.put(&[number]) };
            ids.push((id, removes));
        }
        let ended: Vec<Completion> = ids.iter().map(|_| bench.any()).collect();
        for (id, removes) in ids {
            let outcome = ended.iter().find(|done| done.id == id).unwrap().outcomes[0];
            if removes {
                last = Some(false);
            } else if outcome == Outcome::Hit {
                last = Some(true);
            }
        }
        if let Some(there) = last {
            assert_eq!(bench.has(number), there, "round {round}");
        }
        bench.store.forget_puts();
    }
}

#[test]
fn pages_that_time_out_are_tried_once_more() {
    let mut bench = Bench::new(1);
    bench.store.plan(|verb, call| match (verb, call) {
        (Verb::Put, 1) => Fault::Answer(Outcome::TimedOut),
        _ => Fault::None,
    });
    let put = bench.put(&[1, 2]);
    assert_eq!(bench.ended(put), [Outcome::Hit; 2]);
    assert_eq!(bench.store.calls(Verb::Put), 2);
    bench.store.plan(|_, _| Fault::Answer(Outcome::TimedOut));
    let put = bench.put(&[3]);
    assert_eq!((bench.ended(put), bench.has(3)), (vec![Outcome::TimedOut], false));
    assert_eq!(bench.store.calls(Verb::Put), 4, "and not for ever");
}

#[test]
fn a_removal_answers_for_each_page() {
    let mut bench = Bench::new(1);
    let put = bench.put(&[1]);
    assert_eq!(bench.ended(put), [Outcome::Hit]);
    let removal = bench.remove(&[1, 2]);
    assert_eq!((bench.ended(removal), bench.has(1)), (vec![Outcome::Hit, Outcome::Absent], false));
}
