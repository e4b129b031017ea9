//! A request's hit: what a match found, what is still being fetched, and what it holds.

use crate::explain::Story;
use crate::hash::Digest;
use crate::ids::{Cursor, HostSlot, Slot};
use crate::page::{OwnedTokens, PageSize, Tokens};
use crate::policy::{Name, Request, Wish};
use crate::storage::Outcome;
use crate::tree::PinId;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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
    /// Where the host is staging: what of them waits there for this hit alone.
    pub staged: Staged,
    /// Ends of paths that it inserted and went back from, the last ones.
    pub left: Vec<Cursor>,
    pub fetch: Option<Fetch>,
    pub story: Story,
    pub keys: Keys,
    /// When it was matched.
    pub arrived: f64,
    /// When it was first asked whether it can run: it could have then.
    pub first_asked: Option<f64>,
    /// That it runs without what has not come: after so many microseconds, as the policy said last.
    pub stop_said: Option<(u64, Name)>,
    /// What it wants to be written, and the most pages that it wants loaded, where it is asked.
    pub wish: Option<Wish>,
    pub most: Option<u32>,
    /// That no request is behind it: it only brings a prefix up.
    pub warm: bool,
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

/// What a batch of a part's reads brought: pages and their slots, and what became of each.
pub(crate) type PartRead = (Vec<(u32, HostSlot)>, Vec<Outcome>);

/// A prefetch under way: first it is asked which pages there are, then those are read for which there is room.
#[derive(Debug, Default)]
pub(crate) struct Fetch {
    /// Tells late completions of an older attempt apart; in order of asking.
    pub attempt: u64,
    /// When the wait ends, whatever has come.
    pub deadline: f64,
    pub cancel: Arc<AtomicBool>,
    /// Pages before those that were asked for.
    pub at: u32,
    /// Pages that a hit would have more if all of it came.
    pub span: u32,
    /// With parts: what is asked for, in order, as long as it isn't known what of it there is.
    pub asked: Vec<Asked>,
    /// With parts: pages that were usable when it was asked, and those that will be if all of it comes.
    pub usable: Range<u32>,
    /// Keys that are asked for, and how many of them the store was asked about so far.
    pub keys: usize,
    pub put: usize,
    /// What was answered to each of these; `None`: nothing yet.
    pub answers: Vec<Option<bool>>,
    /// How many leading ones are answered; and whether all are that matter.
    pub answered: usize,
    pub settled: bool,
    /// Pages from `at` on that the store has, and those of them that there was room for.
    pub present: u32,
    pub begun: u32,
    /// Reads under way; of FULL alone; and their tokens.
    pub open: usize,
    pub open_full: usize,
    pub reading: usize,
    /// The page that comes next, and what has come before its turn: the hit's place is not there yet.
    pub front: u32,
    pub early: BTreeMap<u32, Early>,
    /// What parts have got, until their pages have come.
    pub parts: Vec<PartRead>,
    /// Whether the last try found no room on the host.
    pub no_room: bool,
    /// Whether the last answer was that others run; and the tokens that they got since.
    pub skipped: bool,
    pub overtaken: u64,
}

/// Pages that came before their turn: the leading ones of these slots.
#[derive(Debug)]
pub(crate) struct Early {
    pub slots: Vec<Slot>,
    pub arrived: usize,
}

impl Fetch {
    /// Pages that haven't come and that the store has or may have.
    #[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
    pub fn expected(&self) -> Range<u32> {
        if self.usable.end > 0 || !self.asked.is_empty() {
            return self.usable.start..self.usable.start + self.span;
        }
        self.front..self.at + if self.settled { self.present } else { self.keys as u32 }
    }

    /// The path is there up to `reach` by now: what comes next follows that, unless reads or what they brought are still
    /// before it.
    pub fn skip_to(&mut self, reach: u32) {
        if self.open == 0 && self.early.is_empty() {
            self.begun = self.begun.max((reach - self.at).min(self.present));
            self.front = self.at + self.begun;
        }
    }

    /// Pages that haven't come and still may, and those that are being read or will be when it is their turn.
    pub fn missing(&self) -> (usize, usize) {
        let known = self.settled && self.asked.is_empty();
        let asked = if known { self.present as usize } else { self.keys };
        let came = (self.begun as usize).saturating_sub(self.reading);
        (asked.saturating_sub(came).max(self.reading), self.reading)
    }

    /// The same with parts, whose keys and reads aren't pages of the prefix alone: what is read becomes usable together,
    /// when all of it has come.
    pub fn missing_together(&self) -> (usize, usize) {
        let read = if self.open > 0 { self.usable.len() } else { 0 };
        (if self.asked.is_empty() { read } else { self.span as usize }, read)
    }

    /// Host slots of a space that hold what came before its turn.
    pub fn held(&self, space: u8) -> usize {
        let full: usize = self.early.values().map(|early| early.slots.len()).sum();
        let parts = self.parts.iter().flat_map(|(reads, _)| reads).filter(|(_, to)| to.space == space);
        parts.count() + if space == 0 { full } else { 0 }
    }
}

/// What waits in staging for one hit: pages of its path that follow one another, in slots that are its own.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    /// Pages before the first one.
    pub at: u32,
    pub slots: Vec<Slot>,
    /// With parts: what they have of pages, in order of space and page, and the boundary that all of it is for; 0: none.
    pub parts: Vec<(u32, HostSlot)>,
    pub boundary: u32,
    /// Whether the store that they were read from was cleared or detached since.
    pub forgotten: bool,
}

impl Staged {
    pub const fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.parts.is_empty()
    }

    /// All of its slots.
    pub fn all(&self) -> impl Iterator<Item = HostSlot> + '_ {
        let full = self.slots.iter().copied().map(HostSlot::full);
        full.chain(self.parts.iter().map(|&(_, at)| at))
    }

    /// The slot that has what a part's space has of a page.
    pub fn part(&self, space: u8, page: u32) -> Option<Slot> {
        let at = self.parts.binary_search_by_key(&(space, page), |&(page, at)| (at.space, page));
        at.ok().map(|at| self.parts[at].1.slot)
    }

    /// Pages up to the last one.
    #[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
    pub const fn end(&self) -> u32 {
        self.at + self.slots.len() as u32
    }
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
}
