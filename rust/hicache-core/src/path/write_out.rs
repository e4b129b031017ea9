//! `write_out`: what policies would write later is written now, as far as there is room, for who is about to end, to
//! sleep, or to let the store go.
//!
//! On error: what finds no room stays unwritten, and is counted in the answer.

use crate::cache::HiCache;
use crate::error::Result;
use crate::ids::{Cursor, Tier};
use crate::tree::Mark;

impl HiCache {
    /// Begins to copy what of the device is wanted on the host, into free room there, and what of the host is wanted in
    /// storage. Polls carry it on. Returns how many pages of each are still to be begun.
    ///
    /// # Errors
    /// When the cache is closed.
    pub fn write_out(&mut self) -> Result<[usize; 2]> {
        self.open()?;
        if !self.stages() && self.on_device().is_ok() {
            for end in self.unsaved_ends(Tier::Device) {
                let Some(place) = self.tree.resolve(end) else { continue };
                let on_host = self.tree.resident_depth(place, Tier::Host);
                let room = u32::try_from(self.host.free()).unwrap_or(u32::MAX);
                self.back_up_sparing(
                    self.tree.ancestor(place, place.depth.min(on_host.saturating_add(room))),
                );
            }
        }
        if self.storage {
            for end in self.unsaved_ends(self.tree.saving().source()) {
                if let Some(place) = self.tree.resolve(end) {
                    if self.asking.writes {
                        self.tree.mark(place, Mark::Soon);
                    }
                    self.note_store(place);
                }
            }
        }
        self.act();
        Ok(self.unwritten())
    }

    /// Pages of device and host that are wanted one tier further down, and neither there nor on their way.
    pub fn unwritten(&self) -> [usize; 2] {
        Tier::ALL.map(|tier| self.tree.unsaved_pages(tier))
    }

    /// By names that outlive what is done for one of them.
    fn unsaved_ends(&self, tier: Tier) -> Vec<Cursor> {
        let ends = self.tree.unsaved_ends(tier).into_iter();
        ends.filter(|&end| !self.tree.is_past(end)).map(|end| self.tree.cursor(end)).collect()
    }
}
