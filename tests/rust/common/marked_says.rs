//! What a tree says of writes, beside the sets of pages of `marked`.

use super::marked::{Key, MARKS, Marked, prefix};
use hicache_core::ids::Tier;
use hicache_core::tree::Place;
use std::collections::BTreeSet;

impl Marked {
    /// What the tree says of a path, and of all.
    pub(super) fn compare(&mut self) {
        let (key, place, pin) = self.place();
        let all: Vec<Key> = (1..key.len()).map(|pages| prefix(&key, pages)).collect();
        for mark in MARKS {
            let marked = all.iter().filter(|key| self.marks[mark as usize].contains(*key)).count();
            assert_eq!(self.tree.marked_depth(place, mark) as usize, marked, "{mark:?} of {key:?}");
        }
        let unstored: Vec<u32> = self.tree.unstored(place).into_iter().flatten().collect();
        let lacking = (0u32..).zip(&all).filter(|(_, key)| !self.stored.contains(*key)).map(|(page, _)| page);
        assert_eq!(unstored, lacking.collect::<Vec<u32>>(), "{key:?}");
        let owed = all.iter().any(|key| self.owed.contains(key));
        assert!(!owed || self.tree.owes(place), "forgotten: something of {key:?}");
        let mut on_host = self.slots[Tier::Host as usize].keys();
        let lacks = on_host.any(|key| !self.stored.contains(key));
        assert!(lacks || self.tree.in_debt() == 0, "nothing is left to be stored");
        self.debts += usize::from(self.tree.in_debt() > 0);
        for tier in Tier::ALL {
            self.compare_all(tier);
        }
        self.tree.unpin(pin);
    }

    fn compare_all(&self, tier: Tier) {
        let unsaved: BTreeSet<&Key> =
            self.slots[tier as usize].keys().filter(|key| self.unsaved(tier, key)).collect();
        assert_eq!(self.tree.unsaved_pages(tier), unsaved.len(), "{tier:?}");
        // Ends lead to all of these, and to nothing that isn't wanted.
        let key_of = |place: Place| {
            let last = self.tree.slots(place, place.depth - 1..place.depth, tier)[0];
            &self.by_slot[tier as usize][&last]
        };
        let ends: Vec<&Key> = self.tree.unsaved_ends(tier).into_iter().map(key_of).collect();
        assert!(ends.iter().all(|end| self.wanted(tier, end)), "{ends:?}");
        let met = unsaved.iter().filter(|key| ends.iter().any(|end| end.starts_with(key))).count();
        assert_eq!(met, unsaved.len(), "{ends:?} lead to {unsaved:?}");
        for next in self.tree.leaving_next(tier, 6) {
            let end = key_of(next.end);
            let pages = (end.len() - next.count..end.len()).map(|pages| prefix(end, pages));
            let lacks = pages.filter(|key| self.unsaved(tier, key)).count();
            let before = (1..end.len()).any(|pages| self.unsaved(tier, &prefix(end, pages)));
            assert!(if next.saved { lacks == 0 } else { before }, "{next:?} of {end:?}");
        }
    }
}
