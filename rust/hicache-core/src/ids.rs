//! Small newtypes, so that a slot is never taken for a node or a number of pages.
//!
//! Knows nothing of what they name. On error: nothing here fails.

/// The place of one page in one pool of one tier.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// No slot: a page that has none.
pub const NO_SLOT: Slot = Slot(u32::MAX);

/// A slot on the host, and the space whose slot it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostSlot {
    /// 0: the cache's own; else one more than the part's number.
    pub space: u8,
    /// In that space.
    pub slot: Slot,
}

impl HostSlot {
    /// A slot of the cache's own space.
    pub const fn full(slot: Slot) -> Self {
        Self { space: 0, slot }
    }
}

/// A node of the tree, with the generation that makes a stale name recognisable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Where a match ended: a place that may be gone by the time it is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// The node whose edge held the last page; `None` at the very beginning of a namespace.
    pub(crate) node: Option<NodeId>,
    /// Pages from the root to the place.
    pub depth: u32,
    /// The cache that it belongs to; a bare tree's belongs to none.
    pub(crate) cache: Option<u32>,
}

impl Cursor {
    /// The beginning of a namespace: never stale.
    pub const START: Self = Self { node: None, depth: 0, cache: None };
}

/// A request's hit inside one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HitId(pub u64);

/// A forward of the model under way, over one cache's unified buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ForwardId(pub u64);

/// The tiers that the tree places pages in. Storage has no slots, hence no place here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tier {
    /// The engine's pool.
    Device = 0,
    /// Our slab in CPU memory.
    Host = 1,
}

impl Tier {
    /// Both, in order of distance from the model.
    pub const ALL: [Self; 2] = [Self::Device, Self::Host];
}
