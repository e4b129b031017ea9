//! A store that is attached late: hashing what is there gives every page the digest that hashing from the start
//! would have given it, whatever became of the tree before and after, and a fresh cache finds it by that.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::Seeded;
use common::hybrid::Model;
use common::parts::KINDS;
use common::plain::Plain;
use common::rig::{Rig, Shape, config};
use common::store::FaultStore;
use hicache_core::hash::{Digest, Namespace, chain};
use hicache_core::ids::{Slot, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::storage::Outcome;
use hicache_core::tree::{Hold, Place, Tree};
use std::sync::Arc;

/// The digests of all pages that the tree has of a path.
fn digests(tree: &Tree, namespace: &Namespace, tokens: &[i32]) -> Vec<Digest> {
    let Some(root) = tree.known_root(namespace) else { return Vec::new() };
    let place = tree.walk(root, Tokens::I32(tokens)).place;
    tree.digests(place, 0..place.depth)
}

/// Trees with all kinds of components: splits, evictions, cascades, loads and pins before and after.
#[test]
fn hashing_late_is_hashing_from_the_start() {
    for kind in KINDS {
        for seed in 0..12 {
            let size = 1 + u32::try_from(seed % 2).unwrap();
            let mut early = Model::new(size, kind, seed, true);
            let mut late = Model::new(size, kind, seed, false);
            for step in 0..160 {
                early.step();
                if step == seed * 10 {
                    late.tree.start_hashing();
                }
                late.step();
                if step < seed * 10 {
                    continue;
                }
                assert_eq!(early.tree.digest(), late.tree.digest(), "it decides nothing");
                for key in late.pages.keys() {
                    let own = digests(&late.tree, &Namespace::default(), key);
                    assert_eq!(own, chain(None, Tokens::I32(key), PageSize::new(size).unwrap()));
                    assert_eq!(own, digests(&early.tree, &Namespace::default(), key));
                }
            }
            early.close();
            late.close();
        }
    }
}

struct Late {
    tree: Tree,
    made: u32,
}

impl Late {
    fn insert(&mut self, namespace: &Namespace, tokens: &[i64], tier: Tier) -> Place {
        let root = self.tree.root(namespace);
        let held = self.tree.pin(root, Hold::Soft);
        let pages = u32::try_from(tokens.len() / self.tree.page_size().tokens()).unwrap();
        let slots: Vec<Slot> = (self.made..self.made + pages).map(Slot).collect();
        self.made += pages;
        let place = self.tree.extend(root, Tokens::I64(tokens), tier, &slots).place;
        self.tree.unpin(held);
        place
    }
}

/// Wide tokens and namespaces: each chain begins with its namespace's seed, and width changes nothing.
#[test]
fn late_chains_begin_with_their_namespaces_seeds() {
    let size = PageSize::new(2).unwrap();
    let names = [None, Some("a"), Some("b")];
    let spaces = names.map(|salt| Namespace { salt: salt.map(str::to_owned), ..Namespace::default() });
    for wide in [0, 1 << 40] {
        let mut late = Late { tree: Tree::new(size, false), made: 0 };
        let tokens: Vec<i64> = (0..8).map(|token| token + wide).collect();
        for (space, tier) in spaces.iter().flat_map(|space| Tier::ALL.map(|tier| (space, tier))) {
            late.insert(space, &tokens, tier);
            late.insert(space, &[&tokens[..4], &[9, 9]].concat(), tier);
        }
        late.tree.evict(Tier::Device, 5);
        late.tree.start_hashing();
        late.insert(&spaces[1], &[&tokens[..], &[7, 7]].concat(), Tier::Host);
        late.tree.check().unwrap();
        let all = spaces.each_ref().map(|space| {
            let root = late.tree.known_root(space).unwrap();
            let place = late.tree.walk(root, Tokens::I64(&tokens)).place;
            let own = late.tree.digests(place, 0..place.depth);
            assert_eq!(own, chain(space.seed(), Tokens::I64(&tokens), size));
            own
        });
        assert!(all[0].iter().all(|digest| !all[1].contains(digest) && !all[2].contains(digest)));
    }
}

/// What a late store would be given, under the late digests, is what a fresh cache asks for: a full hit; and
/// the same tokens as the beginning of another path are a miss.
#[test]
fn a_fresh_cache_finds_what_was_hashed_late() {
    for page in [1, 2] {
        let size = PageSize::new(page).unwrap();
        for seed in 0..30 {
            let mut random = Seeded(seed);
            let mut late = Late { tree: Tree::new(size, false), made: 0 };
            let namespace =
                Namespace { salt: (seed % 2 > 0).then(|| seed.to_string()), ..Namespace::default() };
            let paths: Vec<Vec<i32>> = (0..8).map(|_| random.tokens(20, 2)).collect();
            for (at, path) in paths.iter().enumerate() {
                let wide: Vec<i64> = path.iter().map(|&token| i64::from(token)).collect();
                late.insert(&namespace, &wide, Tier::Device);
                if at == 5 {
                    late.tree.evict(Tier::Device, 1 + random.below(9));
                    late.tree.start_hashing();
                }
            }
            let store = Arc::new(FaultStore::default());
            let mut rig = Rig::new(Shape { page, device: 256, host: 256, ..Shape::default() }, Some(&store));
            rig.namespace = namespace;
            for path in &paths {
                for (at, key) in digests(&late.tree, &rig.namespace, path).into_iter().enumerate() {
                    let bytes = rig.stamp(path, at);
                    assert_eq!(
                        Plain(&*store, config(Shape { page, ..Shape::default() }).identity)
                            .put(&[key], &[&bytes]),
                        [Outcome::Hit]
                    );
                }
            }
            for path in &paths {
                let known = digests(&late.tree, &rig.namespace, path).len();
                let hit = rig.fetch(path);
                assert_eq!(rig.load(hit).device as usize, known);
                rig.settle();
                rig.verify(hit, path);
                rig.cache.release(hit, 0).unwrap();
            }
            // Tokens from the middle, which no path begins with.
            let middle: Vec<i32> = paths[0].iter().skip(1).map(|token| token + 10).collect();
            let hit = rig.fetch(&middle);
            assert_eq!(rig.load(hit).device, 0);
            rig.cache.release(hit, 0).unwrap();
            rig.drained();
        }
    }
}
