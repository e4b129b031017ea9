//! The slab store: its index beside a naive one, its log whatever happens to it, and the whole store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]
#![allow(clippy::cast_possible_truncation, reason = "the tests' numbers are small")]

#[path = "../common/hostile.rs"]
mod hostile;

mod alike;
mod basics;
mod bounds;
mod crash;
mod damage;
mod evict;
mod faults;
mod growth;
mod hang;
mod index;
mod opening;
mod parsing;
mod power;
mod reading;
mod rig;
mod rules;
mod storm;
mod twin;
mod waiting;
