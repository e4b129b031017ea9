//! What readers find in tables that were made anew many times, and how much that moves: counts, no clock.

use super::publisher::Publisher;
use super::{TABLES, table_of};
use crate::page::Tokens;
use crate::tree::print::{Change, next_print};
use std::collections::HashMap;

/// Fingerprints of different pages.
fn print(page: u32) -> u64 {
    next_print(0, Tokens::U32(&[page]))
}

fn change(page: u32, tiers: u64) -> Change {
    Change { print: print(page), tiers }
}

/// Entries, used or not.
fn entries(publisher: &Publisher) -> usize {
    publisher.shared.tables.load().iter().map(|table| table.capacity()).sum()
}

/// What a reader finds.
fn found(publisher: &Publisher, page: u32) -> u64 {
    publisher.shared.tables.load()[table_of(print(page))].get(print(page))
}

/// Pages come, move and leave in calls of up to 40; more come for a while, then more leave, so that tables grow,
/// fill with what left, and shrink.
#[test]
fn what_is_there_is_found_and_nothing_else() {
    for seed in 0..3 {
        let first: Vec<_> = (0..500).map(|page| change(page, 1)).collect();
        let mut there: HashMap<u32, u64> = (0..500).map(|page| (page, 1)).collect();
        let (mut publisher, mut state, mut moved) = (Publisher::new(&first), seed, 0);
        let mut random = |below: u64| {
            state = next_print(state, Tokens::EMPTY);
            u32::try_from((state >> 16) % below).unwrap_or_default()
        };
        for call in 0..5_000 {
            // Few names in the end: most of what comes has been there before.
            let names = if call < 2_500 { 60_000 } else { 3_000 };
            let leaving = if call % 500 < 250 { 3 } else { 7 };
            let count = random(40) as usize;
            let mut changes = Vec::new();
            for _ in 0..count {
                let (page, leaves) = (random(names), random(10) < leaving);
                let tiers = if leaves { 0 } else { 1 + u64::from(random(3)) };
                there.insert(page, tiers);
                changes.push(change(page, tiers));
            }
            moved += publisher.apply(&changes);
            if call % 250 == 249 {
                for page in 0..61_000 {
                    assert_eq!(found(&publisher, page), there.get(&page).copied().unwrap_or(0), "{page}");
                }
            }
        }
        assert!(moved > 10_000, "tables were made anew many times: {moved}");
    }
}

/// A call moves about one table's pages, not all of them: while pages come, and while as many leave. And over all
/// calls no more pages move than came.
#[test]
fn a_call_moves_few_entries() {
    const PAGES: u32 = 200_000;
    const CALL: u32 = 64;
    let (mut publisher, mut all) = (Publisher::new(&[]), 0);
    for first in (0..4 * PAGES).step_by(CALL as usize) {
        let mut changes: Vec<_> = (first..first + CALL).map(|page| change(page, 1)).collect();
        if let Some(oldest) = first.checked_sub(PAGES) {
            changes.extend((oldest..oldest + CALL).map(|page| change(page, 0)));
        }
        let moved = publisher.apply(&changes);
        let one = (first + CALL).min(PAGES) as usize / TABLES;
        assert!(moved <= 4 * (4 * CALL as usize + one), "{moved} of {first}, a table has {one}");
        all += moved;
    }
    assert!(all <= 4 * PAGES as usize, "{all}");
}

/// A small cache's tables are small, and what left leaves nothing behind for good.
#[test]
fn tables_take_some_words_a_page() {
    assert_eq!(entries(&Publisher::new(&[])), TABLES << 3);
    let pages: Vec<_> = (0..100_000).map(|page| change(page, 1)).collect();
    let mut publisher = Publisher::new(&[]);
    pages.chunks(100).for_each(|some| _ = publisher.apply(some));
    for publisher in [&publisher, &Publisher::new(&pages)] {
        assert!(entries(publisher) <= 8 * pages.len(), "{}", entries(publisher));
    }
    // A hundred pages at a time, of which each call's leave with the next one's coming.
    let mut before = Vec::new();
    for first in (0..2_000_000).step_by(100) {
        let coming: Vec<_> = (first..first + 100).map(|page| change(page, 1)).collect();
        before.extend_from_slice(&coming);
        publisher.apply(&before);
        before = coming.iter().map(|page| Change { tiers: 0, ..*page }).collect();
        if first == 0 {
            before.extend(pages.iter().map(|page| Change { tiers: 0, ..*page }));
        }
    }
    assert!(entries(&publisher) <= TABLES << 4, "{}", entries(&publisher));
}
