//! Buffer-only mode: many requests over a pool of a few pages. All end in bounded polls, whatever a stop policy says, whoever
//! goes first, and whatever the store does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use common::staged::{asking, loaded, nothing_left, over, reads, shape};
use common::store::{Fault, FaultStore, Verb};
use common::stored::prompt;
use hicache_core::ids::{HitId, Tier};
use hicache_core::policy::StopOptions;
use hicache_core::policy::fetching::Verdict;
use hicache_core::storage::Outcome;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Who may run before those that came earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turns {
    /// Nobody.
    InOrder,
    Anybody,
}

/// An engine that runs a request at a time.
struct Engine {
    rig: Rig,
    waiting: Vec<(HitId, Vec<i32>)>,
    at: f64,
    /// Polls in which nothing was under way.
    idle: usize,
}

impl Engine {
    fn new(rig: Rig, prompts: &[Vec<i32>]) -> Self {
        let mut engine = Self { rig, waiting: Vec::new(), at: 0.0, idle: 0 };
        for tokens in prompts {
            let hit = engine.rig.find(tokens);
            assert!(engine.rig.cache.prefetch(hit).unwrap());
            engine.waiting.push((hit, tokens.clone()));
        }
        engine
    }

    fn step(&mut self, turns: Turns, passes: f64) {
        self.at += passes;
        self.rig.poll(self.at);
        self.idle += usize::from(self.rig.cache.in_flight() == 0);
        let capacity = self.rig.cache.slots(Tier::Host).capacity();
        assert!(reads(&self.rig) <= capacity - capacity.div_ceil(5), "the others' share");
        let others = self.waiting.len() - 1;
        let asked = if turns == Turns::InOrder { 1 } else { self.waiting.len() };
        let runs = (0..asked).find(|&at| {
            let hit = self.waiting[at].0;
            self.rig.cache.decide(hit, others).unwrap() == Verdict::Compute
        });
        match runs {
            Some(at) => self.run(at),
            None => std::thread::sleep(Duration::from_micros(100)),
        }
    }

    fn run(&mut self, at: usize) {
        let (hit, tokens) = self.waiting.remove(at);
        self.rig.load(hit);
        let now = self.at;
        while self.rig.cache.copying() > 0 {
            self.rig.poll(now);
        }
        self.rig.verify(hit, &tokens);
        assert!(self.rig.compute(hit, &tokens), "one runs at a time");
        self.rig.verify(hit, &tokens);
        self.rig.cache.release(hit, 0).unwrap();
    }

    /// Until all have run. In all so many polls at most found nothing under way.
    fn all(mut self, turns: Turns, passes: f64, most: usize) -> Rig {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.waiting.is_empty() {
            self.step(turns, passes);
            assert!(self.idle <= most && Instant::now() < end, "{} never end", self.waiting.len());
        }
        self.rig
    }
}

fn policies() -> [StopOptions; 4] {
    let soon = StopOptions { timeout_base: 0.05, timeout_per_ki_token: 0.0, ..StopOptions::named("timeout") };
    [
        StopOptions::named("best_effort"),
        StopOptions::named("wait_complete"),
        StopOptions::named("timeout"),
        soon,
    ]
}

/// Thirty requests of eight to nineteen pages, over pools of two to twenty.
#[test]
fn everybody_ends_under_each_policy() {
    let prompts: Vec<Vec<i32>> = (0..30).map(|number| prompt(number, 8 + number % 12)).collect();
    for policy in policies() {
        for (host, turns) in
            [(2, Turns::Anybody), (7, Turns::InOrder), (20, Turns::Anybody), (20, Turns::InOrder)]
        {
            let (mut rig, _store) = over(shape(24, host), &prompts);
            rig.cache.stop_by(policy.rule().unwrap());
            let mut rig = Engine::new(rig, &prompts).all(turns, 0.001, 30 * 80);
            let came = rig.cache.stats().hit_storage_tokens;
            let waits = policy.policy == "wait_complete";
            assert!(came > 0 || !waits, "{policy:?} over {host}");
            rig.settle();
            nothing_left(&mut rig);
        }
    }
}

/// Where anybody may go first, a pool that holds one request at a time is enough for all of them: who finds no room waits for
/// those that have it, and they are loaded.
#[test]
fn a_pool_of_one_window_serves_all() {
    let prompts: Vec<Vec<i32>> = (0..20).map(|number| prompt(number, 8)).collect();
    let (rig, _store) = over(shape(24, 10), &prompts);
    let mut rig = Engine::new(rig, &prompts).all(Turns::Anybody, 0.0, 20 * 10);
    assert_eq!(rig.cache.stats().hit_storage_tokens, 160);
    nothing_left(&mut rig);
}

/// Requests that wait for more, all with a part of what there is: one at a time goes on with what it has.
#[test]
fn those_that_have_all_the_room_yield_in_turn() {
    let prompts: Vec<Vec<i32>> = (0..4).map(|number| prompt(number, 200)).collect();
    let (rig, _store) = over(shape(256, 700), &prompts);
    let mut engine = Engine::new(rig, &prompts);
    // All have been answered when the first one reads.
    let end = Instant::now() + Duration::from_secs(10);
    while engine.rig.cache.ready().prefetches < 8 {
        assert!(Instant::now() < end, "two questions each");
    }
    let parts = |rig: &Rig, hit| rig.view(hit).usable;
    let mut waits = [4; 2];
    engine.rig.until("all reads", |rig| rig.cache.in_flight() == 0);
    let staged: Vec<u32> = engine.waiting.iter().map(|&(hit, _)| parts(&engine.rig, hit)).collect();
    assert_eq!((staged.iter().sum::<u32>(), staged.iter().min()), (560, Some(&128)));
    for _ in 0..4 {
        engine.rig.poll(0.0);
        let now = engine.waiting.iter().filter(|(hit, _)| engine.rig.view(*hit).waiting).count();
        waits = [now, waits[0]];
    }
    assert_eq!(waits, [3, 3], "the first one goes on, and is waited for");
    let mut rig = engine.all(Turns::Anybody, 0.0, 100);
    assert!(rig.cache.stats().hit_storage_tokens >= 4 * 128, "{}", rig.cache.stats().hit_storage_tokens);
    nothing_left(&mut rig);
}

fn bad_stores() -> Vec<(&'static str, Fault)> {
    vec![
        ("fails", Fault::Answer(Outcome::Failed)),
        ("answers that it has nothing", Fault::Answer(Outcome::Absent)),
        ("gives other bytes", Fault::Answer(Outcome::Corrupt)),
        ("answers too little", Fault::Short),
        ("answers too much", Fault::Long),
        ("panics", Fault::Panic),
        ("hangs", Fault::Hang),
    ]
}

/// A store that fails now and then, in any way, or hangs: everybody ends, with right bytes.
#[test]
fn everybody_ends_over_a_bad_store() {
    let prompts: Vec<Vec<i32>> = (0..12).map(|number| prompt(number, 9)).collect();
    for (what, fault) in bad_stores() {
        for (verb, every) in [(Verb::Get, 1), (Verb::Get, 3), (Verb::Exists, 2), (Verb::Put, 2)] {
            let shape = Shape { deadline: 0.5, threads: 3, ..shape(24, 8) };
            let (rig, store) = over(shape, &prompts);
            let calls = store.calls(verb);
            store.plan(
                move |at, call| if at == verb && (call - calls) % every == 0 { fault } else { Fault::None },
            );
            let mut rig = Engine::new(rig, &prompts).all(Turns::Anybody, 0.02, 12 * 80);
            assert_eq!(rig.cache.stats().loaded_requests, 12, "{what}: {verb:?}");
            end_of(&mut rig, &store);
        }
    }
}

/// What hangs comes back when it ends, and no slot before.
fn end_of(rig: &mut Rig, store: &Arc<FaultStore>) {
    store.plan(|_, _| Fault::None);
    store.release();
    rig.until("all that hung", |rig| rig.cache.pending() == 0);
    assert_eq!(reads(rig), 0);
    nothing_left(rig);
}

/// Who finds no room waits for the writes that have it, as long as these move.
#[test]
fn who_lacks_what_writes_have_waits_for_them() {
    let (mut rig, store) = over(shape(24, 10), &[prompt(1, 8)]);
    store.plan(|verb, _| if verb == Verb::Put { Fault::Hang } else { Fault::None });
    rig.serve(&prompt(2, 8));
    rig.until("the write", |rig| rig.cache.copying() == 0 && rig.cache.staged()[0] == 8);
    let hit = asking(&mut rig, &prompt(1, 8), 0.0);
    rig.until("what fits", |rig| reads(rig) == 2);
    for _ in 0..200 {
        rig.poll(0.0);
        assert!(rig.view(hit).waiting);
    }
    store.release();
    rig.until("the rest", |rig| !rig.view(hit).waiting);
    assert_eq!(loaded(&mut rig, hit, &prompt(1, 8)), 8);
    rig.cache.release(hit, 0).unwrap();
    nothing_left(&mut rig);
}
