//! From tokens to a place, and from a place to what lives on the way to it.

use super::Tree;
use super::node::NIL;
use crate::hash::{Digest, Namespace};
use crate::ids::{Cursor, Slot, Tier};
use crate::page::Tokens;
use std::ops::Range;

/// A place in the tree: after `depth` pages, on `node`'s edge (or at a root, with depth 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub(super) node: u32,
    /// Pages from the root.
    pub depth: u32,
}

/// What one walk found: both answers.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Where the tokens stop matching. Without components besides FULL all of it is usable.
    pub place: Place,
    /// Pages from the root that are usable on the device as they are.
    pub device: u32,
    /// Pages from the root that are usable on device or host.
    pub usable: u32,
}

impl Tree {
    /// The beginning of a namespace; made when it is new.
    pub fn root(&mut self, namespace: &Namespace) -> Place {
        self.known_root(namespace).unwrap_or_else(|| Place { node: self.make_root(namespace), depth: 0 })
    }

    /// The beginning of a namespace that isn't new.
    pub fn known_root(&self, namespace: &Namespace) -> Option<Place> {
        self.roots.get(namespace).map(|&node| Place { node, depth: 0 })
    }

    /// Where a released hit's cursor is now, or nothing if its place was evicted.
    pub fn resolve(&self, cursor: Cursor) -> Option<Place> {
        let mut node = self.arena.alive(cursor.node?)?;
        if cursor.depth > self.arena[node].end() {
            return None;
        }
        // A split leaves the tail its name, so that the place may have moved to an ancestor.
        while cursor.depth <= self.arena[node].start && !self.arena[node].is_root() {
            node = self.arena[node].parent;
        }
        Some(Place { node, depth: cursor.depth })
    }

    /// A name for the place that outlives a release.
    pub fn cursor(&self, place: Place) -> Cursor {
        let node = (place.depth > 0).then(|| self.arena.id(place.node));
        Cursor { node, depth: place.depth, cache: None }
    }

    /// Walks from a place along `key`'s whole pages, as far as they are known.
    ///
    /// One walk gives both answers: every page in the tree is on device or host, and the device's part of
    /// any path is a prefix of it. Other components vote on both.
    pub fn walk(&self, from: Place, key: Tokens<'_>) -> Found {
        let mut at = from;
        let node = &self.arena[at.node];
        if !node.is_root() && at.depth < node.end() {
            at.depth += self.same_pages(at.node, at.depth - node.start, key, 0);
        }
        let mut done = (at.depth - from.depth) as usize;
        let ended = at.depth < self.arena[at.node].end();
        let mut next = if ended { None } else { self.likely_child(at.node, key, done) };
        while let Some(child) = next {
            let whole = self.page_size.pages(self.arena[child].tokens.len());
            // The one after is looked up before this edge is compared, so that the machine waits for both
            // at a time.
            let after = self.likely_child(child, key, done + whole);
            let same = self.same_pages(child, 0, key, done);
            if same == 0 {
                next = self.child(at.node, self.page(key, done));
                continue;
            }
            at = Place { node: child, depth: at.depth + same };
            done += same as usize;
            next = if same as usize == whole { after } else { None };
        }
        // A node was entered only if its first page is the key's next, so `at` is never at an edge's start.
        let (device, usable) = self.vote(at, self.resident_depth(at, Tier::Device));
        Found { place: at, device, usable }
    }

    /// Leading pages of the path to `place` that live in a tier.
    pub fn resident_depth(&self, place: Place, tier: Tier) -> u32 {
        let mut node = place.node;
        if self.resident(tier) == 0 {
            return 0;
        }
        loop {
            let n = &self.arena[node];
            if n.is_root() {
                return 0;
            }
            if n.resident(tier) > 0 {
                return (n.start + n.resident(tier)).min(place.depth);
            }
            node = n.parent;
        }
    }

    /// Slots in a tier of a range of pages on the path to `place`. Pages must live there.
    pub fn slots(&self, place: Place, pages: Range<u32>, tier: Tier) -> Vec<Slot> {
        let mut slots = vec![Slot(u32::MAX); pages.len()];
        self.climb(place, pages.clone(), |node, part| {
            let start = self.arena[node].start;
            let from = &self.arena[node].slots[tier as usize]
                [(part.start - start) as usize..(part.end - start) as usize];
            slots[(part.start - pages.start) as usize..(part.end - pages.start) as usize]
                .copy_from_slice(from);
        });
        slots
    }

    /// Digests of a range of pages on the path to `place`. The tree must hash.
    pub fn digests(&self, place: Place, pages: Range<u32>) -> Vec<Digest> {
        let mut digests = vec![Digest([0; 32]); pages.len()];
        self.climb(place, pages.clone(), |node, part| {
            let start = self.arena[node].start;
            let from = &self.arena[node].digests[(part.start - start) as usize..(part.end - start) as usize];
            digests[(part.start - pages.start) as usize..(part.end - pages.start) as usize]
                .copy_from_slice(from);
        });
        digests
    }

    /// The last word before a place, if there is one.
    pub fn last_word(&self, place: Place) -> Option<u64> {
        let node = &self.arena[place.node];
        let end = (place.depth - node.start) as usize * self.page_size.tokens();
        let mut last = None;
        node.tokens.view().range(end.saturating_sub(1)..end).for_each(|word| last = Some(word));
        last
    }

    /// Whose place it is.
    pub fn namespace(&self, place: Place) -> Option<&Namespace> {
        self.arena[self.arena[place.node].root].namespace.as_deref()
    }

    /// What the digest of the page after `place` is continued from.
    pub fn last_digest(&self, place: Place) -> Option<Digest> {
        let node = &self.arena[place.node];
        if place.depth == 0 || node.is_root() {
            return node.namespace.as_ref().and_then(|namespace| namespace.seed());
        }
        Some(node.digests[(place.depth - node.start) as usize - 1])
    }

    /// The place after `depth` pages on the path to `place`.
    pub fn ancestor(&self, place: Place, depth: u32) -> Place {
        let mut node = place.node;
        while depth <= self.arena[node].start && !self.arena[node].is_root() {
            node = self.arena[node].parent;
        }
        Place { node, depth }
    }

    /// Calls `f` with each node on the way up from `place` and the part of `pages` on its edge.
    pub(super) fn climb(&self, place: Place, pages: Range<u32>, mut f: impl FnMut(u32, Range<u32>)) {
        let mut node = place.node;
        while node != NIL && !self.arena[node].is_root() {
            let n = &self.arena[node];
            let part = pages.start.max(n.start)..pages.end.min(n.end());
            if !part.is_empty() {
                f(node, part);
            }
            if n.start <= pages.start {
                break;
            }
            node = n.parent;
        }
    }

    pub(super) fn page<'a>(&self, key: Tokens<'a>, page: usize) -> Tokens<'a> {
        let size = self.page_size.tokens();
        key.range(page * size..(page + 1) * size)
    }

    /// Whole pages that the edge from `offset` on and the key from `page` on have in common.
    #[expect(clippy::cast_possible_truncation, reason = "an edge has fewer than 2^32 pages")]
    pub(super) fn same_pages(&self, node: u32, offset: u32, key: Tokens<'_>, page: usize) -> u32 {
        let size = self.page_size.tokens();
        let same = key.from(page * size).common_from(&self.arena[node].tokens, offset as usize * size);
        self.page_size.pages(same) as u32
    }

    pub(super) fn child(&self, parent: u32, page: Tokens<'_>) -> Option<u32> {
        let found = self.children.find(child_hash(parent, page), |&node| {
            self.arena[node].parent == parent && self.same_pages(node, 0, page, 0) == 1
        });
        found.copied()
    }

    /// The child whose edge may begin with the key's page `page`, if the key has that page: an only child,
    /// else one by the page's hash. The comparison of the edge tells whether it is the one.
    fn likely_child(&self, parent: u32, key: Tokens<'_>, page: usize) -> Option<u32> {
        if page >= self.page_size.pages(key.len()) {
            return None;
        }
        if let Some(only) = self.arena.only_child(parent) {
            return Some(only);
        }
        let hash = child_hash(parent, self.page(key, page));
        let found = self.children.find(hash, |&node| {
            let node = &self.arena[node];
            node.parent == parent && node.key_hash == hash
        });
        found.copied()
    }
}

/// Hash of (parent, first page), whatever the width of the tokens. Equality is decided by the tokens.
pub(super) fn child_hash(parent: u32, page: Tokens<'_>) -> u64 {
    page.mix(u64::from(parent))
}
