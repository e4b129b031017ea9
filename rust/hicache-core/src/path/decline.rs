//! The part of `load` that leaves host pages where they are: too few to be worth a copy, or more than the budget allows.
//! Declined is computed anew; nothing is ever half done.

use crate::cache::HiCache;
use crate::error::Result;
use crate::explain::Reason;
use crate::ids::Tier;
use crate::path::load::{Copies, Held};

impl HiCache {
    /// Why a held hit is to end with what is on the device, if it is. What it copies otherwise comes off the budget.
    pub(super) fn declines(&self, held: &Held, budget: Option<&mut usize>) -> Option<Reason> {
        let end = self.end(held);
        // A hit of the same batch may bring some of it.
        let pages = (end.depth - self.tree.resident_depth(end, Tier::Device)) as usize;
        let parts = 0..self.parts.len();
        let missing =
            parts.map(|part| self.tree.missing_up_to(part, Tier::Device, end, end.depth).pages.len());
        self.declines_so_many(pages, missing.sum(), budget)
    }

    /// The same of so many pages, and so many slots of parts.
    pub(super) fn declines_so_many(
        &self,
        pages: usize,
        parts: usize,
        budget: Option<&mut usize>,
    ) -> Option<Reason> {
        let (tokens, threshold) = (self.tokens(pages), self.config.load_threshold as u64);
        if parts == 0 && pages > 0 && tokens < threshold {
            return Some(Reason::BelowLoadThreshold { tokens, threshold });
        }
        match budget {
            Some(left) if pages > *left => Some(Reason::OverBudget { tokens, budget: self.tokens(*left) }),
            Some(left) => {
                *left -= pages;
                None
            }
            None => None,
        }
    }

    /// Ends a held hit with what is on the device.
    pub(super) fn decline(&mut self, held: Held, why: Reason, copies: &mut Copies) -> Result<()> {
        let end = self.end(&held);
        let ready = self.tree.pinned(held.ready.as_ref().unwrap_or(&held.device));
        self.stats.load_declined_pages += u64::from(end.depth - ready.depth);
        self.hit_mut(held.id)?.story.note(ready.depth..end.depth, why);
        self.settle_held(held, ready, ready.depth, copies)
    }
}
