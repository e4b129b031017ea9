//! Order of use, per tier, as intrusive lists of the nodes that were touched directly.
//!
//! A touch moves one node, not its path: an ancestor is at least as recent as what hangs below it, and
//! comes into question only when nothing hangs below it any more.
//!
//! Membership is lazy in one direction: every evictable leaf is in a list (T5); what is met at the old end
//! and can't leave (it has children, is pinned, or is mirrored on the device) is taken out. Such a node is
//! older than all that stayed in the list, so when it may leave again, it goes to a list of its own that
//! is used up first. There the order is that of coming back, which is the order of use again: a child
//! leaves before its parent, the device gives up its oldest first.
//!
//! ```text
//!  used up first                                                              used up last
//!  Old: came back without being touched   Normal: by last touch   Soft: met while softly pinned
//! ```

use super::node::{Arena, Link, NIL};
use crate::ids::Tier;

/// One order of leaving: a tier's, or a component's in a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order(pub usize);

impl Order {
    /// A component's (by its number among those besides FULL) in a tier.
    pub const fn of(component: usize, tier: Tier) -> Self {
        Self(2 + 2 * component + tier as usize)
    }
}

impl From<Tier> for Order {
    fn from(tier: Tier) -> Self {
        Self(tier as usize)
    }
}

/// Which of a tier's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Old = 0,
    Normal = 1,
    Soft = 2,
}

impl Class {
    /// In the order in which they are used up.
    pub const ALL: [Self; 3] = [Self::Old, Self::Normal, Self::Soft];
}

#[derive(Clone, Copy, Debug)]
struct List {
    newest: u32,
    oldest: u32,
}

const EMPTY: [List; 3] = [List { newest: NIL, oldest: NIL }; 3];

#[derive(Debug)]
pub(super) struct Recency {
    lists: Vec<[List; 3]>,
}

impl Recency {
    /// Orders for FULL and `components` others, in both tiers.
    pub fn new(components: usize) -> Self {
        Self { lists: vec![EMPTY; 2 + 2 * components] }
    }

    /// The node that comes next in an order of leaving.
    pub fn next_to_go(&self, order: impl Into<Order>) -> Option<(Class, u32)> {
        let order = order.into();
        Class::ALL.into_iter().find_map(|class| Some((class, self.oldest(order, class)?)))
    }

    /// The node that comes next in a list's order of leaving.
    pub fn oldest(&self, order: impl Into<Order>, class: Class) -> Option<u32> {
        let oldest = self.lists[order.into().0][class as usize].oldest;
        (oldest != NIL).then_some(oldest)
    }

    pub fn contains(arena: &Arena, order: impl Into<Order>, node: u32) -> bool {
        arena[node].link(order.into()).list != 0
    }

    pub fn push_newest(&mut self, arena: &mut Arena, order: impl Into<Order>, class: Class, node: u32) {
        let order = order.into();
        self.unlink(arena, order, node);
        let list = &mut self.lists[order.0][class as usize];
        let second = list.newest;
        list.newest = node;
        match second {
            NIL => list.oldest = node,
            _ => arena[second].link_mut(order).prev = node,
        }
        *arena[node].link_mut(order) = Link { prev: NIL, next: second, list: 1 + class as u8 };
    }

    pub fn push_oldest(&mut self, arena: &mut Arena, order: impl Into<Order>, class: Class, node: u32) {
        let order = order.into();
        self.unlink(arena, order, node);
        let list = &mut self.lists[order.0][class as usize];
        let second = list.oldest;
        list.oldest = node;
        match second {
            NIL => list.newest = node,
            _ => arena[second].link_mut(order).next = node,
        }
        *arena[node].link_mut(order) = Link { prev: second, next: NIL, list: 1 + class as u8 };
    }

    /// Puts `new` right behind `node`: it leaves just before it.
    pub fn push_beside(&mut self, arena: &mut Arena, order: impl Into<Order>, node: u32, new: u32) {
        let order = order.into();
        self.unlink(arena, order, new);
        let link = arena[node].link(order);
        if link.list == 0 {
            return;
        }
        match link.next {
            NIL => self.lists[order.0][link.list as usize - 1].oldest = new,
            next => arena[next].link_mut(order).prev = new,
        }
        *arena[new].link_mut(order) = Link { prev: node, next: link.next, list: link.list };
        arena[node].link_mut(order).next = new;
    }

    pub fn unlink(&mut self, arena: &mut Arena, order: impl Into<Order>, node: u32) {
        self.relink(arena, order.into(), node, None);
    }

    /// Gives `new` the place that `old` has, if it has one.
    pub fn replace(&mut self, arena: &mut Arena, order: impl Into<Order>, old: u32, new: u32) {
        self.relink(arena, order.into(), old, Some(new));
    }

    /// Takes a node out of its list, with or without another in its place.
    fn relink(&mut self, arena: &mut Arena, order: Order, node: u32, by: Option<u32>) {
        let link = arena[node].link(order);
        if link.list == 0 {
            return;
        }
        let list = &mut self.lists[order.0][link.list as usize - 1];
        let (after, before) = (by.unwrap_or(link.next), by.unwrap_or(link.prev));
        match link.prev {
            NIL => list.newest = after,
            prev => arena[prev].link_mut(order).next = after,
        }
        match link.next {
            NIL => list.oldest = before,
            next => arena[next].link_mut(order).prev = before,
        }
        if let Some(new) = by {
            *arena[new].link_mut(order) = link;
        }
        *arena[node].link_mut(order) = Link::NONE;
    }

    /// A list from newest to oldest, for the checker.
    pub fn order(&self, arena: &Arena, order: impl Into<Order>, class: Class) -> Vec<u32> {
        let order = order.into();
        let mut at = self.lists[order.0][class as usize].newest;
        let mut nodes = Vec::new();
        while at != NIL && nodes.len() <= arena.len() {
            nodes.push(at);
            at = arena[at].link(order).next;
        }
        nodes
    }
}
