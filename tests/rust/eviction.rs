//! The seam of eviction: another policy that decides alike takes the same pages, whatever happens to the tree;
//! and a policy hears all that it must know.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::drive::Drive;
use common::policies::{Fewest, Listening, Searched};
use common::seeds;
use hicache_core::hash::Namespace;
use hicache_core::ids::{Slot, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::policy::{self, Eviction, Lru, Moment, Order, Request};
use hicache_core::tree::{Component, Hold, Place, Tree};
use std::collections::{BTreeMap, BTreeSet};

const HYBRIDS: [&[Component]; 3] =
    [&[], &[Component::Swa { window: 2 }, Component::State], &[Component::Swa { window: 3 }]];

fn runs() -> impl Iterator<Item = (u64, &'static [Component])> {
    seeds(60).flat_map(|seed| HYBRIDS.map(|components| (seed, components)))
}

/// Splits, pins of every kind, both tiers, components: the searched twin takes exactly the same pages.
#[test]
fn lru_takes_what_its_searched_twin_takes() {
    let mut taken = 0;
    for (seed, components) in runs() {
        let twin: Box<dyn Eviction> = Box::new(Searched::default());
        let (mut a, mut b) =
            (Drive::new(components, seed, Box::new(Lru::default())), Drive::new(components, seed, twin));
        for _ in 0..300 {
            let (left, right) = (a.step(), b.step());
            assert_eq!(left, right, "seed {seed}");
            taken += left.1.map_or(0, |out| out.slots.len() + out.parts.concat().len());
            assert_eq!(a.tree.digest(), b.tree.digest(), "seed {seed}");
        }
        b.tree.check().unwrap();
        a.tree.check().unwrap();
        assert_eq!(a.close(), b.close(), "seed {seed}");
    }
    assert!(taken > 10_000, "{taken} is too little to tell");
}

/// Nothing else is decided differently because a policy wants names of pages.
#[test]
fn listening_changes_nothing() {
    for (seed, components) in runs().take(30) {
        let (listening, _) = Listening::to(Lru::default());
        let (mut a, mut b) =
            (Drive::new(components, seed, Box::new(Lru::default())), Drive::new(components, seed, listening));
        for _ in 0..300 {
            assert_eq!(a.step(), b.step());
        }
        assert_eq!(a.close(), b.close());
    }
}

/// From what it hears alone, a policy knows which pages are in which tier, by names that are the same
/// whenever a page is there: after splits, evictions and when it comes back, and in no other namespace.
#[test]
fn pages_keep_their_names() {
    let mut back = 0;
    for (seed, components) in runs() {
        let (policy, heard) = Listening::to(Lru::default());
        let mut drive = Drive::new(components, seed, policy);
        let (mut names, mut owners) = (BTreeMap::new(), BTreeMap::new());
        let mut told = 0;
        for _ in 0..300 {
            let (key, _) = drive.step();
            drive.tree.check().unwrap();
            let heard = heard.lock().unwrap();
            for tier in Tier::ALL {
                assert_eq!(heard.pages[tier as usize].len(), drive.tree.resident(tier), "seed {seed}");
            }
            let salt = (key.last() == Some(&-1)).then_some(-1);
            for (_, depth, pages) in &heard.requests[told..] {
                assert_eq!(*depth as usize, pages.len());
                for (page, name) in pages.iter().enumerate() {
                    let prefix: Vec<i32> = salt.into_iter().chain(key[..=page].iter().copied()).collect();
                    assert_eq!(names.entry(prefix.clone()).or_insert(*name), name);
                    assert_eq!(owners.entry(*name).or_insert_with(|| prefix.clone()), &prefix);
                }
                let gone: BTreeSet<u64> = heard.gone.iter().copied().collect();
                back += pages.iter().filter(|page| gone.contains(page)).count();
            }
            told = heard.requests.len();
        }
        drive.close();
        let heard = heard.lock().unwrap();
        assert!(heard.pages.iter().all(BTreeSet::is_empty));
    }
    assert!(back > 1_000, "only {back} pages came back");
}

fn tree(policy: Box<dyn Eviction>, components: &[Component]) -> Tree {
    Tree::with_policy(PageSize::new(1).unwrap(), false, components, policy)
}

fn insert(tree: &mut Tree, tokens: &[i32], first: u32) -> Place {
    let root = tree.root(&Namespace::default());
    let slots: Vec<Slot> = (first..).take(tokens.len()).map(Slot).collect();
    let done = tree.extend(root, Tokens::I32(tokens), Tier::Device, &slots);
    let turn = tree.next_turn(root);
    let new_pages = u32::try_from(done.new_pages).unwrap();
    let request = Request { number: 1, tick: 0, moment: Moment::Inserted, turn, new_pages };
    tree.tell(request, 0..done.place.depth, done.place);
    tree.check().unwrap();
    done.place
}

/// A count that outlives the page: what came back as often used as before stays, what was used less goes.
#[test]
fn a_policy_remembers_pages_that_left() {
    let mut tree = tree(Box::new(Fewest::default()), &[]);
    for _ in 0..3 {
        insert(&mut tree, &[1, 2], 0);
    }
    assert_eq!(tree.evict(Tier::Device, 2).slots, [Slot(1), Slot(0)]);
    for _ in 0..2 {
        insert(&mut tree, &[3, 4], 10);
    }
    // Three uses before, one now; the others have two.
    insert(&mut tree, &[1, 2], 20);
    assert_eq!(tree.evict(Tier::Device, 3).slots, [Slot(11), Slot(10), Slot(21)]);
    tree.check().unwrap();
}

/// The policy says how much of a tail goes before it is asked again.
#[test]
fn a_policy_takes_page_by_page() {
    let mut tree = tree(Box::new(Fewest::default()), &[]);
    let end = insert(&mut tree, &[1, 2, 3], 0);
    let request = Request { number: 2, tick: 0, moment: Moment::Matched, turn: 1, new_pages: 0 };
    // Two more uses of the first two pages of one edge.
    for _ in 0..2 {
        tree.tell(request, 0..2, tree.ancestor(end, 2));
    }
    insert(&mut tree, &[5, 6], 10);
    insert(&mut tree, &[5, 6], 10);
    assert_eq!(tree.evict(Tier::Device, 3).slots, [Slot(2), Slot(11), Slot(10)]);
    assert_eq!(tree.evict(Tier::Device, 3).slots, [Slot(1), Slot(0)]);
}

/// What was held while others were used is still older than they are.
#[test]
fn what_is_let_go_is_as_old_as_it_was() {
    let mut tree = tree(Box::new(Lru::default()), &[Component::State]);
    let checkpoint = |tree: &mut Tree, token: i32, slot: u32| {
        let end = insert(tree, &[token], slot);
        assert_eq!(tree.attach(0, Tier::Device, end, &[0], &[Slot(slot)]), []);
        end
    };
    let held = checkpoint(&mut tree, 1, 0);
    let pin = tree.pin(held, Hold::Device);
    checkpoint(&mut tree, 2, 1);
    assert_eq!(tree.evict_component(0, Tier::Device, 1).parts[0], [Slot(1)]);
    checkpoint(&mut tree, 3, 2);
    tree.unpin(pin);
    assert_eq!(tree.evict_component(0, Tier::Device, 2).parts[0], [Slot(0), Slot(2)]);
}

/// Component state leaves by its own order, of which the policy hears apart from the pages.
#[test]
fn orders_of_components_are_told_apart() {
    let (policy, heard) = Listening::to(Lru::default());
    let mut tree = tree(policy, &[Component::Swa { window: 2 }, Component::State]);
    let end = insert(&mut tree, &[1, 2, 3, 4], 0);
    tree.attach(0, Tier::Device, end, &[2, 3], &[Slot(0), Slot(1)]);
    tree.attach(1, Tier::Device, end, &[3], &[Slot(0)]);
    // Below it the window is inside the tree: its eviction takes no page.
    insert(&mut tree, &[1, 2, 3, 4, 5], 4);
    let order = |component| Order::of(component, Tier::Device);
    assert_eq!(tree.evict_component(0, Tier::Device, 1).parts[0], [Slot(0)]);
    {
        let heard = heard.lock().unwrap();
        assert_eq!(heard.left, BTreeMap::from([(order(0).number(), 1)]));
        assert_eq!(heard.depths[&(order(0).number(), 1)], 4);
    }
    // A split leaves the window's rest with the tail, and gives the head no place of its own.
    insert(&mut tree, &[1, 2, 3, 9], 10);
    assert_eq!(heard.lock().unwrap().heads, 0);
    let out = tree.evict(Tier::Device, usize::MAX);
    assert_eq!((out.slots.len(), out.parts), (6, vec![vec![Slot(1)], vec![Slot(0)]]));
    let heard = heard.lock().unwrap();
    let left = [(0, 6), (order(0).number(), 2), (order(1).number(), 1)];
    assert_eq!(heard.left, BTreeMap::from(left));
    assert_eq!(heard.gone.len(), 6);
}

/// Where the pages behind a split live elsewhere, the head takes the edge's place.
#[test]
fn a_head_takes_the_place_of_its_edge() {
    let (policy, heard) = Listening::to(Lru::default());
    let mut tree = tree(policy, &[]);
    let end = insert(&mut tree, &[1, 2, 3, 4], 0);
    tree.mirror(end, &[Slot(0), Slot(1)]);
    insert(&mut tree, &[1, 2, 9], 10);
    assert_eq!(heard.lock().unwrap().heads, 1, "on the host the edge is now its head");
    tree.check().unwrap();
    tree.evict(Tier::Device, usize::MAX);
    assert_eq!(tree.evict(Tier::Host, 2).slots, [Slot(1), Slot(0)]);
}

/// Waiting requests' pages leave last, in the order in which they were met, whatever came below them since.
#[test]
fn deferred_leaves_keep_their_order() {
    let mut tree = tree(Box::new(Lru::default()), &[]);
    let ends = [insert(&mut tree, &[1], 0), insert(&mut tree, &[2], 1)];
    let pins = ends.map(|end| tree.pin(end, Hold::Soft));
    insert(&mut tree, &[3], 2);
    assert_eq!(tree.evict(Tier::Device, 1).slots, [Slot(2)]);
    insert(&mut tree, &[1, 9], 3);
    assert_eq!(tree.evict(Tier::Device, 1).slots, [Slot(4)], "what comes below them is not held");
    assert_eq!(tree.evict(Tier::Device, 2).slots, [Slot(0), Slot(1)]);
    pins.into_iter().for_each(|pin| tree.unpin(pin));
    assert_eq!(tree.nodes(), 0);
}

/// A split passes a deferred edge's place on to the head, where the pages behind it live elsewhere.
#[test]
fn a_deferred_edge_may_be_split() {
    // With components a hard pin splits its edge, and uses nothing.
    let mut tree = tree(Box::new(Lru::default()), &[Component::State]);
    let end = insert(&mut tree, &[1, 2, 3, 4], 0);
    tree.mirror(end, &[Slot(0), Slot(1), Slot(2), Slot(3)]);
    assert_eq!(tree.evict(Tier::Device, 2).slots, [Slot(3), Slot(2)]);
    let pins = [end, tree.ancestor(end, 2)].map(|place| tree.pin(place, Hold::Soft));
    insert(&mut tree, &[5], 5);
    assert_eq!(tree.evict(Tier::Device, 1).slots, [Slot(5)], "the waiting edge is met, and deferred");
    let (nodes, hard) = (tree.nodes(), tree.pin(tree.ancestor(end, 2), Hold::Host));
    assert_eq!(tree.nodes(), nodes + 1);
    tree.check().unwrap();
    insert(&mut tree, &[6], 6);
    assert_eq!(tree.evict(Tier::Device, 3).slots, [Slot(6), Slot(1), Slot(0)]);
    pins.into_iter().chain([hard]).for_each(|pin| tree.unpin(pin));
    tree.check().unwrap();
}

#[test]
fn policies_have_names() {
    assert!(!policy::by_name("lru").unwrap().wants_pages());
    let refused = policy::by_name("mru").unwrap_err().to_string();
    assert!(
        refused.contains("eviction") && refused.contains("\"mru\"") && refused.contains("lru"),
        "{refused}"
    );
}

#[test]
fn orders_have_numbers() {
    let (device, host): (Order, Order) = (Tier::Device.into(), Tier::Host.into());
    let all =
        [device, host, Order::of(0, Tier::Device), Order::of(0, Tier::Host), Order::of(1, Tier::Device)];
    assert_eq!(all.map(Order::number), [0, 1, 2, 3, 4]);
    assert_eq!(all.map(Order::component), [None, None, Some(0), Some(0), Some(1)]);
    assert_eq!(all.map(Order::tier), [Tier::Device, Tier::Host, Tier::Device, Tier::Host, Tier::Device]);
}
