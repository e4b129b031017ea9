//! What the tree tells routers: each page that comes to a tier or leaves it, once, and only of the epoch that is.
//!
//! ```text
//!  a place gets slots, or loses them     residency, edit      ──▶ came, went        device and host
//!  a store has acknowledged pages        the verbs            ──▶ tell_stored       storage
//!  an epoch ends; storage is forgotten   epoch, unsaved       ──▶ tell_cleared      nothing of before is told of again
//! ```
//! Off until it is asked for: then one comparison for an edge that changes. On error: nothing here fails.

use super::Tree;
use super::walk::Place;
use crate::events::{Event, Events, Medium, Whose};
use crate::ids::Tier;
use std::ops::Range;

impl Tree {
    /// Tells of every change from now on, at most of so many pages before somebody takes what was told. Every page gets its
    /// digest, as with a store.
    pub fn tell_events(&mut self, most: usize) {
        self.start_hashing();
        self.events = Some(Box::new(Events::new(most)));
    }

    /// Whether changes are told.
    pub const fn tells_events(&self) -> bool {
        self.events.is_some()
    }

    /// What was told since the last time, in order.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.events.as_mut().map(|events| events.take()).unwrap_or_default()
    }

    /// Announcements of pages that were dropped, ever.
    pub fn lost_events(&self) -> u64 {
        self.events.as_ref().map_or(0, |events| events.lost_ever())
    }

    /// Pages of an edge, counted from the root, came to a tier.
    #[inline]
    pub(super) fn came(&mut self, node: u32, tier: Tier, pages: Range<u32>) {
        if self.events.is_some() {
            let end = Place { node, depth: pages.end };
            self.tell_come(tier.into(), end, pages);
        }
    }

    /// They leave it; all that is kept for them is still there.
    #[inline]
    pub(super) fn went(&mut self, node: u32, tier: Tier, pages: Range<u32>) {
        if self.events.is_some() {
            self.tell_gone(node, tier, pages);
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_gone(&mut self, node: u32, tier: Tier, pages: Range<u32>) {
        let Some(mut events) = self.events.take() else { return };
        if !self.is_past(Place { node, depth: pages.end }) {
            let strand = &self.strands[self.arena[node].strand];
            let from = strand.start;
            let gone = &strand.digests[(pages.start - from) as usize..(pages.end - from) as usize];
            events.removed(tier.into(), gone);
        }
        self.events = Some(events);
    }

    /// A store has acknowledged pages of the path to a place, or they were read from it: told once, as long as they live. What
    /// left memory meanwhile is beyond the place, which has moved up: nobody knows it any more.
    pub fn tell_stored(&mut self, end: Place, pages: Range<u32>) {
        let pages = pages.start..pages.end.min(end.depth);
        if self.events.is_none() || pages.is_empty() || self.is_past(end) {
            return;
        }
        let (mut at, mut new) = (self.ancestor(end, pages.end), Vec::new());
        while at.depth > pages.start {
            let index = self.arena[at.node].strand;
            let start = self.strands[index].start;
            let (run, told) = (pages.start.max(start)..at.depth, self.strands.told.of_mut(index, start, 0));
            new.extend(told.missing(run.clone()).into_iter().rev());
            told.add(run);
            at = self.before(index);
        }
        new.into_iter().rev().for_each(|pages| self.tell_come(Medium::Storage, end, pages));
    }

    /// Nothing is in a medium any more, or nothing of it counts.
    pub fn tell_cleared(&mut self, medium: Medium) {
        if let Some(events) = &mut self.events {
            events.cleared(medium);
        }
    }

    /// Pages of the path to a place came to a medium.
    #[cold]
    #[inline(never)]
    fn tell_come(&mut self, medium: Medium, end: Place, pages: Range<u32>) {
        let Some(mut events) = self.events.take() else { return };
        if !pages.is_empty() && !self.is_past(end) {
            self.tell_to(&mut events, medium, end, pages);
        }
        self.events = Some(events);
    }

    fn tell_to(&self, events: &mut Events, medium: Medium, end: Place, pages: Range<u32>) {
        let before = self.ancestor(end, pages.start);
        let parent = if pages.start == 0 { None } else { self.last_digest(before) };
        let digests = self.digests(end, pages.clone());
        events.stored(medium, parent, &digests, |all| self.tokens_of(end, pages, all), || self.whose(end));
    }

    /// Tokens of pages of the path to a place.
    fn tokens_of(&self, end: Place, pages: Range<u32>, all: &mut Vec<u64>) {
        let (mut at, mut runs) = (self.ancestor(end, pages.end), Vec::new());
        while at.depth > pages.start {
            let index = self.arena[at.node].strand;
            let from = pages.start.max(self.strands[index].start);
            runs.push((index, from..at.depth));
            at = self.before(index);
        }
        for (index, run) in runs.into_iter().rev() {
            let count = run.len() * self.page_size.tokens();
            let tokens = self.strands[index].tokens_from(run.start, self.page_size).range(0..count);
            tokens.for_each(|token| all.push(token));
        }
    }

    fn whose(&self, place: Place) -> Whose {
        let Some(namespace) = self.namespace(place).filter(|namespace| !namespace.is_plain()) else {
            return Whose::default();
        };
        let text = |text: &Option<String>| text.as_deref().map(Into::into);
        Whose {
            seed: namespace.seed(),
            extra_key: text(&namespace.extra_key),
            adapter: text(&namespace.adapter),
        }
    }

    /// Everything that is in memory now, as if it had just come, behind a clear of every medium; what nobody has taken yet is
    /// part of it. Of storage: what was told of pages in memory.
    pub fn events_from_scratch(&mut self) -> Vec<Event> {
        let Some(mut kept) = self.events.take() else { return Vec::new() };
        kept.take();
        let mut all = Events::new(usize::MAX);
        [Medium::Device, Medium::Host, Medium::Storage].into_iter().for_each(|medium| all.cleared(medium));
        for index in self.strands.parents_first() {
            let strand = &self.strands[index];
            let end = Place { node: strand.last(), depth: strand.end() };
            if self.is_past(end) {
                continue;
            }
            for tier in Tier::ALL {
                if strand.reach(tier) > strand.start {
                    self.tell_to(&mut all, tier.into(), end, strand.start..strand.reach(tier));
                }
            }
            for page in strand.start..strand.end() {
                if self.strands.told.of(index, 0).is_some_and(|told| told.lacks(page..page + 1) == 0) {
                    self.tell_to(&mut all, Medium::Storage, end, page..page + 1);
                }
            }
        }
        self.events = Some(kept);
        all.take()
    }
}
