//! Scenarios of hybrid models: shared documents, sparse checkpoints, windows that close again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

use hicache_core::hash::Namespace;
use hicache_core::ids::{Slot, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::tree::{Component, Found, Place, Tree};

struct Engine {
    tree: Tree,
    made: u32,
}

impl Engine {
    fn new(page_size: u32, components: &[Component]) -> Self {
        let tree = Tree::with_components(PageSize::new(page_size).unwrap(), false, components);
        Self { tree, made: 0 }
    }

    fn slots(&mut self, count: usize) -> Vec<Slot> {
        self.made += u32::try_from(count).unwrap();
        (self.made - u32::try_from(count).unwrap()..self.made).map(Slot).collect()
    }

    fn find(&mut self, tokens: &[i32]) -> Found {
        let root = self.tree.root(&Namespace::default());
        self.tree.walk(root, Tokens::I32(tokens))
    }

    /// Computes a prompt up to `tokens.len()` and inserts it with a checkpoint (component 0) at its end.
    fn checkpoint(&mut self, tokens: &[i32]) -> Place {
        let pages = tokens.len() / self.tree.page_size().tokens();
        let slots = self.slots(pages);
        let root = self.tree.root(&Namespace::default());
        let end = self.tree.extend(root, Tokens::I32(tokens), Tier::Device, &slots).place;
        let state = self.slots(1);
        self.tree.attach(0, Tier::Device, end, &[end.depth - 1], &state);
        self.tree.check().unwrap();
        end
    }

    /// Write-through: FULL pages that are not on the host, and what components miss there.
    fn back_up(&mut self, end: Place, components: bool) -> usize {
        let missing = (end.depth - self.tree.resident_depth(end, Tier::Host)) as usize;
        let slots = self.slots(missing);
        self.tree.mirror(end, &slots);
        let mut copied = missing;
        for component in 0..self.tree.components().len() {
            let missing = self.tree.missing(component, Tier::Host, end);
            if components && !missing.pages.is_empty() {
                let slots = self.slots(missing.pages.len());
                copied += slots.len();
                assert_eq!(self.tree.attach(component, Tier::Host, end, &missing.pages, &slots), []);
            }
        }
        self.tree.check().unwrap();
        copied
    }
}

/// A shared document of 6,400 tokens, then 3,600 of one's own; ten requests. The document's checkpoint is
/// made by the second request, at a place whose KV is on the host already. With `incremental` it is backed
/// up all the same. Then the device loses its checkpoints. Returns (full recoveries, hit tokens, all tokens).
fn shared_document(incremental: bool) -> (usize, usize, usize) {
    const PAGE: u32 = 100;
    let mut engine = Engine::new(PAGE, &[Component::State]);
    let document: Vec<i32> = (0..6_400).collect();
    let prompt = |request: i32| -> Vec<i32> {
        document.iter().copied().chain((0..3_600).map(|at| 100_000 * (request + 1) + at)).collect()
    };
    let first = engine.checkpoint(&prompt(0));
    engine.back_up(first, true);

    // The second one matches the document's tokens, finds no state, and is told where one would help.
    let found = engine.find(&prompt(1));
    assert_eq!((found.place.depth, found.usable), (64, 0));
    assert_eq!(engine.tree.checkpoint_at(&found), Some(64));
    let branch = engine.checkpoint(&document);
    let copied = engine.back_up(branch, incremental);
    assert_eq!(copied, usize::from(incremental), "the checkpoint alone: its KV is there");
    let second = engine.checkpoint(&prompt(1));
    engine.back_up(second, true);

    let states = engine.tree.part_resident(0, Tier::Device);
    let out = engine.tree.evict_component(0, Tier::Device, states);
    assert_eq!(out.parts[0].len(), states);
    engine.tree.check().unwrap();

    let (mut recovered, mut hit, mut all) = (0, 0, 0);
    for request in 2..12 {
        let prompt = prompt(request);
        let found = engine.find(&prompt);
        assert_eq!(found.device, 0, "the device has no checkpoint left");
        recovered += usize::from(found.usable == 64);
        hit += (found.usable * PAGE) as usize;
        all += prompt.len();
    }
    (recovered, hit, all)
}

#[test]
fn a_shared_documents_checkpoint_is_backed_up_though_its_kv_already_was() {
    assert_eq!(shared_document(true), (10, 64_000, 100_000), "64.00 %");
    assert_eq!(shared_document(false), (0, 0, 100_000), "without it nobody hits");
}

/// A window that was broken is whole again behind the gap; before that, nothing is usable.
#[test]
fn a_match_opens_again_after_a_gap() {
    let mut engine = Engine::new(1, &[Component::Swa { window: 2 }]);
    let slots = engine.slots(8);
    let root = engine.tree.root(&Namespace::default());
    let tokens = [1, 2, 3, 4, 5, 6, 7, 8];
    let end = engine.tree.extend(root, Tokens::I32(&tokens), Tier::Device, &slots).place;
    // Page 2 is a hole.
    let window = engine.slots(7);
    engine.tree.attach(0, Tier::Device, end, &[0, 1, 3, 4, 5, 6, 7], &window);
    let usable: Vec<u32> = (1..=8).map(|n| engine.find(&tokens[..n]).usable).collect();
    //                      1  2  3: hole 4: one page  5: whole again
    assert_eq!(usable, [1, 2, 2, 2, 5, 6, 7, 8]);
    // An insert that brings the page again mends the hole.
    let mended = engine.slots(1);
    assert_eq!(engine.tree.attach(0, Tier::Device, end, &[2], &mended), []);
    assert_eq!(engine.find(&tokens[..4]).usable, 4);
    engine.tree.check().unwrap();
}

/// A window lives on two tiers at once, half here, half there: usable, but not on the device alone.
#[test]
fn a_window_may_be_whole_only_over_both_tiers() {
    let mut engine = Engine::new(1, &[Component::Swa { window: 2 }]);
    let slots = engine.slots(4);
    let root = engine.tree.root(&Namespace::default());
    let end = engine.tree.extend(root, Tokens::I32(&[1, 2, 3, 4]), Tier::Device, &slots).place;
    let window = engine.slots(2);
    engine.tree.attach(0, Tier::Device, end, &[2, 3], &window);
    engine.back_up(end, true);
    // Not the leaf's own end: a request behind it makes it an inner edge.
    let more = engine.slots(5);
    engine.tree.extend(root, Tokens::I32(&[1, 2, 3, 4, 5]), Tier::Device, &more);
    let out = engine.tree.evict_component(0, Tier::Device, 1);
    assert_eq!((out.parts[0].len(), out.slots.len()), (1, 0), "a tombstone: FULL stays");
    let found = engine.find(&[1, 2, 3, 4]);
    assert_eq!((found.device, found.usable), (0, 4));
    let missing = engine.tree.missing(0, Tier::Device, found.place);
    assert_eq!(missing.pages, [2], "one page comes back from the host");
    engine.tree.check().unwrap();
}

/// At a leaf everything goes together: KV whose checkpoint is gone could not be used.
#[test]
fn a_leaf_leaves_as_a_whole() {
    let mut engine = Engine::new(1, &[Component::State]);
    engine.checkpoint(&[1, 2, 3, 4]);
    engine.checkpoint(&[1, 2]);
    let out = engine.tree.evict_component(0, Tier::Device, 1);
    assert_eq!((out.parts[0].len(), out.slots.len(), out.dropped), (1, 2, 2));
    assert_eq!(engine.find(&[1, 2, 3, 4]).device, 2, "the branch's own checkpoint stays");
    engine.tree.check().unwrap();
}

/// Of a long conversation's checkpoints only the last few stay on the device; forks are spared.
#[test]
fn the_cap_on_checkpoints_spares_tail_and_forks() {
    let mut engine = Engine::new(1, &[Component::State]);
    let tokens: Vec<i32> = (1..=6).collect();
    let ends: Vec<Place> = (1..=6).map(|n| engine.checkpoint(&tokens[..n])).collect();
    engine.checkpoint(&[1, 2, 9]);
    let freed = engine.tree.cap_checkpoints(0, ends[5], 2);
    assert_eq!(freed.len(), 3, "of 6, the last two stay, and the one at the fork");
    let usable: Vec<u32> = (1..=6).map(|n| engine.find(&tokens[..n]).usable).collect();
    assert_eq!(usable, [0, 2, 2, 2, 5, 6]);
    assert_eq!(engine.tree.cap_checkpoints(0, ends[5], 2), []);
    engine.tree.check().unwrap();
}
