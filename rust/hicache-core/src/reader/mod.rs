//! Readers on other threads: how much of these tokens would hit, and statistics, while the engine's thread
//! mutates. Nobody waits for anybody.
//!
//! ```text
//!  tree ──changes──▶ cache ──▶ tables of (fingerprint of a prefix → tiers) ◀── readers, any thread
//!                    (after each verb)
//! ```
//! There are 256 tables, by some bits of the fingerprint: a full one is made anew alone, so that no verb pays
//! for all pages.
//!
//! A page's fingerprint covers its whole prefix and namespace in 61 bits. What a reader is told is advice, for
//! routing and for admission: it serves no bytes, so that two prefixes with one fingerprint (one in 2^61 pairs)
//! cost a wrong guess and nothing else. What a component has of a page is an entry of its own, under a
//! fingerprint that follows from the page's: readers vote as a match does.
//!
//! | file | what |
//! |---|---|
//! | `table` | the one hand-made concurrent piece: atomics, one writer (model-checked with loom) |
//! | `publisher` | the writer's side: applies changes, makes a table anew when it is full |

pub mod publisher;
#[cfg(test)]
mod publisher_tests;
pub mod table;

pub use publisher::Publisher;

use crate::error::Result;
use crate::hash::Namespace;
use crate::key::Key;
use crate::page::{PageSize, Tokens};
use crate::tree::print::{next_print, part_print, seed_print};
use crate::tree::{Ballot, Component};
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use table::Table;

/// Names of the statistics that readers see.
pub const NUMBERS: [&str; 11] = [
    "requests",
    "matched_tokens",
    "hit_device_tokens",
    "hit_host_tokens",
    "hit_storage_tokens",
    "device_slots",
    "device_free",
    "device_resident",
    "host_slots",
    "host_free",
    "host_resident",
];

/// Tables that share the pages, by a fingerprint's bits that no table begins its search with.
pub(crate) const TABLES: usize = 256;

/// Which table has a page. The lowest bits are the tiers' and the one that all fingerprints have.
pub(crate) const fn table_of(print: u64) -> usize {
    (print >> 3) as usize % TABLES
}

/// What readers share with the writer.
#[derive(Debug)]
pub(crate) struct Shared {
    tables: ArcSwap<Vec<Arc<Table>>>,
    stats: [AtomicU64; NUMBERS.len()],
    epoch: AtomicU64,
}

/// How much of some tokens would hit now, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WouldHit {
    /// On the device.
    pub device: usize,
    /// On device or host.
    pub usable: usize,
}

/// A frozen view of a cache for other threads. Cheap to clone; outlives the cache.
#[derive(Clone, Debug)]
pub struct Reader {
    page_size: PageSize,
    bigrams: bool,
    components: Arc<[Component]>,
    shared: Arc<Shared>,
}

impl Reader {
    /// How much of the tokens would hit if they were matched now. Pages that come or go meanwhile may or
    /// may not count.
    ///
    /// # Errors
    /// When a token is negative.
    pub fn would_hit(&self, tokens: Tokens<'_>, namespace: &Namespace) -> Result<WouldHit> {
        let tokens = tokens.checked()?;
        let (size, whole) = (self.page_size.tokens(), Key::new(tokens, self.bigrams)?);
        let pages = self.page_size.pages(whole.units());
        let words = if self.bigrams { 2 * size } else { size };
        let key = whole.words(pages * words);
        // The same tables for the whole answer: one that is made anew meanwhile is the next call's.
        let tables = self.shared.tables.load();
        let mut print = seed_print(&namespace.clone().canonical(), self.shared.epoch.load(Ordering::Relaxed));
        let mut hit = WouldHit::default();
        let (mut ballot, mut on_device) = (Ballot::new(&self.components), true);
        let at = |print: u64| tables[table_of(print)].get(print);
        for page in 0..pages {
            print = next_print(print, key.range(page * words..(page + 1) * words));
            let tiers = at(print);
            if tiers == 0 {
                break;
            }
            on_device &= tiers & 1 != 0;
            let agreed = ballot.page(|component| {
                let tiers = at(part_print(print, component));
                [tiers & 1 != 0, tiers & 2 != 0]
            });
            if on_device && agreed[0] {
                hit.device = (page + 1) * size;
            }
            if agreed[1] {
                hit.usable = (page + 1) * size;
            }
        }
        Ok(hit)
    }

    /// Statistics by name, as of the last verb that changed something. Each is right by itself; two of
    /// them may be of different moments.
    pub fn stats(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NUMBERS.into_iter().zip(self.shared.stats.iter().map(|number| number.load(Ordering::Relaxed)))
    }
}
