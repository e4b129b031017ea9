//! What an eviction policy hears of requests: which, when, whose turn, how many new pages, how much was
//! generated; through the verbs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::policies::{Heard, Listening};
use common::rig::{Rig, Shape, config};
use common::store::FaultStore;
use hicache_core::ids::{Cursor, HitId, Slot, Tier};
use hicache_core::page::Tokens;
use hicache_core::policy::{Lru, Moment};
use std::sync::{Arc, Mutex, MutexGuard};

/// Number, tick, moment, turn, new pages, depth, pages named.
type Told = (u64, u64, Moment, u32, u32, u32, usize);

const GENERATED: Moment = Moment::Released { generated: 7 };

struct Engine {
    rig: Rig,
    heard: Arc<Mutex<Heard>>,
    seen: usize,
}

impl Engine {
    /// Pages of two tokens.
    fn new(shape: Shape, store: Option<&Arc<FaultStore>>) -> Self {
        let (policy, heard) = Listening::to(Lru::default());
        Self { rig: Rig::with_policy(shape, store, policy), heard, seen: 0 }
    }

    fn find(&mut self, tokens: &[i32], after: Option<Cursor>, at: f64) -> HitId {
        let (cache, namespace) = (&mut self.rig.cache, &self.rig.namespace);
        cache.match_prefix(Tokens::I32(tokens), namespace, after, usize::MAX, at).unwrap()
    }

    fn load(&mut self, hit: HitId) {
        self.rig.cache.load(&[hit], None).unwrap();
    }

    fn insert(&mut self, hit: HitId, tokens: &[i32]) -> Vec<Slot> {
        let slots = self.rig.cache.allocate(tokens.len() / 2).unwrap().unwrap();
        let done = self.rig.cache.insert(hit, Tokens::I32(tokens), &slots).unwrap();
        self.rig.cache.free(&slots[..done.duplicates]).unwrap();
        done.slots
    }

    fn release(&mut self, hit: HitId) -> Cursor {
        let cursor = self.rig.cache.release(hit, 7).unwrap();
        self.rig.settle();
        cursor
    }

    /// A whole request that inserts all of its tokens at once.
    fn request(&mut self, tokens: &[i32], at: f64) -> Cursor {
        let hit = self.find(tokens, None, at);
        self.load(hit);
        let known = self.rig.cache.view(hit).unwrap().usable as usize;
        self.insert(hit, &tokens[known * 2..]);
        self.release(hit)
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap()
    }

    /// What was told since the last time.
    fn told(&mut self) -> Vec<Told> {
        let heard = self.heard.lock().unwrap();
        let new = heard.requests[self.seen..].iter().map(|(request, depth, pages)| {
            let request = *request;
            let (turn, new_pages) = (request.turn, request.new_pages);
            (request.number, request.tick, request.moment, turn, new_pages, *depth, pages.len())
        });
        let new: Vec<Told> = new.collect();
        self.seen = heard.requests.len();
        new
    }

    fn names(&self, told: usize) -> Vec<u64> {
        self.heard().requests[told].2.clone()
    }
}

#[test]
fn a_conversation_turn_by_turn() {
    let mut engine = Engine::new(Shape::default(), None);
    let hit = engine.find(&[1, 2, 3, 4, 5], None, 1.0);
    engine.load(hit);
    engine.insert(hit, &[1, 2, 3, 4]);
    // What is generated enters later, and is of the same turn.
    engine.rig.poll(2.04);
    engine.insert(hit, &[5, 6, 7, 8]);
    engine.rig.poll(3.0);
    let cursor = engine.release(hit);
    let first = [
        (1, 16, Moment::Matched, 0, 2, 0, 0),
        (1, 16, Moment::Inserted, 0, 2, 2, 2),
        (1, 32, Moment::Inserted, 0, 2, 4, 2),
        (1, 48, GENERATED, 0, 4, 4, 4),
    ];
    assert_eq!(engine.told(), first);
    assert_eq!(engine.names(3), [engine.names(1), engine.names(2)].concat());

    // The next turn passes only what follows.
    let hit = engine.find(&[9, 9, 8, 8], Some(cursor), 10.0);
    engine.load(hit);
    engine.insert(hit, &[9, 9, 8, 8]);
    let cursor = engine.release(hit);
    let second = [
        (2, 160, Moment::Matched, 1, 2, 4, 4),
        (2, 160, Moment::Inserted, 1, 2, 6, 2),
        (2, 160, GENERATED, 1, 2, 6, 6),
    ];
    assert_eq!(engine.told(), second);
    assert_eq!(engine.names(4), engine.names(3));

    let hit = engine.find(&[1, 1], Some(cursor), 9.0);
    engine.release(hit);
    let third = [(3, 160, Moment::Matched, 2, 1, 6, 6), (3, 160, GENERATED, 2, 0, 6, 6)];
    assert_eq!(engine.told(), third, "time never runs backwards, and what is not inserted is not new");
    engine.rig.cache.check().unwrap();
}

#[test]
fn a_branch_is_a_turn_behind_what_it_shares() {
    let mut engine = Engine::new(Shape::default(), None);
    engine.request(&[1, 1, 2, 2, 3, 3], 0.0);
    engine.request(&[1, 1, 2, 2, 3, 3, 4, 4, 5, 5], 0.0);
    engine.told();
    // Inside the second turn's edge: the split's head is of that turn.
    engine.request(&[1, 1, 2, 2, 3, 3, 4, 4, 9, 9], 0.5);
    let told = [
        (3, 8, Moment::Matched, 2, 1, 4, 4),
        (3, 8, Moment::Inserted, 2, 1, 5, 1),
        (3, 8, GENERATED, 2, 1, 5, 5),
    ];
    assert_eq!(engine.told(), told);
    // And so is its tail; what was above it is of the turn before.
    for (tokens, turn) in [
        (vec![1, 1, 2, 2, 3, 3, 4, 4], 2),
        (vec![1, 1, 2, 2, 3, 3, 4, 4, 5, 5], 2),
        (vec![1, 1, 2, 2, 3, 3, 4, 4, 9, 9], 3),
        (vec![1, 1, 2, 2, 3, 3], 1),
        (vec![1, 1], 1),
        (vec![7, 7], 0),
    ] {
        let hit = engine.find(&tokens, None, 0.5);
        assert_eq!(engine.told()[0].3, turn, "{tokens:?}");
        engine.release(hit);
        engine.told();
    }
}

#[test]
fn what_comes_back_has_its_names_and_no_turn() {
    let mut engine = Engine::new(Shape::default(), None);
    engine.request(&[1, 1, 2, 2], 0.0);
    engine.request(&[1, 1, 2, 2, 3, 3], 0.0);
    engine.told();
    engine.rig.cache.evict(Tier::Device, 2).unwrap();
    engine.rig.cache.evict(Tier::Host, 2).unwrap();
    let gone = engine.heard().gone.clone();
    assert_eq!(gone.len(), 2);
    engine.request(&[1, 1, 2, 2, 3, 3], 1.0);
    let told = [
        (3, 16, Moment::Matched, 1, 2, 1, 1),
        (3, 16, Moment::Inserted, 1, 2, 3, 2),
        (3, 16, GENERATED, 1, 2, 3, 3),
    ];
    assert_eq!(engine.told(), told, "what is behind the page that was left is its next turn");
    let names = engine.names(7);
    assert_eq!(names.iter().rev().copied().collect::<Vec<_>>(), gone, "the same pages, the same names");
    assert_eq!(engine.names(8)[..1], engine.names(1)[..1]);
    engine.rig.cache.check().unwrap();
}

#[test]
fn pages_that_another_request_brought_are_not_new() {
    let mut engine = Engine::new(Shape::default(), None);
    let (a, b) = (engine.find(&[1, 1, 2, 2], None, 0.0), engine.find(&[1, 1, 2, 2, 3, 3], None, 0.0));
    engine.load(a);
    engine.load(b);
    engine.insert(a, &[1, 1, 2, 2]);
    engine.told();
    engine.insert(b, &[1, 1, 2, 2, 3, 3]);
    assert_eq!(engine.told(), [(2, 0, Moment::Inserted, 0, 1, 3, 3)], "both are first turns");
    engine.insert(b, &[]);
    assert_eq!(engine.told(), [], "nothing was inserted");
    engine.release(a);
    engine.release(b);
}

/// Pages that storage brings come without a request; what is computed behind them is their next turn.
#[test]
fn pages_from_storage_are_heard_of_by_their_leaf() {
    let store = Arc::new(FaultStore::default());
    let mut first = Engine::new(Shape::default(), Some(&store));
    first.request(&[1, 1, 2, 2], 0.0);
    let mut engine = Engine::new(Shape::default(), Some(&store));
    engine.request(&[1, 1], 0.0);
    engine.told();
    let hit = engine.find(&[1, 1, 2, 2, 3, 3], None, 0.0);
    assert_eq!(engine.told(), [(2, 0, Moment::Matched, 1, 2, 1, 1)]);
    assert!(engine.rig.cache.prefetch(hit).unwrap());
    engine.rig.settle();
    assert_eq!(engine.told(), []);
    assert_eq!(engine.heard().pages.each_ref().map(std::collections::BTreeSet::len), [1, 2]);
    engine.load(hit);
    engine.insert(hit, &[3, 3]);
    assert_eq!(engine.told(), [(2, 0, Moment::Inserted, 2, 1, 3, 1)]);
    assert_eq!(engine.heard().pages.each_ref().map(std::collections::BTreeSet::len), [3, 3]);
    engine.release(hit);
    engine.rig.cache.check().unwrap();
}

/// Names of pages are kept for the policy already when the first reader comes.
#[test]
fn readers_and_a_policy_share_names() {
    let mut engine = Engine::new(Shape::default(), None);
    engine.request(&[1, 1, 2, 2], 0.0);
    let reader = engine.rig.cache.reader();
    engine.request(&[1, 1, 3, 3], 0.0);
    for (tokens, hit) in [([1, 1, 2, 2], 4), ([1, 1, 3, 3], 4), ([1, 1, 4, 4], 2)] {
        let would = reader.would_hit(Tokens::I32(&tokens), &engine.rig.namespace).unwrap();
        assert_eq!(would.device, hit, "{tokens:?}");
    }
    engine.rig.cache.check().unwrap();
}

#[test]
fn an_unknown_policy_is_refused_by_name() {
    let wrong = hicache_core::Config { eviction: "mru".into(), ..config(Shape::default()) };
    let refused = wrong.check().unwrap_err().to_string();
    assert!(refused.contains("eviction") && refused.contains("mru"), "{refused}");
}
