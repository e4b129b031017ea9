//! Host copies of device pages that give way: beside a naive model, beside a policy that searches, and when the host is
//! smaller than the device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::bench::{Bench, Op, Path};
use common::drive::Drive;
use common::policies::{Fewest, Listening, Searched};
use common::seeds;
use common::store::FaultStore;
use common::writing::{path, rig, stored, writing};
use hicache_core::hash::Namespace;
use hicache_core::ids::{Slot, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::policy::{Eviction, Lru, Order, Write, Writing};
use hicache_core::tree::{Component, Hold, Place, Saving, Spared, Tree, Wanted};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;

fn saving(reserve: usize, components: usize) -> Saving {
    let wanted = [Wanted::All, Wanted::Nothing];
    Saving { give_way: true, straight: false, wanted, reserve: vec![reserve; 2 + 2 * components] }
}

fn path_of() -> impl Strategy<Value = Path> {
    let token = prop_oneof![6 => Just(1), 2 => Just(2), 1 => Just(3)];
    (0u32..2, vec(token, 0..13)).prop_map(|(namespace, tokens)| Path { namespace, tokens })
}

fn any_op() -> impl Strategy<Value = Op> {
    let hold = prop_oneof![Just(Hold::Soft), Just(Hold::Device), Just(Hold::Host)];
    prop_oneof![
        5 => (path_of(), 0usize..8).prop_map(|(path, mirror)| Op::Insert { path, mirror }),
        2 => path_of().prop_map(Op::Graft),
        2 => (path_of(), 0usize..8).prop_map(|(path, most)| Op::Raise { path, most }),
        2 => path_of().prop_map(Op::Match),
        1 => path_of().prop_map(Op::Cursor),
        4 => (0usize..2, 1usize..6).prop_map(|(tier, pages)| Op::Evict { tier, pages }),
        4 => (path_of(), hold).prop_map(|(path, hold)| Op::Pin { path, hold }),
        2 => any::<usize>().prop_map(Op::Unpin),
    ]
}

fn cases() -> ProptestConfig {
    let usual = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() { usual } else { ProptestConfig { cases: 800, ..usual } }
}

proptest! {
    #![proptest_config(cases())]

    /// Exactly as much goes as may and is asked for, and on the host no page goes that lives there alone while a copy may.
    #[test]
    fn copies_go_first_and_nothing_that_must_stay(
        size in prop_oneof![Just(1u32), Just(2), Just(4)],
        reserve in prop_oneof![Just(0usize), Just(2), Just(5)],
        ops in vec(any_op(), 1..60),
    ) {
        let mut bench = Bench::giving_way(size, saving(reserve, 0));
        ops.iter().for_each(|op| bench.apply(op));
        bench.close();
    }
}

const HYBRIDS: [&[Component]; 3] =
    [&[], &[Component::Swa { window: 2 }, Component::State], &[Component::Swa { window: 3 }]];

fn drive(components: &[Component], seed: u64, policy: Box<dyn Eviction>) -> Drive {
    let mut drive = Drive::new(components, seed, policy);
    drive.tree.save(saving(usize::try_from(seed % 4).unwrap(), components.len()));
    drive
}

/// Windows and states too: the same calls take the same slots, whoever decides alike; everything can leave; looking ahead
/// changes nothing.
#[test]
fn the_searched_twin_takes_the_same() {
    let mut taken = 0;
    for seed in seeds(60) {
        for components in HYBRIDS {
            let (mut a, mut b) = (
                drive(components, seed, Box::new(Lru::default())),
                drive(components, seed, Box::new(Searched::default())),
            );
            for _ in 0..300 {
                let orders = components.iter().enumerate().map(|(at, _)| Order::of(at, Tier::Device));
                for order in orders.chain([Order::full(Tier::Device), Order::full(Tier::Host)]) {
                    a.tree.leaving_next(order, 7);
                }
                let (left, right) = (a.step(), b.step());
                assert_eq!(left, right, "seed {seed}");
                taken += left.1.map_or(0, |out| out.slots.len() + out.parts.concat().len());
                assert_eq!(a.tree.digest(), b.tree.digest(), "seed {seed}");
                a.tree.check().unwrap();
                for (at, _) in components.iter().enumerate() {
                    for tree in [&mut a.tree, &mut b.tree] {
                        let may = tree.evictable_component(at, Tier::Host);
                        assert!(tree.can_evict_component(at, Tier::Host, may));
                        assert!(!tree.can_evict_component(at, Tier::Host, may + 1));
                    }
                }
            }
            assert_eq!(a.close(), b.close(), "seed {seed}");
        }
    }
    assert!(taken > 10_000, "{taken} is too little to tell");
}

/// What a look names leaves in that order, under policies of every kind, where nothing is pinned.
#[test]
fn a_look_says_what_leaves_next() {
    let policies: [fn() -> Box<dyn Eviction>; 3] =
        [|| Box::new(Lru::default()), || Box::new(Searched::default()), || Listening::to(Lru::default()).0];
    for seed in seeds(40) {
        for policy in policies {
            let mut tree = Tree::with_policy(PageSize::new(1).unwrap(), false, &[], policy());
            let mut random = common::Seeded(seed);
            for _ in 0..20 {
                insert(&mut tree, &random.tokens(6, 3));
            }
            let look = tree.leaving_next(Tier::Device, usize::MAX / 16);
            let seen: usize = look.iter().map(|next| next.count).sum();
            assert_eq!(seen, tree.resident(Tier::Device), "all of it leaves");
            for next in look {
                let to = next.end.depth;
                let from = to - u32::try_from(next.count).unwrap();
                let mut slots = tree.slots(next.end, from..to, Tier::Device);
                slots.reverse();
                assert_eq!(tree.evict(Tier::Device, next.count).slots, slots, "seed {seed}");
            }
            assert_eq!(tree.nodes(), 0);
        }
    }
    // One whose order depends on pages names each leaf for its last one.
    let mut tree = Tree::with_policy(PageSize::new(1).unwrap(), false, &[], Box::new(Fewest::default()));
    [&[1, 2][..], &[1, 2, 3], &[4]].into_iter().for_each(|tokens| _ = insert(&mut tree, tokens));
    let first = tree.leaving_next(Tier::Device, 1)[0];
    let slot = tree.slots(first.end, first.end.depth - 1..first.end.depth, Tier::Device);
    assert_eq!(tree.evict(Tier::Device, 1).slots, slot);
}

fn insert(tree: &mut Tree, tokens: &[i32]) -> Place {
    let root = tree.root(&Namespace::default());
    let first =
        u32::try_from(tree.resident(Tier::Device)).unwrap() + 1000 * u32::try_from(tree.nodes()).unwrap();
    let known = tree.walk(root, Tokens::I32(tokens)).place.depth;
    let slots: Vec<Slot> = (first..).take(tokens.len()).map(Slot).collect();
    let held = tree.pin(root, Hold::Soft);
    let end = tree.extend(root, Tokens::I32(tokens), Tier::Device, &slots).place;
    tree.unpin(held);
    assert!(known as usize <= tokens.len());
    tree.check().unwrap();
    end
}

fn mirrored(tree: &mut Tree, tokens: &[i32], first: u32) -> Place {
    let end = insert(tree, tokens);
    let missing = end.depth - tree.resident_depth(end, Tier::Host);
    let slots: Vec<Slot> = (first..first + missing).map(Slot).collect();
    tree.mirror(end, &slots);
    tree.check().unwrap();
    end
}

fn three() -> (Tree, [Place; 3]) {
    let mut tree = Tree::new(PageSize::new(1).unwrap(), false);
    tree.save(saving(2, 0));
    let ends =
        [mirrored(&mut tree, &[1, 2], 0), mirrored(&mut tree, &[3, 4], 2), mirrored(&mut tree, &[5, 6], 4)];
    (tree, ends)
}

/// What was used last gives way first, from its tail; what the device has given up already is the host's own, and goes
/// after all copies.
#[test]
fn the_newest_copies_go_first() {
    let (mut tree, _) = three();
    assert_eq!(tree.evict(Tier::Device, 2).slots.len(), 2);
    assert_eq!(tree.evict(Tier::Host, 3).slots, [Slot(5), Slot(4), Slot(3)]);
    assert_eq!(tree.evict(Tier::Host, 3).slots, [Slot(2), Slot(1), Slot(0)]);
    tree.check().unwrap();
    assert_eq!(tree.resident(Tier::Device), 4);
}

/// Copies of what is about to leave the device go last; those that a waiting request holds, after them; held ones never.
#[test]
fn what_leaves_soon_keeps_its_copies() {
    let (mut tree, [old, middle, new]) = three();
    let next = tree.leaving_next(Tier::Device, 2);
    assert_eq!((next.len(), next[0].end, next[0].saved), (1, old, true));
    tree.keep_back(Order::full(Tier::Device), next[0].end);
    assert_eq!(tree.evict_but(Tier::Host, 9, Spared::Reserve).slots, [Slot(5), Slot(4), Slot(3), Slot(2)]);
    tree.check().unwrap();
    let slots: Vec<Slot> = (10..12).map(Slot).collect();
    tree.mirror(new, &slots);
    let (soft, hard) = (tree.pin(new, Hold::Soft), tree.pin(tree.ancestor(old, 1), Hold::Host));
    assert!(tree.can_evict(Tier::Host, 3) && !tree.can_evict(Tier::Host, 4));
    assert_eq!(tree.evict(Tier::Host, 9).slots, [Slot(1), Slot(11), Slot(10)]);
    tree.unpin(soft);
    tree.unpin(hard);
    assert_eq!(tree.evict(Tier::Host, 9).slots, [Slot(0)]);
    tree.check().unwrap();
    assert_eq!(tree.resident_depth(middle, Tier::Device), 2);
    // Used again, they are no longer about to leave.
    tree.mirror(old, &slots);
    tree.keep_back(Order::full(Tier::Device), old);
    tree.touch_matched(old);
    assert_eq!(tree.evict_but(Tier::Host, 9, Spared::Reserve).slots, [Slot(11), Slot(10)]);
    tree.check().unwrap();
}

/// Of those that leave next the ones with a copy go first, as far as the reserve reaches; what goes without one is counted.
#[test]
fn what_is_saved_goes_first() {
    for (reserve, first) in [(0, 100), (1, 100), (4, 0)] {
        let mut tree = Tree::new(PageSize::new(1).unwrap(), false);
        tree.save(saving(reserve, 0));
        let unsaved = insert(&mut tree, &[1, 2]);
        let saved = mirrored(&mut tree, &[3, 4], 0);
        let out = tree.evict(Tier::Device, 2);
        tree.check().unwrap();
        let left = |tree: &Tree, place| tree.resident_depth(place, Tier::Device);
        if first == 0 {
            assert_eq!((left(&tree, saved), left(&tree, unsaved), out.unsaved), (0, 2, 0));
            assert_eq!(tree.evict(Tier::Device, 1).unsaved, 1);
        } else {
            assert_eq!((tree.resident(Tier::Device), out.unsaved), (2, 2), "reserve {reserve}");
        }
    }
}

/// A host smaller than the device keeps neither backups nor reads from finding room.
#[test]
fn a_small_host_serves_all() {
    let store = Arc::new(FaultStore::default());
    let mut before = rig(writing(Write::Through, Write::Through), 8, 8, Some(&store));
    before.serve(&path(9, 4));
    before.idle();
    let write = Writing { clean_reserve: 0.05, ..writing(Write::Through, Write::Through) };
    let mut rig = rig(write, 32, 4, Some(&store));
    for number in 1..=7 {
        rig.serve(&path(number, 4));
        rig.idle();
        assert_eq!(stored(&store, &path(number, 4)), 4, "{number}: through the host to storage");
    }
    assert_eq!(rig.on(Tier::Device), 28, "all of it fits the device");
    assert_eq!(rig.cache.stats().backup_no_room_pages, 0);
    let hit = rig.fetch(&path(9, 4));
    assert_eq!(rig.load(hit).device, 4, "storage, through the host, to the device");
    rig.settle();
    rig.verify(hit, &path(9, 4));
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
}
