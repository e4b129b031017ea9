//! What is free of one extent: parts that were written before, and parts that weren't yet.
//!
//! Writing into what was written before is 1.7 to 3 times faster, and changes nothing in the file system that
//! would have to reach the disk with it.
//!
//! ```text
//! 0                                                     extent's end
//! | ready | in use | ready | in use | being written | todo        |
//! ```
//! Pure: counts bytes, does no I/O.
//! On error: none; ranges are its caller's.

use std::collections::VecDeque;
use std::ops::Range;

/// Ranges of bytes, none twice. Of an extent with a class they are whole slots.
#[derive(Debug, Default)]
pub struct Supply {
    ready: VecDeque<Range<u64>>,
    todo: VecDeque<Range<u64>>,
}

impl Supply {
    /// All of an extent, of which these parts (ascending, apart from each other) were written.
    pub fn of(written: &[Range<u64>], bytes: u64) -> Self {
        let mut supply = Self::default();
        let mut at = 0;
        for part in written {
            supply.give(at..part.start, false);
            supply.give(part.clone(), true);
            at = part.end;
        }
        supply.give(at..bytes, false);
        supply
    }

    /// The next slot, and whether it was written before.
    pub fn take(&mut self, slot: u64) -> Option<(u64, bool)> {
        let cut = |ranges: &mut VecDeque<Range<u64>>| front(ranges, slot, slot).map(|range| range.start);
        cut(&mut self.ready).map(|at| (at, true)).or_else(|| cut(&mut self.todo).map(|at| (at, false)))
    }

    /// Something to write: whole slots, at most so many bytes but for a larger slot.
    pub fn claim(&mut self, slot: u64, most: u64) -> Option<Range<u64>> {
        front(&mut self.todo, slot, most)
    }

    /// Takes a range back.
    pub fn give(&mut self, range: Range<u64>, written: bool) {
        let ranges = if written { &mut self.ready } else { &mut self.todo };
        match ranges.back_mut() {
            _ if range.is_empty() => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => ranges.push_back(range),
        }
    }

    /// Whether all of this slot was written, of an extent that is in `order` and not cut yet.
    pub fn wrote(&self, slot: u64, number: u32) -> bool {
        let range = u64::from(number) * slot..u64::from(number + 1) * slot;
        let after = self.ready.partition_point(|part| part.start <= range.start);
        after.checked_sub(1).is_some_and(|at| range.end <= self.ready[at].end)
    }

    /// Cuts it into slots but those in use (ascending), out of the parts that it has.
    pub fn cut(&mut self, slot: u64, slots: u32, used: impl IntoIterator<Item = u32>) {
        self.order();
        let written = std::mem::take(&mut self.ready);
        *self = Self::default();
        let (mut used, mut parts) = (used.into_iter().peekable(), written.iter().peekable());
        for number in 0..slots {
            if used.next_if_eq(&number).is_some() {
                continue;
            }
            let range = u64::from(number) * slot..u64::from(number + 1) * slot;
            while parts.next_if(|part| part.end <= range.start).is_some() {}
            let whole = parts.peek().is_some_and(|part| part.start <= range.start && range.end <= part.end);
            self.give(range, whole);
        }
    }

    /// Makes one range of those that touch.
    pub fn order(&mut self) {
        for ranges in [&mut self.ready, &mut self.todo] {
            let sorted = ranges.make_contiguous();
            sorted.sort_unstable_by_key(|range| range.start);
        }
        let old = std::mem::take(self);
        old.ready.into_iter().for_each(|range| self.give(range, true));
        old.todo.into_iter().for_each(|range| self.give(range, false));
    }

    /// Bytes that are free: written before, and not yet.
    pub fn bytes(&self) -> (u64, u64) {
        let sum = |ranges: &VecDeque<Range<u64>>| ranges.iter().map(|range| range.end - range.start).sum();
        (sum(&self.ready), sum(&self.todo))
    }

    pub fn has(&self, written: bool) -> bool {
        !if written { &self.ready } else { &self.todo }.is_empty()
    }
}

/// Cuts whole slots off the first range: at most so many bytes, one at least.
fn front(ranges: &mut VecDeque<Range<u64>>, slot: u64, most: u64) -> Option<Range<u64>> {
    let first = ranges.front_mut()?;
    let bytes = (most / slot * slot).max(slot).min(first.end - first.start);
    let cut = first.start..first.start + bytes;
    first.start = cut.end;
    if first.is_empty() {
        ranges.pop_front();
    }
    Some(cut)
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of one range")]
mod tests {
    use super::*;

    fn slots(supply: &mut Supply, slot: u64) -> Vec<(u64, bool)> {
        std::iter::from_fn(|| supply.take(slot)).map(|(at, written)| (at / slot, written)).collect()
    }

    #[test]
    fn a_slot_is_ready_where_all_of_it_was_written() {
        let mut supply = Supply::of(&[0..25, 30..60], 104);
        supply.cut(10, 10, []);
        let ready: Vec<u64> = slots(&mut supply, 10).iter().filter(|s| s.1).map(|s| s.0).collect();
        assert_eq!(ready, [0, 1, 3, 4, 5]);
    }

    #[test]
    fn slots_in_use_are_not_given() {
        let mut supply = Supply::of(&[0..50], 100);
        supply.cut(10, 10, [0, 2, 9]);
        let all = slots(&mut supply, 10);
        assert_eq!(all, [(1, true), (3, true), (4, true), (5, false), (6, false), (7, false), (8, false)]);
    }

    #[test]
    fn written_slots_go_first_and_a_claim_is_whole_slots() {
        let mut supply = Supply::of(&[], 100);
        supply.cut(10, 10, []);
        assert_eq!(supply.claim(10, 35), Some(0..30));
        assert_eq!(supply.take(10), Some((30, false)));
        supply.give(0..30, true);
        assert_eq!(supply.take(10), Some((0, true)));
        assert_eq!(supply.claim(10, 3), Some(40..50), "one slot at least");
        assert_eq!(supply.bytes(), (20, 50));
    }

    #[test]
    fn what_was_written_outlives_a_change_of_class() {
        let mut supply = Supply::of(&[0..100], 100);
        supply.cut(10, 10, []);
        let mut taken = slots(&mut supply, 10);
        taken.reverse();
        taken.iter().for_each(|&(at, _)| supply.give(at * 10..at * 10 + 10, at != 4));
        supply.order();
        supply.cut(25, 4, []);
        assert_eq!(slots(&mut supply, 25), [(0, true), (2, true), (3, true), (1, false)]);
    }
}
