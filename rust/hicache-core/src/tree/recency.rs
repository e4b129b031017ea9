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

#[derive(Debug)]
pub(super) struct Recency {
    lists: [[List; 3]; 2],
}

impl Default for Recency {
    fn default() -> Self {
        Self { lists: [[List { newest: NIL, oldest: NIL }; 3]; 2] }
    }
}

impl Recency {
    /// The node that comes next in a tier's order of leaving.
    pub fn next_to_go(&self, tier: Tier) -> Option<(Class, u32)> {
        Class::ALL.into_iter().find_map(|class| Some((class, self.oldest(tier, class)?)))
    }

    /// The node that comes next in a list's order of leaving.
    pub fn oldest(&self, tier: Tier, class: Class) -> Option<u32> {
        let oldest = self.lists[tier as usize][class as usize].oldest;
        (oldest != NIL).then_some(oldest)
    }

    pub fn contains(arena: &Arena, tier: Tier, node: u32) -> bool {
        arena[node].links[tier as usize].list != 0
    }

    pub fn push_newest(&mut self, arena: &mut Arena, tier: Tier, class: Class, node: u32) {
        self.unlink(arena, tier, node);
        let list = &mut self.lists[tier as usize][class as usize];
        let second = list.newest;
        list.newest = node;
        match second {
            NIL => list.oldest = node,
            _ => arena[second].links[tier as usize].prev = node,
        }
        arena[node].links[tier as usize] = Link { prev: NIL, next: second, list: 1 + class as u8 };
    }

    pub fn push_oldest(&mut self, arena: &mut Arena, tier: Tier, class: Class, node: u32) {
        self.unlink(arena, tier, node);
        let list = &mut self.lists[tier as usize][class as usize];
        let second = list.oldest;
        list.oldest = node;
        match second {
            NIL => list.newest = node,
            _ => arena[second].links[tier as usize].next = node,
        }
        arena[node].links[tier as usize] = Link { prev: second, next: NIL, list: 1 + class as u8 };
    }

    pub fn unlink(&mut self, arena: &mut Arena, tier: Tier, node: u32) {
        let link = arena[node].links[tier as usize];
        if link.list == 0 {
            return;
        }
        let list = &mut self.lists[tier as usize][link.list as usize - 1];
        match link.prev {
            NIL => list.newest = link.next,
            prev => arena[prev].links[tier as usize].next = link.next,
        }
        match link.next {
            NIL => list.oldest = link.prev,
            next => arena[next].links[tier as usize].prev = link.prev,
        }
        arena[node].links[tier as usize] = Link::NONE;
    }

    /// Gives `new` the place that `old` has, if it has one.
    pub fn replace(&mut self, arena: &mut Arena, tier: Tier, old: u32, new: u32) {
        let link = arena[old].links[tier as usize];
        if link.list == 0 {
            return;
        }
        let list = &mut self.lists[tier as usize][link.list as usize - 1];
        match link.prev {
            NIL => list.newest = new,
            prev => arena[prev].links[tier as usize].next = new,
        }
        match link.next {
            NIL => list.oldest = new,
            next => arena[next].links[tier as usize].prev = new,
        }
        arena[new].links[tier as usize] = link;
        arena[old].links[tier as usize] = Link::NONE;
    }

    /// A list from newest to oldest, for the checker.
    pub fn order(&self, arena: &Arena, tier: Tier, class: Class) -> Vec<u32> {
        let mut at = self.lists[tier as usize][class as usize].newest;
        let mut order = Vec::new();
        while at != NIL && order.len() <= arena.len() {
            order.push(at);
            at = arena[at].links[tier as usize].next;
        }
        order
    }
}
