//! `warm`: brings a prefix up that will be asked for (an agent's next turn), without a request.
//!
//! It comes after everybody else: a prefix is asked for when no request waits for storage, only free room is used, and
//! nothing leaves for it. Steps are taken by `poll`. Nothing of it counts as a request's hit.
//!
//! On error: what can't be brought isn't; how far it came is the answer.

use crate::cache::HiCache;
use crate::error::{Result, argument};
use crate::hash::Namespace;
use crate::ids::{HitId, Tier};
use crate::page::{OwnedTokens, Tokens};
use crate::path::HitView;
use crate::tree::Place;

/// Prefixes that may be under way.
pub const MOST_WARM: usize = 32;

/// Ended ones of which it is remembered how far they came.
const REMEMBERED: usize = 4 * MOST_WARM;

/// A prefix that is being brought up.
#[derive(Debug)]
pub(crate) struct Warm {
    number: u64,
    /// Held softly, as by a request that waits.
    hit: HitId,
    asked: bool,
    /// If it is to go on to the device.
    to_device: Option<(OwnedTokens, Namespace)>,
}

/// How far a prefix is, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warmed {
    /// Whether more may come.
    pub under_way: bool,
    /// Usable on device or host.
    pub usable: u32,
    /// Usable on the device, copies under way included.
    pub device: u32,
}

impl HiCache {
    /// Begins to bring up what storage and host have of a prefix: to the host or, with `to_device`, on to the device.
    /// Returns its number; `None`: as many as may be are under way.
    ///
    /// # Errors
    /// Negative tokens. Without `to_device`, where nothing stays on the host. With it, where room on the device isn't the
    /// cache's to count: the engine owns the slots, or they are names in a unified buffer.
    pub fn warm(
        &mut self,
        tokens: Tokens<'_>,
        namespace: &Namespace,
        to_device: bool,
        at: f64,
    ) -> Result<Option<u64>> {
        self.open()?;
        if !to_device && self.stages() {
            return argument(
                "device",
                "nothing stays on the host with host_mode=\"buffer_only\": warm the device",
            );
        }
        if to_device && (self.config.engine_owns_slots || self.unified.is_some()) {
            let reason =
                "needs device slots of the cache's own, in memory of their own: warm the host instead";
            return argument("device", reason);
        }
        if self.warming.len() == MOST_WARM {
            return Ok(None);
        }
        let hit = self.begin_hit(tokens, namespace, None, usize::MAX, at)?;
        self.hit_mut(hit)?.warm = true;
        let to_device = to_device.then(|| (tokens.to_owned(), namespace.clone()));
        self.stats.warm_prefixes += 1;
        self.warming.push(Warm { number: self.stats.warm_prefixes, hit, asked: false, to_device });
        self.act();
        Ok(Some(self.stats.warm_prefixes))
    }

    /// How far a prefix is; `None`: it ended too long ago to remember.
    pub fn warmed(&self, number: u64) -> Option<Warmed> {
        let Some(warm) = self.warming.iter().find(|warm| warm.number == number) else {
            return self.warmed.iter().find(|ended| ended.0 == number).map(|ended| ended.1);
        };
        let view = self.view(warm.hit).ok()?;
        Some(Warmed { under_way: true, usable: view.usable, device: view.device })
    }

    /// Gives a prefix up, as far as it hasn't come. Nothing, if it ended before.
    pub fn cool(&mut self, number: u64) {
        if let Some(at) = self.warming.iter().position(|warm| warm.number == number) {
            let warm = self.warming.remove(at);
            self.end_warm(&warm);
            self.act();
        }
    }

    /// All of them.
    pub(crate) fn cool_all(&mut self) {
        std::mem::take(&mut self.warming).iter().for_each(|warm| self.end_warm(warm));
    }

    /// The part of `poll`: the next step of each.
    pub(super) fn warm_up(&mut self) {
        let mut at = 0;
        while at < self.warming.len() {
            if !self.warming[at].asked {
                if self.requests_wait() {
                    return;
                }
                self.warming[at].asked = true;
                self.ask_for_warm(self.warming[at].hit);
            }
            let hit = self.hits.get(&self.warming[at].hit);
            if hit.is_some_and(|hit| hit.fetch.is_some()) {
                at += 1;
                continue;
            }
            let warm = self.warming.remove(at);
            let brought = hit_pages(self, &warm);
            self.stats.warmed_host_pages += u64::from(brought);
            self.raise_warm(&warm);
            self.end_warm(&warm);
        }
    }

    /// Whether a request waits for storage.
    pub(super) fn requests_wait(&self) -> bool {
        self.fetches.values().any(|id| self.hits.get(id).is_some_and(|hit| !hit.warm))
    }

    fn ask_for_warm(&mut self, id: HitId) {
        let Ok(found) = self.find_again(id) else { return };
        // What comes is hung below pages that are on the host: they may have to go there first.
        if self.stages() || self.fits_on_host(found.place) {
            // It is neither released nor loaded.
            let _ = self.prefetch(id);
        }
    }

    /// Whether the host has free room for what the device alone has of a path.
    fn fits_on_host(&self, place: Place) -> bool {
        let [device, host] = Tier::ALL.map(|tier| self.tree.resident_depth(place, tier));
        let missing = device.saturating_sub(host) as usize;
        let end = self.tree.ancestor(place, device);
        missing == 0 || (missing <= self.host.free() && self.parts_fit(Tier::Host, end))
    }

    /// Whether a tier has free slots for what the parts miss there at a place, and have elsewhere.
    fn parts_fit(&self, tier: Tier, end: Place) -> bool {
        (0..self.parts.len()).all(|part| {
            let missing = self.tree.missing_up_to(part, tier, end, end.depth);
            missing.pages.len() <= self.parts[part].pool(tier).free()
        })
    }

    /// Copies what came on to the device, as far as there is free room: pages as many as fit, windows and states with all
    /// that their place needs.
    fn raise_warm(&mut self, warm: &Warm) {
        if self.stages() {
            return self.raise_warm_staged(warm.hit);
        }
        let Some((tokens, namespace)) = &warm.to_device else { return };
        let Ok(found) = self.find_again(warm.hit) else { return };
        let end = self.tree.ancestor(found.place, found.usable);
        let room = u32::try_from(self.device.free()).unwrap_or(u32::MAX);
        let to = end.depth.min(self.tree.resident_depth(end, Tier::Device).saturating_add(room));
        if to <= found.device || self.on_device().is_err() {
            return;
        }
        let limit = to as usize * self.config.page_size.tokens();
        let Ok(id) = self.begin_hit(tokens.view(), namespace, None, limit, self.now) else { return };
        if let Some(hit) = self.hits.get_mut(&id) {
            hit.warm = true;
            let end = self.tree.pinned(&hit.pin);
            if end.depth > found.device && self.is_worth_raising(end) && self.parts_fit(Tier::Device, end) {
                let loaded = self.load(&[id], None).is_ok();
                let copied = self.hits.get(&id).map_or(0, |hit| if loaded { hit.copied } else { 0 });
                self.stats.warmed_device_pages += u64::from(copied);
            }
        }
        self.let_warm_go(id);
    }

    /// Whether a load would copy what is missing on the device up to a place, rather than decline it.
    fn is_worth_raising(&self, end: Place) -> bool {
        let pages = (end.depth - self.tree.resident_depth(end, Tier::Device)) as usize;
        let mut parts = 0..self.parts.len();
        self.tokens(pages) >= self.config.load_threshold as u64
            || parts.any(|part| !self.tree.missing_up_to(part, Tier::Device, end, end.depth).pages.is_empty())
    }

    /// How far it came is remembered, and nothing holds it any more.
    fn end_warm(&mut self, warm: &Warm) {
        if let Ok(view) = self.view(warm.hit) {
            self.warmed.truncate(REMEMBERED - 1);
            let HitView { usable, device, .. } = view;
            self.warmed.push_front((warm.number, Warmed { under_way: false, usable, device }));
        }
        self.let_warm_go(warm.hit);
    }

    /// As `release`, and nothing is counted or remembered of it.
    fn let_warm_go(&mut self, id: HitId) {
        self.stop_fetch(id, None);
        if let Some(hit) = self.hits.remove(&id) {
            self.let_hit_go(hit, 0);
        }
    }
}

/// Pages that its prefetch put on the host.
fn hit_pages(cache: &HiCache, warm: &Warm) -> u32 {
    cache.hits.get(&warm.hit).map_or(0, |hit| hit.stored.end - hit.stored.start)
}
