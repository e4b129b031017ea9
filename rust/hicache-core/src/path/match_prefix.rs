//! `match_prefix`: what of a prompt is usable, on the device and on the host. Moves nothing.

use crate::cache::HiCache;
use crate::error::{Error, Result, argument};
use crate::hash::Namespace;
use crate::hit::{Hit, Keys, Staged};
use crate::ids::{Cursor, HitId, Tier};
use crate::key::Key;
use crate::page::Tokens;
use crate::policy::{Moment, Request, tick};
use crate::tree::{Found, Hold, PinId, Place};

impl HiCache {
    /// Finds the longest usable prefix of `tokens`, which follow the place of `after` if that is given.
    /// At most `limit` of the tokens may hit.
    /// `at` is the time in seconds, on the clock of `poll`. The hit is held softly until it is loaded or released.
    ///
    /// # Errors
    /// Negative tokens; a namespace that isn't `after`'s; [`Error::Stale`] when `after`'s place was evicted, lost
    /// its window or state, or when the tokens can't follow it (pairs of tokens overlap).
    pub fn match_prefix(
        &mut self,
        tokens: Tokens<'_>,
        namespace: &Namespace,
        after: Option<Cursor>,
        limit: usize,
        at: f64,
    ) -> Result<HitId> {
        let id = self.begin_hit(tokens, namespace, after, limit, at)?;
        self.stats.requests += 1;
        self.stats.matched_tokens += tokens.len() as u64;
        self.publish();
        Ok(id)
    }

    /// The same, and it isn't counted as a request.
    pub(super) fn begin_hit(
        &mut self,
        tokens: Tokens<'_>,
        namespace: &Namespace,
        after: Option<Cursor>,
        limit: usize,
        at: f64,
    ) -> Result<HitId> {
        self.open()?;
        let start = self.start(tokens, &namespace.canonical(), after)?;
        let (words, whole) = (self.tree.page_size(), Key::new(tokens, self.config.bigrams)?);
        let size = words.tokens();
        let key = whole.pages(self.config.page_size.pages(whole.units().min(limit)), words);

        let found = self.tree.walk(start, key);
        // What is before the start isn't passed again: it must be usable itself.
        let Some(matched) = found.usable.checked_sub(start.depth) else { return Err(Error::Stale) };
        let (matched, place) = (matched as usize * size, self.tree.ancestor(found.place, found.usable));
        // What equals tokens of the tree is not negative: only the rest is still to be looked at.
        if !self.config.bigrams {
            tokens.checked_from(matched)?;
        }
        self.now = self.now.max(at);
        self.hits_made += 1;
        let prompt = self.config.page_size.pages(whole.units());
        let request = self.tell_matched(place, prompt.saturating_sub(matched / size));
        self.tree.touch_matched(place);
        let rest = key.from(matched).to_owned();
        let (pin, also) = self.hold_softly(place, found.resident);
        // A number that no other cache of the process gives out, for the first 2^44 hits of each.
        let id = HitId(u64::from(self.serial) << 44 | self.hits_made);
        let story = self.begin_story(start, tokens.len(), prompt);
        let hit = Hit {
            request,
            pin,
            also,
            loaded: false,
            rest,
            rest_at: found.usable,
            matched: found.place.depth,
            copied: 0,
            stored: 0..0,
            staged: Staged::default(),
            left: Vec::new(),
            fetch: None,
            keys: Keys::default(),
            arrived: self.now,
            first_asked: None,
            stop_said: None,
            wish: None,
            most: None,
            warm: false,
            story,
        };
        self.hits.insert(id, hit);
        Ok(id)
    }

    /// Tells the eviction policy of the request that was made last, of whose prompt `unknown` pages weren't found.
    #[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
    fn tell_matched(&mut self, place: Place, unknown: usize) -> Request {
        let (number, tick, turn) = (self.hits_made, tick(self.now), self.tree.next_turn(place));
        let request = Request { number, tick, moment: Moment::Matched, turn, new_pages: unknown as u32 };
        self.tree.tell(request, 0..place.depth, place);
        Request { new_pages: 0, ..request }
    }

    /// Where the tokens begin. Nothing is made for tokens that are refused.
    fn start(&mut self, tokens: Tokens<'_>, namespace: &Namespace, after: Option<Cursor>) -> Result<Place> {
        match after {
            Some(cursor) if cursor.cache.is_some_and(|cache| cache != self.serial) => {
                argument("after", "is a hit of another cache")
            }
            Some(cursor) if cursor.depth > 0 => {
                let place = self.tree.resolve(cursor).ok_or(Error::Stale)?;
                if !self.continues(place, tokens) {
                    return Err(Error::Stale);
                }
                if self.tree.namespace(place) != Some(namespace) {
                    return argument("namespace", "differs from the namespace of `after`");
                }
                Ok(place)
            }
            _ => match self.tree.known_root(namespace) {
                Some(root) => Ok(root),
                None => tokens.checked().map(|_| self.tree.root(namespace)),
            },
        }
    }

    /// Soft pins for a waiting hit: where its pages end, and where those of the other tier do.
    /// `on_device`: pages of the path, or of what follows it, that live there.
    fn hold_softly(&mut self, place: Place, on_device: u32) -> (PinId, Option<PinId>) {
        let less = on_device.min(self.tree.resident_depth(place, Tier::Host));
        let other = (less < place.depth).then(|| self.tree.ancestor(place, less));
        (self.tree.pin(place, Hold::Soft), other.map(|place| self.tree.pin(place, Hold::Soft)))
    }

    /// Whether tokens may follow a place. With pairs the last one before the place ends with the first token
    /// behind it, so that another token there makes another pair of it.
    pub(crate) fn continues(&self, place: Place, tokens: Tokens<'_>) -> bool {
        if !self.config.bigrams || tokens.is_empty() || place.depth == 0 {
            return true;
        }
        let mut first = None;
        tokens.range(0..1).for_each(|token| first = Some(token));
        self.tree.last_word(place) == first
    }

    /// Follows a waiting hit's tokens as far as they are known now, which may be less (pages went) or
    /// more (others brought some) than it knew. It is held where what is usable of them ends or, as long as a
    /// prefetch may make more of it usable, where that does.
    pub(crate) fn find_again(&mut self, id: HitId) -> Result<Found> {
        let size = self.tree.page_size().tokens();
        let hit = self.hit(id)?;
        let mut place = self.tree.pinned(&hit.pin);
        let whole = place.depth >= hit.rest_at;
        if whole {
            let known = (place.depth - hit.rest_at) as usize * size;
            place = self.tree.follow(place, hit.rest.view().from(known));
        }
        let found = self.tree.found(place);
        let hoped = hit.fetch.as_ref().map_or(0, |fetch| fetch.usable.end);
        let hoped = hoped.max(hit.staged.boundary).min(place.depth);
        let held = self.tree.ancestor(place, found.usable.max(hoped));
        let (pin, also) = self.hold_softly(held, found.resident);
        let hit = self.hit_mut(id)?;
        if whole {
            hit.matched = place.depth;
        }
        let (pin, also) = (std::mem::replace(&mut hit.pin, pin), std::mem::replace(&mut hit.also, also));
        self.tree.unpin(pin);
        also.into_iter().for_each(|also| self.tree.unpin(also));
        Ok(found)
    }
}
