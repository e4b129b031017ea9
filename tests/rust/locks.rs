//! Pins with components: what they hold stays, what they held comes back, and holes own nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::Seeded;
use common::parts::{KINDS, Parts, tokens};
use hicache_core::ids::{Slot, Tier};
use hicache_core::tree::{Component, Hold};

const EIGHT: [i32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
const HOLDS: [Hold; 2] = [Hold::Device, Hold::Host];

/// A tree in which the path of eight pages lives in one tier, with every boundary complete.
fn path(size: u32, kind: &[Component], tier: Tier) -> Parts {
    let mut parts = Parts::new(size, kind);
    for pages in 1..=8 {
        parts.request(tier, &EIGHT[..pages]);
    }
    parts
}

/// All kinds of models, in both tiers, at two sizes of pages.
fn everywhere(run: impl Fn(u32, &[Component], Tier)) {
    for kind in KINDS {
        for size in [1, 4] {
            Tier::ALL.into_iter().for_each(|tier| run(size, kind, tier));
        }
    }
}

/// Whatever else is asked to go, a prefix that was usable when it was pinned stays usable; afterwards all goes.
#[test]
fn a_pinned_prefix_stays_usable_until_it_is_unpinned() {
    everywhere(|size, kind, tier| {
        for depth in 1..=8 {
            let mut parts = path(size, kind, tier);
            let place = parts.find(&EIGHT[..depth]).place;
            let pin = parts.tree.pin(place, HOLDS[tier as usize]);
            for component in 0..kind.len() {
                parts.evict(Some(component), tier, usize::MAX);
            }
            parts.evict_all(tier);
            let found = parts.find(&EIGHT);
            assert_eq!(found.usable as usize, depth, "{kind:?} {tier:?}");
            assert_eq!(parts.tree.resident(tier), depth, "and no more than that");
            parts.tree.unpin(pin);
            parts.emptied();
        }
    });
}

/// Between a pin and its end edges are split, state goes and comes again, and others pin the same pages.
#[test]
fn a_pin_lets_go_exactly_what_it_held_whatever_happened_meanwhile() {
    everywhere(|size, kind, tier| {
        for seed in 0..60 {
            let mut random = Seeded(seed);
            let mut parts = Parts::new(size, kind);
            parts.request(tier, &EIGHT);
            let mut pins = Vec::new();
            for _ in 0..12 {
                let depth = 1 + random.below(8);
                match random.below(5) {
                    0 | 1 => {
                        let found = parts.find(&EIGHT[..depth]);
                        if found.place.depth > 0 {
                            pins.push(parts.tree.pin(found.place, HOLDS[tier as usize]));
                        }
                    }
                    2 if !pins.is_empty() => parts.tree.unpin(pins.swap_remove(random.below(pins.len()))),
                    3 if !kind.is_empty() => {
                        let (component, wanted) = (random.below(kind.len()), 1 + random.below(4));
                        parts.evict(Some(component), tier, wanted);
                    }
                    // Splits where it ends, mends what is missing there, and maybe branches off.
                    _ => {
                        let mut pages = EIGHT[..depth].to_vec();
                        pages.extend((0..random.below(3)).map(|at| 20 + i32::try_from(at).unwrap()));
                        parts.request(tier, &pages);
                    }
                }
                parts.check();
            }
            pins.into_iter().for_each(|pin| parts.tree.unpin(pin));
            parts.emptied();
        }
    });
}

/// A split moves pages from one node to two, and nothing else.
#[test]
fn a_split_changes_no_totals() {
    everywhere(|size, kind, tier| {
        for cut in 1..8 {
            let mut parts = Parts::new(size, kind);
            let end = parts.request(tier, &EIGHT);
            for pinned in [false, true] {
                let pin = pinned.then(|| parts.tree.pin(end, HOLDS[tier as usize]));
                let totals = |parts: &Parts| {
                    let components = 0..kind.len();
                    let state: Vec<usize> =
                        components.map(|component| parts.tree.part_resident(component, tier)).collect();
                    (parts.tree.resident(tier), parts.tree.evictable(tier), state)
                };
                let before = totals(&parts);
                assert_eq!((before.0, before.1), (8, if pinned { 0 } else { 8 }));
                // It ends inside the edge: all of it is there already.
                parts.extend(tier, &EIGHT[..cut]);
                assert_eq!(totals(&parts), before);
                pin.into_iter().for_each(|pin| parts.tree.unpin(pin));
            }
            // One page more, and it is one page more.
            parts.extend(tier, &[&EIGHT[..cut], &[9]].concat());
            assert_eq!(parts.tree.evictable(tier), 9);
            parts.emptied();
        }
    });
}

/// Holes that are mended adopt exactly the slots that are not reported as duplicates, wherever they are.
#[test]
fn mended_holes_adopt_what_is_not_reported() {
    for tier in Tier::ALL {
        for (there, given) in (0..64_u32).flat_map(|there| (0..64).map(move |given| (there, given))) {
            let pages = |mask: u32| (0..6).filter(|page| mask >> page & 1 == 1).collect::<Vec<u32>>();
            let mut parts = Parts::new(1, &[Component::Swa { window: 6 }]);
            let end = parts.extend(tier, &EIGHT[..6]);
            parts.attach_to(0, tier, end, &pages(there));
            let adopted = parts.attach_to(0, tier, end, &pages(given));
            assert_eq!(adopted, (given & !there).count_ones() as usize);
            assert_eq!(parts.tree.part_resident(0, tier), (given | there).count_ones() as usize);
            for page in 0..6 {
                let slot = parts.tree.part_slot(0, tier, parts.tree.ancestor(end, page + 1));
                assert_eq!(slot.is_some(), (given | there) >> page & 1 == 1, "page {page}");
            }
        }
    }
}

/// What a hole gave up is somebody else's: mending or evicting the hole's page leaves that one alone.
#[test]
fn a_hole_owns_nothing() {
    for tier in Tier::ALL {
        for hole in 0..4 {
            let mut parts = Parts::new(1, &[Component::Swa { window: 4 }]);
            let end = parts.extend(tier, &EIGHT[..5]);
            parts.attach(0, tier, end, hole..hole + 1);
            let inner = parts.extend(tier, &EIGHT[..4]);
            assert_eq!(parts.evict(Some(0), tier, 1), 1);
            assert_eq!(parts.tree.resident(tier), 5, "its KV stays");
            let other = parts.extend(tier, &[9]);
            // The pool hands out again what the hole gave up.
            assert_eq!(parts.attach(0, tier, other, 0..1), 1);
            let theirs = parts.tree.part_slot(0, tier, other);
            assert_eq!(theirs, Some(Slot(0)));
            assert_eq!(parts.attach(0, tier, inner, hole..hole + 1), 1);
            assert_eq!(parts.tree.part_slot(0, tier, other), theirs);
            parts.find(&EIGHT);
            parts.tree.touch(other);
            assert_eq!(parts.evict(Some(0), tier, 1), 1, "the older one");
            assert_eq!(parts.tree.part_slot(0, tier, other), theirs);
            parts.emptied();
        }
    }
}

/// State that covers less than the tokens: the hit ends where the state does, holds no more than that, and when
/// the rest has gone, the tree is as if only so much had been inserted.
#[test]
fn what_state_does_not_cover_is_not_held_by_the_hit() {
    everywhere(|size, kind, tier| {
        if kind.is_empty() {
            return;
        }
        for covered in 1..8 {
            let mut parts = Parts::new(size, kind);
            let end = parts.extend(tier, &EIGHT);
            let covered_end = parts.tree.ancestor(end, u32::try_from(covered).unwrap());
            parts.complete(tier, covered_end);
            let found = parts.find(&EIGHT);
            assert_eq!((found.place.depth, found.usable as usize), (8, covered));
            let place = parts.tree.ancestor(found.place, found.usable);
            let pin = parts.tree.pin(place, HOLDS[tier as usize]);
            parts.evict_all(tier);
            let found = parts.find(&EIGHT);
            assert_eq!((found.place.depth as usize, found.usable as usize), (covered, covered));
            assert_eq!(parts.tree.resident(tier), covered);
            parts.tree.unpin(pin);
            // Computed again, with its state this time.
            parts.request(tier, &EIGHT);
            assert_eq!(parts.find(&EIGHT).usable, 8);
            parts.emptied();
        }
    });
}

/// Requests that are matched, wait and leave, a hundred times: no slot moves, and no decision is taken.
#[test]
fn a_match_that_comes_to_nothing_costs_nothing() {
    everywhere(|size, kind, tier| {
        let mut parts = path(size, kind, tier);
        let before = parts.tree.digest();
        for round in 0..100 {
            let tokens = tokens(size, &EIGHT);
            let found = parts.find_tokens(&tokens[..round * tokens.len() / 99]);
            let soft = parts.tree.pin(found.place, Hold::Soft);
            let at = parts.tree.ancestor(found.place, found.usable);
            let hard = parts.tree.pin(at, HOLDS[tier as usize]);
            parts.tree.unpin(soft);
            parts.tree.unpin(hard);
            parts.check();
        }
        assert_eq!(parts.tree.digest(), before);
        parts.emptied();
    });
}
