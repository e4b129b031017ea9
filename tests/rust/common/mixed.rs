//! A cache with windows and states over doubles, and an engine that computes stamps of all of them.

use super::drip::{Drip, Spaces};
use super::memory::stamp;
use super::models::{Shape, config};
use super::store::FaultStore;
use hicache_core::executor::Executor;
use hicache_core::hash::Namespace;
use hicache_core::ids::{Cursor, HitId, NO_SLOT, Slot, Tier};
use hicache_core::page::Tokens;
use hicache_core::reader::Reader;
use hicache_core::storage::{Store, Workers};
use hicache_core::tree::Component;
use hicache_core::unified::End;
use hicache_core::{HiCache, HitView, assemble};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct Mixed {
    pub cache: HiCache,
    pub memory: Arc<Spaces>,
    pub drip: Drip,
    pub components: Vec<Component>,
    pub(super) size: usize,
    pub(super) reader: Option<Reader>,
    pub(super) finds: usize,
}

/// The match from which on a reader is asked, too: by then there is something that it must be told at once.
const LATE_READER: usize = 8;

/// What of its parts an engine gives with an insert.
#[derive(Clone, Copy, Debug)]
pub struct Gives {
    /// Windows of so many of the last pages.
    pub windows: usize,
    pub states: bool,
}

pub const ALL: Gives = Gives { windows: usize::MAX, states: true };

impl Mixed {
    pub fn new(shape: &Shape) -> Self {
        Self::over(shape, None)
    }

    /// After a fault and when nobody uses the device: other memory, and a copier that has no fault.
    pub fn wake_elsewhere(&mut self) {
        self.books();
        let part = |part| self.cache.part_slots(part, Tier::Device).unwrap().capacity();
        let parts = (0..self.components.len()).map(part);
        let slots = std::iter::once(self.cache.slots(Tier::Device).capacity()).chain(parts);
        let slots: Vec<u32> = slots.map(|slots| u32::try_from(slots).unwrap()).collect();
        self.cache.detach().unwrap();
        self.memory.forget_device();
        let (memory, mut made) = (Arc::clone(&self.memory), None);
        let attached = self.cache.attach_copier(&slots, |_, _, finished| {
            let drip = Drip::after(memory, finished);
            made = Some(drip.clone());
            Ok(Box::new(drip))
        });
        attached.unwrap();
        self.drip = made.unwrap();
        self.books();
    }

    pub fn over(shape: &Shape, store: Option<&Arc<FaultStore>>) -> Self {
        let config = config(shape);
        let host = assemble::host_memory(&config).unwrap();
        let memory = Arc::new(Spaces::new(&config, &host));
        let drip = Drip::new(Arc::clone(&memory));
        let workers = store.map(|store| {
            let store: Arc<dyn Store> = Arc::<FaultStore>::clone(store);
            (Workers::start(&store, config.io_threads, config.write_queue).unwrap(), config.identity)
        });
        let storage = workers.is_some();
        let components = config.components();
        let executor = Executor::new(Box::new(drip.clone()), workers, host);
        let cache = HiCache::new(config, executor, storage).unwrap();
        Self { cache, memory, drip, components, size: shape.page as usize, reader: None, finds: 0 }
    }

    pub fn size(&self) -> usize {
        self.size
    }

    pub fn find(&mut self, tokens: &[i32]) -> HitId {
        self.find_after(tokens, None, 0.0).unwrap()
    }

    pub fn find_after(
        &mut self,
        tokens: &[i32],
        after: Option<Cursor>,
        at: f64,
    ) -> hicache_core::Result<HitId> {
        let tokens = Tokens::I32(tokens);
        // From now on a reader must have said before what every match finds.
        self.finds += 1;
        if self.finds == LATE_READER {
            self.reader = Some(self.cache.reader());
        }
        let ask = |reader: &Reader| reader.would_hit(tokens, &Namespace::default()).unwrap();
        let said = self.reader.as_ref().filter(|_| after.is_none()).map(ask);
        let hit = self.cache.match_prefix(tokens, &Namespace::default(), after, usize::MAX, at)?;
        if let Some(said) = said {
            let (view, size) = (self.view(hit), self.size);
            let found = [view.device, view.usable].map(|pages| pages as usize * size);
            assert_eq!([said.device, said.usable], found, "a reader said otherwise");
        }
        Ok(hit)
    }

    pub fn view(&self, hit: HitId) -> HitView {
        self.cache.view(hit).unwrap()
    }

    /// What a match would find usable on the device, and anywhere.
    pub fn usable(&mut self, tokens: &[i32]) -> (u32, u32) {
        let hit = self.find(tokens);
        let view = self.view(hit);
        self.cache.release(hit, 0).unwrap();
        (view.device, view.usable)
    }

    pub fn books(&self) {
        self.cache.check().unwrap();
    }

    /// All copies land, and are known to have.
    pub fn land(&mut self) {
        self.drip.finish_all();
        self.cache.poll(None, 0.0).unwrap();
        self.books();
    }

    /// Polls until `done`; a test that waits in vain fails.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            self.land();
            if done(self) {
                return;
            }
            assert!(Instant::now() < end, "waited in vain: {what}");
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Until nothing is under way.
    pub fn settle(&mut self) {
        self.until("all transfers", |rig| rig.cache.in_flight() == 0);
    }

    /// Match and prefetch, until the wait is over.
    pub fn fetch(&mut self, tokens: &[i32]) -> HitId {
        let hit = self.find(tokens);
        self.cache.prefetch(hit).unwrap();
        self.until("the prefetch", |rig| !rig.view(hit).waiting);
        hit
    }

    pub fn load(&mut self, hit: HitId) -> HitView {
        self.cache.load(&[hit], None).unwrap();
        self.books();
        self.view(hit)
    }

    /// Where a slot's page is: at its frame, in a unified buffer.
    pub fn at(&self, space: u8, slot: Slot) -> Slot {
        if self.cache.unified().is_none() { slot } else { self.frame(space, slot).expect("in use") }
    }

    /// A slot's frame in a unified buffer, if the slot is in use.
    pub fn frame(&self, space: u8, slot: Slot) -> Option<Slot> {
        let frame = self.cache.frames(space.into()).unwrap()[slot.0 as usize];
        u32::try_from(frame).ok().map(Slot)
    }

    /// What a page, or the state behind it, must be.
    fn stamp(&self, space: u8, tokens: &[i32], page: usize) -> Vec<u8> {
        let of = Namespace { extra_key: Some(format!("space {space}")), ..Namespace::default() };
        stamp(&of, &tokens[..(page + 1) * self.size], self.memory.page_bytes(space))
    }

    /// Computes a loaded hit's tokens up to page `to` and inserts them in one go; false if there is no room.
    pub fn compute(&mut self, hit: HitId, tokens: &[i32], to: usize, what: Gives) -> bool {
        let from = self.view(hit).device as usize;
        let Some(slots) = self.cache.allocate(to - from).unwrap() else { return false };
        let mut given: Vec<(usize, Vec<Option<Slot>>)> = Vec::new();
        for (part, component) in self.components.clone().into_iter().enumerate() {
            let (all, count) = match component {
                Component::Swa { .. } => (to - from, what.windows.min(to - from)),
                Component::State => (1, usize::from(what.states && to > from)),
            };
            let Some(ours) = self.cache.allocate_part(part, count).unwrap() else {
                self.cache.free(&slots).unwrap();
                given.iter().for_each(|(part, slots)| self.free_part(*part, slots));
                return false;
            };
            let holes = std::iter::repeat_n(None, all - count);
            given.push((part, holes.chain(ours.into_iter().map(Some)).collect()));
        }
        for (page, &slot) in (from..).zip(&slots) {
            self.memory.write_device(0, self.at(0, slot), &self.stamp(0, tokens, page));
        }
        for (part, slots) in &given {
            let space = u8::try_from(part + 1).unwrap();
            for (page, slot) in (to.saturating_sub(slots.len())..).zip(slots) {
                let Some(slot) = *slot else { continue };
                self.memory.write_device(space, self.at(space, slot), &self.stamp(space, tokens, page));
            }
        }
        let rest = Tokens::I32(&tokens[from * self.size..to * self.size]);
        let done = self.cache.insert_parts(hit, rest, &slots, &given).unwrap();
        assert_eq!(done.depth as usize, to);
        self.cache.free(&slots[..done.duplicates]).unwrap();
        for ((part, given), kept) in given.iter().zip(&done.parts) {
            let ours: Vec<_> =
                given.iter().zip(kept).map(|(slot, kept)| slot.filter(|s| s != kept)).collect();
            assert!(given.iter().zip(kept).all(|(slot, kept)| slot.is_none() || *kept != NO_SLOT));
            self.free_part(*part, &ours);
        }
        self.books();
        true
    }

    fn free_part(&mut self, part: usize, slots: &[Option<Slot>]) {
        let slots: Vec<Slot> = slots.iter().copied().flatten().collect();
        self.cache.free_part(part, &slots).unwrap();
    }

    /// One request from match to release, in chunks of so many pages; copies land before it computes.
    pub fn serve(&mut self, tokens: &[i32], chunk: usize) -> HitView {
        let hit = self.find(tokens);
        let found = self.load(hit);
        self.land();
        assert_eq!(self.wrong(hit, tokens, true), None);
        while (self.view(hit).device as usize) < tokens.len() / self.size {
            let to = (self.view(hit).device as usize + chunk).min(tokens.len() / self.size);
            assert!(self.compute(hit, tokens, to, ALL), "no room");
        }
        self.cache.release(hit, 0).unwrap();
        self.land();
        found
    }

    /// What of a loaded hit isn't what it must be, if anything is. Loads must have landed. With `whole` it must also
    /// have all that a token behind it needs.
    pub fn wrong(&self, hit: HitId, tokens: &[i32], whole: bool) -> Option<String> {
        let depth = self.view(hit).device;
        let full = self.cache.hit_slots(hit).unwrap().into_iter().enumerate();
        let mut all: Vec<(u8, usize, Slot)> = full.map(|(page, slot)| (0, page, slot)).collect();
        for (part, slots) in self.cache.hit_parts(hit).unwrap().into_iter().enumerate() {
            let space = u8::try_from(part + 1).unwrap();
            let from = self.cache.tree().needs_from(part, depth) as usize;
            let first = match self.components[part] {
                Component::Swa { .. } => 0,
                Component::State => depth as usize - slots.len(),
            };
            let there = (first..).zip(slots).filter(|(_, slot)| *slot != NO_SLOT).collect::<Vec<_>>();
            let needed = there.iter().filter(|(page, _)| *page >= from).count();
            if whole && needed != depth as usize - from {
                return Some(format!("part {part}: {needed} of {} at {depth}", depth as usize - from));
            }
            all.extend(there.into_iter().map(|(page, slot)| (space, page, slot)));
        }
        let wrong = all.into_iter().find(|&(space, page, slot)| {
            self.memory.device_page(space, self.at(space, slot)) != self.stamp(space, tokens, page)
        });
        wrong.map(|(space, page, slot)| format!("page {page} of space {space} at {slot:?}"))
    }

    /// With no hit and no transfer left, everything can go and nothing is lost.
    pub fn drained(&mut self) {
        self.settle();
        assert_eq!((self.cache.in_flight(), self.cache.tree().pins()), (0, 0));
        for tier in Tier::ALL {
            for part in 0..self.components.len() {
                self.cache.evict_part(part, tier, usize::MAX).unwrap();
                let pool = self.cache.part_slots(part, tier).unwrap();
                assert_eq!(pool.free(), pool.capacity(), "part {part} in {tier:?}");
            }
            self.cache.evict(tier, usize::MAX).unwrap();
            assert_eq!(self.cache.slots(tier).free(), self.cache.slots(tier).capacity(), "{tier:?}");
            self.books();
        }
        assert_eq!(self.cache.tree().nodes(), 0);
        let spans = self.cache.unified().map(|buffer| End::BOTH.map(|end| buffer.span(end)));
        assert!(spans.is_none_or(|spans| spans == [0, 0]), "an empty buffer is all gap: {spans:?}");
    }
}
