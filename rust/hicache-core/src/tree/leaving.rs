//! The tree's side of the order of leaving: hands on to the policy what happens to leaves, and keeps what
//! goes last of all, whatever the policy says: leaves that were met while softly pinned.
//!
//! A leaf is known to the policy, deferred, or neither. Membership is lazy in one direction: every evictable
//! leaf is known or deferred (T5); what is met and can't leave (it has children, is pinned, or is mirrored on
//! the device) is withheld, and offered again when it may.

use super::Tree;
use super::node::Arena;
use super::strand::{Strand, Strands};
use crate::ids::Tier;
use crate::policy::lists::Lists;
use crate::policy::{Eviction, Leaf, Left, Order, Victim, Why};
use std::ops::Range;

#[derive(Debug)]
pub(super) struct Leaving {
    pub policy: Box<dyn Eviction>,
    /// Whether the policy must be told pages' names.
    pub wants_pages: bool,
    /// Per tier, in the order in which they were met.
    deferred: [Lists<1>; 2],
}

impl Leaving {
    pub fn new(policy: Box<dyn Eviction>) -> Self {
        let wants_pages = policy.wants_pages();
        Self { policy, wants_pages, deferred: [Lists::default(), Lists::default()] }
    }

    /// A leaf can't leave now.
    pub fn withhold(&mut self, order: impl Into<Order>, node: u32) {
        let order = order.into();
        match self.deferred(order, node) {
            Some(deferred) => deferred.remove(node),
            None => self.policy.withhold(order, node),
        }
    }

    /// A leaf got something below it: the policy needn't name it. A deferred one keeps its place.
    pub fn pass_over(&mut self, tier: Tier, node: u32) {
        if self.deferred(tier.into(), node).is_none() {
            self.policy.withhold(tier.into(), node);
        }
    }

    /// A leaf leaves a tier after all others.
    pub fn defer(&mut self, tier: Tier, node: u32) {
        self.policy.withhold(tier.into(), node);
        self.deferred[tier as usize].push_newest(0, node);
    }

    /// What comes next in an order, and whether it was deferred.
    pub fn next(&mut self, order: impl Into<Order>) -> Option<(Victim, bool)> {
        let order = order.into();
        if let Some(victim) = self.policy.next(order) {
            return Some((victim, false));
        }
        let leaf = self.deferred.get(order.number())?.oldest(0)?;
        Some((Victim { leaf, pages: u32::MAX }, true))
    }

    /// For the checker: every leaf that is known or deferred.
    pub fn check(&self, order: impl Into<Order>) -> Result<Vec<u32>, &'static str> {
        let order = order.into();
        let mut leaves = self.policy.check(order)?;
        if let Some(deferred) = self.deferred.get(order.number()) {
            leaves.extend(deferred.check()?);
        }
        Ok(leaves)
    }

    /// A node as the policy sees it.
    fn leaf<'a>(&self, arena: &Arena, strands: &'a Strands, order: Order, id: u32) -> Leaf<'a> {
        if !self.wants_pages {
            return Leaf { id, depth: 0, pages: &[] };
        }
        let node = &arena[id];
        let strand = &strands[node.strand];
        let depth = match order.component() {
            None => strand.reach(order.tier()).clamp(node.start, node.end),
            Some(_) => node.end,
        };
        Leaf { id, depth, pages: self.names(strand, node.start..depth) }
    }

    /// Names of a strand's pages, if they are wanted.
    fn names<'a>(&self, strand: &'a Strand, pages: Range<u32>) -> &'a [u64] {
        if !self.wants_pages {
            return &[];
        }
        &strand.prints[(pages.start - strand.start) as usize..(pages.end - strand.start) as usize]
    }

    /// The list that holds a leaf, if it is deferred. Usually nobody waits.
    fn deferred(&mut self, order: Order, node: u32) -> Option<&mut Lists<1>> {
        self.deferred.get_mut(order.number()).filter(|list| !list.is_empty() && list.holds(node))
    }
}

impl Tree {
    /// A leaf was used, or may leave (again).
    pub(super) fn offer(&mut self, order: impl Into<Order>, node: u32, why: Why) {
        let order = order.into();
        if self.saving.give_way {
            self.may_give_way(order, node, why);
        }
        if let Some(deferred) = self.leaving.deferred(order, node) {
            if why == Why::Exposed {
                return;
            }
            deferred.remove(node);
        }
        let leaf = self.leaving.leaf(&self.arena, &self.strands, order, node);
        self.leaving.policy.offer(order, leaf, why);
    }

    /// A new node, `head`, stands just before another in an order.
    pub(super) fn put_beside(&mut self, order: impl Into<Order>, node: u32, head: u32) {
        let order = order.into();
        self.copies.pass_on(order, node, head);
        if let Some(deferred) = self.leaving.deferred(order, node) {
            deferred.push_behind(node, head);
            return;
        }
        let head = self.leaving.leaf(&self.arena, &self.strands, order, head);
        self.leaving.policy.split(order, node, head);
    }

    /// Pages, counted from the root, left an edge in a tier; those behind `end` live nowhere any more, but
    /// what is kept for them is still there.
    pub(super) fn pages_left(&mut self, tier: Tier, index: u32, pages: Range<u32>, end: u32) {
        let all = pages.start == self.arena[index].start;
        if all && let Some(deferred) = self.leaving.deferred(tier.into(), index) {
            deferred.remove(index);
        }
        if all {
            self.copies.forget(tier.into(), index);
        } else if tier == Tier::Host && self.saving.give_way {
            // What is left may be a copy now.
            self.may_give_way(tier.into(), index, Why::Freed);
        }
        let (count, gone) = (pages.end - pages.start, pages.end.saturating_sub(end));
        let names = self.leaving.names(&self.strands[self.arena[index].strand], pages);
        let leaf = self.leaving.leaf(&self.arena, &self.strands, tier.into(), index);
        self.leaving.policy.left(tier.into(), leaf, Left { count, pages: names, gone, all });
    }

    /// `count` slots of a component left an edge.
    pub(super) fn parts_left(&mut self, order: Order, node: u32, count: u32, all: bool) {
        if all {
            self.copies.forget(order, node);
        }
        let leaf = self.leaving.leaf(&self.arena, &self.strands, order, node);
        self.leaving.policy.left(order, leaf, Left { count, pages: &[], gone: 0, all });
    }
}
