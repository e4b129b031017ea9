//! The seam: what a policy is asked, and what it is told.
//!
//! ```text
//!  requests ──▶ request                                   what was looked up, inserted, generated
//!  the tree ──▶ offer, withhold, split, left              which leaves there are, order by order
//!  the tree ◀── next, ahead                               which one goes next, and which after it
//! ```
//! One policy serves all orders: whatever it learns from requests counts in every tier.
//!
//! A *leaf* is an edge of the tree that was used or may leave. Its number is used again once it is gone. What
//! a policy names need not be able to leave: the tree looks, and withholds what can't. So a leaf that got
//! children, or a pin, stays known until it is met.
//!
//! Pages have names that outlive them: fingerprints of the whole prefix, so that a page that comes back has
//! the name it had. They cost the tree a hash a page, and only a policy that wants them gets any. With such
//! a policy an edge is what one insert brought, or a part of that. Pages may come without a request: when
//! storage brings them, the offer of their leaf is all that is told.

use crate::ids::Tier;

/// One order of leaving: of a tier's pages, or of a component's state in a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order(usize);

impl Order {
    /// A tier's pages.
    pub const fn full(tier: Tier) -> Self {
        Self(tier as usize)
    }

    /// A component's (by its number among those besides FULL) in a tier.
    pub const fn of(component: usize, tier: Tier) -> Self {
        Self(2 + 2 * component + tier as usize)
    }

    /// Orders are numbered from 0, without gaps.
    pub const fn number(self) -> usize {
        self.0
    }

    /// Whose it is.
    pub const fn tier(self) -> Tier {
        if self.0.is_multiple_of(2) { Tier::Device } else { Tier::Host }
    }

    /// Whether it is one of component state: which one's.
    pub const fn component(self) -> Option<usize> {
        if self.0 < 2 { None } else { Some((self.0 - 2) / 2) }
    }
}

impl From<Tier> for Order {
    fn from(tier: Tier) -> Self {
        Self::full(tier)
    }
}

/// A leaf as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf<'a> {
    /// Its number.
    pub id: u32,
    /// Pages from the root to its last one in the order's tier; 0 unless the policy wants pages.
    pub depth: u32,
    /// Its pages there, the one that goes first last; empty unless the policy wants pages. Splits take from
    /// the front without notice.
    pub pages: &'a [u64],
}

/// Why a leaf may be named from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was used, or came just now.
    Used,
    /// What held it is gone: a pin, or its copy in the tier above. Where several things hold it, it may be
    /// offered too early, and is withheld again when it is met.
    Freed,
    /// The last of its children left.
    Exposed,
}

/// What left an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left<'a> {
    /// How many pages, or slots of a component.
    pub count: u32,
    /// Their names, if they are pages and the policy wants them: those that followed the leaf's rest.
    pub pages: &'a [u64],
    /// So many of these, the last ones, live in no tier any more.
    pub gone: u32,
    /// Whether nothing of the leaf is left in the order: it is out of it.
    pub all: bool,
}

/// What goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// A leaf that was offered.
    pub leaf: u32,
    /// So many pages of its tail at most, before the policy is asked again: at least 1. In orders of component
    /// state it means nothing: there the tree knows how much goes together.
    pub pages: u32,
}

/// A request, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Counts the cache's requests, from 1.
    pub number: u64,
    /// When: see [`super::tick`]. Never less than before; it stands still where nobody tells the time.
    pub tick: u64,
    /// What of it happens.
    pub moment: Moment,
    /// One more than that of the deepest page on its path that the tree had when it was looked up or, later,
    /// loaded; 0 without one. It is the turn of the pages that it inserts. Pages that have left everywhere have
    /// none: what came before them counts.
    pub turn: u32,
    /// New pages: see [`Moment`].
    pub new_pages: u32,
}

/// The moments at which a policy hears of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// It was looked up, and nothing of it is inserted yet. Its path is what was found; `new_pages` are the
    /// prompt's other whole pages.
    Matched,
    /// Pages entered the tree just now. The path is these, known and new: `new_pages` are the last of them.
    Inserted,
    /// It ended. Its path is all that it held; `new_pages` are all that it inserted.
    Released {
        /// Tokens that it generated.
        generated: u64,
    },
}

/// A part of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path<'a> {
    /// Pages from the root to its end.
    pub depth: u32,
    /// The pages up to there that are meant, in order; empty unless the policy wants pages.
    pub pages: &'a [u64],
}

/// Which leaf goes next.
pub trait Eviction: std::fmt::Debug + Send + Sync {
    /// Whether it wants to be told pages' names. Always the same answer.
    fn wants_pages(&self) -> bool {
        false
    }

    /// A request looks up, inserts or ends. The leaves it uses are offered beside this.
    fn request(&mut self, _request: Request, _path: Path<'_>) {}

    /// A leaf may be named from now on. It may have been offered before.
    fn offer(&mut self, order: Order, leaf: Leaf<'_>, why: Why);

    /// A leaf can't leave now, or only after all others: it must not be named until it is offered again.
    fn withhold(&mut self, order: Order, leaf: u32);

    /// The front of `leaf`'s edge is a leaf of its own now, `head`: it takes a place just before the other's,
    /// if that has one. (Where both can't leave, only one of them, the other is withheld.)
    fn split(&mut self, order: Order, leaf: u32, head: Leaf<'_>);

    /// Something left a leaf, which is passed as it is without.
    fn left(&mut self, order: Order, leaf: Leaf<'_>, left: Left<'_>);

    /// What goes next, if anything that was offered is there.
    fn next(&mut self, order: Order) -> Option<Victim>;

    /// Whether it may name a leaf in an order.
    fn knows(&self, order: Order, leaf: u32) -> bool;

    /// Names the leaves of an order one after the other, as `next` would if each was gone by then, until `visit` says
    /// that it has seen enough. Nothing is changed by it.
    fn ahead(&self, order: Order, visit: &mut dyn FnMut(u32) -> bool);

    /// For checks: every leaf that it may name in an order, in no order that means anything.
    ///
    /// # Errors
    /// What of its own books is wrong.
    fn check(&self, order: Order) -> Result<Vec<u32>, &'static str>;
}
