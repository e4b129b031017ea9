//! Stores by URL: which kinds there are.
//!
//! On error: names `storage`; nothing was made.

use super::file::FileStore;
use super::{Client, Store, Url};
use crate::error::{Result, argument};
use std::sync::Arc;

/// Makes a store of a URL of its scheme: takes its options, `finish`es, and only then touches anything.
type Open = fn(Url, &Client) -> Result<Arc<dyn Store>>;

/// The kinds of stores, by scheme.
const KINDS: &[(&str, Open)] = &[
    ("file", |url, client| Ok(Arc::new(FileStore::from_url(url, client)?))),
    #[cfg(unix)]
    ("slab", |url, client| Ok(Arc::new(super::slab::SlabStore::from_url(url, client)?))),
];

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
