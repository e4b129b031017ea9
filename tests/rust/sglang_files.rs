//! SGLang's file names and raw pages: names as its file backend makes them, bytes where each of its layouts has them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::plain::Plain;
use hicache_core::hash::{Digest, page_digest};
use hicache_core::identity::{Fingerprint, Identity};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::pool::{Plane, PoolSpec};
use hicache_core::storage::{Client, Outcome, Store, open};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Layers, roles, tokens of a page, heads, bytes of a head.
const SHAPE: [usize; 5] = [3, 2, 4, 2, 8];

fn client_of(shape: [usize; 5], model: &str, rank: &[u32], world: &[u32]) -> Client {
    let [layers, roles, rows, heads, head] = shape;
    let plane = |at: usize| Plane {
        layer: u32::try_from(at / roles).unwrap(),
        role: u32::try_from(at % roles).unwrap(),
        bytes_per_token: heads * head,
    };
    let pool = PoolSpec::new("kv", (0..layers * roles).map(plane).collect()).unwrap();
    let fields = [("model", model), ("dtype", "bf16")].map(|(name, value)| (name.into(), value.into()));
    let page_size = PageSize::new(u32::try_from(rows).unwrap()).unwrap();
    let identity = Identity::of(&fields, rank, world, page_size, &[pool]);
    Client::new(&identity, rank.to_vec(), world.to_vec()).unwrap()
}

fn opened(dir: &Path, options: &str, client: &Client) -> Result<Arc<dyn Store>, String> {
    open(&format!("file://{}?names=sglang&{options}", dir.display()), client)
        .map_err(|error| error.to_string())
}

/// A byte that says where it is.
fn byte([layer, role, row, head, at]: [usize; 5]) -> u8 {
    u8::try_from((layer * 101 + role * 53 + row * 29 + head * 17 + at * 3) % 251).unwrap()
}

/// All places of a shape, the first axis outermost.
fn walk(order: [usize; 5], shape: [usize; 5]) -> Vec<u8> {
    let extents = order.map(|axis| shape[axis]);
    (0..extents.iter().product())
        .map(|at: usize| {
            let (mut place, mut rest) = ([0; 5], at);
            for (&axis, extent) in order.iter().zip(extents).rev() {
                place[axis] = rest % extent;
                rest /= extent;
            }
            byte(place)
        })
        .collect()
}

/// In the order of axes (layer 0, role 1, row 2, head 3, byte 4), straight from the table of SGLang's buffers.
const FLAT: [(&str, [usize; 5]); 4] = [
    ("layer_first", [1, 0, 2, 3, 4]),
    ("page_first_direct", [1, 0, 2, 3, 4]),
    ("page_first", [1, 2, 0, 3, 4]),
    ("page_head&heads=2", [1, 3, 2, 0, 4]),
];

fn key() -> Digest {
    page_digest(None, Tokens::I32(&[1, 2, 3, 4]))
}

#[test]
fn raw_pages_of_each_layout_are_read_and_written() {
    for (shape, flats) in [(SHAPE, &FLAT[..]), ([3, 1, 4, 1, 24], &FLAT[..3])] {
        let client = client_of(shape, "m", &[], &[]);
        let suffix = if shape[1] == 1 { "_m" } else { "_m_0_1" };
        let payload = walk([0, 1, 2, 3, 4], shape);
        for (layout, order) in flats {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(format!("{}{suffix}.bin", hex(&key())));
            let flat = walk(*order, shape);
            fs::write(&path, &flat).unwrap();
            let store = opened(dir.path(), &format!("layout={layout}"), &client).unwrap();
            let store = Plain(&*store, client.identity);
            let mut page = vec![0; payload.len()];
            assert_eq!(store.exists(&[key()]), [Outcome::Hit]);
            assert_eq!(store.get(&[key()], &mut [&mut page]), [Outcome::Hit]);
            assert_eq!(page, payload, "{layout}");
            let seen = store.0.statistics();
            assert_eq!((seen.unverified_pages, seen.read_pages), (1, 1));

            fs::remove_file(&path).unwrap();
            assert_eq!(store.put(&[key()], &[&payload]), [Outcome::Declined], "only read");
            let store = opened(dir.path(), &format!("layout={layout}&write=yes"), &client).unwrap();
            let store = Plain(&*store, client.identity);
            assert_eq!(store.put(&[key(), key()], &[&payload, &payload]), [Outcome::Hit; 2]);
            assert_eq!(fs::read(&path).unwrap(), flat, "{layout}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
            assert_eq!(store.0.statistics().written_pages, 1);
        }
    }
}

fn hex(key: &Digest) -> String {
    format!("{key:?}")
}

#[test]
fn names_are_those_of_its_file_backend() {
    let tokens: Vec<i32> = (0..64).collect();
    let key = page_digest(None, Tokens::I32(&tokens));
    let digest = "fea7b32778ecbdd7adee1941e98c89cf96bbc762f5f1beb0be24e36a456fbbc5";
    let latent = [2, 1, 64, 1, 4];
    let mha = [2, 2, 64, 1, 4];
    let cases: [(&str, [usize; 5], &[u32], &[u32], &str, String); 7] = [
        (
            "meta-llama/Llama-3.1-8B-Instruct",
            mha,
            &[],
            &[],
            "",
            format!("{digest}_meta-llama-Llama-3.1-8B-Instruct_0_1.bin"),
        ),
        ("deepseek-ai/DeepSeek-V3", latent, &[3], &[8], "", format!("{digest}_deepseek-ai-DeepSeek-V3.bin")),
        ("m", mha, &[1], &[2], "", format!("{digest}_m_1_2.bin")),
        ("m", mha, &[1, 2], &[2, 4], "", format!("{digest}_m_1_2_4_2.bin")),
        ("m", mha, &[1, 0, 1], &[2, 1, 2], "", format!("{digest}_m_1_2_cp1_2.bin")),
        ("weights", mha, &[], &[], "&model=org/served", format!("{digest}_org-served_0_1.bin")),
        ("m", mha, &[1], &[2], "&suffix=_any", format!("{digest}_any.bin")),
    ];
    for (model, shape, rank, world, more, name) in cases {
        let (dir, client) = (tempfile::tempdir().unwrap(), client_of(shape, model, rank, world));
        let store = opened(dir.path(), &format!("layout=page_first&write=yes{more}"), &client).unwrap();
        let page = vec![7; shape.iter().product()];
        assert_eq!(Plain(&*store, client.identity).put(&[key], &[&page]), [Outcome::Hit]);
        let found: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(found, [name.as_str()]);
        let held = store.list().unwrap();
        assert_eq!((held.len(), held[0].digest, held[0].bytes), (1, key, page.len() as u64));
    }
}

#[test]
fn what_cannot_be_a_name_or_a_page_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let client = client_of(SHAPE, "m", &[], &[]);
    let long = "x".repeat(200);
    for options in [
        "",
        "layout=page_unified",
        "layout=page_head",
        "layout=page_head&heads=3",
        "layout=page_head&heads=0",
        "layout=page_first&heads=2",
        "layout=page_first&size=1GiB",
        "layout=page_first&write=maybe",
        "layout=page_first&suffix=a/b",
        "layout=page_first&suffix=%2F..%2Fx",
        &format!("layout=page_first&model={long}"),
    ] {
        let error = opened(dir.path(), options, &client).err().expect(options);
        assert!(error.starts_with("storage: "), "{error}");
    }
    let nameless = client_of(SHAPE, "", &[], &[]);
    assert!(opened(dir.path(), "layout=page_first", &nameless).is_err());
    assert!(opened(&dir.path().join("nowhere"), "layout=page_first", &client).is_err());
    let uneven = {
        let plane = |role, bytes_per_token| Plane { layer: 0, role, bytes_per_token };
        let pool = PoolSpec::new("kv", vec![plane(0, 8), plane(1, 16)]).unwrap();
        Identity::of(&[("model".into(), "m".into())], &[], &[], PageSize::new(4).unwrap(), &[pool])
    };
    assert!(opened(dir.path(), "layout=page_first", &Client::new(&uneven, vec![], vec![]).unwrap()).is_err());
    // A model's name can't leave the directory.
    let sly = client_of(SHAPE, "../../etc/..", &[], &[]);
    let store = opened(dir.path(), "layout=page_first&write=yes", &sly).unwrap();
    assert_eq!(Plain(&*store, sly.identity).put(&[key()], &[&[1; 384]]), [Outcome::Hit]);
    assert!(dir.path().join(format!("{}_..-..-etc-.._0_1.bin", hex(&key()))).is_file());
}

#[test]
fn damage_is_a_miss_and_others_files_stay() {
    let (dir, client) = (tempfile::tempdir().unwrap(), client_of(SHAPE, "m", &[], &[]));
    let path = dir.path().join(format!("{}_m_0_1.bin", hex(&key())));
    let theirs = dir.path().join(format!("{}_other_0_1.bin", hex(&key())));
    fs::write(&theirs, "theirs").unwrap();
    for (writes, left) in [("no", true), ("yes", false)] {
        for (bytes, outcome) in [(0, Outcome::Short), (383, Outcome::Short), (385, Outcome::Corrupt)] {
            fs::write(&path, vec![1; bytes]).unwrap();
            let store = opened(dir.path(), &format!("layout=page_first&write={writes}"), &client).unwrap();
            let plain = Plain(&*store, client.identity);
            assert_eq!(plain.exists(&[key()]), [Outcome::Absent]);
            assert_eq!(plain.get(&[key()], &mut [&mut [0; 384]]), [outcome]);
            assert_eq!(path.exists(), left, "what is only read is left as it is");
            if !left {
                assert_eq!(plain.put(&[key()], &[&[9; 384]]), [Outcome::Hit]);
                assert_eq!(plain.get(&[key()], &mut [&mut [0; 384]]), [Outcome::Hit], "mended");
            }
        }
    }
    let read = opened(dir.path(), "layout=page_first", &client).unwrap();
    assert_eq!(Plain(&*read, client.identity).remove(&[key()]), [Outcome::Declined]);
    assert!(read.clear(&client.identity).is_err());
    assert_eq!(
        Plain(&*read, Fingerprint([9; 32])).exists(&[key()]),
        [Outcome::Absent],
        "pages of one identity"
    );
    let write = opened(dir.path(), "layout=page_first&write=yes", &client).unwrap();
    assert_eq!((write.clear(&client.identity).unwrap(), theirs.exists(), path.exists()), (1, true, false));
    assert!(write.describe().contains("unverified"));
}
