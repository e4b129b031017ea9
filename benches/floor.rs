//! A match beside the comparison of its tokens alone: what the tree itself adds.
//!
//! `cargo bench --bench floor`; a part of the name selects, as in `-- "16 int32"`. Prints nanoseconds and
//! ratios, both sides in turns in one run: `cold` takes 1,024 keys of 670 to 10,720 tokens, each in its own
//! buffer, in an order that defeats the caches, and counts the longest; `warm` repeats one key of 10,720
//! tokens; `million` is one key of 2^20 tokens whose path has edges of 4,096. The comparison alone has all
//! tokens of a conversation in one piece and knows beforehand which.
#![allow(missing_docs, clippy::unwrap_used)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]

use hicache_core::hash::Namespace;
use hicache_core::ids::{Slot, Tier};
use hicache_core::page::{OwnedTokens, PageSize, Tokens};
use hicache_core::tree::Tree;
use std::hint::black_box;
use std::time::Instant;

const CONVERSATIONS: usize = 64;
const TURNS: usize = 16;
const TURN: usize = 670;
const ROUNDS: usize = 15;
const PAGE_SIZES: [usize; 3] = [1, 16, 64];

/// Keys of one width, and for each the number of its conversation.
struct Keys<T> {
    all: Vec<(usize, Vec<T>)>,
    order: Vec<usize>,
    view: fn(&[T]) -> Tokens<'_>,
}

struct Index {
    tree: Tree,
    stored: Vec<OwnedTokens>,
    made: u32,
}

impl Index {
    /// Whole conversations, inserted in turns of so many tokens, all first turns first.
    fn of(conversations: &[Vec<i64>], turn: usize, page_size: usize) -> Self {
        let size = PageSize::new(page_size as u32).unwrap();
        let stored = conversations.iter().map(|tokens| Tokens::I64(tokens).to_owned()).collect();
        let mut index = Self { tree: Tree::new(size, false), stored, made: 0 };
        for end in (turn..=conversations[0].len()).step_by(turn) {
            conversations.iter().for_each(|tokens| index.insert(&tokens[..end], page_size));
        }
        index
    }

    fn insert(&mut self, key: &[i64], page_size: usize) {
        let pages = key.len() / page_size;
        let slots: Vec<Slot> = (0..pages as u32).map(|slot| Slot(self.made + slot)).collect();
        self.made += pages as u32;
        let root = self.tree.root(&Namespace::default());
        self.tree.extend(root, Tokens::I64(key), Tier::Device, &slots);
    }

    /// What a match does in the tree, its use noted.
    fn find(&mut self, key: Tokens<'_>) -> usize {
        let root = self.tree.root(&Namespace::default());
        let found = self.tree.walk(root, key);
        self.tree.touch_matched(found.place);
        found.usable as usize
    }
}

fn tokens(seed: u64, count: usize) -> Vec<i64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % 151_936
    };
    (0..count).map(|_| next().cast_signed()).collect()
}

/// Median nanoseconds of the comparison alone and of the match, and the median ratio, for the longest keys;
/// the others are there to drive them out of the caches.
fn measure<T>(index: &mut Index, keys: &Keys<T>, times: usize) -> (f64, f64, f64) {
    let longest = keys.all.iter().map(|(_, key)| key.len()).max().unwrap();
    let mut rounds: Vec<(f64, f64)> = Vec::new();
    for _ in 0..ROUNDS {
        let each = |act: &mut dyn FnMut(usize, Tokens<'_>) -> usize| {
            let mut values = Vec::new();
            for &n in &keys.order {
                let (conversation, key) = &keys.all[n];
                let started = Instant::now();
                for _ in 0..times {
                    black_box(act(*conversation, (keys.view)(key)));
                }
                if key.len() == longest {
                    values.push(started.elapsed().as_nanos() as f64 / times as f64);
                }
            }
            median(values)
        };
        let alone = each(&mut |conversation, key| key.common(&index.stored[conversation]));
        let found = each(&mut |_, key| index.find(key));
        rounds.push((alone, found));
    }
    let of = |value: fn(&(f64, f64)) -> f64| median(rounds.iter().map(value).collect());
    (of(|r| r.0), of(|r| r.1), of(|r| r.1 / r.0))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn report(what: &str, (alone, found, ratio): (f64, f64, f64)) {
    println!("{what:36} comparison {alone:9.0} ns   match {found:9.0} ns   {ratio:5.2}x");
}

fn both(index: &mut Index, what: &str, keys: &[(usize, &[i64])], times: usize) {
    let order: Vec<usize> = (0..keys.len()).map(|n| n * 389 % keys.len()).collect();
    if wanted(&format!("{what} int64")) {
        let all = keys.iter().map(|&(owner, key)| (owner, key.to_vec())).collect();
        let keys = Keys { all, order: order.clone(), view: |key| Tokens::I64(key) };
        report(&format!("{what} int64"), measure(index, &keys, times));
    }
    if wanted(&format!("{what} int32")) {
        let all = keys.iter().map(|&(owner, key)| (owner, narrow(key))).collect();
        let keys = Keys { all, order, view: |key| Tokens::I32(key) };
        report(&format!("{what} int32"), measure(index, &keys, times));
    }
}

fn narrow(key: &[i64]) -> Vec<i32> {
    key.iter().map(|&token| token as i32).collect()
}

/// Whether the name contains the part that was asked for.
fn wanted(name: &str) -> bool {
    std::env::args().skip(1).find(|part| !part.starts_with("--")).is_none_or(|part| name.contains(&part))
}

fn main() {
    let conversations: Vec<Vec<i64>> =
        (0..CONVERSATIONS).map(|c| tokens(c as u64 + 1, TURNS * TURN)).collect();
    let key =
        |n: usize| (n % CONVERSATIONS, &conversations[n % CONVERSATIONS][..(n / CONVERSATIONS + 1) * TURN]);
    let all = CONVERSATIONS * TURNS;
    let keys: Vec<_> = (0..all).map(key).collect();
    for page_size in PAGE_SIZES {
        let mut index = Index::of(&conversations, TURN, page_size);
        both(&mut index, &format!("cold, pages of {page_size}"), &keys, 1);
        both(&mut index, &format!("warm, pages of {page_size}"), &[key(all - 1)], 500);
    }
    let long = vec![tokens(7, 1 << 20)];
    let mut index = Index::of(&long, 4_096, 16);
    both(&mut index, "million, pages of 16", &[(0, &long[0])], 3);
}
