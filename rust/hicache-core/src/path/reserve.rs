//! The clean reserve: what leaves a tier next is copied to the next one beforehand, so that evictions take pages whose
//! copy is done.
//!
//! Of a tier's slots a share ([`Writing::clean_reserve`]) is free, or holds pages that leave next and are saved; `poll`
//! copies what lacks. As long as that many slots are free nothing is looked at, and nothing copied.
//!
//! On error: what finds no room stays unsaved; if it is evicted then, it is dropped and counted.
//!
//! [`Writing::clean_reserve`]: crate::policy::Writing::clean_reserve

use crate::cache::HiCache;
use crate::ids::Tier;
use crate::policy::{HostCopies, Order, Write};
use crate::tree::{LeavingNext, Mark, Place, Saving, Wanted};

/// A reserve reaches further for bursts by one of so many parts of a tier's slots at most.
const FURTHER: usize = 4;

const fn wanted(write: Write) -> Wanted {
    match write {
        Write::Through | Write::Back => Wanted::All,
        Write::Selective => Wanted::UsedAgain,
    }
}

impl HiCache {
    /// Tells the tree what is wanted where, for as many slots as there are now.
    pub(crate) fn tell_saving(&mut self) {
        let writing = self.config.writing;
        // Where each request says what it wants, paths have marks.
        let wanted = |write| if self.asking.writes { Wanted::Marked } else { wanted(write) };
        let host = if self.host.capacity() > 0 { wanted(writing.host) } else { Wanted::Nothing };
        let storage = if self.storage { wanted(writing.storage) } else { Wanted::Nothing };
        let straight = self.stages();
        let [host, storage] = if straight { [storage, Wanted::Nothing] } else { [host, storage] };
        let mut reserve = vec![0; 2 + 2 * self.parts.len()];
        for tier in Tier::ALL {
            let last = if tier == Tier::Device { host } else { storage } == Wanted::Nothing;
            if last {
                continue;
            }
            reserve[Order::full(tier).number()] = writing.reserve(self.slots(tier).capacity());
            for (part, pools) in self.parts.iter().enumerate() {
                reserve[Order::of(part, tier).number()] = writing.reserve(pools.pool(tier).capacity());
            }
        }
        let give_way = self.host.capacity() > 0 && writing.host_copies == HostCopies::GiveWay && !straight;
        self.tree.save(Saving { give_way, straight, wanted: [host, storage], reserve });
    }

    /// Slots of an order left, of pages that live nowhere any more.
    pub(crate) fn left_for_room(&mut self, order: Order, slots: usize) {
        if self.to_write.for_room && order.tier() == Tier::Host {
            let left = &mut self.to_write.left;
            left.resize(left.len().max(order.number() + 1), 0);
            left[order.number()] += slots;
        }
    }

    /// What left the host for room since the last poll is expected to leave again until the next one, while as much is on its
    /// way to storage: so much further its reserves reach, if there are any, and up to a share of the slots, since what is on
    /// its way stays. Not the device's: its copies would take room on the host from pages that live there alone.
    fn reach_further(&mut self) {
        let left = std::mem::take(&mut self.to_write.left);
        let further = left.iter().zip(&self.tree.saving().reserve).enumerate();
        let further = further.map(|(order, (&left, &reserve))| {
            let slots = self.host_pools().nth(order / 2).map_or(0, crate::host::SlotPool::capacity);
            if reserve == 0 { 0 } else { left.saturating_mul(2).min(slots / FURTHER) }
        });
        self.to_write.further = further.collect();
    }

    /// Starts the copies that the reserves lack.
    pub(crate) fn fill_reserves(&mut self) {
        self.reach_further();
        if self.executor.fault().is_some() {
            return;
        }
        for space in 0..=self.parts.len() {
            let order = |tier| space.checked_sub(1).map_or(Order::full(tier), |part| Order::of(part, tier));
            if self.attached() {
                let free = self.device_free(space);
                for next in self.reserve(order(Tier::Device), free) {
                    if !next.saved && self.may_reserve(0) {
                        let before = self.flights.backups.len();
                        let copied = self.save(next.end);
                        self.may_reserve(copied);
                        self.note_ahead(before);
                    }
                }
            }
            if self.storage && (self.asking.writes || self.config.writing.storage == Write::Back) {
                let free = self.host_pools().nth(space).map_or(0, crate::host::SlotPool::free);
                for next in self.reserve(order(Tier::Host), free) {
                    if !next.saved && !self.to_store.refused {
                        let end = self.wanted_soon(next.end);
                        self.note_store(end);
                    }
                }
            }
        }
    }

    /// Begins to copy what of a path leaves the device next; how many slots' copies that are.
    fn save(&mut self, end: Place) -> usize {
        if self.stages() {
            let end = self.wanted_soon(end);
            return self.save_straight(end);
        }
        let end = self.wanted_end(end, Mark::Host);
        self.back_up_sparing(end)
    }

    /// The end of what of a path is wanted in storage, which is wanted there now.
    fn wanted_soon(&mut self, end: Place) -> Place {
        let end = self.wanted_end(end, Mark::Storage);
        if self.asking.writes {
            self.tree.mark(end, Mark::Soon);
        }
        end
    }

    /// The end of what of a path is wanted, where requests are asked; else its end.
    fn wanted_end(&self, end: Place, mark: Mark) -> Place {
        let end = self.tree.ancestor(end, end.depth);
        let depth = if self.asking.writes { self.tree.marked_depth(end, mark) } else { end.depth };
        self.tree.ancestor(end, depth)
    }

    /// What leaves an order next, as far as the reserve reaches beyond what is free and what is being copied for it.
    fn reserve(&mut self, order: Order, free: usize) -> Vec<LeavingNext> {
        let further = self.to_write.further.get(order.number()).copied().unwrap_or(0);
        let reserve = self.tree.saving().reserve.get(order.number()).copied().unwrap_or(0) + further;
        let space = order.component().map_or(0, |part| part + 1);
        let under_way = match order.tier() {
            Tier::Device => self.copying_ahead(space),
            // All writes are a reserve's then, but for those of `write_out`.
            Tier::Host if self.config.writing.storage == Write::Back && !self.asking.writes => {
                self.flights.storing_of(u8::try_from(space).unwrap_or(u8::MAX))
            }
            Tier::Host => 0,
        };
        let next = self.tree.leaving_next(order, reserve.saturating_sub(free + under_way));
        if order.tier() == Tier::Device {
            for next in &next {
                self.tree.keep_back(order, next.end);
                // A state on the host is nothing without its pages.
                self.tree.keep_back(Order::full(Tier::Device), next.end);
            }
        }
        next
    }
}
