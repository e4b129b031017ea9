//! What is taken down of a request while it lives, and of the last ones for a while after.

use super::Reason;
use crate::ids::HitId;
use crate::page::OwnedTokens;
use crate::storage::Outcome;
use crate::tree::Realm;
use std::collections::VecDeque;
use std::ops::Range;

/// Requests that can still be explained after their release, and most tokens that these hold.
const PAST_HITS: usize = 256;
const PAST_TOKENS: usize = 1 << 20;

/// What a load found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loaded {
    /// Pages that the device had.
    pub device: u32,
    /// Pages copied from the host, those that its prefetch had brought not counted.
    pub host: u32,
    /// These.
    pub storage: u32,
}

impl Loaded {
    /// All pages of the hit.
    pub const fn pages(self) -> u32 {
        self.device + self.host + self.storage
    }
}

/// Of one request.
#[derive(Debug)]
pub(crate) struct Story {
    /// Tokens of the prompt.
    pub tokens: u64,
    /// Its whole pages, those that a limit forbids to hit included.
    pub pages: u32,
    /// Its namespace, and the notes of what had left, when it was matched.
    pub realm: Realm,
    pub gone: u64,
    /// Whether storage was asked, or would have been.
    pub asked: bool,
    /// What the load found, or what one would have found at the release.
    pub loaded: Option<Loaded>,
    /// In order of being said: what comes later is the better reason.
    claims: Claims,
}

/// What was said of ranges of pages.
#[derive(Debug, Default)]
struct Claims(Vec<(Range<u32>, Reason)>);

impl Story {
    /// Of a prompt of so many tokens and whole pages, when so many notes had been made.
    pub const fn new(tokens: u64, pages: u32, realm: Realm, gone: u64) -> Self {
        Self { tokens, pages, realm, gone, asked: false, loaded: None, claims: Claims(Vec::new()) }
    }

    /// Why pages will have to be computed, unless something else brings them after all.
    pub fn note(&mut self, pages: Range<u32>, reason: Reason) {
        self.claims.note(pages, reason);
    }

    /// What a store answered for pages from `at` on: of what it has nothing is said, and what follows something that
    /// it hasn't can't be used.
    pub fn note_outcomes(&mut self, at: u32, outcomes: &[Outcome]) {
        let Some(first) = outcomes.iter().position(|&outcome| outcome != Outcome::Hit) else { return };
        let reason = match outcomes[first] {
            Outcome::Hit | Outcome::Absent | Outcome::Declined => Reason::NotStored,
            Outcome::Short | Outcome::Corrupt => Reason::Corrupt,
            Outcome::Failed => Reason::ReadFailed,
            Outcome::TimedOut => Reason::TimedOut,
            // Whoever cancelled it says why.
            Outcome::Cancelled => return,
        };
        #[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
        self.note(at + first as u32..at + outcomes.len() as u32, reason);
    }

    /// The reason that was said last for a page, and the page from which on it may be another one.
    pub fn claim(&self, page: u32) -> (Option<&Reason>, u32) {
        self.claims.of(page)
    }
}

impl Claims {
    fn note(&mut self, pages: Range<u32>, reason: Reason) {
        if pages.is_empty() {
            return;
        }
        // A prefetch that is asked for again and again says the same.
        self.0.retain(|(other, _)| !(pages.start <= other.start && other.end <= pages.end));
        self.0.push((pages, reason));
    }

    fn of(&self, page: u32) -> (Option<&Reason>, u32) {
        let at = self.0.iter().rposition(|(pages, _)| pages.contains(&page));
        let (reason, end) = match at {
            Some(at) => (Some(&self.0[at].1), self.0[at].0.end),
            None => (None, u32::MAX),
        };
        // What was said later of pages behind it cuts it short.
        let later = self.0[at.map_or(0, |at| at + 1)..].iter().map(|(pages, _)| pages.start);
        (reason, later.filter(|&start| start > page).fold(end, u32::min))
    }
}

/// What an explanation needs of a hit.
#[derive(Debug)]
pub(crate) struct PastHit {
    pub story: Story,
    pub was_loaded: bool,
    pub rest: OwnedTokens,
    pub rest_at: u32,
    pub matched: u32,
}

/// The requests that were released last.
#[derive(Debug, Default)]
pub(crate) struct Past {
    hits: VecDeque<(HitId, PastHit)>,
    tokens: usize,
}

impl Past {
    pub fn push(&mut self, id: HitId, hit: PastHit) {
        self.tokens += hit.rest.len();
        self.hits.push_back((id, hit));
        while self.hits.len() > PAST_HITS || self.tokens > PAST_TOKENS {
            let Some((_, oldest)) = self.hits.pop_front() else { break };
            self.tokens -= oldest.rest.len();
        }
    }

    pub fn get(&self, id: HitId) -> Option<&PastHit> {
        self.hits.iter().rev().find(|(other, _)| *other == id).map(|(_, hit)| hit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_later_counts() {
        let mut claims = Claims::default();
        let said = |claims: &Claims, page| {
            let (reason, end) = claims.of(page);
            (reason.cloned(), end)
        };
        claims.note(2..2, Reason::Corrupt);
        assert_eq!(said(&claims, 2), (None, u32::MAX));
        claims.note(4..10, Reason::NotStored);
        assert_eq!(said(&claims, 3), (None, 4));
        assert_eq!(said(&claims, 4), (Some(Reason::NotStored), 10));
        claims.note(6..8, Reason::HostFull);
        assert_eq!(said(&claims, 4), (Some(Reason::NotStored), 6));
        assert_eq!(said(&claims, 7), (Some(Reason::HostFull), 8));
        assert_eq!(said(&claims, 8), (Some(Reason::NotStored), 10));
        assert_eq!(said(&claims, 10), (None, u32::MAX));
        claims.note(4..10, Reason::Waiting);
        assert_eq!(said(&claims, 7), (Some(Reason::Waiting), 10));
        assert_eq!(claims.0.len(), 1, "what nobody will hear is forgotten");
    }
}
