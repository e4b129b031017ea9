//! Stores by URL: which kinds there are.
//!
//! On error: names `storage`; nothing was made.

use super::file::FileStore;
use super::file::sglang::SglangStore;
use super::memory::MemoryStore;
use super::null::NullStore;
use super::sim::SimStore;
use super::{Client, Store, Url};
use crate::error::{Result, argument};
use std::sync::Arc;

/// Makes a store of a URL of its scheme: takes its options, `finish`es, and only then touches anything.
type Open = fn(Url, &Client) -> Result<Arc<dyn Store>>;

/// The kinds of stores, by scheme.
const KINDS: &[(&str, Open)] = &[
    ("file", files),
    #[cfg(unix)]
    ("slab", |url, client| Ok(Arc::new(super::slab::SlabStore::from_url(url, client)?))),
    ("memory", |url, client| Ok(Arc::new(MemoryStore::from_url(url, client)?))),
    ("sim", |url, client| Ok(Arc::new(SimStore::from_url(url, client)?))),
    ("shm", |url, client| Ok(Arc::new(NullStore::shared_from_url(&url, client)?))),
    ("null", |url, client| Ok(Arc::new(NullStore::from_url(&url, client)?))),
];

/// Our files, or another engine's.
fn files(mut url: Url, client: &Client) -> Result<Arc<dyn Store>> {
    match url.take_choice("names", &["hicache", "sglang"])? {
        Some("sglang") => Ok(Arc::new(SglangStore::from_url(url, client)?)),
        _ => Ok(Arc::new(FileStore::from_url(url, client)?)),
    }
}

/// Schemes that [`open`] knows.
pub fn schemes() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(scheme, _)| *scheme)
}

/// The store that a URL names, such as `file:///directory`; or a bare absolute path, the file store's.
///
/// # Errors
/// Names `storage` when there is no such kind of store, an option isn't one, or its directory can't be used.
pub fn open(url: &str, client: &Client) -> Result<Arc<dyn Store>> {
    let url = Url::parse(url)?;
    match KINDS.iter().find(|(scheme, _)| *scheme == url.scheme()) {
        Some((_, open)) => open(url, client),
        None => argument(
            "storage",
            format!(
                "unknown store {:?}: there are {}",
                url.scheme(),
                schemes().collect::<Vec<_>>().join(", ")
            ),
        ),
    }
}
