//! The tree's side of the order of leaving: hands on to the policy what happens to leaves, and keeps what
//! goes last of all, whatever the policy says: leaves that were met while softly pinned.
//!
//! A leaf is known to the policy, deferred, or withheld: in none of them. Membership is lazy in one direction:
//! every evictable leaf is known or deferred (T5); what is met and can't leave (it has children, is pinned,
//! or is mirrored on the device) is withheld, and offered again when it may.

use super::node::Arena;
use crate::ids::Tier;
use crate::policy::lists::Lists;
use crate::policy::{Eviction, Leaf, Left, Order, Victim, Why};

#[derive(Debug)]
pub(super) struct Leaving {
    pub policy: Box<dyn Eviction>,
    wants_pages: bool,
    /// Per tier, in the order in which they were met.
    deferred: [Lists<1>; 2],
}

impl Leaving {
    pub fn new(policy: Box<dyn Eviction>) -> Self {
        let wants_pages = policy.wants_pages();
        Self { policy, wants_pages, deferred: [Lists::default(), Lists::default()] }
    }

    /// Whether the policy must be told pages' names.
    pub const fn wants_pages(&self) -> bool {
        self.wants_pages
    }

    /// A leaf was used, or may leave (again).
    pub fn offer(&mut self, arena: &Arena, order: impl Into<Order>, node: u32, why: Why) {
        let order = order.into();
        if self.is_deferred(order, node) {
            if why == Why::Exposed {
                return;
            }
            self.deferred[order.number()].remove(node);
        }
        self.policy.offer(order, leaf(arena, order, node, self.wants_pages), why);
    }

    /// A leaf can't leave now.
    pub fn withhold(&mut self, order: impl Into<Order>, node: u32) {
        let order = order.into();
        if self.is_deferred(order, node) {
            self.deferred[order.number()].remove(node);
        } else {
            self.policy.withhold(order, node);
        }
    }

    /// A leaf leaves a tier after all others.
    pub fn defer(&mut self, tier: Tier, node: u32) {
        self.policy.withhold(tier.into(), node);
        self.deferred[tier as usize].push_newest(0, node);
    }

    /// A new node, `head`, stands just before another in an order.
    pub fn beside(&mut self, arena: &Arena, order: impl Into<Order>, node: u32, head: u32) {
        let order = order.into();
        if self.is_deferred(order, node) {
            self.deferred[order.number()].push_behind(node, head);
        } else {
            self.policy.split(order, node, leaf(arena, order, head, self.wants_pages));
        }
    }

    /// Something of a node left an order; the node's slots say so already.
    pub fn left(&mut self, arena: &Arena, order: impl Into<Order>, node: u32, left: Left<'_>) {
        let order = order.into();
        if left.all && self.is_deferred(order, node) {
            self.deferred[order.number()].remove(node);
        }
        self.policy.left(order, leaf(arena, order, node, self.wants_pages), left);
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

    fn is_deferred(&self, order: Order, node: u32) -> bool {
        // Usually nobody waits.
        self.deferred.get(order.number()).is_some_and(|list| !list.is_empty() && list.holds(node))
    }
}

/// A node as a policy sees it.
fn leaf(arena: &Arena, order: Order, id: u32, wants_pages: bool) -> Leaf<'_> {
    let node = &arena[id];
    let pages = if order.component().is_none() { node.resident(order.tier()) } else { node.pages() };
    let names = if wants_pages { &node.prints[..pages as usize] } else { &[] };
    Leaf { id, depth: node.start + pages, pages: names }
}
