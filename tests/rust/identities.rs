//! Identities: every field tells pages apart, no two encode alike, and no name of a model reaches the file system.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::plain::Plain;
use hicache_core::hash::Digest;
use hicache_core::identity::{FORMAT, Identity, differences};
use hicache_core::page::PageSize;
use hicache_core::pool::{Plane, PoolSpec, SlotsOf};
use hicache_core::storage::file::FileStore;
use hicache_core::storage::file::options::{Limits, Steps};
use hicache_core::storage::identities::{Unlike, keep, kept, name};
use hicache_core::storage::{Client, Outcome};
use proptest::prelude::*;
use std::collections::HashSet;
use std::fs;

fn pool(name: &str, bytes_per_token: usize) -> PoolSpec {
    PoolSpec::new(name, vec![Plane { layer: 0, role: 0, bytes_per_token }]).unwrap()
}

fn fields(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn identity(pairs: &[(&str, &str)]) -> Identity {
    Identity::of(&fields(pairs), &[], &[], PageSize::new(16).unwrap(), &[pool("kv", 8)])
}

/// Computed beside, with Python's hashlib, from the encoding as it is described: it must never change unnoticed.
#[test]
fn the_encoding_is_what_it_was() {
    let model = fields(&[("model", "m/ü"), ("dtype", "bf16")]);
    let identity = Identity::of(&model, &[0, 1], &[2, 4], PageSize::new(16).unwrap(), &[pool("kv", 8)]);
    assert_eq!(FORMAT, 2);
    assert_eq!(
        format!("{:?}", identity.fingerprint()),
        "41f1c8dc276604c596a87bd4ccbde011b8ba85a5506aa12f84030b51a674cdc9"
    );
}

#[test]
fn what_the_library_adds_tells_pages_apart() {
    let model = fields(&[("model", "m")]);
    let size = |tokens| PageSize::new(tokens).unwrap();
    let (kv, states) = (pool("kv", 8), pool("states", 8));
    let one = std::slice::from_ref(&kv);
    let own = PoolSpec { slots: SlotsOf::Own, ..states.clone() };
    let all = [
        Identity::of(&model, &[], &[], size(16), one),
        Identity::of(&model, &[], &[], size(8), one),
        Identity::of(&model, &[0], &[1], size(16), one),
        Identity::of(&model, &[0], &[2], size(16), one),
        Identity::of(&model, &[1], &[2], size(16), one),
        Identity::of(&model, &[0, 1], &[2, 1], size(16), one),
        Identity::of(&model, &[0], &[21], size(16), one),
        Identity::of(&model, &[], &[], size(16), &[pool("kv", 16)]),
        Identity::of(&model, &[], &[], size(16), &[kv.clone(), states]),
        Identity::of(&model, &[], &[], size(16), &[kv.clone(), own]),
        Identity::of(&model, &[], &[], size(16), &[]),
    ];
    let prints: HashSet<_> = all.iter().map(Identity::fingerprint).collect();
    assert_eq!(prints.len(), all.len());
    for field in ["format", "codec", "layout", "head_groups", "page_size", "rank", "world", "pool 0"] {
        assert!(all[0].fields().iter().any(|(name, _)| name == field), "{field} can be read");
    }
}

const NAMES: [&str; 20] = [
    "a", "b", "a/b", "a-b", "a_b", "a.b", "a@b", "a%b", "a%2Fb", "a b", "a\nb", "..", "../a", "/", "ä",
    "a\u{308}", "A", "a\0b", "model=a", "",
];

#[test]
fn confusable_names_never_meet_and_stay_inside() {
    let long = ["x".repeat(300), "x".repeat(301), "ä".repeat(4_000)];
    let names: Vec<&str> = NAMES.into_iter().chain(long.iter().map(String::as_str)).collect();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    let mut prints = HashSet::new();
    for first in &names {
        for second in ["", "a", "/", "model"] {
            for swapped in [false, true] {
                let pairs = if swapped {
                    [("revision", *first), ("model", second)]
                } else {
                    [("model", *first), ("revision", second)]
                };
                prints.insert(identity(&pairs).fingerprint());
            }
        }
        let identity = identity(&[("model", first)]);
        let client = Client::new(&identity, vec![], vec![]).unwrap();
        let store = FileStore::open_with(&root, Limits::default(), &client, Steps::default()).unwrap();
        let store = Plain(&store, client.identity);
        assert_eq!(store.exists(&[Digest([1; 32])]), [Outcome::Absent], "{first:?} finds another one's page");
        assert_eq!(store.put(&[Digest([1; 32])], &[b"page"]), [Outcome::Hit]);
    }
    // A pair is itself under both orders exactly where both names are the same.
    let same = names.iter().filter(|name| ["", "a", "/", "model"].contains(name)).count();
    let twice = same * same - same;
    assert_eq!(prints.len(), names.len() * 8 - same - twice, "{same}");
    let identities = fs::read_dir(root.join("identities")).unwrap().count();
    assert_eq!(identities, names.len());
    let beside: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(beside, ["root"], "nothing is outside");
    for entry in fs::read_dir(&root).unwrap() {
        assert!(entry.unwrap().file_name().len() <= 255);
    }
}

#[test]
fn a_bumped_epoch_is_another_identity_each_time() {
    for epoch in [None, Some("0"), Some("41"), Some("18446744073709551615"), Some("later")] {
        let pairs: Vec<(&str, &str)> =
            [("model", "m")].into_iter().chain(epoch.map(|epoch| ("weights_epoch", epoch))).collect();
        let mut at = identity(&pairs);
        let mut prints = HashSet::from([at.fingerprint()]);
        for _ in 0..5 {
            let next = at.bumped();
            let changed = differences(&at.fields(), &next.fields());
            assert_eq!(changed.len(), 1, "{changed:?}");
            assert_eq!(changed[0].0, "weights_epoch");
            assert!(prints.insert(next.fingerprint()));
            at = next;
        }
    }
    let once = identity(&[("weights_epoch", "41")]).bumped();
    assert_eq!(once, identity(&[("weights_epoch", "42")]), "as if it had been said at once");
}

#[test]
fn the_nearest_other_identity_explains() {
    let dir = tempfile::tempdir().unwrap();
    let client = |pairs: &[(&str, &str)]| Client::new(&identity(pairs), vec![], vec![]).unwrap();
    let ours = client(&[("model", "m"), ("dtype", "bf16"), ("revision", "2")]);
    let near = client(&[("model", "m"), ("dtype", "bf16"), ("revision", "1")]);
    let far = client(&[("model", "m"), ("dtype", "fp8"), ("revision", "1")]);
    let stranger = client(&[("model", "n"), ("dtype", "bf16"), ("revision", "2")]);
    for client in [&near, &far, &stranger, &Client::alone(ours.identity)] {
        keep(dir.path(), client);
    }
    fs::write(dir.path().join("identities/broken.json"), "{").unwrap();
    fs::write(dir.path().join("identities").join("ff.json"), "[1]").unwrap();
    let kept = kept(dir.path());
    assert_eq!(kept.len(), 3, "broken ones explain nothing");
    let unlike = Unlike::look(&ours, &kept, |other| other != name(&ours.identity));
    let why = unlike.why().unwrap();
    assert!(why.contains("revision is \"1\" there, \"2\" here") && !why.contains("fp8"), "{why}");
    unlike.missed(3);
    unlike.found();
    unlike.missed(4);
    assert_eq!((unlike.pages(), unlike.why()), (3, None));
    // What the store holds no page of explains nothing; nor does anything once it holds ours.
    assert!(Unlike::look(&ours, &kept, |_| false).why().is_none());
    assert!(Unlike::look(&ours, &kept, |_| true).why().is_none());
    assert!(Unlike::look(&stranger, &kept[..0], |_| true).why().is_none());
}

/// Texts that are the same when they are put behind one another: names, values and fields keep their ends.
#[test]
fn texts_that_run_together_are_told_apart() {
    let alike: [&[&[(&str, &str)]]; 3] = [
        &[&[("ab", "c")], &[("a", "bc")], &[("abc", "")], &[("", "abc")]],
        &[
            &[("a", "b"), ("c", "d")],
            &[("a", "bc"), ("d", "")],
            &[("ab", ""), ("c", "d")],
            &[("a", ""), ("b", "cd")],
        ],
        &[&[("model", "m"), ("revision", "1")], &[("model", "mrevision"), ("1", "")]],
    ];
    for same in alike {
        let prints: HashSet<_> = same.iter().map(|pairs| identity(pairs).fingerprint()).collect();
        assert_eq!(prints.len(), same.len(), "{same:?}");
    }
}

proptest! {
    /// Two identities have the same fingerprint exactly where people read the same fields.
    #[test]
    fn fingerprints_are_equal_where_fields_are(
        a in prop::collection::vec(("[ab=/]{0,3}", "[ab=/]{0,3}"), 0..4),
        b in prop::collection::vec(("[ab=/]{0,3}", "[ab=/]{0,3}"), 0..4),
    ) {
        let of = |pairs: &[(String, String)]| Identity::of(pairs, &[], &[], PageSize::new(1).unwrap(), &[]);
        let (one, other) = (of(&a), of(&b));
        prop_assert_eq!(one.fingerprint() == other.fingerprint(), one.fields() == other.fields());
        let reversed: Vec<_> = a.iter().rev().cloned().collect();
        prop_assert_eq!(of(&reversed).fingerprint(), one.fingerprint());
    }
}
