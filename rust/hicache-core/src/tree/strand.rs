//! Strands: stretches of one history whose tokens, slots and digests each lie in one piece of memory.
//!
//! ```text
//!  pages of the path   0 ....... start                              end
//!  edges                         | one node      | next     | next   |
//!  tokens, digests, prints       |###################################|
//!  slots[Device]                 |##########################|
//!  slots[Host]                   |##################|
//! ```
//! Nodes that continue one another share a strand: a walk compares in one pass what they hold, without
//! looking at each, and a split moves no page. What is resident of a history is a prefix of it (T3), so
//! that a strand's resident pages are its first ones, and it only ever grows and shrinks at its end.
//! Knows no shape but its own edges. On error: nothing here fails.

use super::node::NIL;
use crate::hash::Digest;
use crate::ids::{Slot, Tier};
use crate::page::{OwnedTokens, PageSize, Tokens, make_room, shorten};
use crate::segments::Segments;

/// Words from which on a strand isn't continued: growing may copy it.
const LONG: usize = 1 << 13;

#[derive(Debug)]
pub(super) struct Strand {
    pub tokens: OwnedTokens,
    /// Pages from the root to the first page.
    pub start: u32,
    /// Its edges in order of depth: where each ends, and its node.
    pub edges: Vec<(u32, u32)>,
    /// Of the leading pages, per tier.
    pub slots: [Vec<Slot>; 2],
    /// One per page where the tree hashes, else empty.
    pub digests: Vec<Digest>,
    /// Fingerprints, one per page where readers are told, else empty.
    pub prints: Vec<u64>,
}

impl Strand {
    pub fn new(start: u32, tokens: Tokens<'_>) -> Self {
        Self {
            tokens: tokens.to_owned(),
            start,
            edges: Vec::new(),
            slots: [Vec::new(), Vec::new()],
            digests: Vec::new(),
            prints: Vec::new(),
        }
    }

    /// Pages from the root to its end.
    pub fn end(&self) -> u32 {
        self.edges.last().map_or(self.start, |&(end, _)| end)
    }

    /// Pages from the root to the last one that lives in a tier.
    #[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
    pub fn reach(&self, tier: Tier) -> u32 {
        self.start + self.slots[tier as usize].len() as u32
    }

    /// The node on whose edge the page before `depth` lies.
    pub fn node_at(&self, depth: u32) -> u32 {
        self.edges[self.edges.partition_point(|&(end, _)| end < depth)].1
    }

    /// The last node.
    pub fn last(&self) -> u32 {
        self.edges.last().map_or(NIL, |&(_, node)| node)
    }

    /// Continues it with more tokens, if that is to be.
    pub fn push(&mut self, tail: Tokens<'_>) -> bool {
        self.tokens.len() + tail.len() <= LONG && self.tokens.push(tail, LONG)
    }

    /// Makes room for what a page has besides its tokens.
    pub fn make_room<T>(items: &mut Vec<T>, more: usize, page_size: PageSize) {
        make_room(items, more, page_size.pages(LONG));
    }

    /// Forgets what is behind a page that lives nowhere any more.
    pub fn truncate(&mut self, end: u32, page_size: PageSize) {
        let pages = (end - self.start) as usize;
        self.tokens.truncate(pages * page_size.tokens());
        shorten(&mut self.digests, pages);
        shorten(&mut self.prints, pages);
    }
}

/// All strands, by number. A freed number is used again.
#[derive(Debug, Default)]
pub(super) struct Strands {
    entries: Segments<Strand>,
    free: Vec<u32>,
}

impl Strands {
    pub fn insert(&mut self, strand: Strand) -> u32 {
        if let Some(index) = self.free.pop() {
            self.entries[index] = strand;
            return index;
        }
        self.entries.push(strand)
    }

    /// Frees a number; the strand's memory is freed too.
    pub fn remove(&mut self, index: u32) {
        self.entries[index] = Strand::new(0, Tokens::EMPTY);
        self.free.push(index);
    }

    /// Those in use.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Strand)> {
        (0u32..).zip(self.entries.iter()).filter(|(_, strand)| !strand.edges.is_empty())
    }
}

impl std::ops::Index<u32> for Strands {
    type Output = Strand;
    fn index(&self, index: u32) -> &Strand {
        &self.entries[index]
    }
}

impl std::ops::IndexMut<u32> for Strands {
    fn index_mut(&mut self, index: u32) -> &mut Strand {
        &mut self.entries[index]
    }
}
