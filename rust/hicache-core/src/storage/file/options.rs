//! What a file store may be told.
//!
//! On error: names `storage` and the option.

use crate::error::Result;
use crate::storage::Url;
use crate::storage::url::Share;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Names of the options, for URLs.
pub const KNOWN: &[&str] = &["size", "free", "ttl", "names"];

/// Limits of a directory, whoever fills it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Most bytes that all pages below it may take.
    pub size: Option<u64>,
    /// What of its file system stays free.
    pub free: Option<Share>,
    /// Pages older than this are gone.
    pub ttl: Option<Duration>,
}

impl Limits {
    /// Of a URL: `size`, `free`, `ttl`.
    ///
    /// # Errors
    /// For a value that can't be meant.
    pub fn take(url: &mut Url) -> Result<Self> {
        Ok(Self {
            size: url.take_size("size")?,
            free: url.take_share("free")?,
            ttl: url.take_seconds("ttl")?,
        })
    }

    /// Whether pages are given up to make room.
    pub const fn bounded(&self) -> bool {
        self.size.is_some() || self.free.is_some()
    }
}

/// What a store is about to do to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make a temporary one.
    Create,
    /// Write the payload.
    Write,
    /// Put it in its place.
    Publish,
    /// Open a page.
    Open,
    /// Read it.
    Read,
    /// Remove it.
    Remove,
}

/// The seam for faults: is asked before each step, with the page's own path, and may let it fail, or wait.
#[derive(Clone, Default)]
pub struct Steps(Option<Arc<dyn Fn(Step, &Path) -> io::Result<()> + Send + Sync>>);

impl Steps {
    /// Asks this before each step.
    pub fn new(ask: impl Fn(Step, &Path) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(ask)))
    }

    /// Whether a step may be taken.
    ///
    /// # Errors
    /// As told.
    pub fn before(&self, step: Step, path: &Path) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |ask| ask(step, path))
    }
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Steps(asked)" } else { "Steps" })
    }
}
