//! What the eviction policy is told of requests, and whose turn pages are.

use super::{Place, Tree};
use crate::policy::{Moment, Path, Request};
use std::ops::Range;

impl Tree {
    /// The turn of pages that come behind a place: one more than that of the page before it; 0 at a root.
    pub fn next_turn(&self, place: Place) -> u32 {
        let node = &self.arena[place.node];
        if node.is_root() { 0 } else { node.turn.saturating_add(1) }
    }

    /// Tells the policy of a request, and gives the pages that it inserted its turn. `pages` are meant of the
    /// path to `end`; those that it inserted as new ones are the last of them, on one edge.
    ///
    /// An edge has one turn, that of its last pages.
    pub fn tell(&mut self, request: Request, pages: Range<u32>, end: Place) {
        if request.moment == Moment::Inserted && request.new_pages > 0 {
            self.arena[end.node].turn = request.turn;
        }
        let names = if self.leaving.wants_pages {
            self.gather(end, pages, 0, |strand| &strand.prints)
        } else {
            Vec::new()
        };
        self.leaving.policy.request(request, Path { depth: end.depth, pages: &names });
    }
}
