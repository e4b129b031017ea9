//! A request's hit: what a match found, what is still being fetched, and what it holds.

use crate::hash::Digest;
use crate::page::OwnedTokens;
use crate::policy::Request;
use crate::tree::PinId;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One request's hit.
#[derive(Debug)]
pub(crate) struct Hit {
    /// What the eviction policy is told at its end.
    pub request: Request,
    /// Soft until loaded, then on the device.
    pub pin: PinId,
    /// While waiting: soft too, where the pages of the tier end that holds less of the path.
    pub also: Option<PinId>,
    pub loaded: bool,
    /// Whole pages that may hit but did not when they were matched.
    pub rest: OwnedTokens,
    /// Pages before `rest`.
    pub rest_at: u32,
    /// Pages that the load copied.
    pub copied: u32,
    /// Pages that this hit's prefetch put on the host.
    pub stored: Range<u32>,
    pub fetch: Option<Fetch>,
}

/// A prefetch under way.
#[derive(Debug)]
pub(crate) struct Fetch {
    /// Tells late completions of an older attempt apart.
    pub attempt: u64,
    /// When the wait ends, whatever has come.
    pub deadline: f64,
    pub cancel: Arc<AtomicBool>,
    /// Keys asked for, from page `at` on.
    pub digests: Vec<Digest>,
    pub at: u32,
    /// Batches that have not been applied yet.
    pub open: usize,
}

impl Hit {
    /// Ends the wait: what arrives from now on is given back.
    pub fn stop_fetch(&mut self) {
        if let Some(fetch) = self.fetch.take() {
            fetch.cancel.store(true, Ordering::Relaxed);
        }
    }
}
