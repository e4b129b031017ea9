//! From tokens to a place, and from a place to what lives on the way to it.

use super::Tree;
use super::node::NIL;
use super::strand::Strand;
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
    /// Pages from the root that live on the device, whatever components say.
    pub resident: u32,
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
        if namespace.is_plain() {
            return (self.plain_root != NIL).then_some(Place { node: self.plain_root, depth: 0 });
        }
        self.roots.get(namespace).map(|&node| Place { node, depth: 0 })
    }

    /// Where a released hit's cursor is now, or nothing if its place was evicted.
    pub fn resolve(&self, cursor: Cursor) -> Option<Place> {
        let node = self.arena.alive(cursor.node?)?;
        let end = self.arena[node].end;
        // A split leaves the tail its name, so that the place may have moved to an ancestor.
        let place = Place { node, depth: end };
        (cursor.depth <= end && !self.is_past(place)).then(|| self.ancestor(place, cursor.depth))
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
        self.found(self.follow(from, key))
    }

    /// What a walk finds that ends at a place.
    pub fn found(&self, place: Place) -> Found {
        let resident = self.resident_depth(place, Tier::Device);
        let (device, usable) = self.vote(place, resident);
        Found { place, resident, device, usable }
    }

    /// The place where `key`'s whole pages, which follow a place, stop being known.
    pub fn follow(&self, from: Place, key: Tokens<'_>) -> Place {
        let (mut at, mut next) = (from, None);
        if !self.arena[at.node].is_root() {
            (at, next) = self.along(from, key, 0);
        }
        while at.depth == self.arena[at.node].end {
            let done = (at.depth - from.depth) as usize;
            let Some(child) = next.or_else(|| self.likely_child(at.node, key, done)) else { break };
            let (mut to, mut after) = self.along(Place { node: child, depth: at.depth }, key, done);
            if to.depth == at.depth {
                // Not the one: another page has its hash, or it is an only child.
                let Some(child) = self.child(at.node, self.page(key, done)) else { break };
                (to, after) = self.along(Place { node: child, depth: at.depth }, key, done);
            }
            (at, next) = (to, after);
        }
        // A node was entered only if its first page is the key's next, so `at` is never at an edge's start.
        at
    }

    /// Follows a strand from a place on, as far as the key from page `page` on does; and, where it does to
    /// the end, what may come next. That is looked up before the strand is compared, so that the machine
    /// waits for both at a time.
    fn along(&self, at: Place, key: Tokens<'_>, page: usize) -> (Place, Option<u32>) {
        let strand = &self.strands[self.arena[at.node].strand];
        let whole = strand.end() - at.depth;
        let after = self.likely_child(strand.last(), key, page + whole as usize);
        let same = self.same_pages(strand, at.depth, key, page);
        if same == 0 {
            return (at, None);
        }
        let depth = at.depth + same;
        (Place { node: strand.node_at(depth), depth }, after.filter(|_| same == whole))
    }

    /// Leading pages of the path to `place` that live in a tier.
    pub fn resident_depth(&self, place: Place, tier: Tier) -> u32 {
        let mut at = place;
        if self.resident(tier) == 0 {
            return 0;
        }
        while at.depth > 0 {
            let index = self.arena[at.node].strand;
            let strand = &self.strands[index];
            if strand.reach(tier) > strand.start {
                return strand.reach(tier).min(at.depth);
            }
            at = self.before(index);
        }
        0
    }

    /// Slots in a tier of a range of pages on the path to `place`. Pages must live there.
    pub fn slots(&self, place: Place, pages: Range<u32>, tier: Tier) -> Vec<Slot> {
        self.gather(place, pages, Slot(u32::MAX), |strand| strand.slots(tier))
    }

    /// Digests of a range of pages on the path to `place`. The tree must hash.
    pub fn digests(&self, place: Place, pages: Range<u32>) -> Vec<Digest> {
        self.gather(place, pages, Digest([0; 32]), |strand| &strand.digests)
    }

    /// What the strands on the path to `place` have for a range of pages.
    pub(super) fn gather<T: Copy>(
        &self,
        place: Place,
        pages: Range<u32>,
        blank: T,
        of: impl Fn(&Strand) -> &[T],
    ) -> Vec<T> {
        let mut at = place;
        if !pages.is_empty() {
            // Usually one strand has them all: they are copied once, not onto blanks.
            let strand = &self.strands[self.arena[at.node].strand];
            if strand.start <= pages.start && pages.end <= at.depth {
                let first = strand.start;
                return of(strand)[(pages.start - first) as usize..(pages.end - first) as usize].to_vec();
            }
        }
        let mut all = vec![blank; pages.len()];
        while at.depth > pages.start {
            let index = self.arena[at.node].strand;
            let strand = &self.strands[index];
            let part = pages.start.max(strand.start)..pages.end.min(at.depth);
            if !part.is_empty() {
                let from =
                    &of(strand)[(part.start - strand.start) as usize..(part.end - strand.start) as usize];
                all[(part.start - pages.start) as usize..(part.end - pages.start) as usize]
                    .copy_from_slice(from);
            }
            at = self.before(index);
        }
        all
    }

    /// Where a strand begins: the end of what it continues.
    pub(super) fn before(&self, strand: u32) -> Place {
        let strand = &self.strands[strand];
        Place { node: strand.parent, depth: strand.start }
    }

    /// The last word before a place, if there is one.
    pub fn last_word(&self, place: Place) -> Option<u64> {
        if place.depth == 0 {
            return None;
        }
        let strand = &self.strands[self.arena[place.node].strand];
        let end = (place.depth - strand.start) as usize * self.page_size.tokens();
        let mut last = None;
        strand.tokens.view().range(end - 1..end).for_each(|word| last = Some(word));
        last
    }

    /// Whose place it is.
    pub fn namespace(&self, place: Place) -> Option<&Namespace> {
        self.arena[self.arena[place.node].root].rooted.as_ref().map(|rooted| &rooted.namespace)
    }

    /// What the digest of the page after `place` is continued from.
    pub fn last_digest(&self, place: Place) -> Option<Digest> {
        let node = &self.arena[place.node];
        if place.depth == 0 || node.is_root() {
            return node.rooted.as_ref().and_then(|rooted| rooted.namespace.seed());
        }
        let strand = &self.strands[node.strand];
        Some(strand.digests[(place.depth - strand.start) as usize - 1])
    }

    /// The place after `depth` pages on the path to `place`.
    pub fn ancestor(&self, place: Place, depth: u32) -> Place {
        if depth == 0 {
            return Place { node: self.arena[place.node].root, depth };
        }
        let mut at = place;
        loop {
            if depth > self.arena[at.node].start {
                return Place { node: at.node, depth };
            }
            let index = self.arena[at.node].strand;
            let strand = &self.strands[index];
            if depth > strand.start {
                return Place { node: strand.node_at(depth), depth };
            }
            at = self.before(index);
        }
    }

    /// Calls `f` with each node on the way up from `place` and the part of `pages` on its edge.
    pub(super) fn climb(&self, place: Place, pages: Range<u32>, mut f: impl FnMut(u32, Range<u32>)) {
        let mut node = place.node;
        while node != NIL && !self.arena[node].is_root() {
            let n = &self.arena[node];
            let part = pages.start.max(n.start)..pages.end.min(n.end);
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

    /// Whole pages that a strand from `depth` on and the key from `page` on have in common.
    #[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
    fn same_pages(&self, strand: &Strand, depth: u32, key: Tokens<'_>, page: usize) -> u32 {
        let size = self.page_size.tokens();
        let at = (depth - strand.start) as usize * size;
        let same = key.from(page * size).common_from(&strand.tokens, at);
        self.page_size.pages(same) as u32
    }

    pub(super) fn child(&self, parent: u32, page: Tokens<'_>) -> Option<u32> {
        self.children.find(child_hash(parent, page), |node| {
            let node = &self.arena[node];
            node.parent == parent && self.same_pages(&self.strands[node.strand], node.start, page, 0) == 1
        })
    }

    /// The first page of a node's edge.
    pub(super) fn first_page(&self, node: u32) -> Tokens<'_> {
        let node = &self.arena[node];
        let strand = &self.strands[node.strand];
        self.page(strand.tokens.view(), (node.start - strand.start) as usize)
    }

    /// The child whose edge may begin with the key's page `page`, if the key has that page: an only child,
    /// else one by the page's hash. The comparison of the edge tells whether it is the one.
    fn likely_child(&self, parent: u32, key: Tokens<'_>, page: usize) -> Option<u32> {
        if page >= self.page_size.pages(key.len()) || self.arena[parent].children == 0 {
            return None;
        }
        if let Some(only) = self.arena.only_child(parent) {
            return Some(only);
        }
        let hash = child_hash(parent, self.page(key, page));
        self.children.find(hash, |node| {
            let node = &self.arena[node];
            node.parent == parent && node.key_hash == hash
        })
    }
}

/// Hash of (parent, first page), whatever the width of the tokens. Equality is decided by the tokens.
pub(super) fn child_hash(parent: u32, page: Tokens<'_>) -> u64 {
    page.mix(u64::from(parent))
}
