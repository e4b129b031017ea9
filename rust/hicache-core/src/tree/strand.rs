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

use super::marks::Marks;
use super::node::NIL;
use super::part_marks::PartMarks;
use super::saving::Mark;
use crate::hash::Digest;
use crate::ids::{Slot, Tier};
use crate::page::{OwnedTokens, PageSize, Tokens, make_room, shorten};
use crate::segments::Segments;
use crate::soon;

/// Words from which on a strand isn't continued: growing may copy it. Few where assertions are on, so that
/// tests meet the end of a strand all the time.
const LONG: usize = if cfg!(debug_assertions) { 1 << 4 } else { 1 << 13 };

/// What a walk looks at is one cache line, and comes first.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Strand {
    pub tokens: OwnedTokens,
    /// The node that it continues, which stays the same, whatever is split.
    pub parent: u32,
    /// Pages from the root to the first page.
    pub start: u32,
    end: u32,
    reach: [u32; 2],
    last: u32,
    /// Pages from the root to the last one that a second request used, or a request wants on the host: of those before it
    /// on this strand, too.
    pub used: u32,
    /// Pages that storage has or will have.
    pub stored: Marks,
    /// Its edges in order of depth: where each ends, and its node.
    edges: Vec<(u32, u32)>,
    /// Of the leading pages, per tier.
    slots: [Vec<Slot>; 2],
    /// One per page where the tree hashes, else empty.
    pub digests: Vec<Digest>,
    /// Fingerprints, one per page where readers are told, else empty.
    pub prints: Vec<u64>,
}

impl Strand {
    pub fn new(parent: u32, start: u32, tokens: Tokens<'_>) -> Self {
        Self {
            tokens: tokens.to_owned(),
            parent,
            start,
            end: start,
            reach: [start; 2],
            last: NIL,
            used: start,
            stored: Marks::new(start),
            edges: Vec::new(),
            slots: [Vec::new(), Vec::new()],
            digests: Vec::new(),
            prints: Vec::new(),
        }
    }

    /// Pages from the root to its end.
    pub const fn end(&self) -> u32 {
        self.end
    }

    /// Pages from the root to the last one that lives in a tier.
    pub const fn reach(&self, tier: Tier) -> u32 {
        self.reach[tier as usize]
    }

    /// Slots of the leading pages in a tier.
    pub fn slots(&self, tier: Tier) -> &[Slot] {
        &self.slots[tier as usize]
    }

    /// Its edges in order of depth: where each ends, and its node.
    pub fn edges(&self) -> &[(u32, u32)] {
        &self.edges
    }

    /// Tokens of the pages from `depth` on, counted from the root.
    pub fn tokens_from(&self, depth: u32, page_size: PageSize) -> Tokens<'_> {
        self.tokens.view().from((depth - self.start) as usize * page_size.tokens())
    }

    /// The node on whose edge the page before `depth` lies.
    pub fn node_at(&self, depth: u32) -> u32 {
        if depth == self.end {
            return self.last;
        }
        self.edges[self.edges.partition_point(|&(end, _)| end < depth)].1
    }

    /// The last node.
    pub const fn last(&self) -> u32 {
        self.last
    }

    /// An edge more at its end.
    pub fn append(&mut self, end: u32, node: u32) {
        self.edges.push((end, node));
        (self.end, self.last) = (end, node);
    }

    /// The edge that begins at `start` is split: up to `end` it is `head`'s.
    pub fn split(&mut self, start: u32, end: u32, head: u32) {
        self.edges.insert(self.edges.partition_point(|&(end, _)| end <= start), (end, head));
    }

    /// Pages from `end` on, all of them on the last edge, live nowhere any more. True if no edge is left.
    fn cut(&mut self, end: u32, page_size: PageSize) -> bool {
        let before = self.edges.len().checked_sub(2).map_or(self.start, |at| self.edges[at].0);
        if end == before {
            self.edges.pop();
        } else if let Some(last) = self.edges.last_mut() {
            last.0 = end;
        }
        (self.end, self.last) = self.edges.last().copied().unwrap_or((self.start, NIL));
        self.used = self.used.min(end);
        self.stored.cut(end);
        let pages = (end - self.start) as usize;
        self.tokens.truncate(pages * page_size.tokens());
        shorten(&mut self.digests, pages);
        shorten(&mut self.prints, pages);
        self.edges.is_empty()
    }

    /// The next pages of a tier get their slots.
    #[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
    pub fn give(&mut self, tier: Tier, slots: &[Slot]) {
        make_room(&mut self.slots[tier as usize], slots.len());
        self.slots[tier as usize].extend_from_slice(slots);
        self.reach[tier as usize] += slots.len() as u32;
    }

    /// The last pages of a tier lose their slots, which are appended to `out`, the last page's first.
    pub fn take(&mut self, tier: Tier, count: u32, out: &mut Vec<Slot>) {
        let slots = &mut self.slots[tier as usize];
        let keep = slots.len() - count as usize;
        out.extend(slots[keep..].iter().rev());
        shorten(slots, keep);
        self.reach[tier as usize] -= count;
    }

    /// Continues it with more tokens, if that is to be.
    pub fn push(&mut self, tail: Tokens<'_>) -> bool {
        self.tokens.len() + tail.len() <= LONG && self.tokens.push(tail)
    }

    /// Tokens and slots will be appended.
    pub fn will_grow(&self, pages: usize, tokens: usize, tier: Tier) {
        if let OwnedTokens::Narrow(own) = &self.tokens {
            soon::growth(own, tokens);
        }
        soon::growth(&self.slots[tier as usize], pages);
        soon::growth(&self.edges, 1);
    }

    /// Whether what is kept beside the edges is as long as they are.
    pub fn is_whole(&self) -> bool {
        let ends = self.edges.last().copied().unwrap_or((self.start, NIL));
        let reaches = Tier::ALL.into_iter().all(|tier| {
            (self.reach(tier) - self.start) as usize == self.slots(tier).len() && self.reach(tier) <= self.end
        });
        ends == (self.end, self.last) && reaches
    }

    #[cfg(test)]
    pub fn damage(&mut self, edge: usize) {
        self.edges[edge].0 -= 1;
    }

    #[cfg(test)]
    pub fn set_slot(&mut self, tier: Tier, page: usize, slot: Slot) {
        self.slots[tier as usize][page] = slot;
    }
}

/// All strands, by number. A freed number is used again.
#[derive(Debug, Default)]
pub(super) struct Strands {
    entries: Segments<Strand>,
    free: Vec<u32>,
    /// By number: pages from the root to the last one that a request wants in storage, and in storage soon. As long as
    /// it is, as nobody wants more.
    marks: Vec<[u32; 2]>,
    pub parts: PartMarks,
    /// Which pages routers were told storage has.
    pub told: PartMarks,
    /// How many have something that was to be stored, and wasn't.
    owing: usize,
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
        self.owe(index, false);
        self.entries[index] = Strand::new(NIL, 0, Tokens::EMPTY);
        self.free.push(index);
        self.parts.forget(index);
        self.told.forget(index);
        if let Some(marks) = self.marks.get_mut(index as usize) {
            *marks = [0; 2];
        }
    }

    /// Pages of a strand from `end` on live nowhere any more, as [`Strand::cut`] has it.
    pub fn cut(&mut self, index: u32, end: u32, page_size: PageSize) -> bool {
        if let Some(marks) = self.marks.get_mut(index as usize) {
            *marks = marks.map(|mark| mark.min(end));
        }
        self.parts.cut(index, end);
        self.told.cut(index, end);
        self[index].cut(end, page_size)
    }

    /// Pages from the root to the last one of a strand with a mark: those before it on this strand have it too.
    pub fn marked(&self, index: u32, mark: Mark) -> u32 {
        let more = |at: usize| self.marks.get(index as usize).map_or(0, |marks| marks[at]);
        match mark {
            Mark::Host => self[index].used,
            Mark::Storage => more(0),
            Mark::Soon => more(1),
        }
    }

    /// The pages before `depth` get a mark.
    pub fn mark(&mut self, index: u32, mark: Mark, depth: u32) {
        let at = match mark {
            Mark::Host => {
                self[index].used = depth;
                return;
            }
            Mark::Storage => 0,
            Mark::Soon => 1,
        };
        if self.marks.len() <= index as usize {
            self.marks.resize(index as usize + 1, [0; 2]);
        }
        self.marks[index as usize][at] = depth;
    }

    /// Something of one was to be stored and wasn't, or that isn't so any more.
    pub fn owe(&mut self, index: u32, owing: bool) {
        if self.entries[index].stored.owe(owing) {
            self.owing = if owing { self.owing + 1 } else { self.owing - 1 };
        }
    }

    /// How many there are of which something was to be stored, and wasn't.
    pub const fn owing(&self) -> usize {
        self.owing
    }

    /// Numbers of those in use, each after what it continues, which starts before it.
    pub fn parents_first(&self) -> Vec<u32> {
        let mut strands: Vec<(u32, u32)> = self.iter().map(|(index, strand)| (strand.start, index)).collect();
        strands.sort_unstable();
        strands.into_iter().map(|(_, index)| index).collect()
    }

    /// Those in use.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Strand)> {
        (0u32..).zip(self.entries.iter()).filter(|(_, strand)| strand.last != NIL)
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
