//! Stores for a cache: who opens one.

use hicache_core::Result;
use hicache_core::identity::Identity;
use hicache_core::page::PageSize;
use hicache_core::pool::PoolSpec;
use hicache_core::storage::Client;

/// The model's fields (name and text), this process's rank, and the world it is in.
pub type IdentityArgument = (Vec<(String, String)>, Vec<u32>, Vec<u32>);

/// What a store is told of the cache.
pub fn client(
    (fields, rank, world): IdentityArgument,
    page_size: PageSize,
    pools: &[PoolSpec],
) -> Result<Client> {
    Client::new(&Identity::of(&fields, &rank, &world, page_size, pools), rank, world)
}
