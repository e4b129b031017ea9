//! The page of a slot in a unified buffer: one run of all planes of its space.
//!
//! Pool after pool in the order of their declaration; within a pool row after row (a token's, mostly), each with its
//! bytes of all planes in their order: `K0|V0|K1|V1|...`. Byte `b` of row `t` of a plane of the page in frame `f` is at
//! `f · page + offset + t · row + b` from the buffer's first byte. Pure arithmetic on declarations.
//! On error: names what can't live in one buffer.

use crate::config::Config;
use crate::error::{Result, argument};
use crate::page::PageSize;
use crate::pool::{self, PoolSpec, Rows};
use crate::unified::{Geometry, Grows, Part};

/// Where a plane is in a page. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneEntry {
    /// Of its first row, from the page's first byte.
    pub offset: usize,
    /// From one row to the next.
    pub row: usize,
}

/// Bytes of a page of each space, all pools of it.
pub fn page_bytes(pools: &[PoolSpec], page_size: PageSize) -> Vec<usize> {
    let mut bytes = vec![0; pool::owners(pools).count() + 1];
    for (pool, space) in pools.iter().zip(pool::spaces(pools)) {
        bytes[space as usize] += pool.page_bytes(page_size);
    }
    bytes
}

/// Where the planes of each pool are, in their order.
pub fn planes(pools: &[PoolSpec], page_size: PageSize) -> Vec<Vec<PlaneEntry>> {
    let mut ends = vec![0; pool::owners(pools).count() + 1];
    let of_pool = |(pool, space): (&PoolSpec, u8)| {
        let row = pool.planes.iter().map(|plane| plane.bytes_per_token).sum();
        let mut offset = ends[space as usize];
        ends[space as usize] += pool.page_bytes(page_size);
        let entry = |plane: &pool::Plane| {
            offset += plane.bytes_per_token;
            PlaneEntry { offset: offset - plane.bytes_per_token, row }
        };
        pool.planes.iter().map(entry).collect()
    };
    pools.iter().zip(pool::spaces(pools)).map(of_pool).collect()
}

impl Config {
    /// How a unified buffer is divided, of which each space has at most so many slots; `None` where each space has
    /// memory of its own.
    ///
    /// # Errors
    /// Names what can't live in one buffer.
    pub fn geometry(&self, slots: &[u32]) -> Result<Option<Geometry>> {
        let Some(bytes) = self.unified else { return Ok(None) };
        if self.engine_owns_slots {
            return argument("unified", "the engine owns the slots: a unified buffer's are the cache's");
        }
        if let Some(gpu) = self.gpu {
            let reason =
                format!("is not built for GPUs yet (device memory is on GPU {gpu}): use separate pools");
            return argument("unified", reason);
        }
        let owners: Vec<&PoolSpec> = self.pools.iter().take(1).chain(pool::owners(&self.pools)).collect();
        let &[full, part] = owners.as_slice() else {
            let parts = owners.len().saturating_sub(1);
            return argument("unified", format!("needs exactly one part beside the first pool, got {parts}"));
        };
        let page_bytes = page_bytes(&self.pools, self.page_size);
        let end = |pool: &PoolSpec, grows, space: usize| {
            let page = if pool.rows == Rows::Token { self.page_size.tokens() } else { 1 };
            // Indices of tokens are 32 bits wide, too, where all of a page is tokens.
            let page = if page_bytes[space].is_multiple_of(page) { page } else { 1 };
            Part {
                name: pool.name.clone(),
                grows,
                entry_bytes: (page_bytes[space] / page) as u64,
                page: u32::try_from(page).unwrap_or(u32::MAX),
                slots: slots.get(space).copied(),
                least: 1,
            }
        };
        Geometry::new(bytes, 1, &[end(part, Grows::Up, 1), end(full, Grows::Down, 0)]).map(Some)
    }
}
