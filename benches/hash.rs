//! The page hash chain beside plain SHA-256, per compressed block.
//!
//! `cargo bench --bench hash`. A page of P tokens is 4·P bytes and 32 of the page before; SHA-256 compresses
//! blocks of 64 bytes and pads, so a page of 16 costs 2 blocks for 64 bytes of tokens: the chain can't reach
//! the plain rate per byte at small pages. Prints nanoseconds a block: the fastest of many short rounds of each,
//! taken in turns, and beside it what the command `openssl speed` says for 16 KiB, where there is one.
#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
#![allow(clippy::cast_precision_loss)]

use hicache_core::hash::chain;
use hicache_core::page::{PageSize, Tokens};
use sha2::{Digest as _, Sha256};
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

const TOKENS: usize = 4_096;
const ROUNDS: usize = 3_000;
const PAGES: [u32; 3] = [1, 16, 64];

/// Blocks that SHA-256 compresses for so many bytes.
fn blocks(bytes: usize) -> usize {
    (bytes + 9).div_ceil(64)
}

fn timed<T>(act: impl FnOnce() -> T) -> f64 {
    let started = Instant::now();
    black_box(act());
    started.elapsed().as_nanos() as f64
}

/// Nanoseconds a block, by the system's OpenSSL.
fn openssl() -> Option<f64> {
    let arguments = ["speed", "-evp", "sha256", "-bytes", "16384", "-seconds", "1"];
    let said = Command::new("openssl").args(arguments).output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    let rate = said.lines().last()?.split_whitespace().last()?.strip_suffix('k')?;
    Some(64.0 / rate.parse::<f64>().ok()? * 1e6)
}

fn main() {
    let tokens: Vec<i32> = (0..TOKENS as i32).map(|t| t * 7919 % 50_000).collect();
    let bytes: Vec<u8> = tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
    let mut plain = f64::MAX;
    let mut chains = [f64::MAX; PAGES.len()];
    for _ in 0..ROUNDS {
        plain = plain.min(timed(|| Sha256::digest(&bytes)) / blocks(bytes.len()) as f64);
        for (page, fastest) in PAGES.into_iter().zip(&mut chains) {
            let compressed = blocks(32 + 4 * page as usize) * (TOKENS / page as usize);
            let size = PageSize::new(page).unwrap();
            *fastest = fastest.min(timed(|| chain(None, Tokens::I32(&tokens), size)) / compressed as f64);
        }
    }
    println!("plain             {plain:6.2} ns a block");
    let openssl = openssl();
    if let Some(openssl) = openssl {
        println!("OpenSSL, 16 KiB   {openssl:6.2} ns a block");
    }
    for (page, chain) in PAGES.into_iter().zip(chains) {
        let beside = openssl.map(|openssl| format!(", {:4.1} % of OpenSSL's rate", 100.0 * openssl / chain));
        println!("pages of {page:<3}      {chain:6.2} ns a block{}", beside.unwrap_or_default());
    }
}
