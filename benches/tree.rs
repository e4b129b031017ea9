//! Match, insert (of a present key, of a new one) and evict, at 10^3 to 10^6 cached pages, beside a naive index.
//!
//! Paths of 128 pages, 16 of which share their first 32. Keys are int64 and used in an order that defeats
//! the cache. The largest size at pages of 64 takes over 2 GB. `cargo bench --bench tree`; a part of the name selects, as in `-- match/16`.
#![allow(missing_docs, clippy::unwrap_used)]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use hicache_core::hash::Namespace;
use hicache_core::ids::{Slot, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::tree::Tree;
use std::hint::black_box;
use std::time::{Duration, Instant};

mod naive;
use naive::Naive;

const PATH: usize = 128;
const SHARED: usize = 32;
const GROUP: usize = 16;
/// Pages per measured eviction.
const EVICTED: usize = 64;
const SIZES: [usize; 3] = [1_000, 100_000, 1_000_000];
const PAGE_SIZES: [usize; 3] = [1, 16, 64];

/// Keys that together are about `pages` different pages.
fn keys(pages: usize, page_size: usize) -> Vec<Vec<i64>> {
    let paths = (pages / (PATH - SHARED + SHARED / GROUP)).max(1);
    let token = |path: usize, at: usize| {
        let owner = if at < SHARED * page_size { path / GROUP } else { path + paths };
        ((owner * 31 + at * 7) % 100_000 + if at.is_multiple_of(page_size) { owner * 1_000 } else { 0 })
            as i64
    };
    (0..paths).map(|path| (0..PATH * page_size).map(|at| token(path, at)).collect()).collect()
}

fn narrow(key: &[i64]) -> Vec<u32> {
    key.iter().map(|&token| token as u32).collect()
}

struct Ours {
    tree: Tree,
    free: Vec<Slot>,
    made: u32,
}

impl Ours {
    fn filled(page_size: usize, keys: &[Vec<i64>]) -> Self {
        let tree = Tree::new(PageSize::new(page_size as u32).unwrap(), false);
        let mut ours = Self { tree, free: Vec::new(), made: 0 };
        keys.iter().for_each(|key| ours.insert(key));
        ours
    }

    fn find(&mut self, key: &[i64]) -> u32 {
        let root = self.tree.root(&Namespace::default());
        let found = self.tree.walk(root, Tokens::I64(key));
        self.tree.touch_matched(found.place);
        found.usable
    }

    fn insert(&mut self, key: &[i64]) {
        let slots: Vec<Slot> = (0..PATH)
            .map(|_| {
                self.free.pop().unwrap_or_else(|| {
                    self.made += 1;
                    Slot(self.made)
                })
            })
            .collect();
        let root = self.tree.root(&Namespace::default());
        let done = self.tree.extend(root, Tokens::I64(key), Tier::Device, &slots);
        self.free.extend(done.duplicates(&slots));
    }

    fn evict(&mut self, pages: usize) -> usize {
        let out = self.tree.evict(Tier::Device, pages).slots;
        let count = out.len();
        self.free.extend(out);
        count
    }
}

fn bench(c: &mut Criterion) {
    for page_size in PAGE_SIZES {
        for size in SIZES {
            let keys = keys(size, page_size);
            let narrow: Vec<Vec<u32>> = keys.iter().map(|key| narrow(key)).collect();
            let mut ours = Ours::filled(page_size, &keys);
            let mut naive = Naive::default();
            narrow.iter().for_each(|key| naive.insert(key, page_size));
            let mut next = (0..keys.len()).map(|n| n * 7919 % keys.len()).cycle();
            let mut next = move || next.next().unwrap();

            let mut group = c.benchmark_group(format!("match/{page_size}"));
            let id = |who| BenchmarkId::new(who, size);
            group.bench_function(id("tree"), |b| b.iter(|| black_box(ours.find(&keys[next()]))));
            group.bench_function(id("naive"), |b| {
                b.iter(|| black_box(naive.find(&narrow[next()], page_size)));
            });
            group.finish();

            let mut group = c.benchmark_group(format!("insert_present/{page_size}"));
            group.bench_function(id("tree"), |b| b.iter(|| ours.insert(&keys[next()])));
            group.bench_function(id("naive"), |b| b.iter(|| naive.insert(&narrow[next()], page_size)));
            group.finish();

            let mut group = c.benchmark_group(format!("insert_new/{page_size}"));
            group.bench_function(id("tree"), |b| {
                b.iter_custom(|rounds| {
                    timed_new(rounds, &keys[0], &mut ours, Ours::insert, |o| _ = o.evict(PATH))
                });
            });
            group.bench_function(id("naive"), |b| {
                b.iter_custom(|rounds| {
                    let insert = |n: &mut Naive, key: &[u32]| n.insert(key, page_size);
                    timed_new(rounds, &narrow[0], &mut naive, insert, |n| _ = n.evict(PATH))
                });
            });
            group.finish();

            let mut group = c.benchmark_group(format!("evict_{EVICTED}/{page_size}"));
            group.bench_function(id("tree"), |b| {
                b.iter_custom(|rounds| {
                    timed(rounds, &mut ours, |o| o.evict(EVICTED), |o| o.insert(&keys[next()]))
                });
            });
            group.bench_function(id("naive"), |b| {
                b.iter_custom(|rounds| {
                    let refill = |n: &mut Naive| n.insert(&narrow[next()], page_size);
                    timed(rounds, &mut naive, |n| n.evict(EVICTED), refill)
                });
            });
            group.finish();
        }
    }
}

/// Time of inserts of paths of which nothing is known; room is made for them in between.
fn timed_new<T, W: Copy + From<u16> + std::ops::Add<Output = W>>(
    rounds: u64,
    like: &[W],
    index: &mut T,
    insert: impl Fn(&mut T, &[W]),
    evict: impl Fn(&mut T),
) -> Duration {
    let (mut key, mut total) = (like.to_vec(), Duration::ZERO);
    // Tokens that no other key begins with, another one each time.
    let mut first = W::from(u16::MAX) + like[0];
    for _ in 0..rounds {
        first = first + W::from(u16::MAX);
        key[0] = first;
        let started = Instant::now();
        insert(index, &key);
        total += started.elapsed();
        evict(index);
    }
    total
}

/// Time of the evictions alone; what they took is put back in between.
fn timed<T>(
    rounds: u64,
    index: &mut T,
    evict: impl Fn(&mut T) -> usize,
    mut refill: impl FnMut(&mut T),
) -> Duration {
    let mut total = Duration::ZERO;
    for _ in 0..rounds {
        let started = Instant::now();
        black_box(evict(index));
        total += started.elapsed();
        refill(index);
    }
    total
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600));
    targets = bench
}
criterion_main!(benches);
