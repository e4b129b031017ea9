//! Storage: pages by key, whole and verified, or not at all.
//!
//! | file | what |
//! |---|---|
//! | `file` | one verified file a page |
//! | `disk` | batches of transfers between memory and files, past the page cache |
//! | `slab` | pages in slots of a few large files |
//! | `workers` | threads that carry out batches; they own bytes, not meaning |
//!
//! [`Store`] is the specification. Knows keys and bytes; refuses to know the tree, slots and requests.
//! On error: outcomes per key. No fault of a store reaches a request as an error or a hang.

#[cfg(unix)]
pub mod disk;
pub mod file;
#[cfg(unix)]
pub mod slab;
pub mod workers;

pub use workers::{Page, Work, Workers};

use crate::error::{Result, argument};
use crate::hash::Digest;
use crate::identity::Fingerprint;
use std::path::Path;
use std::sync::Arc;

/// What became of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Read and verified, written whole, or present.
    Hit,
    /// Not there.
    Absent,
    /// There, but not what was written: wrong length, identity, key or checksum. It was removed.
    Corrupt,
    /// The store could not do it.
    Failed,
    /// Given up before it was tried.
    Cancelled,
}

/// Any place for pages outside of memory.
///
/// What a store must do:
/// - Answer every key of a batch, in its order; a failed batch answers `Failed` for each.
/// - Publish only what is whole: after a crash at any moment a page is there with its bytes, or absent.
/// - `get` answers `Hit` only with the very bytes that were put under this key and identity.
/// - A key is written once: putting it again answers `Hit` and changes nothing.
/// - Never panic, and never keep a reference to a page after returning.
///
/// Calls may come from several threads at once and may block; nobody but a worker waits for them.
pub trait Store: Send + Sync {
    /// Which keys are there. No bytes are read, so that a later `get` may still answer otherwise.
    fn exists(&self, keys: &[Digest]) -> Vec<Outcome>;

    /// Reads pages. A page whose outcome isn't `Hit` has undefined bytes.
    fn get(&self, keys: &[Digest], pages: &mut [&mut [u8]]) -> Vec<Outcome>;

    /// Writes pages.
    fn put(&self, keys: &[Digest], pages: &[&[u8]]) -> Vec<Outcome>;

    /// Removes keys; absent ones are no fault.
    fn remove(&self, keys: &[Digest]);
}

/// The store that a URL names: `file:///directory`.
///
/// # Errors
/// Names `storage` when there is no such kind of store, or its directory can't be used.
pub fn open(url: &str, identity: Fingerprint) -> Result<Arc<dyn Store>> {
    match url.split_once("://") {
        Some(("file", path)) if Path::new(path).is_absolute() => {
            Ok(Arc::new(file::FileStore::open(Path::new(path), identity)?))
        }
        Some(("file", _)) => argument("storage", format!("{url}: need an absolute path: file:///directory")),
        _ => argument("storage", format!("unknown store {url:?}: use file:///directory")),
    }
}
