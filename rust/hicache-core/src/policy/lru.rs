//! Least recently used first, exactly, with one move of a list per use.
//!
//! A use moves one leaf, not its path: an ancestor is at least as recent as what hangs below it, and comes
//! into question only when nothing hangs below it any more.
//!
//! What was withheld is older than all that stayed in the list, so when it may leave again, it goes to a list
//! of its own that is used up first. There the order is that of coming back. That is the order of use again where
//! children and copies went (a child leaves before its parent, the device gives up its oldest first); of two
//! that were met while pinned, the one that is unpinned first leaves first.
//!
//! ```text
//!  used up first                            used up last
//!  OLD: came back without being used        USED: by last use
//! ```

use super::lists::Lists;
use super::{Eviction, Leaf, Left, Order, Victim, Why};

const OLD: usize = 0;
const USED: usize = 1;

/// Least recently used first.
#[derive(Debug, Default)]
pub struct Lru {
    orders: Vec<Lists<2>>,
}

impl Lru {
    fn order(&mut self, order: Order) -> &mut Lists<2> {
        let number = order.number();
        if number >= self.orders.len() {
            self.orders.resize_with(number + 1, Lists::default);
        }
        &mut self.orders[number]
    }
}

impl Eviction for Lru {
    fn offer(&mut self, order: Order, leaf: Leaf<'_>, why: Why) {
        let lists = self.order(order);
        match why {
            Why::Used => lists.push_newest(USED, leaf.id),
            Why::Freed | Why::Exposed if lists.holds(leaf.id) => {}
            Why::Freed => lists.push_newest(OLD, leaf.id),
            Why::Exposed => lists.push_oldest(OLD, leaf.id),
        }
    }

    fn withhold(&mut self, order: Order, leaf: u32) {
        self.order(order).remove(leaf);
    }

    fn split(&mut self, order: Order, leaf: u32, head: Leaf<'_>) {
        self.order(order).push_behind(leaf, head.id);
    }

    fn left(&mut self, order: Order, leaf: Leaf<'_>, left: Left<'_>) {
        if left.all {
            self.withhold(order, leaf.id);
        }
    }

    fn next(&mut self, order: Order) -> Option<Victim> {
        let lists = self.order(order);
        let leaf = lists.oldest(OLD).or_else(|| lists.oldest(USED))?;
        Some(Victim { leaf, pages: u32::MAX })
    }

    fn knows(&self, order: Order, leaf: u32) -> bool {
        self.orders.get(order.number()).is_some_and(|lists| lists.holds(leaf))
    }

    fn ahead(&self, order: Order, visit: &mut dyn FnMut(u32) -> bool) {
        if let Some(lists) = self.orders.get(order.number()) {
            let _ = [OLD, USED].into_iter().flat_map(|list| lists.oldest_first(list)).all(visit);
        }
    }

    fn check(&self, order: Order) -> Result<Vec<u32>, &'static str> {
        self.orders.get(order.number()).map_or_else(|| Ok(Vec::new()), Lists::check)
    }
}
