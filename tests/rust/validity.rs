//! What is usable when, beside its definition: every window, every hole, every cut, both tiers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::parts::{KINDS, Parts, tokens};
use hicache_core::ids::Tier;
use hicache_core::tree::Component;

const EIGHT: [i32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

fn components() -> impl Iterator<Item = &'static [Component]> {
    KINDS.into_iter().filter(|kind| !kind.is_empty())
}

/// Makes the inner boundary after `pages` pages the end of an edge, by a request that leaves the path there.
fn branch_off(parts: &mut Parts, tier: Tier, pages: usize) {
    parts.extend(tier, &[&EIGHT[..pages], &[99]].concat());
}

/// All patterns of holes in eight pages, for windows shorter than, as long as and longer than the path: the
/// hit is the deepest boundary with an unbroken window before it, also where the path is cut into edges.
#[test]
fn a_hole_inside_a_window_is_never_passed_over() {
    for window in 1..=9_usize {
        for (mask, cut) in (0..256_u32).flat_map(|mask| [0, 3, 6].map(|cut| (mask, cut))) {
            let swa = Component::Swa { window: u32::try_from(window).unwrap() };
            let mut parts = Parts::new(1, &[swa]);
            let tier = Tier::ALL[(mask % 2) as usize];
            let end = parts.extend(tier, &EIGHT);
            let pages: Vec<u32> = (0..8).filter(|page| mask >> page & 1 == 1).collect();
            parts.attach_to(0, tier, end, &pages);
            if cut > 0 {
                branch_off(&mut parts, tier, cut);
            }
            let has = |page: usize| mask >> page & 1 == 1;
            for length in 0..=8 {
                let whole = |end: &usize| (end.saturating_sub(window)..*end).all(has);
                let expected = (1..=length).rev().find(whole).unwrap_or(0);
                let found = parts.find(&EIGHT[..length]);
                assert_eq!(found.usable as usize, expected, "{mask:08b} {window} {length}");
                assert_eq!(found.device, if tier == Tier::Device { found.usable } else { 0 });
            }
        }
    }
}

/// A prompt's own state survives any split of its path: the same prompt hits in full.
#[test]
fn a_prompt_that_was_split_still_hits_in_full() {
    for kind in components() {
        for tier in Tier::ALL {
            for cuts in 0..128_usize {
                let mut parts = Parts::new(2, kind);
                parts.request(tier, &EIGHT);
                let cuts = (1..8).filter(|cut| cuts >> (cut - 1) & 1 == 1);
                cuts.for_each(|cut| branch_off(&mut parts, tier, cut));
                let found = parts.find(&EIGHT);
                assert_eq!((found.usable, found.place.depth), (8, 8), "{kind:?}");
            }
        }
    }
}

/// A checkpoint sums up everything before it: one token less, and it is not used.
#[test]
fn state_is_used_at_its_boundary_and_nowhere_else() {
    for size in [1, 2, 4] {
        for at in 1..8 {
            for cut in 1..8 {
                let mut parts = Parts::new(size, &[Component::State]);
                parts.extend(Tier::Device, &EIGHT);
                let place = parts.find(&EIGHT[..at]).place;
                parts.attach_to(0, Tier::Device, place, &[place.depth - 1]);
                branch_off(&mut parts, Tier::Device, cut);
                let all = tokens(size, &EIGHT);
                for length in 0..=all.len() {
                    let found = parts.find_tokens(&all[..length]);
                    let reached = length >= at * size as usize;
                    assert_eq!(found.usable as usize, if reached { at } else { 0 }, "{length} of {at}");
                    let matched = u32::try_from(length / size as usize).unwrap();
                    let deeper = (matched > found.usable).then_some(matched);
                    assert_eq!(parts.tree.checkpoint_at(&found), deeper, "where one would help");
                }
            }
        }
    }
}

/// The last pages alone, behind another beginning, are no prefix; nor is a path with another page inside.
#[test]
fn a_window_without_its_prefix_is_nothing() {
    for kind in KINDS {
        let mut parts = Parts::new(2, kind);
        parts.request(Tier::Device, &EIGHT);
        for other in 0..8 {
            let mut pages = EIGHT;
            pages[other] = 50;
            let found = parts.find(&pages);
            assert_eq!(found.place.depth as usize, other);
            let plain = if kind.is_empty() { other } else { 0 };
            assert_eq!(found.usable as usize, plain, "{kind:?}: nothing but its end is complete");
            assert_eq!(parts.find(&EIGHT[other..]).place.depth as usize, if other == 0 { 8 } else { 0 });
        }
    }
}

/// Sessions of a hundred turns, with no more room for windows and checkpoints than one session needs: each turn
/// finds all of the one before, however long the session has become.
#[test]
fn a_long_session_hits_all_of_its_last_turn() {
    for kind in components() {
        let mut parts = Parts::new(2, kind);
        let mut pages: Vec<i32> = Vec::new();
        for turn in 0..100 {
            let found = parts.find(&pages);
            assert_eq!(found.device as usize, pages.len(), "{kind:?}, turn {turn}");
            pages.extend((0..=turn % 3).map(|at| 1 + turn * 3 + at));
            parts.request(Tier::Device, &pages);
            for (component, what) in kind.iter().enumerate() {
                let room = match what {
                    Component::Swa { window } => *window as usize,
                    Component::State => 1,
                };
                let over = parts.tree.part_resident(component, Tier::Device).saturating_sub(room);
                parts.evict(Some(component), Tier::Device, over);
            }
        }
        assert_eq!(parts.tree.resident(Tier::Device), pages.len(), "no KV was lost for it");
        parts.emptied();
    }
}

/// Two chats share a system prompt whose own window and checkpoint were never kept. The second is told how far
/// its tokens are known, leaves state there, and the third hits.
#[test]
fn chats_meet_at_a_shared_prompt_once_one_left_its_state_there() {
    for kind in components() {
        let chat = |own: i32| [&EIGHT[..], &[own, own + 1, own + 2, own + 3, own + 4]].concat();
        let mut parts = Parts::new(2, kind);
        parts.request(Tier::Device, &chat(20));
        let found = parts.find(&chat(30));
        assert_eq!((found.place.depth, found.usable), (8, 0), "{kind:?}");
        let has_state = kind.contains(&Component::State);
        assert_eq!(parts.tree.checkpoint_at(&found), has_state.then_some(8));
        parts.complete(Tier::Device, found.place);
        parts.request(Tier::Device, &chat(30));
        assert_eq!(parts.find(&chat(40)).device, 8);
        // And nobody lost anything by it.
        assert_eq!((parts.find(&chat(20)).device, parts.find(&chat(30)).device), (13, 13));
    }
}

/// Exactly a window and a checkpoint travel to the host and back, each page's own, and they are enough.
#[test]
fn exactly_what_a_match_needs_travels_and_is_enough() {
    for kind in components() {
        for length in 1..=8 {
            let mut parts = Parts::new(2, kind);
            let end = parts.request(Tier::Device, &EIGHT[..length]);
            let needs = |component: usize| match kind[component] {
                Component::Swa { window } => length.min(window as usize),
                Component::State => 1,
            };
            for component in 0..kind.len() {
                assert!(
                    parts.tree.missing(component, Tier::Host, end).pages.is_empty(),
                    "FULL isn't there yet"
                );
            }
            parts.bring_full(Tier::Host, end);
            for component in 0..kind.len() {
                let missing = parts.tree.missing(component, Tier::Host, end);
                let first = length - needs(component);
                let pages: Vec<u32> = (first..length).map(|page| u32::try_from(page).unwrap()).collect();
                assert_eq!(missing.pages, pages, "{kind:?}");
                for (&page, &slot) in pages.iter().zip(&missing.slots) {
                    let at = parts.tree.ancestor(end, page + 1);
                    assert_eq!(parts.tree.part_slot(component, Tier::Device, at), Some(slot));
                }
            }
            parts.bring(Tier::Host, end);
            parts.evict_all(Tier::Device);
            let found = parts.find(&EIGHT);
            assert_eq!((found.device, found.usable as usize), (0, length));
            parts.bring(Tier::Device, found.place);
            assert_eq!(parts.find(&EIGHT).device as usize, length);
            parts.emptied();
        }
    }
}
