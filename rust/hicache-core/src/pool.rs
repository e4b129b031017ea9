//! Pools as declarations: planes, what a row of them is, whose slots they use and what a hit needs of them.
//!
//! A plane is what one tensor holds: the K rows of layer 3, say. Declarations need no tensors: those are
//! attached, and may be detached and attached again. Knows no memory. On error: names the pool and what
//! can't be meant.

use crate::error::{Result, argument};
use crate::page::PageSize;

/// Most bytes of a row in a plane: with the largest page, sizes of pages can't overflow.
const MAX_ROW: usize = 1 << 30;

/// Most pools with slots of their own besides the first.
const MAX_PARTS: usize = 254;

/// One tensor's share of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plane {
    /// The layer that reads it, from 0.
    pub layer: u32,
    /// Which of the layer's tensors: 0 for K (or the one latent), 1 for V.
    pub role: u32,
    /// Bytes a token has here: heads × head size × bytes per element. Where a row is a whole page: bytes
    /// of a page.
    pub bytes_per_token: usize,
}

/// What one row of a pool's tensors belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rows {
    /// A token: a page is `page_size` rows.
    #[default]
    Token,
    /// A page: indexers, compressed pages, recurrent states.
    Page,
}

/// Whose slots a pool uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SlotsOf {
    /// Those of the cache's first pool; that one has its own.
    #[default]
    First,
    /// Those of the pool of this name: what travels with a window or a state.
    Pool(String),
    /// Its own.
    Own,
}

/// What a hit needs of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Needs {
    /// Every page of the prefix.
    #[default]
    All,
    /// The pages that the last `tokens` tokens are in: a sliding window.
    Window {
        /// The model's window.
        tokens: u32,
    },
    /// The page that the prefix ends with: a recurrent state at that boundary.
    Last,
}

/// A pool's declaration. Planes are in order of layer, then role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// Unique among a cache's pools.
    pub name: String,
    /// In order of layer, then role; none for a pool that has no bytes.
    pub planes: Vec<Plane>,
    /// KV heads: every row is so many equal parts. 1 where there are none (a latent, a state).
    pub heads: u32,
    /// Parts that `page_unified` keeps a page's heads in; divides `heads`.
    pub head_groups: u32,
    /// What a row belongs to.
    pub rows: Rows,
    /// Whose slots it uses.
    pub slots: SlotsOf,
    /// What a hit needs of it.
    pub needs: Needs,
}

impl PoolSpec {
    /// Rows of tokens with one head, in the slots of the cache's first pool, all pages needed.
    ///
    /// # Errors
    /// When the name is empty or the planes are out of order.
    pub fn new(name: &str, planes: Vec<Plane>) -> Result<Self> {
        if name.is_empty() {
            return argument("pools", "a pool needs a name");
        }
        let ordered = planes.windows(2).all(|w| (w[0].layer, w[0].role) < (w[1].layer, w[1].role));
        if !ordered {
            return argument("pools", format!("pool {name}: planes must be in order of layer, then role"));
        }
        if planes.iter().any(|plane| plane.bytes_per_token > MAX_ROW) {
            return argument("pools", format!("pool {name}: a row has more than {MAX_ROW} bytes in a plane"));
        }
        Ok(Self {
            name: name.to_owned(),
            planes,
            heads: 1,
            head_groups: 1,
            rows: Rows::default(),
            slots: SlotsOf::default(),
            needs: Needs::default(),
        })
    }

    /// The same with so many KV heads, which `page_unified` keeps in so many groups.
    ///
    /// # Errors
    /// When a row isn't so many equal parts, or the heads don't make so many equal groups.
    pub fn with_heads(mut self, heads: u32, groups: u32) -> Result<Self> {
        let name = &self.name;
        let whole = |bytes: usize| heads > 0 && bytes.is_multiple_of(heads as usize);
        if !self.planes.iter().all(|plane| whole(plane.bytes_per_token)) {
            return argument("pools", format!("pool {name}: a row must be {heads} heads of equal size"));
        }
        if groups == 0 || !heads.is_multiple_of(groups) {
            return argument("pools", format!("pool {name}: {heads} heads don't make {groups} equal groups"));
        }
        (self.heads, self.head_groups) = (heads, groups);
        Ok(self)
    }

    /// The same with rows of this kind, these slots and these needs.
    #[must_use]
    pub fn with(mut self, rows: Rows, slots: SlotsOf, needs: Needs) -> Self {
        (self.rows, self.slots, self.needs) = (rows, slots, needs);
        self
    }

    /// Rows a page has in every plane.
    pub const fn rows_per_page(&self, page_size: PageSize) -> usize {
        match self.rows {
            Rows::Token => page_size.tokens(),
            Rows::Page => 1,
        }
    }

    /// Payload of one page, in bytes, without any padding.
    pub fn page_bytes(&self, page_size: PageSize) -> usize {
        let row: usize = self.planes.iter().map(|plane| plane.bytes_per_token).sum();
        row * self.rows_per_page(page_size)
    }

    /// Canonical text for the identity: everything that decides where which byte of a stored page is.
    /// Heads don't: stored pages keep a row together, whatever the layout.
    pub fn geometry(&self) -> String {
        let of_page = if self.rows == Rows::Page { "/page" } else { "" };
        let planes: Vec<String> = self
            .planes
            .iter()
            .map(|plane| format!("{}.{}:{}{of_page}", plane.layer, plane.role, plane.bytes_per_token))
            .collect();
        format!("{}[{}]", self.name, planes.join(","))
    }
}

/// The pools that begin a space of slots of their own, in order: those of spaces 1, 2 and so on. Space 0 is the
/// cache's, the first pool's.
pub fn owners(pools: &[PoolSpec]) -> impl Iterator<Item = &PoolSpec> {
    pools.iter().skip(1).filter(|pool| pool.slots == SlotsOf::Own)
}

/// The space of each pool's slots, of pools that [`check_all`] accepts.
pub fn spaces(pools: &[PoolSpec]) -> Vec<u8> {
    let of_owner = |name: &str| owners(pools).position(|owner| owner.name == name).map_or(0, |at| at + 1);
    let space = |pool: &PoolSpec| match &pool.slots {
        SlotsOf::First => 0,
        SlotsOf::Own => of_owner(&pool.name),
        SlotsOf::Pool(name) => of_owner(name),
    };
    pools.iter().map(|pool| u8::try_from(space(pool)).unwrap_or(u8::MAX)).collect()
}

/// Checks what pools say of each other.
///
/// # Errors
/// Names the pool whose name is taken, that follows one it can't follow, or needs what its slots don't give.
pub fn check_all(pools: &[PoolSpec]) -> Result<()> {
    let Some(first) = pools.first() else {
        return argument("pools", "a cache needs at least one pool");
    };
    if matches!(first.slots, SlotsOf::Pool(_)) || first.needs != Needs::All {
        let reason = "the first pool has the cache's slots, and a hit needs all of its pages";
        return argument("pools", format!("pool {}: {reason}", first.name));
    }
    for (at, pool) in pools.iter().enumerate() {
        if pools[..at].iter().any(|other| other.name == pool.name) {
            return argument("pools", "two pools have the same name");
        }
        let owner = match &pool.slots {
            SlotsOf::Own => pool,
            SlotsOf::First => first,
            SlotsOf::Pool(name) => {
                let found = pools.iter().find(|other| other.name == *name && other.slots == SlotsOf::Own);
                let named = found.or_else(|| Some(first).filter(|first| first.name == *name));
                let Some(owner) = named.filter(|owner| owner.name != pool.name) else {
                    let reason = format!("follows {name:?}, which is no other pool with slots of its own");
                    return argument("pools", format!("pool {}: {reason}", pool.name));
                };
                owner
            }
        };
        if owner.needs != pool.needs {
            let reason = format!("uses the slots of {}, so that a hit needs the same of both", owner.name);
            return argument("pools", format!("pool {}: {reason}", pool.name));
        }
    }
    if owners(pools).count() > MAX_PARTS {
        return argument("pools", format!("at most {MAX_PARTS} pools have slots of their own"));
    }
    Ok(())
}
