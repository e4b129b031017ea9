//! Doubles and a small engine, for all tests.
#![allow(dead_code, reason = "every test binary uses its own part of this")]

pub mod bench;
pub mod buffer;
pub mod clears;
pub mod copier;
pub mod drip;
pub mod drive;
pub mod fate;
pub mod filed;
pub mod forward;
pub mod frames;
pub mod holds;
pub mod hybrid;
pub mod kept;
pub mod kinds;
pub mod memory;
pub mod mixed;
pub mod models;
pub mod naive;
pub mod over;
pub mod own;
pub mod parts;
pub mod plain;
pub mod policies;
pub mod pools;
pub mod rig;
pub mod side;
pub mod spaces;
pub mod squall;
pub mod squall_end;
pub mod stage;
pub mod staged;
pub mod staged_parts;
pub mod staging;
pub mod store;
pub mod stored;
pub mod storm;
pub mod tenants;
pub mod travel;
pub mod travels;
pub mod writing;

/// A seeded sequence of numbers: the same on every machine.
#[derive(Debug)]
pub struct Seeded(pub u64);

impl Seeded {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// From 0 to `below - 1`.
    pub fn below(&mut self, below: usize) -> usize {
        usize::try_from(self.next() % below as u64).unwrap()
    }

    pub fn tokens(&mut self, most: usize, alphabet: usize) -> Vec<i32> {
        let count = self.below(most + 1);
        (0..count).map(|_| i32::try_from(1 + self.below(alphabet)).unwrap()).collect()
    }
}

/// Spreads every bit of a word over all of it.
pub fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// Seeds of a test's runs: `usual` many from 0 on; `PROPTEST_CASES` asks for another number and `FIRST_SEED` for
/// others (`make fuzz`).
pub fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let first = number("FIRST_SEED").unwrap_or(0);
    first..first + number("PROPTEST_CASES").unwrap_or(usual)
}
