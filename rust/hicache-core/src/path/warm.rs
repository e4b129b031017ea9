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
    /// Negative tokens. Without `to_device`, where nothing stays on the host. With it, where room on the device isn't the cache's to count: the engine owns the slots, or
    /// they are names in a unified buffer.
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
            self.end_warm(&warm, 0);
            self.act();
        }
    }

    /// All of them.
    pub(crate) fn cool_all(&mut self) {
        std::mem::take(&mut self.warming).iter().for_each(|warm| self.end_warm(warm, 0));
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
            let raised = self.raise_warm(&warm);
            self.end_warm(&warm, raised);
        }
    }

    /// Whether a request waits for storage.
    pub(super) fn requests_wait(&self) -> bool {
        self.fetches.values().any(|id| self.hits.get(id).is_some_and(|hit| !hit.warm))
    }

    fn ask_for_warm(&mut self, id: HitId) {
        let Ok(found) = self.find_again(id) else { return };
        // What comes is hung below pages that are on the host: they may have to go there first.
        let missing = found.place.depth - self.tree.resident_depth(found.place, Tier::Host);
        let room = if self.parts.is_empty() { self.host.free() } else { 0 };
        if missing as usize <= room || self.stages() {
            // It is neither released nor loaded.
            let _ = self.prefetch(id);
        }
    }

    /// Copies what came on to the device, as far as there is free room; how many pages.
    fn raise_warm(&mut self, warm: &Warm) -> u32 {
        if self.stages() {
            return self.raise_warm_staged(warm.hit);
        }
        let Some((tokens, namespace)) = &warm.to_device else { return 0 };
        let Ok(view) = self.view(warm.hit) else { return 0 };
        let missing = (view.usable - view.device) as usize;
        let room = missing.min(self.device.free());
        // Parts come with all of it, or not at all.
        let parts = (0..self.parts.len()).all(|part| {
            let end = self.hits.get(&warm.hit).map(|hit| self.tree.pinned(&hit.pin));
            end.is_some_and(|end| {
                let missing = self.tree.missing_up_to(part, Tier::Device, end, view.usable);
                missing.pages.len() <= self.parts[part].device.free()
            })
        });
        let whole = self.parts.is_empty() || (parts && room == missing);
        let worth_it = self.tokens(room) >= self.config.load_threshold as u64;
        if room == 0 || !whole || !worth_it || self.on_device().is_err() {
            return 0;
        }
        let limit = (view.device as usize + room) * self.config.page_size.tokens();
        let Ok(id) = self.begin_hit(tokens.view(), namespace, None, limit, self.now) else { return 0 };
        if let Some(hit) = self.hits.get_mut(&id) {
            hit.warm = true;
        }
        let loaded = self.load(&[id], None).is_ok();
        let copied = self.hits.get(&id).map_or(0, |hit| if loaded { hit.copied } else { 0 });
        self.stats.warmed_device_pages += u64::from(copied);
        self.let_warm_go(id);
        copied
    }

    /// How far it came is remembered, and nothing holds it any more.
    fn end_warm(&mut self, warm: &Warm, raised: u32) {
        if let Ok(view) = self.view(warm.hit) {
            self.warmed.truncate(REMEMBERED - 1);
            let device = view.device.max(raised);
            self.warmed.push_front((warm.number, Warmed { under_way: false, usable: view.usable, device }));
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
