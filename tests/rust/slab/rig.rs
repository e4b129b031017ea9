//! A store in a directory of its own, with pages that tell whose they are.

use hicache_core::hash::{Digest, page_digest};
use hicache_core::identity::Fingerprint;
use hicache_core::page::Tokens;
use hicache_core::storage::slab::{Options, Seams, SlabStore};
use hicache_core::storage::url::Share;
use hicache_core::storage::{Client, Keys, Outcome, PageMut, PageRef, Store};
use std::path::Path;
use tempfile::TempDir;

pub const US: Fingerprint = Fingerprint([1; 32]);
pub const THEM: Fingerprint = Fingerprint([2; 32]);
/// Bytes that the smallest log takes.
pub const LOG: u64 = 6 * (64 << 10);
/// Size of most tests' pages: a slot's.
pub const PAGE: usize = 4096;

pub fn key(number: u32) -> Digest {
    page_digest(None, Tokens::I32(&[number.cast_signed()]))
}

/// The payload of a page: every 8 bytes tell its key and where they are.
pub fn payload(identity: Fingerprint, key: &Digest, bytes: usize) -> Vec<u8> {
    let seed = xxhash(&identity, key);
    (0..bytes)
        .map(|at| {
            (seed.wrapping_add(at as u64 / 8).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (at % 8 * 8)) as u8
        })
        .collect()
}

fn xxhash(identity: &Fingerprint, key: &Digest) -> u64 {
    let words = |bytes: &[u8; 32]| {
        bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
            .fold(7, |all: u64, word| all.rotate_left(9) ^ word)
    };
    words(&identity.0).wrapping_mul(3) ^ words(&key.0)
}

/// Options for so many slots of 4 KiB, eight an extent.
pub fn options(dir: &Path, slots: u64) -> Options {
    let extent = 8 * PAGE as u64;
    let extents = slots.div_ceil(8);
    let mut options =
        Options::new(dir.to_owned(), LOG + extents * extent + slots.next_multiple_of(8) * 3 * 64);
    options.extent = Some(extent);
    options.free = Share::Bytes(0);
    options.disk.threads = 2;
    options
}

pub struct Rig {
    pub dir: TempDir,
    pub options: Options,
    pub seams: Seams,
    store: Option<SlabStore>,
}

impl Rig {
    /// A store with room for so many pages of 4 KiB.
    pub fn new(slots: u64) -> Self {
        Self::with(slots, |_| {}, Seams::default())
    }

    pub fn with(slots: u64, change: impl FnOnce(&mut Options), seams: Seams) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(dir.path(), slots);
        change(&mut options);
        let store = SlabStore::open(options.clone(), &Client::alone(US), &seams).unwrap();
        Self { dir, options, seams, store: Some(store) }
    }

    pub fn store(&self) -> &SlabStore {
        self.store.as_ref().unwrap()
    }

    pub fn close(&mut self) {
        self.store = None;
    }

    /// Closed and opened again.
    pub fn reopen(&mut self) {
        self.close();
        self.store = Some(SlabStore::open(self.options.clone(), &Client::alone(US), &self.seams).unwrap());
    }

    /// What the store says of itself.
    pub fn about(&self) -> String {
        self.store().describe()
    }

    /// This rank's directory.
    pub fn home(&self) -> std::path::PathBuf {
        self.dir.path().join("all")
    }

    pub fn put(&self, number: u32) -> Outcome {
        self.put_all(&[number], &[None])[0]
    }

    pub fn put_below(&self, number: u32, parent: u32) -> Outcome {
        self.put_all(&[number], &[Some(parent)])[0]
    }

    /// Pages that follow each other.
    pub fn put_chain(&self, numbers: &[u32]) -> Vec<Outcome> {
        let parents: Vec<Option<u32>> =
            (0..numbers.len()).map(|at| at.checked_sub(1).map(|at| numbers[at])).collect();
        self.put_all(numbers, &parents)
    }

    pub fn put_all(&self, numbers: &[u32], parents: &[Option<u32>]) -> Vec<Outcome> {
        put(self.store(), US, numbers, parents, PAGE)
    }

    /// Reads a page; a hit is the very bytes that were put.
    pub fn get(&self, number: u32) -> Outcome {
        get(self.store(), US, &[number], PAGE)[0]
    }

    pub fn exists(&self, number: u32) -> bool {
        let digests = [key(number)];
        match self.store().exists(Keys { identity: &US, digests: &digests })[0] {
            Outcome::Hit => true,
            Outcome::Absent => false,
            other => panic!("{other:?}"),
        }
    }

    pub fn remove(&self, number: u32) -> Outcome {
        let digests = [key(number)];
        self.store().remove(Keys { identity: &US, digests: &digests })[0]
    }

    /// Which of these are there.
    pub fn here(&self, numbers: impl IntoIterator<Item = u32>) -> Vec<u32> {
        numbers.into_iter().filter(|&number| self.exists(number)).collect()
    }
}

pub fn put(
    store: &dyn Store,
    us: Fingerprint,
    numbers: &[u32],
    parents: &[Option<u32>],
    bytes: usize,
) -> Vec<Outcome> {
    let digests: Vec<Digest> = numbers.iter().map(|&number| key(number)).collect();
    let payloads: Vec<Vec<u8>> = digests.iter().map(|digest| payload(us, digest, bytes)).collect();
    let pages: Vec<PageRef<'_>> = payloads.iter().map(|payload| PageRef::from(&payload[..])).collect();
    let parents: Vec<Option<Digest>> = parents.iter().map(|parent| parent.map(key)).collect();
    store.put(Keys { identity: &us, digests: &digests }, &parents, &pages)
}

pub fn get(store: &dyn Store, us: Fingerprint, numbers: &[u32], bytes: usize) -> Vec<Outcome> {
    let digests: Vec<Digest> = numbers.iter().map(|&number| key(number)).collect();
    let mut buffers = vec![vec![0xEE; bytes]; numbers.len()];
    let mut pages: Vec<PageMut<'_>> =
        buffers.iter_mut().map(|buffer| PageMut::from(&mut buffer[..])).collect();
    let outcomes = store.get(Keys { identity: &us, digests: &digests }, &mut pages);
    for ((digest, buffer), outcome) in digests.iter().zip(&buffers).zip(&outcomes) {
        let right = *buffer == payload(us, digest, bytes);
        assert!(*outcome != Outcome::Hit || right, "wrong bytes were served");
    }
    outcomes
}
