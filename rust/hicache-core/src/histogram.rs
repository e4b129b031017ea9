//! Histograms with fixed bounds: what was seen, counted by size, and its sum.
//!
//! Knows numbers and their bounds; refuses to know what they are of (`measured` does). Nothing is allocated and nothing is
//! waited for when something is seen. On error: nothing here fails; what is beyond the last bound has a place of its own.

use std::sync::atomic::{AtomicU64, Ordering};

/// Most bounds of a scale, and one place more for what is beyond.
const PLACES: usize = 24;

/// 0 and 1, 2.5 and 5 times a power of ten from 10 µs to 100 s.
#[rustfmt::skip]
const MICROS: [u64; 23] = [
    0, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000, 100_000_000,
];

/// Powers of two from 1 to 2^14.
const PAGES: [u64; 15] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];

/// 0, and powers of two from 2^4 to 2^20.
#[rustfmt::skip]
const TOKENS: [u64; 18] = [
    0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131_072, 262_144, 524_288, 1_048_576,
];

/// What is counted, hence the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Microseconds, told in seconds.
    Seconds,
    /// Pages.
    Pages,
    /// Tokens.
    Tokens,
}

impl Scale {
    /// The largest number of each place but the last, whose numbers are larger.
    pub const fn bounds(self) -> &'static [u64] {
        match self {
            Self::Seconds => &MICROS,
            Self::Pages => &PAGES,
            Self::Tokens => &TOKENS,
        }
    }

    /// How many of what is counted are one of what is told.
    pub const fn unit(self) -> f64 {
        match self {
            Self::Seconds => 1e6,
            Self::Pages | Self::Tokens => 1.0,
        }
    }

    fn place(self, value: u64) -> usize {
        self.bounds().partition_point(|&bound| bound < value)
    }
}

/// What was seen so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    scale: Scale,
    places: [u64; PLACES],
    sum: u64,
}

impl Histogram {
    /// Of nothing.
    pub const fn new(scale: Scale) -> Self {
        Self { scale, places: [0; PLACES], sum: 0 }
    }

    /// One more.
    pub fn see(&mut self, value: u64) {
        self.places[self.scale.place(value)] += 1;
        self.sum = self.sum.wrapping_add(value);
    }

    /// What another one of the same scale saw, too.
    pub fn add(&mut self, other: &Self) {
        debug_assert!(self.scale == other.scale, "histograms of two scales");
        self.places.iter_mut().zip(other.places).for_each(|(place, more)| *place += more);
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// What it counts.
    pub const fn scale(&self) -> Scale {
        self.scale
    }

    /// How many there were in each place: one for each bound, and those beyond the last one.
    pub fn places(&self) -> &[u64] {
        &self.places[..=self.scale.bounds().len()]
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.places().iter().sum()
    }

    /// All of them together.
    pub const fn sum(&self) -> u64 {
        self.sum
    }
}

/// The same for threads that tell each other nothing else.
#[derive(Debug)]
pub struct Shared {
    scale: Scale,
    places: [AtomicU64; PLACES],
    sum: AtomicU64,
}

impl Shared {
    /// Of nothing.
    pub const fn new(scale: Scale) -> Self {
        Self { scale, places: [const { AtomicU64::new(0) }; PLACES], sum: AtomicU64::new(0) }
    }

    /// One more.
    pub fn see(&self, value: u64) {
        self.places[self.scale.place(value)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// What was seen; of what is seen meanwhile perhaps the count and not yet the sum.
    pub fn read(&self) -> Histogram {
        let places = std::array::from_fn(|at| self.places[at].load(Ordering::Relaxed));
        Histogram { scale: self.scale, places, sum: self.sum.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_the_largest_numbers_of_their_places() {
        for scale in [Scale::Seconds, Scale::Pages, Scale::Tokens] {
            let bounds = scale.bounds();
            assert!(bounds.is_sorted_by(|one, next| one < next), "{scale:?}");
            assert!(bounds.len() < PLACES, "{scale:?}");
            let mut seen = Histogram::new(scale);
            for &bound in bounds {
                seen.see(bound);
                seen.see(bound + 1);
            }
            let mut expected = vec![0; bounds.len() + 1];
            for at in 0..bounds.len() {
                expected[at] += 1;
                expected[at + 1] += 1;
            }
            assert_eq!(seen.places(), expected, "{scale:?}");
            assert_eq!(seen.count(), 2 * bounds.len() as u64);
            assert_eq!(seen.sum(), bounds.iter().map(|bound| 2 * bound + 1).sum::<u64>());
        }
    }

    #[test]
    fn what_threads_saw_is_added_to_what_was() {
        let shared = Shared::new(Scale::Pages);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|value| shared.see(value)));
            }
        });
        let mut all = shared.read();
        all.add(&shared.read());
        assert_eq!(all.count(), 8000);
        assert_eq!(all.sum(), 8 * 499_500);
        assert_eq!(all.places()[0], 16, "0 and 1");
    }
}
