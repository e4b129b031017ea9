//! Which pages are taken: what was seen before, and what the disk's endurance allows.
//!
//! Neither clock nor I/O: it is told the time, in seconds of a clock that nobody sets. On error: nothing here fails.

/// Pages that are remembered after their first sight: 1 MiB of them.
const SIGHTS: usize = 1 << 17;
/// Seconds over which writes are averaged.
const HOUR: u64 = 3600;

/// The rules, and what they go by.
#[derive(Debug)]
pub struct Admission {
    sights: Option<Vec<u64>>,
    rate: Option<u64>,
    /// Bytes that may be written now.
    left: i128,
    /// The second as of which.
    at: u64,
}

impl Admission {
    /// `second`: only what comes for the second time. `rate`: bytes a second, averaged over an hour.
    pub fn new(second: bool, rate: Option<u64>, now: u64) -> Self {
        let left = i128::from(rate.unwrap_or(0)) * i128::from(HOUR);
        Self { sights: second.then(|| vec![0; SIGHTS]), rate, left, at: now }
    }

    /// Whether a page is taken. `wanted`: a page that needs it is stored, so that it is, whatever the rules say.
    /// `name`: the first 8 bytes of its digest.
    pub fn admits(&mut self, name: u64, bytes: u64, wanted: bool, now: u64) -> bool {
        self.earn(now);
        let seen = self.seen(name);
        let allowed = self.rate.is_none() || self.left >= i128::from(bytes);
        if !(wanted || (seen && allowed)) {
            return false;
        }
        self.left -= i128::from(bytes);
        true
    }

    /// A page that was taken was not written after all.
    pub fn give_back(&mut self, bytes: u64) {
        self.left += i128::from(bytes);
    }

    fn earn(&mut self, now: u64) {
        let rate = i128::from(self.rate.unwrap_or(0));
        self.left += rate * i128::from(now.saturating_sub(self.at));
        self.left = self.left.min(rate * i128::from(HOUR));
        // Whatever the clock, time that was paid for isn't paid for twice.
        self.at = self.at.max(now);
    }

    /// Whether it was seen before; now it was. Of two that meet in a place the later one is remembered.
    fn seen(&mut self, name: u64) -> bool {
        let Some(sights) = &mut self.sights else { return true };
        let place = usize::try_from(name % SIGHTS as u64).unwrap_or(0);
        std::mem::replace(&mut sights[place], name) == name
    }
}
