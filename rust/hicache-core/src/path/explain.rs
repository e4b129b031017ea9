//! `explain`: tokens of a request by tier and, for the rest, why they have to be computed. Changes nothing.

use crate::cache::HiCache;
use crate::error::{Error, Result};
use crate::explain::{Explanation, Loaded, PastHit, Reason, Revoked, Story};
use crate::ids::HitId;
use crate::page::OwnedTokens;
use crate::storage::Outcome;
use crate::tree::{By, Place};

/// A request's words about itself, whether it lives or not.
#[derive(Clone, Copy)]
struct Told<'a> {
    story: &'a Story,
    rest: &'a OwnedTokens,
    rest_at: u32,
    matched: u32,
    /// Whether storage is still being asked.
    waiting: bool,
}

impl HiCache {
    /// Why a request got what it got; before its load, what that would find now. Released requests are remembered
    /// for a while: the last 256, as long as their prompts aren't very long.
    ///
    /// # Errors
    /// When it was released, and is forgotten.
    pub fn explain(&self, id: HitId) -> Result<Explanation> {
        let Some(hit) = self.hits.get(&id) else {
            let Some(past) = self.past.get(id) else {
                return Err(Error::Hit("was released long ago: ask before, or soon after"));
            };
            let PastHit { story, rest, rest_at, matched, was_loaded } = past;
            let told = Told { story, rest, rest_at: *rest_at, matched: *matched, waiting: false };
            return Ok(self.tell_why(told, story.loaded.unwrap_or_default(), *was_loaded));
        };
        let (story, rest, waiting) = (&hit.story, &hit.rest, hit.fetch.is_some());
        let told = Told { story, rest, rest_at: hit.rest_at, matched: hit.matched, waiting };
        let loaded = story.loaded.unwrap_or_else(|| self.would_find(id));
        Ok(self.tell_why(told, loaded, hit.loaded))
    }

    /// What a load would find now.
    pub(crate) fn would_find(&self, id: HitId) -> Loaded {
        let (Ok(hit), Ok(view)) = (self.hit(id), self.view(id)) else { return Loaded::default() };
        let storage = hit.stored.end.min(view.usable).saturating_sub(hit.stored.start.max(view.device));
        Loaded { device: view.device, host: view.usable - view.device - storage, storage }
    }

    fn tell_why(&self, told: Told<'_>, loaded: Loaded, was_loaded: bool) -> Explanation {
        let (size, story) = (self.config.page_size.tokens() as u64, told.story);
        let mut computed: Vec<(u64, Reason)> = Vec::new();
        let mut add = |tokens: u64, reason: Reason| match computed.last_mut() {
            Some((same, last)) if *last == reason => *same += tokens,
            _ if tokens > 0 => computed.push((tokens, reason)),
            _ => {}
        };
        let end = self.may_hit(told);
        let mut page = loaded.pages();
        while page < end {
            let (reason, to) = self.why_not(told, page, end);
            add(u64::from(to - page) * size, reason);
            page = to;
        }
        add(u64::from(story.pages.saturating_sub(page)) * size, Reason::Limit);
        add(story.tokens.saturating_sub(u64::from(page.max(story.pages)) * size), Reason::PartialPage);
        Explanation {
            loaded: was_loaded,
            tokens: story.tokens,
            device: u64::from(loaded.device) * size,
            host: u64::from(loaded.host) * size,
            storage: u64::from(loaded.storage) * size,
            computed,
        }
    }

    /// Of a request whose tokens, so many and so many whole pages, follow a place.
    #[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
    pub(crate) fn begin_story(&self, after: Place, tokens: usize, pages: usize) -> Story {
        let size = self.config.page_size.tokens() as u64;
        let tokens = u64::from(after.depth) * size + tokens as u64;
        let (realm, gone) = (self.tree.realm(after), self.tree.gone_so_far());
        Story::new(tokens, after.depth + pages as u32, realm, gone)
    }

    /// Pages that may hit.
    #[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
    fn may_hit(&self, told: Told<'_>) -> u32 {
        told.rest_at + self.tree.page_size().pages(told.rest.len()) as u32
    }

    /// Why a page has to be computed, and up to which page that may be the reason.
    fn why_not(&self, told: Told<'_>, page: u32, end: u32) -> (Reason, u32) {
        let (claim, to) = told.story.claim(page);
        let to = to.min(end);
        match claim {
            // The store not having them tells less than why nobody else has.
            None | Some(Reason::NotStored) => {
                let (reason, until) = self.why_unknown(told, page, to);
                let reason = match (reason, claim) {
                    (Reason::NeverSeen, Some(said)) => said.clone(),
                    (Reason::NeverSeen, None) if self.storage && !told.story.asked => Reason::NotAsked,
                    (Reason::NeverSeen, None) if told.waiting => Reason::Waiting,
                    (reason, _) => reason,
                };
                (reason, until)
            }
            Some(reason) => (reason.clone(), to),
        }
    }

    /// Why memory hasn't got a page of which nothing was said.
    fn why_unknown(&self, told: Told<'_>, page: u32, end: u32) -> (Reason, u32) {
        if page < told.rest_at {
            return (Reason::LeftMeanwhile, end.min(told.rest_at));
        }
        if page < told.matched {
            let part = self.part_names().join(" or ");
            return (Reason::PartMissing { part }, end.min(told.matched));
        }
        let (size, realm) = (self.tree.page_size().tokens(), told.story.realm);
        let rest = told.rest.view().from((page - told.rest_at) as usize * size);
        if let Some(note) = self.tree.gone(realm, page, rest.range(0..size), told.story.gone) {
            let reason = Reason::Evicted { tick: note.tick, by: note.by, tier: note.tier };
            return (reason, end.min(page.saturating_add(note.pages.max(1))));
        }
        let elsewhere = if page == 0 { self.tree.pages_elsewhere(realm, rest) } else { 0 };
        if elsewhere > 0 { (Reason::OtherNamespace, end.min(elsewhere)) } else { (Reason::NeverSeen, end) }
    }

    /// The store said which of the pages it has that a prefetch asked for, from place `from` on: what comes of the others.
    pub(crate) fn note_answers(&mut self, id: HitId, from: usize, outcomes: &[Outcome]) {
        let Some(hit) = self.hits.get_mut(&id) else { return };
        let Some(fetch) = &hit.fetch else { return };
        // With parts, pages come first.
        let pages = if fetch.asked.is_empty() {
            fetch.keys
        } else {
            fetch.asked.partition_point(|asked| asked.space == 0)
        };
        let pages = pages.saturating_sub(from).min(outcomes.len());
        #[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
        hit.story.note_outcomes(fetch.at + from as u32, &outcomes[..pages]);
    }

    /// Nothing was asked of the store for so many pages behind a place.
    #[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
    pub(super) fn note_not_asked(&mut self, id: HitId, there: bool, after: u32, pages: usize) {
        let gone = if self.stages() { Reason::PathNotOnDevice } else { Reason::PathNotOnHost };
        let why = if there { self.too_few(pages) } else { gone };
        let Some(hit) = self.hits.get_mut(&id) else { return };
        hit.story.asked = true;
        hit.story.note(after..after + pages as u32, why);
    }

    /// So few pages aren't worth a prefetch.
    pub(super) fn too_few(&self, pages: usize) -> Reason {
        let threshold = self.config.prefetch_threshold as u64;
        Reason::BelowPrefetchThreshold { tokens: self.tokens(pages), threshold }
    }

    /// Why a request that is loaded now doesn't get what has not come.
    pub(super) fn why_loaded(&self, id: HitId) -> Reason {
        let said = self.hits.get(&id).and_then(|hit| hit.stop_said.clone());
        Reason::Revoked(
            said.map_or(Revoked::Load, |(waited, policy)| Revoked::Policy {
                policy,
                waited_ms: waited / 1000,
            }),
        )
    }

    /// What leaves from now on leaves for this reason.
    pub(crate) fn leaves_by(&mut self, by: By) {
        self.tree.leaves_by(crate::policy::tick(self.now), by);
        // An engine that owns the slots makes room by evictions of its own.
        self.to_write.for_room = match by {
            By::Allocate | By::Load | By::Backup | By::Prefetch => true,
            By::Evict => self.config.engine_owns_slots,
            _ => false,
        };
    }
}
