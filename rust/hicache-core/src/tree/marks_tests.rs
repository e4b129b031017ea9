//! Marks do what a plain set of pages does, whatever is added, removed and cut.
#![allow(clippy::unwrap_used, reason = "a test that fails is loud")]

use super::Marks;
use std::collections::BTreeSet;

fn next(state: &mut u64, below: u32) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    u32::try_from(*state >> 33).unwrap() % below
}

#[test]
fn marks_are_a_set() {
    const START: u32 = 5;
    for seed in 0..200 {
        let (mut marks, mut set, mut random) = (Marks::new(START), BTreeSet::new(), seed);
        for _ in 0..60 {
            let from = START + next(&mut random, 20);
            match next(&mut random, 8) {
                0..4 => {
                    let pages = from..from + next(&mut random, 6);
                    marks.add(pages.clone());
                    set.extend(pages);
                }
                4..7 => {
                    marks.remove(from);
                    set.remove(&from);
                }
                _ => {
                    marks.cut(from);
                    set.retain(|&page| page < from);
                }
            }
            let within = START + next(&mut random, 10)..START + next(&mut random, 30);
            let missing: Vec<u32> = within.clone().filter(|page| !set.contains(page)).collect();
            let found: Vec<u32> = marks.missing(within.clone()).into_iter().flatten().collect();
            assert_eq!(found, missing, "{marks:?} within {within:?}");
            assert_eq!(marks.lacks(within), missing.len());
            let whole = marks.ranges().iter().try_fold(marks.to, |before, range| {
                (range.start > before && range.end > range.start).then_some(range.end)
            });
            assert!(whole.is_some(), "{marks:?}");
        }
        let owed = (marks.owe(true), marks.owe(true), marks.owing(), marks.owe(false));
        assert_eq!(owed, (true, false, true, true));
    }
}
