//! Changes of shape: extend a path, split an edge, cut an edge's tail, remove a node.

use super::Tree;
use super::decisions::{Decision, full};
use super::node::{NIL, Node};
use super::walk::{Place, child_hash};
use crate::hash::{self, Namespace};
use crate::ids::{Slot, Tier};
use crate::page::Tokens;
use crate::policy::Why;

/// What an extension did with the slots it was given.
#[derive(Debug, PartialEq, Eq)]
pub struct Extended {
    /// After the last page of the key.
    pub place: Place,
    /// The tree's slots in the tier for every page of the key.
    pub slots: Vec<Slot>,
    /// Given slots that were not adopted: the page had another one already.
    pub duplicates: Vec<Slot>,
    /// Pages that the tree did not know in any tier before.
    pub new_pages: usize,
}

impl Tree {
    /// Makes `key`'s whole pages after `at` resident in a tier, one given slot per page.
    ///
    /// A page that lives there already keeps its slot, and the given one is reported as a duplicate
    /// (unless it is the same one). The path to `at` must be resident in the tier.
    pub fn extend(&mut self, at: Place, key: Tokens<'_>, tier: Tier, given: &[Slot]) -> Extended {
        let pages = given.len();
        let mut out =
            Extended { place: at, slots: Vec::with_capacity(pages), duplicates: Vec::new(), new_pages: 0 };
        let mut done = 0;
        while done < pages {
            let at = out.place;
            let node = &self.arena[at.node];
            if !node.is_root() && at.depth < node.end() {
                let offset = at.depth - node.start;
                #[expect(clippy::cast_possible_truncation, reason = "no more pages than slots")]
                let same = self.same_pages(at.node, offset, key, done).min((pages - done) as u32);
                if same == 0 {
                    out.place = self.split(at);
                    continue;
                }
                self.adopt(at.node, offset, tier, &given[done..done + same as usize], &mut out);
                out.place.depth += same;
                done += same as usize;
            } else if let Some(child) = self.child(at.node, self.page(key, done)) {
                out.place.node = child;
            } else {
                let tail = key.range(done * self.page_size.tokens()..pages * self.page_size.tokens());
                out.place = self.append(at, tail, tier, &given[done..]);
                out.slots.extend_from_slice(&given[done..]);
                out.new_pages += pages - done;
                done = pages;
            }
        }
        // The rest of an edge that the key ends on was not used: it keeps its own place in the order.
        out.place = self.split(out.place);
        self.touch(out.place);
        out
    }

    pub(super) fn make_root(&mut self, namespace: &Namespace) -> u32 {
        let mut root = Node::new(NIL, 0, Tokens::EMPTY.to_owned());
        root.parts = vec![super::component::Part::default(); self.components.len()];
        self.decisions.word(super::print::seed_print(namespace));
        root.namespace = Some(Box::new(namespace.clone()));
        let node = self.arena.insert(root);
        self.arena[node].root = node;
        self.roots.insert(namespace.clone(), node);
        node
    }

    /// A namespace that holds nothing and is held by nobody costs nothing.
    pub(super) fn drop_root_if_unused(&mut self, node: u32) {
        let root = &self.arena[node];
        let unused = root.is_root() && root.children == 0 && root.pins == NIL;
        if unused && let Some(namespace) = self.arena.remove(node).and_then(|root| root.namespace) {
            self.roots.remove(&*namespace);
        }
    }

    /// Gives pages of an edge from `offset` on their slots in a tier, where they have none.
    fn adopt(&mut self, index: u32, offset: u32, tier: Tier, given: &[Slot], out: &mut Extended) {
        let node = &self.arena[index];
        let had = node.resident(tier);
        let known = (had.saturating_sub(offset) as usize).min(given.len());
        let from = offset as usize;
        let (own, named) = (&node.slots[tier as usize][from.min(had as usize)..][..known], &given[..known]);
        out.slots.extend_from_slice(own);
        // Usually all are duplicates: found out first, without a branch for each.
        let same = own.iter().zip(named).fold(0, |same, (own, slot)| same + usize::from(own == slot));
        if same == 0 {
            out.duplicates.extend_from_slice(named);
        } else {
            let pairs = own.iter().zip(named).filter(|(own, slot)| own != slot);
            out.duplicates.extend(pairs.map(|(_, &slot)| slot));
        }
        let adopted = &given[known..];
        if adopted.is_empty() {
            return;
        }
        debug_assert!(had >= offset, "T3: adopted pages must follow resident ones");
        out.slots.extend_from_slice(adopted);
        self.adopt_new(index, tier, adopted);
    }

    /// A new leaf after `at`, which must be the end of an edge.
    fn append(&mut self, at: Place, tail: Tokens<'_>, tier: Tier, slots: &[Slot]) -> Place {
        let mut leaf = Node::new(at.node, at.depth, tail.to_owned());
        leaf.root = self.arena[at.node].root;
        leaf.turn = self.next_turn(at);
        leaf.slots[tier as usize] = slots.to_vec();
        if self.hashing {
            leaf.digests = hash::chain(self.last_digest(at), leaf.tokens.view(), self.page_size);
        }
        leaf.parts = vec![super::component::Part::default(); self.components.len()];
        let end = leaf.end();
        // All that is derived is derived from our own copy: the caller's buffer is read once.
        leaf.key_hash = child_hash(at.node, self.page(leaf.tokens.view(), 0));
        self.decisions.word(leaf.tokens.view().mix(leaf.key_hash));
        self.decisions.fold(Decision::Placed, at.depth, full(tier), slots);
        let node = self.arena.insert(leaf);
        self.enter(node);
        self.resident[tier as usize] += slots.len();
        self.arena[node].prints = self.prints_of(node);
        self.note(node, 0..slots.len());
        let parent = &mut self.arena[at.node];
        parent.children += 1;
        parent.heir = node;
        parent.resident_children[tier as usize] += 1;
        Place { node, depth: end }
    }

    /// Splits an edge at `at`, if that is inside it. The head gets a new name, the tail keeps its own.
    pub(super) fn split(&mut self, at: Place) -> Place {
        let index = at.node;
        let node = &mut self.arena[index];
        if node.is_root() || at.depth == node.end() {
            return at;
        }
        let cut = (at.depth - node.start) as usize;
        self.decisions.word(node.key_hash);
        self.decisions.fold(Decision::Split, at.depth, 0, &[]);
        let mut head =
            Node::new(node.parent, node.start, node.tokens.split_head(cut * self.page_size.tokens()));
        for tier in Tier::ALL {
            let tail = node.slots[tier as usize].split_off(cut.min(node.slots[tier as usize].len()));
            head.slots[tier as usize] = std::mem::replace(&mut node.slots[tier as usize], tail);
            head.resident_children[tier as usize] = u32::from(node.resident(tier) > 0);
        }
        if !node.digests.is_empty() {
            let tail = node.digests.split_off(cut);
            head.digests = std::mem::replace(&mut node.digests, tail);
        }
        if !node.prints.is_empty() {
            let tail = node.prints.split_off(cut);
            head.prints = std::mem::replace(&mut node.prints, tail);
        }
        head.root = node.root;
        head.turn = node.turn;
        head.children = 1;
        head.heir = index;
        head.key_hash = node.key_hash;
        node.start = at.depth;
        let mut parts = std::mem::take(&mut node.parts);
        head.parts = self.split_parts(index, at.depth, cut, &mut parts);
        self.arena[index].parts = parts;

        self.leave(index);
        let head = self.arena.insert(head);
        let above = self.arena[index].parent;
        if self.arena[above].heir == index {
            self.arena[above].heir = head;
        }
        self.arena[index].parent = head;
        self.arena[index].key_hash = child_hash(head, self.page(self.arena[index].tokens.view(), 0));
        self.enter(head);
        self.enter(index);
        self.pins
            .reattach(&mut self.arena, index, |pin| (pin.depth <= at.depth).then_some((head, pin.depth)));
        for tier in Tier::ALL {
            // A tail that lives elsewhere only leaves its place in the order to the head.
            if self.arena[index].resident(tier) == 0 && self.arena[head].resident(tier) > 0 {
                self.put_beside(tier, index, head);
                self.leaving.withhold(tier, index);
            }
        }
        self.order_parts(head, index);
        Place { node: head, depth: at.depth }
    }

    /// Takes the last `count` pages of an edge out of a tier: their slots, last page first, and what
    /// belonged to them of each component.
    pub(super) fn cut(&mut self, index: u32, tier: Tier, count: u32) -> (Vec<Slot>, Vec<Vec<Slot>>) {
        let node = &mut self.arena[index];
        let keep = (node.resident(tier) - count) as usize;
        let slots: Vec<Slot> = node.slots[tier as usize].drain(keep..).rev().collect();
        self.resident[tier as usize] -= slots.len();
        self.decisions.word(node.key_hash);
        self.decisions.fold(Decision::Left, node.start, full(tier), &slots);
        self.note(index, keep..keep + slots.len());
        #[expect(clippy::cast_possible_truncation, reason = "an edge has fewer than 2^32 pages")]
        self.pages_left(tier, index, keep as u32, count);
        let node = &mut self.arena[index];
        let (parent, end) = (node.parent, node.end());
        let pages = node.pages() as usize;
        node.prints.truncate(pages);
        node.tokens.truncate(pages * self.page_size.tokens());
        node.digests.truncate(pages);
        let parts = self.cut_parts(index, tier, keep, pages);
        if keep == 0 {
            self.child_left(parent, tier);
        }
        if pages == 0 {
            self.remove(index);
        } else {
            // Only soft pins can be beyond the cut: hard ones keep their pages.
            self.pins.reattach(&mut self.arena, index, |pin| (pin.depth > end).then_some((index, end)));
        }
        (slots, parts)
    }

    /// A node lost its last page in a tier: its parent may be a leaf now.
    fn child_left(&mut self, parent: u32, tier: Tier) {
        let node = &mut self.arena[parent];
        node.resident_children[tier as usize] -= 1;
        let exposed =
            node.resident_children[tier as usize] == 0 && !node.is_root() && node.resident(tier) > 0;
        if exposed {
            self.offer(tier, parent, Why::Exposed);
        }
    }

    /// Removes a node without pages; its (soft) pins move up.
    fn remove(&mut self, index: u32) {
        let (parent, start) = (self.arena[index].parent, self.arena[index].start);
        self.leave(index);
        self.pins.reattach(&mut self.arena, index, |_| Some((parent, start)));
        self.arena.remove(index);
        self.arena[parent].children -= 1;
        self.drop_root_if_unused(parent);
    }

    fn enter(&mut self, index: u32) {
        let arena = &self.arena;
        self.children.insert_unique(arena[index].key_hash, index, |&node| arena[node].key_hash);
    }

    fn leave(&mut self, index: u32) {
        if let Ok(entry) = self.children.find_entry(self.arena[index].key_hash, |&node| node == index) {
            entry.remove();
        }
    }
}
