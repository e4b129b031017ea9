//! A fault: the device's copier has ended for good. What it had not copied lands as failed, and nothing that was
//! to arrive is believed.
//!
//! - **Backups**: the host pages that were never written leave the tree with all that hangs below them there, and
//!   none is stored. Parents are backed up first, so no page that did arrive is among them.
//! - **Loads** give back what they own. Their pages stay the tree's until the hits that hold them are released, and
//!   can't be used: every verb that reads or fills device memory refuses from the fault on, and the only way on is
//!   `detach`, which empties the device tier. Until then `poll` takes out of it what nobody holds.

use crate::cache::HiCache;
use crate::flights::Copy;
use crate::ids::Tier;
use crate::transfer::Direction;
use crate::tree::Hold;

impl HiCache {
    /// Lands so many of the leading copies of both directions. After a fault these are all of them: what is not
    /// finished then never will be.
    pub(crate) fn land_copies(&mut self, backups: usize, loads: usize) {
        let [loaded, backed_up] =
            [Direction::In, Direction::Out].map(|way| self.executor.progress(way).finished());
        let backups: Vec<Copy> = self.flights.backups.drain(..backups).collect();
        let (arrived, failed): (Vec<Copy>, Vec<Copy>) =
            backups.into_iter().partition(|copy| copy.ticket <= backed_up);
        for copy in arrived {
            self.tree.unpin(copy.device);
            self.store_pages(copy.host, &copy.store);
        }
        for copy in self.flights.loads.drain(..loads).collect::<Vec<_>>() {
            if copy.ticket > loaded {
                self.stats.load_failed_pages += u64::from(copy.pages);
            }
            self.tree.unpin(copy.device);
            self.tree.unpin(copy.host);
        }
        self.lose_backups(failed);
    }

    /// Host pages of backups that failed. No transfer holds any of them any more.
    fn lose_backups(&mut self, failed: Vec<Copy>) {
        let mut firsts = Vec::with_capacity(failed.len());
        for copy in failed {
            self.stats.backup_failed_pages += u64::from(copy.pages);
            if copy.pages > 0 {
                let end = self.tree.pinned(&copy.host);
                let first = self.tree.ancestor(end, end.depth - copy.pages + 1);
                // A soft pin follows what happens to the page while others are lost.
                firsts.push((self.tree.pin(first, Hold::Soft), first.depth));
            }
            self.tree.unpin(copy.device);
            self.tree.unpin(copy.host);
        }
        for (first, depth) in firsts {
            let place = self.tree.pinned(&first);
            // Moved up: the page went with one above it.
            if place.depth == depth {
                let out = self.tree.lose(Tier::Host, place);
                self.left(Tier::Host, &out);
            }
            self.tree.unpin(first);
        }
    }
}
