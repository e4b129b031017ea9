//! Random operations on the tree, beside a naive model of it. After each, the tree must be consistent,
//! hold the same pages with the same slots, and have answered the same.
//!
//! Two properties: without pins, evictions take exactly the pages that were used longest ago, in that
//! order; with pins, they take exactly as many as asked, and never one that must stay.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::bench::{Bench, Op, Path};
use common::naive::{DEVICE, HOST};
use hicache_core::tree::Hold;
use proptest::collection::vec;
use proptest::prelude::*;

fn path() -> impl Strategy<Value = Path> {
    // Mostly the same token, so that paths share, split and end on one another.
    let token = prop_oneof![6 => Just(1), 2 => Just(2), 1 => Just(3)];
    (0u32..2, vec(token, 0..13)).prop_map(|(namespace, tokens)| Path { namespace, tokens })
}

/// Requests as the verbs serve them with room for all: what is used enters both tiers.
fn whole_use() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => path().prop_map(|path| Op::Insert { path, mirror: usize::MAX }),
        2 => path().prop_map(Op::Match),
        1 => path().prop_map(Op::Cursor),
        4 => (0usize..2, 1usize..6).prop_map(|(tier, pages)| Op::Evict { tier, pages }),
    ]
}

/// The host alone.
fn grafts() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => path().prop_map(Op::Graft),
        2 => path().prop_map(Op::Match),
        4 => (1usize..6).prop_map(|pages| Op::Evict { tier: HOST, pages }),
    ]
}

fn any_op() -> impl Strategy<Value = Op> {
    let hold = prop_oneof![Just(Hold::Soft), Just(Hold::Device), Just(Hold::Host), Just(Hold::Name)];
    prop_oneof![
        5 => (path(), 0usize..8).prop_map(|(path, mirror)| Op::Insert { path, mirror }),
        2 => path().prop_map(Op::Graft),
        2 => (path(), 0usize..8).prop_map(|(path, most)| Op::Raise { path, most }),
        2 => path().prop_map(Op::Match),
        1 => path().prop_map(Op::Cursor),
        4 => (0usize..2, 1usize..6).prop_map(|(tier, pages)| Op::Evict { tier, pages }),
        4 => (path(), hold).prop_map(|(path, hold)| Op::Pin { path, hold }),
        2 => any::<usize>().prop_map(Op::Unpin),
    ]
}

fn run(size: u32, ops: &[Op], exact: Option<usize>) {
    let mut bench = Bench::new(size, exact);
    ops.iter().for_each(|op| bench.apply(op));
    bench.close();
}

fn page_size() -> impl Strategy<Value = u32> {
    prop_oneof![Just(1u32), Just(2), Just(4)]
}

/// `PROPTEST_CASES` asks for another number.
fn cases() -> ProptestConfig {
    let usual = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() { usual } else { ProptestConfig { cases: 1500, ..usual } }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn the_device_gives_up_what_was_used_longest_ago(size in page_size(), ops in vec(whole_use(), 1..60)) {
        run(size, &ops, Some(DEVICE));
    }

    #[test]
    fn pinned_pages_stay_and_the_rest_goes(size in page_size(), ops in vec(any_op(), 1..60)) {
        run(size, &ops, None);
    }

    #[test]
    fn a_host_alone_gives_up_what_was_used_longest_ago(size in page_size(), ops in vec(grafts(), 1..60)) {
        run(size, &ops, Some(HOST));
    }
}

fn at(tokens: &[i32]) -> Path {
    Path { namespace: 0, tokens: tokens.to_vec() }
}

/// A path whose end is on the host alone is used: its device pages are as recent as that.
#[test]
fn a_use_counts_in_both_tiers() {
    let insert = |tokens: &[i32]| Op::Insert { path: at(tokens), mirror: usize::MAX };
    let evict = || Op::Evict { tier: DEVICE, pages: 1 };
    let ops =
        [insert(&[1]), insert(&[1, 1]), evict(), insert(&[3]), Op::Match(at(&[1, 1])), evict(), evict()];
    run(1, &ops, Some(DEVICE));
}

/// A hit that waits holds its pages in every tier, also where its last page is not: with a second pin.
#[test]
fn a_waiting_hit_holds_its_device_pages_softly() {
    let insert = |tokens: &[i32]| Op::Insert { path: at(tokens), mirror: usize::MAX };
    let evict = || Op::Evict { tier: DEVICE, pages: 1 };
    let pin = |tokens: &[i32]| Op::Pin { path: at(tokens), hold: Hold::Soft };
    let ops = [insert(&[1]), insert(&[1, 1]), evict(), pin(&[1, 1]), pin(&[1]), insert(&[3]), evict()];
    run(1, &ops, None);
}
