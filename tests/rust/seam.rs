//! Other policies behind the seam: reads from the back, and what a policy is told.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use common::store::{Fault, Verb};
use common::stored::{asking, filled, prompt, stored};
use hicache_core::hash::chain;
use hicache_core::ids::Tier;
use hicache_core::page::{PageSize, Tokens};
use hicache_core::policy::fetching::{Choice, End, Line, Order, ReadTime, Step, Stop, Verdict, Waiting};
use hicache_core::policy::{Lru, StopOptions};
use std::sync::{Arc, Mutex};

/// From the back, and two tokens at a time.
#[derive(Debug)]
struct Backwards(Arc<Mutex<(Vec<ReadTime>, Vec<Step>)>>);

impl Order for Backwards {
    fn read(&mut self, read: ReadTime) {
        self.0.lock().unwrap().0.push(read);
    }

    fn step(&mut self, step: Step) {
        self.0.lock().unwrap().1.push(step);
    }

    fn next(&mut self, lines: &[Line], _now: u64) -> Option<Choice> {
        let line = lines.first()?;
        assert!(line.ready >= line.ends[1] && line.ends[1] > 0);
        Some(Choice { line: 0, tokens: 2, end: End::Back })
    }
}

/// Pages that come from the back wait for those before them; all are where they belong. What has come before its turn is given
/// back when the request stops to wait.
#[test]
fn pages_may_come_from_the_back() {
    let tokens = prompt(1, 300);
    let shape = Shape { page: 1, device: 320, host: 600, threads: 2, ..Shape::default() };
    for stops in [false, true] {
        let told = Arc::default();
        let store = filled(shape, std::slice::from_ref(&tokens));
        let (policy, order) = (Box::<Lru>::default(), Box::new(Backwards(Arc::clone(&told))));
        let mut rig = Rig::with_order(shape, Some(&store), policy, order);
        let first = chain(None, Tokens::I32(&tokens), PageSize::new(1).unwrap())[0];
        store.holds.hold(first);
        let before = store.calls(Verb::Get);
        let hit = asking(&mut rig, &tokens);
        // All but the one that the first page is in.
        rig.until("the rest", |rig| store.calls(Verb::Get) == before + 150 && rig.cache.in_flight() == 1);
        assert_eq!((rig.view(hit).usable, rig.cache.slots(Tier::Host).out()), (0, 300));
        if stops {
            assert_eq!(rig.load(hit).device, 0);
            assert_eq!(rig.cache.slots(Tier::Host).out(), 128, "the batch that is under way");
        }
        store.holds.free(&first);
        rig.until("the end", |rig| !rig.view(hit).waiting && rig.cache.in_flight() == 0);
        if !stops {
            assert_eq!(rig.view(hit).usable, 300);
            assert_eq!(rig.load(hit).device, 300);
            rig.settle();
            rig.verify(hit, &tokens);
        }
        rig.cache.stepped(512, 0.25, 1024).unwrap();
        assert!(rig.cache.stepped(1, f64::NAN, 0).is_err() && rig.cache.stepped(1, -1.0, 0).is_err());
        let told = told.lock().unwrap();
        assert_eq!(told.0.iter().map(|read| read.tokens).sum::<u64>(), 300);
        assert!(told.0.iter().all(|read| read.completed >= read.issued));
        assert_eq!(told.1, [Step { tokens: 512, micros: 250_000, ahead: 1024 }]);
        drop(told);
        rig.cache.release(hit, 0).unwrap();
        rig.drained();
    }
}

/// Notes what it is told.
#[derive(Debug)]
struct Watching(Arc<Mutex<Vec<Waiting>>>, u64);

impl Stop for Watching {
    fn name(&self) -> &'static str {
        "watching"
    }

    fn read(&mut self, read: ReadTime) {
        self.1 += read.tokens;
    }

    fn decide(&mut self, waiting: &Waiting) -> Verdict {
        self.0.lock().unwrap().push(*waiting);
        if self.1 < 128 { Verdict::Skip } else { Verdict::ComputeSome(16) }
    }
}

/// A policy is told what is missing, what is being read, for how long it waits and who overtook it.
#[test]
fn a_policy_is_told_how_it_stands() {
    let tokens = prompt(1, 300);
    let shape = Shape { page: 1, device: 320, host: 600, threads: 1, ..Shape::default() };
    let (mut rig, store) = stored(shape, &[tokens[..290].to_vec()]);
    let told = Arc::default();
    rig.cache.stop_by(Box::new(Watching(Arc::clone(&told), 0)));
    store.plan(|verb, _| if verb == Verb::Get { Fault::Gated } else { Fault::None });
    rig.poll(3.0);
    let hit = asking(&mut rig, &tokens);
    rig.cache.decide(hit, 5).unwrap();
    rig.cache.stepped(512, 0.1, 0).unwrap();
    rig.until("the first read", |_| store.waiting() == 1);
    rig.poll(3.5);
    rig.cache.decide(hit, 0).unwrap();
    assert!(store.pass(0));
    rig.until("the first batch", |rig| rig.view(hit).usable == 128);
    assert_eq!(rig.cache.decide(hit, 0).unwrap(), Verdict::ComputeSome(16));
    let told = told.lock().unwrap();
    let [asked, reading, some] = told[..] else { panic!("{told:?}") };
    assert_eq!((asked.request.arrived, asked.request.prompt), (3_000_000, 300));
    assert_eq!((asked.asking, asked.requested, asked.missing, asked.reading), (true, 300, 300, 0));
    assert_eq!((asked.others, asked.waited, asked.overtaken), (5, 0, 0));
    assert_eq!((reading.asking, reading.missing, reading.reading), (false, 290, 290));
    assert_eq!((reading.waited, reading.overtaken), (500_000, 512));
    assert!(reading.reading_for.is_some());
    assert_eq!((some.missing, some.reading), (162, 162));
    drop(told);
    store.plan(|_, _| Fault::None);
    rig.cache.release(hit, 0).unwrap();
    rig.until("the end", |rig| {
        store.pass(0);
        rig.cache.in_flight() == 0
    });
    rig.drained();
}

#[test]
fn what_can_not_be_meant_is_refused_by_name() {
    let named = |policy: &str, base, per_ki| {
        let options = StopOptions { policy: policy.into(), timeout_base: base, timeout_per_ki_token: per_ki };
        options.rule().err().map(|error| error.to_string())
    };
    for (policy, base, per_ki, name) in [
        ("patient", 1.0, 1.0, "prefetch: unknown policy \"patient\""),
        ("timeout", -1.0, 1.0, "prefetch_timeout_base: "),
        ("best_effort", 1.0, f64::INFINITY, "prefetch_timeout_per_ki_token: "),
    ] {
        assert!(named(policy, base, per_ki).unwrap().starts_with(name));
    }
    assert_eq!(named("timeout", 0.0, 0.0), None);
}
