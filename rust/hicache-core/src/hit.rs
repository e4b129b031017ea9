//! A request's hit: what a match found, what is still being fetched, and what it holds.

use crate::explain::Story;
use crate::hash::Digest;
use crate::page::{OwnedTokens, PageSize, Tokens};
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
    /// Where the hit ends. Soft until loaded, then on the device.
    pub pin: PinId,
    /// While waiting: soft too, where the pages of the tier end that holds less of the path.
    pub also: Option<PinId>,
    pub loaded: bool,
    /// Whole pages that may hit but did not when they were matched.
    pub rest: OwnedTokens,
    /// Pages before `rest`.
    pub rest_at: u32,
    /// Pages from the root as far as the tokens matched, usable or not.
    pub matched: u32,
    /// Pages that are usable only because of what the load copied.
    pub copied: u32,
    /// Pages that this hit's prefetch put on the host.
    pub stored: Range<u32>,
    pub fetch: Option<Fetch>,
    pub story: Story,
    pub keys: Keys,
}

/// Digests of pages of a hit's rest, from page `at` on, that were computed to ask the store for them.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    pub at: u32,
    /// Of the page before.
    pub prior: Option<Digest>,
    pub digests: Vec<Digest>,
}

impl Keys {
    /// The digests of pages that begin after `depth` pages, of which the last one has the digest `before`;
    /// none if these continue something else.
    pub fn after(&self, depth: u32, before: Option<Digest>) -> &[Digest] {
        let Some(skip) = depth.checked_sub(self.at).map(|skip| skip as usize) else { return &[] };
        let known = skip.checked_sub(1).map_or(self.prior, |last| self.digests.get(last).copied());
        if known == before { self.digests.get(skip..).unwrap_or_default() } else { &[] }
    }
}

/// A prefetch under way.
#[derive(Debug)]
pub(crate) struct Fetch {
    /// Tells late completions of an older attempt apart.
    pub attempt: u64,
    /// When the wait ends, whatever has come.
    pub deadline: f64,
    pub cancel: Arc<AtomicBool>,
    /// Pages before those that were asked for.
    pub at: u32,
    /// With parts: what was asked for, in order, as long as it isn't answered.
    pub asked: Vec<Asked>,
    /// With parts: pages that were usable when it was asked, and those that will be if all of it comes.
    pub usable: Range<u32>,
    /// Batches that have not been applied yet.
    pub open: usize,
}

/// What a store was asked for: a page, or what a part has of one. In order of space, then page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub space: u8,
    /// Counted from 0 at the root.
    pub page: u32,
    pub key: Digest,
}

impl Hit {
    /// Digests that are known already of the pages of `tokens`, which follow `depth` pages of which the last
    /// one has the digest `before`.
    pub fn digests(
        &self,
        depth: u32,
        before: Option<Digest>,
        tokens: Tokens<'_>,
        size: PageSize,
    ) -> &[Digest] {
        let known = self.keys.after(depth, before);
        let Some(at) = depth.checked_sub(self.rest_at).filter(|_| !known.is_empty()) else { return &[] };
        let same = size.pages(tokens.common_from(&self.rest, at as usize * size.tokens()));
        &known[..same.min(known.len())]
    }

    /// Ends the wait: what arrives from now on is given back.
    pub fn stop_fetch(&mut self) {
        if let Some(fetch) = self.fetch.take() {
            fetch.cancel.store(true, Ordering::Relaxed);
        }
    }
}
