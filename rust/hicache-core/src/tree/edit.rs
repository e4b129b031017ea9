//! Changes of shape: extend a path, split an edge, cut an edge's tail, remove a node.

use super::Tree;
use super::decisions::{Decision, full};
use super::epoch::Rooted;
use super::node::{NIL, Node};
use super::strand::Strand;
use super::walk::{Place, child_hash};
use crate::hash::{self, Digest, Namespace};
use crate::ids::{Slot, Tier};
use crate::page::{Tokens, make_room};
use crate::policy::Why;

/// What an extension did with the slots it was given.
#[derive(Debug, PartialEq, Eq)]
pub struct Extended {
    /// After the last page of the key.
    pub place: Place,
    /// The tree's slots in the tier for every page of the key.
    pub slots: Vec<Slot>,
    /// Leading pages that lived in the tier already; the rest adopted their given slots.
    pub known: usize,
    /// Pages that the tree did not know in any tier before.
    pub new_pages: usize,
    /// Pages of these whose digest was computed here.
    pub hashed: usize,
}

impl Extended {
    /// Those of the given slots that were not adopted: the page had another one already.
    pub fn duplicates(&self, given: &[Slot]) -> Vec<Slot> {
        let pairs = self.slots.iter().zip(&given[..self.known]);
        pairs.filter(|(own, slot)| own != slot).map(|(_, &slot)| slot).collect()
    }
}

impl Tree {
    /// Whether `pages` pages will follow `at`, behind which there is nothing yet: what they will be written to is
    /// wanted soon.
    pub(crate) fn will_extend(&self, at: Place, pages: usize, tier: Tier) -> bool {
        let node = &self.arena[at.node];
        if node.strand == NIL || node.children > 0 || node.end != at.depth {
            return false;
        }
        self.strands[node.strand].will_grow(pages, pages * self.page_size.tokens(), tier);
        self.arena.will_grow();
        true
    }

    /// Makes `key`'s whole pages after `at` resident in a tier, one given slot per page.
    ///
    /// A page that lives there already keeps its slot, and the given one is a duplicate (unless it is the
    /// same one). The path to `at` must be resident in the tier.
    pub fn extend(&mut self, at: Place, key: Tokens<'_>, tier: Tier, given: &[Slot]) -> Extended {
        let key = key.range(0..given.len() * self.page_size.tokens());
        self.extend_from(at, self.follow(at, key), key, tier, given, &[])
    }

    /// The same, when it is known that `key` is known as far as `to`. `digests` are those of the leading
    /// pages behind that, where somebody has them already.
    pub fn extend_from(
        &mut self,
        at: Place,
        to: Place,
        key: Tokens<'_>,
        tier: Tier,
        given: &[Slot],
        digests: &[Digest],
    ) -> Extended {
        let reach = self.resident_depth(to, tier).max(at.depth);
        let (known, found) = ((reach - at.depth) as usize, (to.depth - at.depth) as usize);
        let mut slots = self.slots(to, at.depth..reach, tier);
        slots.extend_from_slice(&given[known..]);
        self.settle(to, reach..to.depth, tier, &given[known..found]);
        // The rest of an edge that the key ends on was not used: it keeps its own place in the order.
        let mut place = self.split(to);
        let (new_pages, mut hashed) = (given.len() - found, 0);
        if new_pages > 0 {
            let tail = key.from(found * self.page_size.tokens());
            (place, hashed) = self.append(place, tail, tier, &given[found..], digests);
        }
        self.touch(place);
        Extended { place, slots, known, new_pages, hashed }
    }

    pub(super) fn make_root(&mut self, namespace: &Namespace) -> u32 {
        let mut root = Node::new(NIL, NIL, 0, 0);
        root.parts = vec![super::component::Part::default(); self.components.len()];
        self.decisions.word(super::print::seed_print(namespace, self.epoch));
        let print = super::gone::seed(namespace);
        root.rooted = Some(Box::new(Rooted { namespace: namespace.clone(), epoch: self.epoch, print }));
        let node = self.arena.insert(root);
        self.arena[node].root = node;
        self.roots.insert(namespace.clone(), node);
        if namespace.is_plain() {
            self.plain_root = node;
        }
        node
    }

    /// A namespace that holds nothing and is held by nobody costs nothing.
    pub(super) fn drop_root_if_unused(&mut self, node: u32) {
        let root = &self.arena[node];
        let unused = root.is_root() && root.children == 0 && !root.is_pinned();
        if unused && let Some(rooted) = self.arena.remove(node).and_then(|root| root.rooted) {
            // One of a past epoch isn't what its namespace leads to.
            if rooted.epoch == self.epoch {
                self.roots.remove(&rooted.namespace);
            }
            if node == self.plain_root {
                self.plain_root = NIL;
            }
        }
    }

    /// A new leaf after `at`, which must be the end of an edge; and how many of its pages were hashed.
    fn append(
        &mut self,
        at: Place,
        tail: Tokens<'_>,
        tier: Tier,
        slots: &[Slot],
        digests: &[Digest],
    ) -> (Place, usize) {
        let strand = self.strand_for(at, tail);
        #[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
        let end = at.depth + slots.len() as u32;
        let mut leaf = Node::new(at.node, strand, at.depth, end);
        leaf.root = self.arena[at.node].root;
        leaf.turn = self.next_turn(at);
        leaf.parts = vec![super::component::Part::default(); self.components.len()];
        let node = self.arena.insert(leaf);
        self.strands[strand].append(end, node);
        // All that is derived is derived from our own copy: the caller's buffer is read once.
        let key_hash = child_hash(at.node, self.first_page(node));
        self.arena[node].key_hash = key_hash;
        self.enter(node);
        let hashed = self.hash_new(at, strand, digests);
        self.print(strand, at);
        let parent = &mut self.arena[at.node];
        parent.children += 1;
        parent.heir = node;
        self.decisions.word(self.strands[strand].tokens_from(at.depth, self.page_size).digest(key_hash));
        self.adopt_new(node, tier, slots);
        (Place { node, depth: end }, hashed)
    }

    /// Where new pages go: behind what they continue, in one piece of memory if that may grow.
    fn strand_for(&mut self, at: Place, tail: Tokens<'_>) -> u32 {
        let index = self.arena[at.node].strand;
        if index != NIL && self.strands[index].end() == at.depth && self.strands[index].push(tail) {
            return index;
        }
        self.strands.insert(Strand::new(at.node, at.depth, tail))
    }

    /// Digests for the pages of a strand that follow `at`: the leading ones as given, the others computed.
    /// Returns how many these are.
    fn hash_new(&mut self, at: Place, index: u32, given: &[Digest]) -> usize {
        if !self.hashing {
            return 0;
        }
        let tokens = self.strands[index].tokens_from(at.depth, self.page_size);
        let given = &given[..given.len().min(self.page_size.pages(tokens.len()))];
        let prior = given.last().copied().or_else(|| self.last_digest(at));
        let others = hash::chain(prior, tokens.from(given.len() * self.page_size.tokens()), self.page_size);
        let digests = &mut self.strands[index].digests;
        make_room(digests, given.len() + others.len());
        digests.extend_from_slice(given);
        digests.extend_from_slice(&others);
        others.len()
    }

    /// Splits an edge at `at`, if that is inside it. The head gets a new name, the tail keeps its own.
    pub(super) fn split(&mut self, at: Place) -> Place {
        let index = at.node;
        if at.depth == self.arena[index].end {
            return at;
        }
        let node = &self.arena[index];
        debug_assert!(at.depth > node.start, "a place whose edge was split since has another name");
        self.decisions.word(node.key_hash);
        self.decisions.fold(Decision::Split, at.depth, 0, &[]);
        let mut head = Node::new(node.parent, node.strand, node.start, at.depth);
        (head.root, head.children, head.heir, head.key_hash) = (node.root, 1, index, node.key_hash);
        head.turn = node.turn;
        let cut = (at.depth - node.start) as usize;
        let (strand, start) = (node.strand, node.start);
        for tier in Tier::ALL {
            head.resident_children[tier as usize] = u32::from(self.strands[strand].reach(tier) > at.depth);
        }
        let mut parts = std::mem::take(&mut self.arena[index].parts);
        head.parts = self.split_parts(index, at.depth, cut, &mut parts);
        self.arena[index].parts = parts;

        self.leave(index);
        let head = self.arena.insert(head);
        self.strands[strand].split(start, at.depth, head);
        let above = self.arena[index].parent;
        if self.arena[above].heir == index {
            self.arena[above].heir = head;
        }
        (self.arena[index].parent, self.arena[index].start) = (head, at.depth);
        self.arena[index].key_hash = child_hash(head, self.first_page(index));
        self.enter(head);
        self.enter(index);
        self.pins
            .reattach(&mut self.arena, index, |pin| (pin.depth <= at.depth).then_some((head, pin.depth)));
        for tier in Tier::ALL {
            // A tail that lives elsewhere only leaves its place in the order to the head.
            if self.pages_in(index, tier) == 0 && self.pages_in(head, tier) > 0 {
                self.put_beside(tier, index, head);
                self.leaving.withhold(tier, index);
                self.copies.forget(tier.into(), index);
            }
        }
        self.order_parts(head, index);
        Place { node: head, depth: at.depth }
    }

    /// Takes the last `count` pages of an edge out of a tier: appends their slots to `out`, last page first,
    /// and returns what belonged to them of each component.
    pub(super) fn cut(&mut self, index: u32, tier: Tier, count: u32, out: &mut Vec<Slot>) -> Vec<Vec<Slot>> {
        let node = &self.arena[index];
        let (parent, key_hash, start, strand) = (node.parent, node.key_hash, node.start, node.strand);
        let reach = self.strands[strand].reach(tier);
        let keep = reach - count;
        let before = out.len();
        self.strands[strand].take(tier, count, out);
        self.resident[tier as usize] -= count as usize;
        self.decisions.word(key_hash);
        self.decisions.fold(Decision::Left, start, full(tier), &out[before..]);
        self.note(index, keep..reach);
        self.went(index, tier, keep..reach);
        let end = self.lived_to(index);
        self.pages_left(tier, index, keep..reach, end);
        let parts = self.cut_parts(index, tier, (keep - start) as usize, (end - start) as usize);
        if keep == start {
            self.child_left(parent, tier);
        }
        if end < self.arena[index].end {
            self.note_gone(index, end, tier);
            self.shorten(index, end);
            self.owe_rest(strand, parent);
        }
        parts
    }

    /// Where an edge ends for all that lives of it.
    fn lived_to(&self, index: u32) -> u32 {
        let node = &self.arena[index];
        let strand = &self.strands[node.strand];
        let reach = strand.reach(Tier::Device).max(strand.reach(Tier::Host));
        reach.clamp(node.start, node.end)
    }

    /// Pages from `end` on live nowhere any more: an edge, which is its strand's last, forgets them.
    fn shorten(&mut self, index: u32, end: u32) {
        let (start, strand_of) = (self.arena[index].start, self.arena[index].strand);
        if end == start {
            self.remove(index);
            return;
        }
        self.arena[index].end = end;
        self.strands.cut(strand_of, end, self.page_size);
        // No hard pin can be beyond the cut: it keeps its pages.
        self.pins.lift(&self.arena, index, end);
    }

    /// A node lost its last page in a tier: its parent may be a leaf now.
    fn child_left(&mut self, parent: u32, tier: Tier) {
        let node = &mut self.arena[parent];
        node.resident_children[tier as usize] -= 1;
        if node.resident_children[tier as usize] == 0 && self.pages_in(parent, tier) > 0 {
            self.offer(tier, parent, Why::Exposed);
        }
    }

    /// Removes a node without pages, its strand's last; its (soft) pins move up.
    fn remove(&mut self, index: u32) {
        let node = &self.arena[index];
        let (parent, start, strand) = (node.parent, node.start, node.strand);
        self.leave(index);
        self.pins.reattach(&mut self.arena, index, |_| Some((parent, start)));
        self.arena.remove(index);
        if self.strands.cut(strand, start, self.page_size) {
            self.strands.remove(strand);
        }
        self.arena[parent].children -= 1;
        self.drop_root_if_unused(parent);
    }

    fn enter(&mut self, index: u32) {
        self.children.insert(self.arena[index].key_hash, index);
    }

    fn leave(&mut self, index: u32) {
        self.children.remove(self.arena[index].key_hash, index);
    }
}
