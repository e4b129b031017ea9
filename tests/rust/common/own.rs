//! An engine over a cache with one unified buffer of real memory and the real CPU copier: it finds every plane of a
//! page by the tables, as an engine would, and stamps and checks it there.
#![allow(unsafe_code, reason = "the engine's own device memory")]

use super::memory::stamp;
use hicache_core::assemble::DevicePlane;
use hicache_core::entry::{self, PlaneEntry};
use hicache_core::hash::Namespace;
use hicache_core::ids::{HitId, Slot};
use hicache_core::page::Tokens;
use hicache_core::pool::{self, Rows};
use hicache_core::{Config, HiCache, HitView};
use std::time::{Duration, Instant};

pub struct Own {
    pub cache: HiCache,
    config: Config,
    entries: Vec<Vec<PlaneEntry>>,
    sizes: Vec<usize>,
    memory: Memory,
}

/// Freed after the cache, whose threads use it.
struct Memory(*mut [u8]);

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: from a box, and nobody uses it any more.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl Own {
    pub fn new(config: &Config) -> Self {
        let bytes = usize::try_from(config.unified.unwrap()).unwrap();
        let memory = Memory(Box::into_raw(vec![0xAA; bytes].into_boxed_slice()));
        let plane = DevicePlane { address: memory.0.cast::<u8>().expose_provenance(), bytes };
        // SAFETY: `memory` outlives the cache.
        let cache = unsafe { HiCache::over_memory(config.clone(), Some(&[vec![plane]]), None) }.unwrap();
        let (pools, size) = (&config.pools, config.page_size);
        let (entries, sizes) = (entry::planes(pools, size), entry::page_bytes(pools, size));
        Self { cache, config: config.clone(), entries, sizes, memory }
    }

    fn size(&self) -> usize {
        self.config.page_size.tokens()
    }

    pub fn stamp(&self, space: u8, tokens: &[i32], page: usize) -> Vec<u8> {
        let of = Namespace { extra_key: Some(format!("space {space}")), ..Namespace::default() };
        stamp(&of, &tokens[..(page + 1) * self.size()], self.sizes[space as usize])
    }

    /// Where the rows of all planes of a page are: pool after pool, plane after plane.
    fn rows(&self, space: u8, slot: Slot) -> Vec<(*mut u8, usize)> {
        let frame = self.cache.frames(space.into()).unwrap()[slot.0 as usize];
        let page = usize::try_from(frame).expect("in use") * self.sizes[space as usize];
        let spaces = pool::spaces(&self.config.pools);
        let mut rows = Vec::new();
        for ((spec, entries), _) in
            self.config.pools.iter().zip(&self.entries).zip(spaces).filter(|(_, of)| *of == space)
        {
            let count = if spec.rows == Rows::Page { 1 } else { self.size() };
            for (plane, entry) in spec.planes.iter().zip(entries) {
                rows.extend((0..count).map(|row| {
                    let at = page + entry.offset + row * entry.row;
                    (self.memory.0.cast::<u8>().wrapping_add(at), plane.bytes_per_token)
                }));
            }
        }
        rows
    }

    /// Where a state's page begins in the buffer, which is one run.
    pub fn place(&self, state: Slot) -> usize {
        self.rows(1, state)[0].0.addr() - self.memory.0.cast::<u8>().addr()
    }

    /// Bytes of the buffer that nobody writes now.
    pub fn bytes_at(&self, at: usize, count: usize) -> Vec<u8> {
        // SAFETY: the buffer outlives this, and the slice is inside of it or a panic.
        unsafe { &(&*self.memory.0)[at..at + count] }.to_vec()
    }

    pub fn write(&self, space: u8, slot: Slot, page: &[u8]) {
        let mut at = 0;
        for (to, bytes) in self.rows(space, slot) {
            // SAFETY: inside the buffer; the slot is ours, so that nobody else touches it.
            unsafe { std::ptr::copy_nonoverlapping(page[at..].as_ptr(), to, bytes) };
            at += bytes;
        }
        assert_eq!(at, page.len(), "rows make up a page");
    }

    pub fn read(&self, space: u8, slot: Slot) -> Vec<u8> {
        // SAFETY: inside the buffer; what is read is held by a hit and has landed.
        let row = |(at, bytes): (*mut u8, usize)| unsafe { std::slice::from_raw_parts(at, bytes) }.to_vec();
        self.rows(space, slot).into_iter().flat_map(row).collect()
    }

    /// Until nothing is under way.
    pub fn settle(&mut self) {
        let end = Instant::now() + Duration::from_secs(10);
        while self.cache.in_flight() > 0 {
            assert!(Instant::now() < end, "copies that never land");
            self.cache.poll(None, 0.0).unwrap();
            std::thread::yield_now();
        }
        self.cache.check().unwrap();
    }

    pub fn find(&mut self, tokens: &[i32]) -> HitId {
        self.cache.match_prefix(Tokens::I32(tokens), &Namespace::default(), None, usize::MAX, 0.0).unwrap()
    }

    pub fn usable(&mut self, tokens: &[i32]) -> usize {
        let hit = self.find(tokens);
        let view = self.cache.view(hit).unwrap();
        self.cache.release(hit, 0).unwrap();
        view.usable as usize
    }

    /// Loads a prompt's hit, checks every byte of it, and keeps it.
    pub fn load(&mut self, tokens: &[i32]) -> (HitId, HitView) {
        let hit = self.find(tokens);
        self.cache.load(&[hit], None).unwrap();
        // Loads land first; backups may go on.
        let end = Instant::now() + Duration::from_secs(10);
        while self.cache.ready().loads > 0 || self.cache.copying() > 0 {
            assert!(Instant::now() < end, "a load that never lands");
            self.cache.poll(None, 0.0).unwrap();
        }
        self.verify(hit, tokens);
        (hit, self.cache.view(hit).unwrap())
    }

    /// Every byte of a loaded hit is right, and none is missing that a token behind it needs.
    pub fn verify(&self, hit: HitId, tokens: &[i32]) {
        for (page, slot) in self.cache.hit_slots(hit).unwrap().into_iter().enumerate() {
            assert_eq!(self.read(0, slot), self.stamp(0, tokens, page), "page {page} at {slot:?}");
        }
        let depth = self.cache.view(hit).unwrap().device as usize;
        let parts = self.cache.hit_parts(hit).unwrap();
        let first = depth - parts[0].len();
        let from = self.cache.tree().needs_from(0, u32::try_from(depth).unwrap()) as usize;
        for page in from..depth {
            assert!(
                self.read(1, parts[0][page - first]) == self.stamp(1, tokens, page),
                "part of page {page}"
            );
        }
    }

    /// Computes what a hit lacks and inserts it, with the state at its end or the windows of its last `windows` pages;
    /// false: there is no room.
    pub fn compute(&mut self, hit: HitId, tokens: &[i32], windows: Option<usize>) -> bool {
        let (from, to) = (self.cache.view(hit).unwrap().device as usize, tokens.len() / self.size());
        if from == to {
            return true;
        }
        let count = windows.unwrap_or(1).min(to - from);
        let Some(slots) = self.cache.allocate(to - from).unwrap() else { return false };
        let Some(parts) = self.cache.allocate_part(0, count).unwrap() else {
            self.cache.free(&slots).unwrap();
            return false;
        };
        for (page, &slot) in (from..).zip(&slots) {
            self.write(0, slot, &self.stamp(0, tokens, page));
        }
        for (page, &slot) in (to - count..).zip(&parts) {
            self.write(1, slot, &self.stamp(1, tokens, page));
        }
        let holes = if windows.is_some() { to - from - count } else { 0 };
        let given = std::iter::repeat_n(None, holes).chain(parts.iter().copied().map(Some)).collect();
        let rest = Tokens::I32(&tokens[from * self.size()..to * self.size()]);
        let done = self.cache.insert_parts(hit, rest, &slots, &[(0, given)]).unwrap();
        self.cache.free(&slots[..done.duplicates]).unwrap();
        let ours: Vec<Slot> = parts.into_iter().filter(|slot| !done.parts[0].contains(slot)).collect();
        self.cache.free_part(0, &ours).unwrap();
        self.cache.check().unwrap();
        true
    }

    /// One request, from match to release.
    pub fn serve(&mut self, tokens: &[i32], windows: Option<usize>) -> HitView {
        let (hit, view) = self.load(tokens);
        assert!(self.compute(hit, tokens, windows), "no room");
        self.verify(hit, tokens);
        self.cache.release(hit, 0).unwrap();
        view
    }
}
