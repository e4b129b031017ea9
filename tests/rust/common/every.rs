//! Every kind of model under every pair of write policies: plain pages, with windows, with states, with both.

use super::mixed::{ALL, Mixed};
use super::models::{STATE, Shape, WINDOW};
use super::store::FaultStore;
use super::writing::{WRITES, writing};
use hicache_core::hash::{Digest, chain, of_part};
use hicache_core::ids::{HitId, Slot, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::policy::{Write, Writing};
use hicache_core::pool::Needs;
use hicache_core::transfer::Direction;
use std::sync::Arc;

/// Tokens of a page.
pub const PAGE: usize = 2;

/// Room for whatever a test needs.
pub fn kinds() -> Vec<Shape> {
    kinds_with([48, 48], [48, 48], [48, 48])
}

/// So many slots on device and host: of pages, of windows and of states.
pub fn kinds_with(pages: [u32; 2], windows: [u32; 2], states: [u32; 2]) -> Vec<Shape> {
    let part = |needs, [device, host]: [u32; 2]| (needs, device, host);
    let (window, state) = (part(WINDOW, windows), part(STATE, states));
    let all: [&[(Needs, u32, u32)]; 4] = [&[], &[window], &[state], &[window, state]];
    let of = |parts: &[_]| Shape { device: pages[0], host: pages[1], ..Shape::of(parts) };
    all.map(of).to_vec()
}

/// Those under each policy of the host and of storage; whatever may leave is copied beforehand.
pub fn under_every_policy(kinds: &[Shape]) -> Vec<Shape> {
    let pairs = WRITES.into_iter().flat_map(|host| WRITES.map(|storage| writing(host, storage)));
    let of = |writing: Writing| kinds.iter().map(move |kind| Shape { writing, ..kind.clone() });
    pairs.flat_map(of).collect()
}

/// Those under each policy of the host.
pub fn under_every_host_policy(kinds: &[Shape]) -> Vec<Shape> {
    let through = |shape: &Shape| shape.writing.storage == Write::Through;
    under_every_policy(kinds).into_iter().filter(through).collect()
}

/// Tokens of so many pages that no other path begins with.
pub fn pages(number: i32, pages: i32) -> Vec<i32> {
    (0..2 * pages).map(|token| 1000 * number + token).collect()
}

/// Of a path, so many pages, and then others.
pub fn fork(tokens: &[i32], at: usize, number: i32, more: i32) -> Vec<i32> {
    [&tokens[..at * PAGE], &pages(number, more)[..]].concat()
}

/// The key of a page, or of what a part has of it.
pub fn key(tokens: &[i32], page: usize, part: Option<usize>) -> Digest {
    let digest = chain(None, Tokens::I32(tokens), PageSize::new(2).unwrap())[page];
    part.map_or(digest, |part| of_part(&digest, &format!("part{part}")))
}

/// A store that another cache filled with these paths, in pieces of so many pages.
pub fn filled(shape: &Shape, piece: usize, paths: &[Vec<i32>]) -> Arc<FaultStore> {
    let store = Arc::new(FaultStore::default());
    let mut rig = Mixed::over(&roomy(shape), Some(&store));
    for tokens in paths {
        rig.ask(tokens, piece);
        rig.settle();
    }
    rig.drained();
    store
}

/// The same model with room for all.
fn roomy(shape: &Shape) -> Shape {
    let parts = shape.parts.iter().map(|&(needs, ..)| (needs, 1_024, 1_024)).collect();
    Shape { device: 1_024, host: 1_024, parts, unified: None, ..Shape { threshold: 0, ..shape.clone() } }
        .through()
}

impl Shape {
    fn through(self) -> Self {
        Self { writing: writing(Write::Through, Write::Through), ..self }
    }
}

/// How many pages of a path another cache gets from a store, each with its own bytes.
pub fn served(shape: &Shape, store: &Arc<FaultStore>, tokens: &[i32]) -> u32 {
    let mut rig = Mixed::over(&roomy(shape), Some(store));
    let hit = rig.fetch(tokens);
    let found = rig.load(hit);
    rig.land();
    assert_eq!(rig.wrong(hit, tokens, true), None, "{shape:?}");
    rig.cache.release(hit, 0).unwrap();
    rig.drained();
    found.device
}

impl Mixed {
    /// One request, computed in pieces of so many pages. Copies to the host are submitted, and don't land.
    pub fn ask(&mut self, tokens: &[i32], piece: usize) {
        let hit = self.find(tokens);
        self.answer(hit, tokens, piece);
        self.cache.release(hit, 0).unwrap();
    }

    /// The same for a request that was found.
    pub fn answer(&mut self, hit: HitId, tokens: &[i32], piece: usize) {
        // Other loads stay under way.
        if self.load(hit).copied > 0 {
            self.drip.finish(Direction::In);
        }
        assert_eq!(self.wrong(hit, tokens, true), None);
        self.compute_in_pieces(hit, tokens, piece);
    }

    /// Computes what a loaded hit lacks.
    pub fn answer_rest(&mut self, hit: HitId, tokens: &[i32]) {
        self.compute_in_pieces(hit, tokens, tokens.len());
    }

    fn compute_in_pieces(&mut self, hit: HitId, tokens: &[i32], piece: usize) {
        let end = tokens.len() / self.size();
        while (self.view(hit).device as usize) < end {
            let to = end.min(self.view(hit).device as usize + piece);
            assert!(self.compute(hit, tokens, to, ALL), "room for {to} pages");
        }
    }

    /// Two requests, so that every policy wants it.
    pub fn ask_twice(&mut self, tokens: &[i32]) {
        (0..2).for_each(|_| self.ask(tokens, tokens.len()));
    }

    /// A poll, and no copy lands by it.
    pub fn step(&mut self, at: f64) {
        self.cache.poll(None, at).unwrap();
        self.books();
    }

    /// Polls so often that whatever a poll starts, and what follows from it, has been started and has landed.
    pub fn idle(&mut self) {
        (0..4).for_each(|_| self.settle());
    }

    /// The same, so that storage has all that it is to have, also what is written when it leaves the host.
    pub fn write_back(&mut self) {
        self.idle();
        if self.cache.tree().resident(Tier::Device) > 0 {
            self.evict_all(Tier::Device);
            self.idle();
        }
    }

    /// Pages, windows and states leave a tier, as far as they may: how many pages did.
    pub fn evict_all(&mut self, tier: Tier) -> usize {
        let before = self.cache.tree().resident(tier);
        for part in 0..self.components.len() {
            self.cache.evict_part(part, tier, usize::MAX).unwrap();
        }
        self.cache.evict(tier, usize::MAX).unwrap();
        self.books();
        before - self.cache.tree().resident(tier)
    }

    /// How much of a path comes to the device from where it is, each page with its own bytes: as much as was promised.
    pub fn comes_back(&mut self, tokens: &[i32]) -> u32 {
        let hit = self.find(tokens);
        let promised = self.view(hit).usable;
        let found = self.load(hit);
        self.land();
        assert_eq!(self.wrong(hit, tokens, true), None);
        self.cache.release(hit, 0).unwrap();
        assert_eq!(found.device, promised, "room for what was found");
        found.device
    }

    /// Everything that can be had on the device is somebody else's, who writes to it. What that was, space by space.
    pub fn overwrite_all(&mut self) -> Vec<Vec<Slot>> {
        let spaces = 0..=self.components.len();
        let mut all: Vec<Vec<Slot>> = spaces.clone().map(|_| Vec::new()).collect();
        for space in spaces {
            let take = |rig: &mut Self| match space.checked_sub(1) {
                None => rig.cache.allocate(1).unwrap(),
                Some(part) => rig.cache.allocate_part(part, 1).unwrap(),
            };
            while let Some(slots) = take(self) {
                all[space].extend(slots);
            }
        }
        for (space, slots) in (0u8..).zip(&all) {
            let bytes = vec![0xBB; self.memory.page_bytes(space)];
            slots.iter().for_each(|&slot| self.memory.write_device(space, self.at(space, slot), &bytes));
        }
        self.books();
        all
    }

    pub fn give_back(&mut self, slots: Vec<Vec<Slot>>) {
        for (space, slots) in slots.into_iter().enumerate() {
            match space.checked_sub(1) {
                None => self.cache.free(&slots).unwrap(),
                Some(part) => self.cache.free_part(part, &slots).unwrap(),
            }
        }
        self.books();
    }

    /// Host slots that reads own: of pages, then of each part.
    pub fn reading(&self) -> usize {
        let parts =
            (0..self.components.len()).map(|part| self.cache.part_slots(part, Tier::Host).unwrap().out());
        self.cache.slots(Tier::Host).out() + parts.sum::<usize>()
    }
}
