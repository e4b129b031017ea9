//! Stores for a cache: who opens one, and by what; what its store said of itself.

use crate::cache::Cache;
use crate::opened::{self, Store};
use hicache_core::Result;
use hicache_core::identity::Identity;
use hicache_core::page::PageSize;
use hicache_core::pool::PoolSpec;
use hicache_core::storage::{self, Client};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

/// The model's fields (name and text), this process's rank, and the world it is in.
pub type IdentityArgument = (Vec<(String, String)>, Vec<u32>, Vec<u32>);

/// A cache's identity, and what a store is told of it.
pub fn client(
    (fields, rank, world): IdentityArgument,
    page_size: PageSize,
    pools: &[PoolSpec],
) -> Result<(Identity, Client)> {
    let identity = Identity::of(&fields, &rank, &world, page_size, pools);
    let client = Client::new(&identity, rank, world)?;
    Ok((identity, client))
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

#[pymethods]
impl Cache {
    /// What its store is, and its counts, as of the last batch of storage work.
    #[allow(clippy::type_complexity, reason = "a line and a dictionary")]
    fn about_store<'py>(&mut self, py: Python<'py>) -> PyResult<Option<(String, Bound<'py, PyDict>)>> {
        let Some(about) = self.core(py)?.about_store() else { return Ok(None) };
        Ok(Some((about.description.clone(), opened::to_dict(py, &about.statistics)?)))
    }
}
