//! What readers on other threads are told at the end of each verb: what changed in the index, and statistics.
//!
//! Without readers nothing is told, and nothing is kept. On error: nothing here fails.

use crate::cache::HiCache;
use crate::ids::Tier;
use crate::reader;

impl HiCache {
    /// Readers are told what changed.
    pub(crate) fn publish(&mut self) {
        let Some(mut publisher) = self.publisher.take() else { return };
        publisher.apply(&self.tree.take_changes());
        publisher.stats(self.numbers());
        self.publisher = Some(publisher);
    }

    /// What readers see of statistics: `reader::NUMBERS` names them.
    fn numbers(&self) -> [u64; reader::NUMBERS.len()] {
        let pages = |pages: usize| pages as u64;
        [
            self.stats.requests,
            self.stats.matched_tokens,
            self.stats.hit_device_tokens,
            self.stats.hit_host_tokens,
            self.stats.hit_storage_tokens,
            pages(self.device.capacity()),
            pages(self.device_free(0)),
            pages(self.tree.resident(Tier::Device)),
            pages(self.host.capacity()),
            pages(self.host.free()),
            pages(self.tree.resident(Tier::Host)),
        ]
    }
}
