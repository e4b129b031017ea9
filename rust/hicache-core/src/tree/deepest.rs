//! The pins on each edge, the deepest of each kind first: an eviction asks for it at every leaf it meets, and
//! thousands of requests may wait on one.
//!
//! A pairing heap per edge and kind (Fredman, Sedgewick, Sleator, Tarjan: The pairing heap, 1986), whose links are
//! in the pins: the deepest is known at once, a pin comes in constant time and goes in amortised logarithmic time.
//! Equal ones form a chain, newest first, out of which any goes in constant time. Knows depths; refuses to
//! know why a pin is there. On error: nothing here fails.

use super::node::{Arena, NIL};
use super::pin::{Hold, Pin, Pins};

/// Where a pin stands among those of its kind on its edge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    /// What it hangs from: the sibling before it, or its parent, which is at least as deep.
    prev: u32,
    next: u32,
    /// First of those below it.
    child: u32,
}

impl Links {
    pub const NONE: Self = Self { prev: NIL, next: NIL, child: NIL };
}

impl Pins {
    /// The depth of a node's deepest pin of a kind.
    pub fn deepest(&self, arena: &Arena, node: u32, hold: Hold) -> Option<u32> {
        let top = arena[node].pins[hold as usize];
        (top != NIL).then(|| self.get(top).depth)
    }

    /// The pins on a node's edge, each before those below it.
    pub fn on<'a>(&'a self, arena: &Arena, node: u32) -> impl Iterator<Item = (u32, Pin)> + use<'a> {
        let tops = arena[node].pins;
        tops.into_iter().flat_map(|top| self.from(top, 0))
    }

    /// What hangs from a link and is deeper than `depth`, or everything from a depth of 0 on.
    fn from(&self, top: u32, depth: u32) -> impl Iterator<Item = (u32, Pin)> + use<'_> {
        let (mut at, mut later) = (top, Vec::new());
        std::iter::from_fn(move || {
            loop {
                let id = if at == NIL { later.pop()? } else { at };
                let pin = self.get(id);
                if pin.links.next != NIL {
                    later.push(pin.links.next);
                }
                at = NIL;
                if depth == 0 || pin.depth > depth {
                    at = pin.links.child;
                    return Some((id, pin));
                }
            }
        })
    }

    pub fn attach(&mut self, arena: &mut Arena, id: u32, node: u32, depth: u32) {
        self.set(id, |pin| (pin.node, pin.depth, pin.links) = (node, depth, Links::NONE));
        let top = &mut arena[node].pins[self.get(id).hold as usize];
        *top = self.meld(id, *top);
    }

    /// What is below it takes its place.
    pub fn detach(&mut self, arena: &mut Arena, id: u32) {
        let pin = self.get(id);
        let Links { prev, next, child } = pin.links;
        let below = self.pair(child);
        let heir = if below == NIL { next } else { below };
        if below != NIL {
            self.link(below, |links| links.next = next);
            self.link(next, |links| links.prev = below);
        }
        self.link(heir, |links| links.prev = prev);
        if prev == NIL {
            arena[pin.node].pins[pin.hold as usize] = heir;
        } else if self.get(prev).links.child == id {
            self.link(prev, |links| links.child = heir);
        } else {
            self.link(prev, |links| links.next = heir);
        }
    }

    /// Moves every pin on `from` for which `to` names another node and depth.
    pub fn reattach(&mut self, arena: &mut Arena, from: u32, to: impl Fn(Pin) -> Option<(u32, u32)>) {
        let moves: Vec<_> = self.on(arena, from).filter_map(|(id, pin)| Some((id, to(pin)?))).collect();
        // From below: whoever goes has nobody below it any more, if shallower ones or all go.
        for (id, (node, depth)) in moves.into_iter().rev() {
            self.detach(arena, id);
            self.attach(arena, id, node, depth);
        }
    }

    /// Pins on a node that aren't hard and are beyond `end` move up to it. None is shallower than one below it by that.
    pub fn lift(&mut self, arena: &Arena, node: u32, end: u32) {
        for hold in Hold::ALL.into_iter().filter(|hold| hold.tier().is_none()) {
            let top = arena[node].pins[hold as usize];
            // Each eviction asks; usually nobody waits.
            if top != NIL {
                let beyond: Vec<u32> = self.from(top, end).map(|(id, _)| id).collect();
                beyond.into_iter().for_each(|id| self.set(id, |pin| pin.depth = end));
            }
        }
    }

    /// Joins two heaps; of equal ones the first is on top. Returns the top, which hangs from nothing.
    fn meld(&mut self, a: u32, b: u32) -> u32 {
        if a == NIL || b == NIL {
            return if a == NIL { b } else { a };
        }
        let (top, sub) = if self.get(b).depth > self.get(a).depth { (b, a) } else { (a, b) };
        let first = self.get(top).links.child;
        self.link(sub, |links| (links.prev, links.next) = (top, first));
        self.link(first, |links| links.prev = sub);
        self.link(top, |links| links.child = sub);
        top
    }

    /// One heap out of siblings: in pairs from the first on, then all from the last on.
    fn pair(&mut self, siblings: u32) -> u32 {
        let (mut first, mut pairs) = (siblings, NIL);
        while first != NIL {
            let second = self.cut(first);
            let rest = self.cut(second);
            let pair = self.meld(first, second);
            self.link(pair, |links| links.next = pairs);
            (first, pairs) = (rest, pair);
        }
        let mut whole = NIL;
        while pairs != NIL {
            let rest = self.cut(pairs);
            whole = self.meld(pairs, whole);
            pairs = rest;
        }
        whole
    }

    /// Takes a pin off its siblings; returns the next one.
    fn cut(&mut self, id: u32) -> u32 {
        let mut next = NIL;
        self.link(id, |links| {
            next = links.next;
            (links.prev, links.next) = (NIL, NIL);
        });
        next
    }

    fn link(&mut self, id: u32, change: impl FnOnce(&mut Links)) {
        if id != NIL {
            self.set(id, |pin| change(&mut pin.links));
        }
    }
}
