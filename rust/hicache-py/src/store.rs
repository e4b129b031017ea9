//! Stores for a cache: who opens one, and by what.

use crate::opened::Store;
use hicache_core::Result;
use hicache_core::identity::Identity;
use hicache_core::page::PageSize;
use hicache_core::pool::PoolSpec;
use hicache_core::storage::{self, Client};
use pyo3::prelude::*;
use std::sync::Arc;

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

/// A store by its URL, or one that is open already.
#[derive(FromPyObject)]
pub enum StorageArgument {
    Url(String),
    Open(Py<Store>),
}

impl StorageArgument {
    /// The store; one that is open goes to the cache, which closes it.
    pub fn open(&self, client: &Client) -> Result<Arc<dyn storage::Store>> {
        match self {
            Self::Url(url) => storage::open(url, client),
            Self::Open(store) => store.get().share(),
        }
    }
}
