//! The page hash chain beside plain SHA-256 of the same bytes.
//!
//! `cargo bench --bench hash`. A page of P tokens is 4·P bytes and 32 of the page before; SHA-256 compresses
//! blocks of 64 bytes and pads, so a page of 16 costs 2 blocks for 64 bytes of tokens: the chain can't reach
//! the plain rate at small pages. The ratio to compare is per compressed block.
#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_possible_wrap)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hicache_core::hash::chain;
use hicache_core::page::{PageSize, Tokens};
use sha2::{Digest as _, Sha256};
use std::hint::black_box;
use std::time::Duration;

const TOKENS: usize = 16_384;

/// Blocks that SHA-256 compresses for so many bytes.
fn blocks(bytes: usize) -> usize {
    (bytes + 9).div_ceil(64)
}

fn bench(c: &mut Criterion) {
    let tokens: Vec<i32> = (0..TOKENS as i32).map(|t| t * 7919 % 50_000).collect();
    let bytes: Vec<u8> = tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
    let mut group = c.benchmark_group("sha256");
    group.throughput(Throughput::Elements(blocks(bytes.len()) as u64));
    group.bench_function("plain", |b| b.iter(|| black_box(Sha256::digest(&bytes))));
    for page in [1, 16, 64] {
        let size = PageSize::new(page).unwrap();
        let compressed = blocks(32 + 4 * page as usize) * (TOKENS / page as usize);
        group.throughput(Throughput::Elements(compressed as u64));
        group.bench_function(format!("chain/{page}"), |b| {
            b.iter(|| black_box(chain(None, Tokens::I32(&tokens), size)));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = bench
}
criterion_main!(benches);
