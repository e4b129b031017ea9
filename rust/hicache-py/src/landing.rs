//! How many transfers of each kind have ended, as Python has it.
//!
//! On error: nothing here fails.

use hicache_core::Ready;

/// Backups, loads, stores, prefetches, strays.
pub type Counts = (usize, usize, usize, usize, usize);

/// For Python.
pub const fn counts(ready: Ready) -> Counts {
    (ready.backups, ready.loads, ready.stores, ready.prefetches, ready.strays)
}

/// From Python.
pub const fn limits((backups, loads, stores, prefetches, strays): Counts) -> Ready {
    Ready { backups, loads, stores, prefetches, strays }
}
