//! Which leaf of a class was used longest ago.
//!
//! One heap a class, of what was known when a leaf was queued; what has changed since is looked at when it comes
//! up, so that a use costs nothing here. Knows numbers of pages and times of use; refuses to know keys.
//! On error: nothing here fails.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// What the heaps are told of a page that comes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not queued by this entry any more: gone, or queued anew.
    Stale,
    /// A page depends on it.
    Parent,
    /// Used since, at this time.
    Used(u64),
    /// Somebody reads it: not now.
    Busy,
    /// It may go.
    Leaf,
}

/// So many entries are kept anyhow.
const LEAST: usize = 64;

/// Leaves by class and last use.
#[derive(Debug, Default)]
pub struct Leaves {
    classes: BTreeMap<u32, BinaryHeap<Reverse<(u64, u32)>>>,
}

impl Leaves {
    /// Queues a leaf. Where more are queued than twice `most`, as many pages as there can be, those are dropped of
    /// which `holds` says no.
    pub fn push(&mut self, class: u32, used: u64, page: u32, most: usize, holds: impl Fn(u64, u32) -> bool) {
        let heap = self.classes.entry(class).or_default();
        if heap.len() > 2 * most + LEAST {
            heap.retain(|Reverse((used, page))| holds(*used, *page));
        }
        heap.push(Reverse((used, page)));
    }

    /// Entries of all classes.
    pub fn len(&self) -> usize {
        self.classes.values().map(BinaryHeap::len).sum()
    }

    /// Classes that ever had a leaf.
    pub fn classes(&self) -> Vec<u32> {
        self.classes.keys().copied().collect()
    }

    /// The leaf of a class that was used longest ago, and when. It stays queued. `look` tells what became of a
    /// page queued at that time; it is told, too, of entries that are dropped (`Parent`) and moved (`Used`).
    pub fn coldest(&mut self, class: u32, mut look: impl FnMut(u64, u32) -> Standing) -> Option<(u64, u32)> {
        let heap = self.classes.get_mut(&class)?;
        let mut aside = Vec::new();
        let found = loop {
            let Some(&Reverse((queued, page))) = heap.peek() else { break None };
            match look(queued, page) {
                Standing::Leaf => break Some((queued, page)),
                Standing::Stale | Standing::Parent => _ = heap.pop(),
                Standing::Used(now) => {
                    heap.pop();
                    heap.push(Reverse((now, page)));
                }
                Standing::Busy => aside.extend(heap.pop()),
            }
        };
        heap.extend(aside);
        found
    }
}
