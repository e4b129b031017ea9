//! The store's time, in seconds since 1970: it goes on at the pace of a clock that nobody sets.
//!
//! The machine's clock is looked at when the store is opened, and never again: whatever is done to it meanwhile, pages
//! grow older a second a second. Nor does the store's time go back: it begins where the newest page was written, at
//! least. So a clock that is set back makes nothing old or young, but that the time until it is where it was does not
//! count while the store is closed; one that is set forward makes what was stored before that much older when the store is
//! opened next.
//! On error: nothing here fails.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What a look at the machine's clocks says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Seconds since 1970, as far as the machine knows.
    pub wall: u32,
    /// Seconds since some moment, by a clock that nobody sets.
    pub passed: u64,
}

impl Moment {
    /// By the machine's clocks.
    pub fn now() -> Self {
        static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
        let passed = BEGAN.elapsed().as_secs();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall: u32::try_from(wall.as_secs()).unwrap_or(u32::MAX), passed }
    }
}

/// A store's time.
pub struct Clock {
    look: fn() -> Moment,
    /// When it was opened.
    first: u32,
    began: u64,
}

impl Clock {
    /// Of a store that is opened now, and whose newest page was written then.
    pub fn new(look: fn() -> Moment, newest: u32) -> Self {
        let Moment { wall, passed } = look();
        Self { look, first: wall.max(newest), began: passed }
    }

    /// Seconds since it was opened.
    pub fn passed(&self) -> u64 {
        (self.look)().passed.saturating_sub(self.began)
    }

    /// What time it is.
    pub fn now(&self) -> u32 {
        self.first.saturating_add(u32::try_from(self.passed()).unwrap_or(u32::MAX))
    }
}
