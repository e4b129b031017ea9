//! The table of children: nodes by the hash of (parent, first page).
//!
//! Knows numbers and hashes; what a hash means, and whether a candidate is the one, is the tree's. Never
//! iterated: the order of a table must not decide anything. In shards, each of which grows by itself: growing
//! moves a few nodes at a time, so that no call waits for all of them. On error: nothing here fails.

use hashbrown::HashTable;

/// One for each value of the eight bits that pick it: the upper ones of a hash's half. What is left of the half
/// picks the place in the shard.
const SHARDS: usize = 256;

/// Carries the low bits to the high ones, of which the table looks too: the golden ratio again (Knuth, TAOCP
/// volume 3, 6.4).
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

#[derive(Debug)]
pub(super) struct Children {
    /// Half of the hash, by which growing needs no look at the node, and the node.
    shards: Box<[HashTable<(u32, u32)>]>,
}

impl Children {
    pub fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| HashTable::new()).collect() }
    }

    #[cfg(test)]
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Nodes in the table.
    pub fn len(&self) -> usize {
        self.shards.iter().map(HashTable::len).sum()
    }

    /// The first node with a hash that `is` accepts.
    pub fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let half = half(hash);
        let found = self.shards[shard(half)].find(spread(half), |&(own, node)| own == half && is(node));
        found.map(|&(_, node)| node)
    }

    pub fn insert(&mut self, hash: u64, node: u32) {
        let half = half(hash);
        self.shards[shard(half)].insert_unique(spread(half), (half, node), |&(half, _)| spread(half));
    }

    pub fn remove(&mut self, hash: u64, node: u32) {
        let half = half(hash);
        if let Ok(entry) = self.shards[shard(half)].find_entry(spread(half), |&(_, own)| own == node) {
            entry.remove();
        }
    }
}

const fn half(hash: u64) -> u32 {
    (hash >> 32) as u32
}

const fn shard(half: u32) -> usize {
    (half >> 24) as usize
}

const fn spread(half: u32) -> u64 {
    (half as u64).wrapping_mul(SPREAD)
}
