//! A look at what leaves an order next, and whether it is saved: changes nothing.
//!
//! The policy names leaves as they are now; what they hang on and the policy doesn't know is expected to leave right after
//! the last of what hangs on it, as it does under LRU. What hard or soft pins keep isn't named. On error: nothing here fails.

use super::Tree;
use super::walk::Place;
use crate::policy::Order;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Something that leaves soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The end of what may leave of an edge, in the order's tier.
    pub end: Place,
    /// How much: pages, or slots of a component.
    pub count: usize,
    /// Whether the next tier has all of it that is wanted there.
    pub saved: bool,
}

/// Leaves that a look passes at most, for each page that it wants to see: edges that can't leave are among them.
const PASSES: usize = 8;

impl Tree {
    /// What leaves an order next, as far as `most` pages (or slots of a component): changes nothing. What hangs on
    /// something is expected to leave right after the last of what hangs on it.
    pub fn leaving_next(&self, order: impl Into<Order>, most: usize) -> Vec<Leaving> {
        let order = order.into();
        let seen = HashMap::with_hasher(FixedState::default());
        let passes = PASSES.saturating_mul(most.saturating_add(1));
        let mut look = Look { tree: self, order, left: most, passes, seen, found: Vec::new() };
        if most > 0 {
            self.leaving.policy.ahead(order, &mut |leaf| look.at(leaf));
        }
        look.found
    }

    /// Leaves that leave an order soon and are saved: what is taken before something that isn't.
    pub(super) fn saved_next(&self, order: Order) -> Vec<u32> {
        let next = self.leaving_next(order, self.saving.reserve(order));
        next.into_iter().filter(|leaving| leaving.saved).map(|leaving| leaving.end.node).collect()
    }
}

/// An edge by the time that it is looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// So many of its children are gone.
    children: u32,
    /// It is gone itself.
    gone: bool,
    /// The policy named it when it had children: it comes when they are gone.
    passed: bool,
}

/// A look at what leaves next.
struct Look<'a> {
    tree: &'a Tree,
    order: Order,
    left: usize,
    passes: usize,
    /// Edges that were seen.
    seen: HashMap<u32, Seen, FixedState>,
    found: Vec<Leaving>,
}

impl Look<'_> {
    /// Whether there is more to see.
    fn at(&mut self, leaf: u32) -> bool {
        self.passes -= 1;
        match self.order.component() {
            None => self.up_from(leaf),
            Some(component) => self.part(component, leaf),
        }
        self.left > 0 && self.passes > 0
    }

    fn part(&mut self, component: usize, node: u32) {
        let (tree, tier) = (self.tree, self.order.tier());
        if tree.part_may_go(component, tier, node) {
            let count = tree.arena[node].parts[component].loose(tier).count();
            self.note(Place { node, depth: tree.arena[node].end }, count);
        }
    }

    /// What leaves of a leaf and, if that is all of it, of what it hangs on.
    fn up_from(&mut self, leaf: u32) {
        let (tree, tier, mut node) = (self.tree, self.order.tier(), leaf);
        while !tree.arena[node].is_root() && self.left > 0 {
            let n = &tree.arena[node];
            let seen = self.seen.entry(node).or_default();
            let (there, floor) =
                (tree.pages_in(node, tier), tree.floor(tier, node).max(tree.soft_floor(node)));
            if seen.gone || there <= floor {
                return;
            }
            if n.resident_children[tier as usize] > seen.children {
                seen.passed |= node == leaf;
                return;
            }
            // What was used by itself has a place of its own.
            if node != leaf && !seen.passed && tree.leaving.policy.knows(self.order, node) {
                return;
            }
            seen.gone = true;
            self.note(Place { node, depth: n.start + there }, (there - floor) as usize);
            if floor > 0 {
                return;
            }
            self.seen.entry(n.parent).or_default().children += 1;
            node = n.parent;
        }
    }

    fn note(&mut self, end: Place, count: usize) {
        let count = count.min(self.left);
        self.left -= count;
        let saved = self.tree.is_saved(self.order, end.node);
        self.found.push(Leaving { end, count, saved });
    }
}
