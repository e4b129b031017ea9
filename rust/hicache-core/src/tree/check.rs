//! The tree's numbered invariants (`ARCHITECTURE.md` lists them), recomputed from scratch.
//!
//! Meant for tests and debugging: one call looks at everything.

use super::Tree;
use super::node::NIL;
use super::pin::Hold;
use super::print::next_print;
use super::walk::child_hash;
use crate::error::{Error, Result};
use crate::hash::{self, Namespace};
use crate::ids::{Slot, Tier};
use crate::policy::Order;
use hashbrown::{HashMap, HashSet};

impl Tree {
    /// # Errors
    /// The first invariant that doesn't hold, with its number.
    pub fn check(&self) -> Result<()> {
        self.check_strands()
            .and_then(|()| self.check_links())
            .and_then(|()| self.check_edges())
            .and_then(|()| self.check_prefixes())?;
        self.check_slots().and_then(|()| self.check_leaving())?;
        self.check_pins().and_then(|()| self.check_digests()).and_then(|()| self.check_roots())?;
        self.check_copies().and_then(|()| self.check_parts())
    }

    /// T1: parents live, count their children, and the table finds exactly the nodes.
    fn check_links(&self) -> Result<()> {
        let mut counted: HashMap<u32, (u32, [u32; 2])> = HashMap::new();
        let mut inner = 0;
        for (index, node) in self.arena.iter().filter(|(_, node)| !node.is_root()) {
            inner += 1;
            ensure(self.arena.holds(node.parent), "T1", index, "its parent is gone")?;
            let entry = counted.entry(node.parent).or_default();
            entry.0 += 1;
            for tier in Tier::ALL {
                entry.1[tier as usize] += u32::from(self.pages_in(index, tier) > 0);
            }
            ensure(node.root == self.arena[node.parent].root, "T1", index, "its root is not its parent's")?;
            let first = self.first_page(index);
            ensure(node.key_hash == child_hash(node.parent, first), "T1", index, "its key hash is wrong")?;
            ensure(self.child(node.parent, first) == Some(index), "T1", index, "the table does not find it")?;
        }
        ensure(self.children.len() == inner, "T1", NIL, "the table holds nodes that are gone")?;
        for (index, node) in self.arena.iter() {
            let (children, resident) = counted.get(&index).copied().unwrap_or_default();
            ensure(node.children == children, "T1", index, "its number of children is wrong")?;
            ensure(
                node.resident_children == resident,
                "T1",
                index,
                "its number of resident children is wrong",
            )?;
        }
        Ok(())
    }

    /// T2: an edge is whole pages, at least one, each living somewhere, right behind its parent's.
    fn check_edges(&self) -> Result<()> {
        for (index, node) in self.arena.iter() {
            if node.is_root() {
                ensure(node.end == 0, "T2", index, "a root has pages")?;
                continue;
            }
            let lives = self.pages_in(index, Tier::Device).max(self.pages_in(index, Tier::Host));
            ensure(node.start < node.end, "T2", index, "its edge is empty")?;
            ensure(lives == node.pages(), "T2", index, "a page lives nowhere")?;
            ensure(node.start == self.arena[node.parent].end, "T2", index, "it starts elsewhere")?;
        }
        Ok(())
    }

    /// T3: what is resident of any history in a tier is a prefix of it.
    fn check_prefixes(&self) -> Result<()> {
        for (index, _) in self.arena.iter().filter(|(_, node)| !node.is_root()) {
            for tier in Tier::ALL.into_iter().filter(|&tier| self.pages_in(index, tier) > 0) {
                let parent = self.arena[index].parent;
                let whole = self.pages_in(parent, tier) == self.arena[parent].pages();
                ensure(whole, "T3", index, "its parent misses pages that it has")?;
            }
        }
        Ok(())
    }

    /// T4: a slot belongs to one page, and the number of resident pages is right.
    fn check_slots(&self) -> Result<()> {
        for tier in Tier::ALL {
            let mut seen: HashSet<Slot> = HashSet::new();
            let mut total = 0;
            for (_, strand) in self.strands.iter() {
                total += strand.slots(tier).len();
                for &slot in strand.slots(tier) {
                    let once = seen.insert(slot);
                    ensure(once, "T4", strand.last(), "one of its slots belongs to another page too")?;
                }
            }
            ensure(total == self.resident(tier), "T4", NIL, "the number of resident pages is wrong")?;
        }
        Ok(())
    }

    /// T5: the policy's books are whole, and every leaf that may leave a tier is known to it, or deferred.
    fn check_leaving(&self) -> Result<()> {
        for tier in Tier::ALL {
            let mut known: HashSet<u32> = HashSet::new();
            for node in self.known_leaves(tier, "T5")? {
                ensure(known.insert(node), "T5", node, "it is known twice")?;
                let there = self.arena.holds(node) && self.pages_in(node, tier) > 0;
                ensure(there, "T5", node, "it is known where it has no pages")?;
            }
            for (index, node) in self.arena.iter() {
                let leaf = !node.is_root() && node.resident_children[tier as usize] == 0;
                let may_leave = leaf && self.pages_in(index, tier) > self.floor(tier, index);
                ensure(!may_leave || known.contains(&index), "T5", index, "nobody would evict it")?;
            }
        }
        Ok(())
    }

    /// What the policy may name, and what is deferred, in an order.
    pub(super) fn known_leaves(&self, order: impl Into<Order>, invariant: &str) -> Result<Vec<u32>> {
        self.leaving.check(order).map_err(|what| Error::Invariant(format!("{invariant}: the policy: {what}")))
    }

    /// T6: a pin is on the edge that holds its last page, and a hard one's pages are in its tier.
    fn check_pins(&self) -> Result<()> {
        let mut found = 0;
        for (index, node) in self.arena.iter() {
            let mut deepest = [None; Hold::ALL.len()];
            for (_, pin) in self.pins.on(&self.arena, index) {
                found += 1;
                let most = &mut deepest[pin.hold as usize];
                *most = Some(pin.depth).max(*most);
                let inside = pin.node == index && pin.depth <= node.end;
                let after = if node.is_root() { pin.depth == 0 } else { pin.depth > node.start };
                ensure(inside && after, "T6", index, "a pin is not on its edge")?;
                let tier = match pin.hold {
                    Hold::Soft | Hold::Name => continue,
                    Hold::Device => Tier::Device,
                    Hold::Host => Tier::Host,
                };
                let lives = node.is_root() || pin.depth - node.start <= self.pages_in(index, tier);
                ensure(lives, "T6", index, "a pinned page left its tier")?;
            }
            let known = Hold::ALL.map(|hold| self.pins.deepest(&self.arena, index, hold));
            ensure(known == deepest, "T6", index, "its deepest pin is another one")?;
        }
        ensure(found == self.pins.len(), "T6", NIL, "a pin is on no node")?;
        for tier in Tier::ALL {
            let (pages, kept) = (self.kept_by_pins(tier).0, self.pins.kept(tier));
            ensure(
                (kept.least..=kept.most).contains(&pages),
                "T6",
                NIL,
                "pins keep another number of pages",
            )?;
        }
        Ok(())
    }

    /// T7: where the tree hashes, every page's digest continues the one before; so do fingerprints.
    fn check_digests(&self) -> Result<()> {
        for (index, strand) in self.strands.iter() {
            ensure(self.prints_follow(index), "T7", strand.last(), "its fingerprints are not its tokens'")?;
            if !self.hashing {
                ensure(strand.digests.is_empty(), "T7", strand.last(), "it has digests")?;
                continue;
            }
            let prior = self.last_digest(self.before(index));
            let digests = hash::chain(prior, strand.tokens.view(), self.page_size);
            ensure(strand.digests == digests, "T7", strand.last(), "its digests are not its tokens'")?;
        }
        Ok(())
    }

    fn prints_follow(&self, index: u32) -> bool {
        let strand = &self.strands[index];
        if !self.keeps_prints() {
            return true;
        }
        let mut print = self.last_print(self.before(index));
        strand.prints.iter().enumerate().all(|(page, &kept)| {
            print = next_print(print, self.page(strand.tokens.view(), page));
            kept == print
        })
    }

    /// T8: a namespace has one root, which holds something or is held.
    fn check_roots(&self) -> Result<()> {
        let mut roots = 0;
        for (index, node) in self.arena.iter().filter(|(_, node)| node.is_root()) {
            roots += 1_usize;
            let Some(rooted) = &node.rooted else { return ensure(false, "T8", index, "it has no namespace") };
            let past = rooted.epoch < self.epoch;
            let named = self.roots.get(&rooted.namespace) == Some(&index);
            ensure(node.root == index, "T8", index, "it is not its own root")?;
            ensure(named != past, "T8", index, if past { "it is past" } else { "no namespace leads to it" })?;
            roots -= usize::from(past);
            ensure(node.children > 0 || node.is_pinned(), "T8", index, "it is empty and unused")?;
        }
        let plain = self.roots.get(&Namespace::default()).copied().unwrap_or(NIL);
        ensure(plain == self.plain_root, "T8", NIL, "the plain namespace leads elsewhere")?;
        ensure(roots == self.roots.len(), "T8", NIL, "a namespace leads to no root")
    }

    /// T9: a strand's edges continue one another and cover its pages; each edge is on one strand.
    fn check_strands(&self) -> Result<()> {
        let mut edges = self.arena.iter().filter(|(_, node)| node.is_root()).count();
        for (index, strand) in self.strands.iter() {
            let (mut at, mut before) = (strand.start, strand.parent);
            ensure(strand.is_whole(), "T9", strand.last(), "its strand's ends are wrong")?;
            for &(end, node) in strand.edges() {
                ensure(self.arena.holds(node), "T9", node, "its strand outlived it")?;
                let n = &self.arena[node];
                ensure(n.strand == index, "T9", node, "it names another strand")?;
                ensure((n.start, n.end) == (at, end), "T9", node, "its strand has it elsewhere")?;
                ensure(n.parent == before, "T9", node, "its strand has another edge before it")?;
                (at, before) = (end, node);
            }
            edges += strand.edges().len();
            let pages = (at - strand.start) as usize;
            let tokens = strand.tokens.len() == pages * self.page_size.tokens();
            ensure(tokens, "T9", before, "tokens and pages of its strand differ")?;
            let prints = strand.prints.len() == if self.keeps_prints() { pages } else { 0 };
            ensure(prints, "T9", before, "fingerprints and pages of its strand differ")?;
        }
        ensure(edges == self.arena.len(), "T9", NIL, "an edge is on no strand")
    }
}

pub(super) fn ensure(holds: bool, invariant: &str, node: u32, what: &str) -> Result<()> {
    if holds {
        return Ok(());
    }
    let place = if node == NIL { "the tree".to_owned() } else { format!("node {node}") };
    Err(Error::Invariant(format!("{invariant}: {place}: {what}")))
}
