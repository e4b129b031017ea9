//! The writer's side of readers: applies the tree's changes to the table, and makes a larger one in time.

use super::table::Table;
use super::{NUMBERS, Reader, Shared};
use crate::page::PageSize;
use crate::tree::print::Change;
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SMALLEST: u32 = 10;

/// Publishes what readers see. The engine's thread alone has it.
#[derive(Debug)]
pub struct Publisher {
    shared: Arc<Shared>,
    /// Entries of the table that were ever used.
    used: usize,
}

impl Publisher {
    /// Publishes all pages that are there.
    pub fn new(all: &[Change]) -> Self {
        let (table, used) = table_of(all);
        let shared = Arc::new(Shared { table: ArcSwap::from_pointee(table), stats: Default::default() });
        Self { shared, used }
    }

    /// A reader of what is published here.
    pub fn reader(&self, page_size: PageSize, bigrams: bool) -> Reader {
        Reader { page_size, bigrams, shared: Arc::clone(&self.shared) }
    }

    /// Applies changes in their order. False if there was no room: publish everything anew.
    #[must_use]
    pub fn apply(&mut self, changes: &[Change]) -> bool {
        let table = self.shared.table.load();
        if self.used + changes.len() > table.capacity() / 4 * 3 {
            return false;
        }
        for change in changes {
            self.used += usize::from(table.set(change.print, change.tiers));
        }
        true
    }

    /// Publishes a new table of everything; readers go on with the old one until they look again.
    pub fn replace(&mut self, all: &[Change]) {
        let (table, used) = table_of(all);
        self.shared.table.store(Arc::new(table));
        self.used = used;
    }

    /// Publishes statistics.
    pub fn stats(&self, numbers: [u64; NUMBERS.len()]) {
        for (cell, number) in self.shared.stats.iter().zip(numbers) {
            cell.store(number, Ordering::Relaxed);
        }
    }
}

/// A table of some pages, with as much room again.
fn table_of(all: &[Change]) -> (Table, usize) {
    let room = (all.len() * 2).next_power_of_two().trailing_zeros() + 1;
    let table = Table::new(room.max(SMALLEST));
    let used = all.iter().filter(|change| table.set(change.print, change.tiers)).count();
    (table, used)
}
