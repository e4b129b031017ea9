//! Everything that can end while everything is under way: stores go and come, memory and storage are cleared, device
//! memory goes, requests are retracted, prefixes are warmed and given up, and the cache is closed; at random moments,
//! over copies and stores that finish in any order. The books are looked at after each step, and every byte that a
//! loaded request has; at the end nothing is under way and nothing is held.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::fate;
use common::rig::Shape;
use common::seeds;
use hicache_core::ids::Tier;

#[test]
fn whatever_ends_whenever_nothing_leaks() {
    fate::all_ends(seeds(60), |_| Shape::default());
}

#[test]
fn closed_at_any_moment() {
    seeds(30).for_each(|seed| fate::closes(seed, Shape::default()));
}

/// One request in each state there is, and each thing that can happen to it then.
#[test]
fn from_every_state() {
    for state in 0..7 {
        for end in 0..7 {
            let mut stage = common::stage::Stage::at(state);
            stage.end(end);
            stage.settle();
            let cache = &stage.rig.cache;
            assert_eq!((cache.in_flight(), cache.tree().pins()), (0, 0), "state {state}, end {end}");
            assert_eq!(cache.slots(Tier::Host).out(), 0, "state {state}, end {end}");
            stage.rig.drained();
        }
    }
}
