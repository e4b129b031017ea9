//! The writer's side of readers: applies the tree's changes to the tables, and makes a full one anew.
//!
//! Assumes fingerprints whose bits are as good as random. Refuses to know the tree's inside: a table is made anew from its
//! own pages. On error: nothing here fails.

use super::table::Table;
use super::{NUMBERS, Reader, Shared, TABLES, table_of};
use crate::page::PageSize;
use crate::tree::Component;
use crate::tree::print::Change;
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of the smallest table: all of a small cache's take 16 KiB.
const SMALLEST: u32 = 3;

/// Publishes what readers see. The engine's thread alone has it.
#[derive(Debug)]
pub struct Publisher {
    pub(super) shared: Arc<Shared>,
    tables: Vec<Arc<Table>>,
    /// Entries of each table that were ever used.
    used: Vec<usize>,
}

impl Publisher {
    /// Publishes all pages that are there.
    pub fn new(all: &[Change]) -> Self {
        let mut pages = vec![0; TABLES];
        all.iter().for_each(|change| pages[table_of(change.print)] += 1);
        let tables: Vec<_> = (0..TABLES).map(|at| Arc::new(Table::new(bits(at, pages[at])))).collect();
        let shared = Arc::new(Shared {
            tables: ArcSwap::from_pointee(tables.clone()),
            stats: Default::default(),
            epoch: AtomicU64::new(0),
        });
        let mut publisher = Self { shared, tables, used: vec![0; TABLES] };
        publisher.apply(all);
        publisher
    }

    /// A reader of what is published here.
    pub fn reader(&self, page_size: PageSize, bigrams: bool, components: &[Component]) -> Reader {
        Reader { page_size, bigrams, components: components.into(), shared: Arc::clone(&self.shared) }
    }

    /// Applies changes in their order. Returns how many entries had to move, since their tables were full.
    pub fn apply(&mut self, changes: &[Change]) -> usize {
        let (mut moved, mut made) = (0, false);
        for change in changes {
            let at = table_of(change.print);
            if change.tiers != 0 && self.used[at] >= limit(at, self.tables[at].capacity()) {
                moved += self.renew(at);
                made = true;
            }
            self.used[at] += usize::from(self.tables[at].set(change.print, change.tiers));
        }
        if made {
            // Readers go on with the old ones until they look again.
            self.shared.tables.store(Arc::new(self.tables.clone()));
        }
        moved
    }

    /// Makes a table anew, without the entries of pages that left, and larger if what is there needs it. Not
    /// published yet. Returns how many pages it has.
    fn renew(&mut self, at: usize) -> usize {
        let old = &self.tables[at];
        let pages = old.live().count();
        let table = Table::new(bits(at, pages));
        old.live().for_each(|(print, tiers)| _ = table.set(print, tiers));
        self.tables[at] = Arc::new(table);
        self.used[at] = pages;
        pages
    }

    /// Nothing of an epoch before this one counts any more.
    pub fn epoch(&self, epoch: u64) {
        self.shared.epoch.store(epoch, Ordering::Relaxed);
    }

    /// Publishes statistics.
    pub fn stats(&self, numbers: [u64; NUMBERS.len()]) {
        for (cell, number) in self.shared.stats.iter().zip(numbers) {
            cell.store(number, Ordering::Relaxed);
        }
    }
}

/// Entries of a table that may be used: from half of them in the first table to three quarters in the last one,
/// so that tables that grow alike are not full at one time.
const fn limit(at: usize, capacity: usize) -> usize {
    capacity * (2 * TABLES + at) / (4 * TABLES)
}

/// The bits of a table that has room for so many pages and as many again: an entry that moves is paid for by
/// one that is used for the first time.
fn bits(at: usize, pages: usize) -> u32 {
    let mut bits = SMALLEST;
    while 2 * pages > limit(at, 1 << bits) {
        bits += 1;
    }
    bits
}
