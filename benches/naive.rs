//! The baseline: one hash-map entry a page, keyed by (page before, tokens), and leaves sorted by last use.
//! What an engine without a radix tree does: simple, right, and a hash of every page at every call.

use std::collections::{BTreeSet, HashMap};

/// No page: the beginning.
const START: u32 = u32::MAX;

#[derive(Default)]
pub struct Naive {
    pages: HashMap<(u32, Vec<u32>), u32>,
    /// Per page: the page before, its tokens, its children, when it was used.
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// Leaves by last use.
    leaves: BTreeSet<(u64, u32)>,
    clock: u64,
}

struct Entry {
    before: u32,
    tokens: Vec<u32>,
    children: u32,
    used: u64,
}

impl Naive {
    pub fn walk(&self, key: &[u32], page_size: usize) -> (usize, u32) {
        let mut at = START;
        let mut found = 0;
        for page in key.chunks_exact(page_size) {
            match self.pages.get(&(at, page.to_vec())) {
                Some(&next) => at = next,
                None => break,
            }
            found += 1;
        }
        (found, at)
    }

    /// Matches and marks the path as used.
    pub fn find(&mut self, key: &[u32], page_size: usize) -> usize {
        let (found, at) = self.walk(key, page_size);
        self.touch(at);
        found
    }

    pub fn insert(&mut self, key: &[u32], page_size: usize) {
        let (found, mut at) = self.walk(key, page_size);
        for page in key.chunks_exact(page_size).skip(found) {
            let id = self.free.pop().unwrap_or_else(|| {
                self.entries.push(None);
                (self.entries.len() - 1) as u32
            });
            if at != START {
                self.child_added(at);
            }
            self.entries[id as usize] =
                Some(Entry { before: at, tokens: page.to_vec(), children: 0, used: self.clock });
            self.leaves.insert((self.clock, id));
            self.pages.insert((at, page.to_vec()), id);
            at = id;
        }
        self.touch(at);
    }

    pub fn evict(&mut self, pages: usize) -> usize {
        for done in 0..pages {
            let Some((_, id)) = self.leaves.pop_first() else { return done };
            let Some(entry) = self.entries[id as usize].take() else { return done };
            self.pages.remove(&(entry.before, entry.tokens));
            self.free.push(id);
            if let Some(Some(before)) = self.entries.get_mut(entry.before as usize) {
                before.children -= 1;
                if before.children == 0 {
                    self.leaves.insert((before.used, entry.before));
                }
            }
        }
        pages
    }

    fn child_added(&mut self, id: u32) {
        if let Some(entry) = &mut self.entries[id as usize] {
            entry.children += 1;
            self.leaves.remove(&(entry.used, id));
        }
    }

    fn touch(&mut self, mut id: u32) {
        self.clock += 1;
        while let Some(Some(entry)) = self.entries.get_mut(id as usize) {
            if self.leaves.remove(&(entry.used, id)) {
                self.leaves.insert((self.clock, id));
            }
            entry.used = self.clock;
            id = entry.before;
        }
    }
}
