//! The stores that the specification is tried on: one line each.

use super::filed::{US, client};
use hicache_core::hash::{Digest, page_digest};
use hicache_core::identity::Fingerprint;
use hicache_core::page::Tokens;
use hicache_core::storage::{Keys, Outcome, PageMut, PageRef, Store, open};
use std::path::Path;
use std::sync::Arc;

/// Payload of every page.
pub const BYTES: usize = 8_192;
pub const THEM: Fingerprint = Fingerprint([2; 32]);

/// A kind of store.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    /// Its URL: the directory, and room for so many pages (None: as much as there is).
    url: fn(&Path, Option<u64>) -> String,
    /// Whether its pages outlive it.
    pub outlives: bool,
    /// Whether a second one may be opened on the same directory.
    pub shared: bool,
}

pub const KINDS: &[Kind] = &[
    Kind { name: "file", url: files, outlives: true, shared: true },
    Kind { name: "slab", url: slab, outlives: true, shared: false },
    Kind { name: "memory", url: memory, outlives: false, shared: false },
];

fn files(dir: &Path, pages: Option<u64>) -> String {
    let size = pages.map_or(String::new(), |pages| format!("?size={}", pages * (BYTES as u64 + 136)));
    format!("file://{}{size}", dir.display())
}

fn slab(dir: &Path, pages: Option<u64>) -> String {
    // One extent, or several of eight pages; the smallest log, and what it says of each page three times over.
    let pages = pages.unwrap_or(1 << 14);
    let extent = if pages < 100 { pages } else { 8 } * BYTES as u64;
    let size = 6 * (64 << 10) + pages * (BYTES as u64 + 3 * 64);
    let size = if pages > 1000 { 256 << 20 } else { size };
    let extent = if pages > 1000 { 8 << 20 } else { extent };
    format!("slab://{}?size={size}&extent={extent}&free=0&threads=2", dir.display())
}

fn memory(_: &Path, pages: Option<u64>) -> String {
    format!("memory://?size={}", pages.unwrap_or(100_000) * BYTES as u64)
}

impl Kind {
    pub fn open(&self, dir: &Path, pages: Option<u64>) -> Arc<dyn Store> {
        open(&(self.url)(dir, pages), &client()).unwrap()
    }
}

/// Tries each kind of store, with a directory of its own.
pub fn each(pages: Option<u64>, mut attempt: impl FnMut(Kind, &Path, Arc<dyn Store>)) {
    for kind in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let store = kind.open(dir.path(), pages);
        println!("{}: {}", kind.name, store.describe());
        attempt(*kind, dir.path(), store);
    }
}

pub fn key(number: usize) -> Digest {
    page_digest(None, Tokens::I32(&[i32::try_from(number).unwrap()]))
}

/// What a page of an identity holds: no two alike.
pub fn stamp(identity: &Fingerprint, number: usize) -> Vec<u8> {
    let seed = key(number);
    let bytes = seed.0.iter().zip(identity.0.iter().cycle()).map(|(a, b)| a ^ b);
    bytes.cycle().take(BYTES).zip((0..=250u8).cycle()).map(|(byte, at)| byte.wrapping_add(at)).collect()
}

/// Pages `numbers` behind one another, the first behind none: what an engine puts.
pub fn put(store: &dyn Store, identity: &Fingerprint, numbers: &[usize]) -> Vec<Outcome> {
    let parents: Vec<Option<Digest>> =
        (0..numbers.len()).map(|at| at.checked_sub(1).map(|before| key(numbers[before]))).collect();
    put_after(store, identity, numbers, &parents)
}

pub fn put_after(
    store: &dyn Store,
    identity: &Fingerprint,
    numbers: &[usize],
    parents: &[Option<Digest>],
) -> Vec<Outcome> {
    let keys: Vec<Digest> = numbers.iter().copied().map(key).collect();
    let stamps: Vec<Vec<u8>> = numbers.iter().map(|&number| stamp(identity, number)).collect();
    // In runs of odd lengths, as a layout may have them.
    let pages: Vec<PageRef<'_>> = stamps
        .iter()
        .map(|stamp| PageRef::new(vec![&stamp[..1], &stamp[1..1], &stamp[1..4_097], &stamp[4_097..]]))
        .collect();
    store.put(Keys { identity, digests: &keys }, parents, &pages)
}

/// Reads pages; what is a hit must be its stamp.
pub fn get(store: &dyn Store, identity: &Fingerprint, numbers: &[usize]) -> Vec<Outcome> {
    let keys: Vec<Digest> = numbers.iter().copied().map(key).collect();
    let mut memory: Vec<Vec<u8>> = vec![vec![0xEE; BYTES]; numbers.len()];
    let mut pages: Vec<PageMut<'_>> = memory
        .iter_mut()
        .map(|page| {
            let (first, rest) = page.split_at_mut(5_000);
            PageMut::new(vec![first, rest])
        })
        .collect();
    let outcomes = store.get(Keys { identity, digests: &keys }, &mut pages);
    for ((outcome, bytes), &number) in outcomes.iter().zip(&memory).zip(numbers) {
        assert!(
            *outcome != Outcome::Hit || *bytes == stamp(identity, number),
            "wrong bytes of page {number}"
        );
    }
    outcomes
}

pub fn exists(store: &dyn Store, identity: &Fingerprint, numbers: &[usize]) -> Vec<Outcome> {
    let keys: Vec<Digest> = numbers.iter().copied().map(key).collect();
    store.exists(Keys { identity, digests: &keys })
}

pub fn remove(store: &dyn Store, identity: &Fingerprint, numbers: &[usize]) -> Vec<Outcome> {
    let keys: Vec<Digest> = numbers.iter().copied().map(key).collect();
    store.remove(Keys { identity, digests: &keys })
}

/// Ours.
pub const ID: Fingerprint = US;
