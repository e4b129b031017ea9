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
use crate::tree::{By, Hold};

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
            self.close_gate(copy.gate);
            if self.stages() {
                self.staged_copy(copy);
                continue;
            }
            self.let_go(copy.device);
            self.landed(copy.host, &copy.store);
        }
        for copy in self.flights.loads.drain(..loads).collect::<Vec<_>>() {
            if copy.ticket > loaded {
                self.stats.load_failed_pages += u64::from(copy.pages);
            }
            self.close_gate(copy.gate);
            self.staged_load(&copy);
            self.let_go(copy.device);
            self.let_go(copy.host);
        }
        self.lose_backups(failed);
    }

    /// Host pages, windows and states of backups that failed. No transfer holds any of the pages any more.
    fn lose_backups(&mut self, failed: Vec<Copy>) {
        self.leaves_by(By::Fault);
        let mut lost = Vec::with_capacity(failed.len());
        for copy in failed {
            if self.stages() {
                self.lose_staged(copy);
                continue;
            }
            self.stats.backup_failed_pages += u64::from(copy.pages);
            self.close_gate(copy.gate);
            let end = self.tree.pinned(&copy.host);
            // Soft pins follow what happens to both places while other pages are lost.
            let first = (copy.pages > 0).then(|| {
                let first = self.tree.ancestor(end, end.depth - copy.pages + 1);
                (self.tree.pin(first, Hold::Soft), first.depth)
            });
            lost.push((first, self.tree.pin(end, Hold::Soft), copy.parts));
            self.tree.unpin(copy.device);
            self.tree.unpin(copy.host);
        }
        for (first, end, parts) in lost {
            if let Some((first, depth)) = first {
                let place = self.tree.pinned(&first);
                // Moved up: the page went with one above it.
                if place.depth == depth {
                    let out = self.tree.lose(Tier::Host, place);
                    self.left(Tier::Host, &out);
                }
                self.tree.unpin(first);
            }
            // With what is lost of the path went its windows and states; those before it are on what is left.
            for (part, slots) in parts.into_iter().enumerate() {
                let gone = self.tree.lose_parts(part, Tier::Host, self.tree.pinned(&end), &slots);
                self.part_left(part, Tier::Host, &gone);
            }
            self.tree.unpin(end);
        }
    }
}
