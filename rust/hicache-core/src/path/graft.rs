//! The part of `poll` that hangs windows and states which were read below their pages.

use crate::cache::HiCache;
use crate::ids::{HitId, HostSlot, Slot, Tier};
use crate::storage::Outcome;
use crate::tree::{Component, Place};

impl HiCache {
    /// Gives pages on the host what was read of their parts; gives back the slots of what can't be used.
    pub(super) fn graft_parts(&mut self, id: HitId, reads: &[(u32, HostSlot)], outcomes: &[Outcome]) {
        if self.stages() {
            return self.stage_parts(id, reads, outcomes);
        }
        let Ok(found) = self.find_again(id) else { return self.give_reads_back(reads) };
        // Pages before those that were to carry them may have gone, or may not have come.
        let on_host = self.tree.resident_depth(found.place, Tier::Host);
        let mut arrived: Vec<Vec<(u32, Slot)>> = vec![Vec::new(); self.parts.len()];
        for (&(page, to), &outcome) in reads.iter().zip(outcomes) {
            if outcome == Outcome::Hit && page < on_host {
                arrived[to.space as usize - 1].push((page, to.slot));
            } else {
                self.stats.prefetch_dropped_pages += u64::from(outcome == Outcome::Hit);
                self.give_reads_back(&[(page, to)]);
            }
        }
        for (part, arrived) in arrived.into_iter().enumerate() {
            let place = self.tree.ancestor(found.place, found.place.depth);
            self.graft_part(part, place, &arrived);
        }
        self.note_stored(id);
    }

    /// They are in order of the pages.
    fn graft_part(&mut self, part: usize, place: Place, arrived: &[(u32, Slot)]) {
        let Some(&(last, _)) = arrived.last() else { return };
        let (pages, slots): (Vec<u32>, Vec<Slot>) = arrived.iter().copied().unzip();
        debug_assert!(pages.len() == 1 || self.tree.components()[part] != Component::State, "one checkpoint");
        let end = self.tree.ancestor(place, last + 1);
        // Others may have brought some of it meanwhile.
        let duplicates = self.tree.attach(part, Tier::Host, end, &pages, &slots);
        let adopted: Vec<Slot> = slots.iter().copied().filter(|slot| !duplicates.contains(slot)).collect();
        let pools = &mut self.parts[part];
        pools.host.place(&adopted);
        pools.host.give_back(&duplicates);
        pools.stats.prefetched += adopted.len() as u64;
        self.forget_slots(part + 1, &duplicates);
        self.stats.prefetch_dropped_pages += duplicates.len() as u64;
    }

    /// Reads that nobody can use: their slots are free again.
    pub(super) fn give_reads_back(&mut self, reads: &[(u32, HostSlot)]) {
        for (_, to) in reads {
            self.give_reads_of(to.space, &[to.slot]);
        }
    }

    /// Something of a hit's prefetch has come: it is held where it ends now. With parts, what was stored for it is
    /// what is usable since.
    pub(super) fn note_stored(&mut self, id: HitId) {
        // Cannot fail: the hit is there.
        let Ok(found) = self.find_again(id) else { return };
        let Some(hit) = self.hits.get_mut(&id).filter(|_| !self.parts.is_empty()) else { return };
        if let Some(fetch) = &hit.fetch
            && found.usable > fetch.usable.start
        {
            hit.stored = fetch.usable.start..found.usable;
        }
    }
}
