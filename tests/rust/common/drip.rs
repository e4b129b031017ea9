//! Both memories of a cache with windows and states, as plain bytes, and a copier that copies page by page, in any
//! order within a job, when the test says so.
#![allow(unsafe_code, reason = "looks into the host slab")]

use super::Seeded;
use hicache_core::Config;
use hicache_core::entry;
use hicache_core::executor::{HostMemory, HostPool};
use hicache_core::ids::Slot;
use hicache_core::transfer::{Copier, CopyJob, Direction, Progress, Relocate};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of every pool on both sides.
pub struct Spaces {
    device: Mutex<Vec<Vec<u8>>>,
    pools: Vec<HostPool>,
    /// Bytes of a page in each pool.
    sizes: Vec<usize>,
    /// Where all is one buffer: bytes of a page of each space. Pages are at their frames then.
    unified: Option<Vec<usize>>,
}

impl Spaces {
    pub fn new(config: &Config, host: &HostMemory) -> Self {
        let slots = config.device_spaces();
        let sizes: Vec<usize> = config.pools.iter().map(|pool| pool.page_bytes(config.page_size)).collect();
        let bytes = |(pool, size): (&HostPool, &usize)| vec![0; size * slots[pool.space as usize] as usize];
        let device = host.pools.iter().zip(&sizes).map(bytes).collect();
        let unified = config.unified.map(|_| entry::page_bytes(&config.pools, config.page_size));
        let device = config.unified.map_or(device, |bytes| vec![vec![0; usize::try_from(bytes).unwrap()]]);
        Self { device: Mutex::new(device), pools: host.pools.clone(), sizes, unified }
    }

    fn of(&self, space: u8) -> impl Iterator<Item = usize> + '_ {
        (0..self.pools.len()).filter(move |&pool| self.pools[pool].space == space)
    }

    /// Of all pools of a space.
    pub fn page_bytes(&self, space: u8) -> usize {
        self.of(space).map(|pool| self.sizes[pool]).sum()
    }

    pub fn device_page(&self, space: u8, slot: Slot) -> Vec<u8> {
        let device = self.device.lock().unwrap();
        if let Some(sizes) = &self.unified {
            let size = sizes[space as usize];
            return device[0][slot.0 as usize * size..][..size].to_vec();
        }
        let page = |pool: usize| &device[pool][slot.0 as usize * self.sizes[pool]..][..self.sizes[pool]];
        self.of(space).flat_map(|pool| page(pool).to_vec()).collect()
    }

    pub fn write_device(&self, space: u8, slot: Slot, page: &[u8]) {
        let (mut device, mut at) = (self.device.lock().unwrap(), 0);
        if let Some(sizes) = &self.unified {
            let size = sizes[space as usize];
            device[0][slot.0 as usize * size..][..size].copy_from_slice(page);
            return;
        }
        for pool in self.of(space) {
            let size = self.sizes[pool];
            device[pool][slot.0 as usize * size..][..size].copy_from_slice(&page[at..at + size]);
            at += size;
        }
    }

    /// The engine has other memory: nothing that was in it is there any more.
    pub fn forget_device(&self) {
        self.device.lock().unwrap().iter_mut().for_each(|pool| pool.fill(0xAA));
    }

    /// Where each run of a host page is.
    fn host_runs(&self, space: u8, slot: Slot) -> Vec<(*mut u8, usize)> {
        let pools = self.of(space).map(|pool| &self.pools[pool]);
        let runs = pools.flat_map(|pool| {
            let address = |run: std::ops::Range<usize>| pool.slab.address(run).expect("inside the slab");
            pool.layout.runs(slot.0).map(move |run| (address(run.clone()), run.len())).collect::<Vec<_>>()
        });
        runs.collect()
    }

    pub fn copy(&self, direction: Direction, space: u8, device: Slot, host: Slot) {
        let runs = self.host_runs(space, host);
        if direction == Direction::In {
            // SAFETY: inside the slab; the job owns the slot, so that nobody writes it.
            let bytes = |&(at, len): &(*mut u8, usize)| unsafe { std::slice::from_raw_parts(at, len) };
            let page: Vec<u8> = runs.iter().flat_map(bytes).copied().collect();
            self.write_device(space, device, &page);
            return;
        }
        let (page, mut at) = (self.device_page(space, device), 0);
        for (address, len) in runs {
            // SAFETY: inside the slab; the job owns the slot.
            unsafe { std::ptr::copy_nonoverlapping(page[at..].as_ptr(), address, len) };
            at += len;
        }
    }
}

/// The test's side and the cache's side of the same copier.
#[derive(Clone)]
pub struct Drip(Arc<Shared>);

struct Shared {
    memory: Arc<Spaces>,
    progress: [Arc<Progress>; 2],
    ways: Mutex<[VecDeque<Job>; 2]>,
    /// Copies a space's pages from a neighbour's slot: a fault that somebody must notice.
    off_by_one: Mutex<Option<(Direction, u8)>>,
    /// Copies that come are carried out at once.
    eager: AtomicBool,
    /// What ended it.
    fault: Mutex<Option<String>>,
}

struct Job {
    ticket: u64,
    left: Vec<(u8, Slot, Slot)>,
    /// On the device, also what was copied: it may be used only when the job is done.
    all: Vec<(u8, Slot)>,
}

const WAYS: [Direction; 2] = [Direction::In, Direction::Out];

impl Drip {
    pub fn new(memory: Arc<Spaces>) -> Self {
        Self::after(memory, [0; 2])
    }

    /// The same when jobs up to these are finished, in and out.
    pub fn after(memory: Arc<Spaces>, tickets: [u64; 2]) -> Self {
        let progress = tickets.map(|ticket| Arc::new(Progress::starting_at(ticket)));
        let (ways, off_by_one, fault) = (Mutex::default(), Mutex::default(), Mutex::default());
        let eager = AtomicBool::new(false);
        Self(Arc::new(Shared { memory, progress, ways, off_by_one, eager, fault }))
    }

    /// From now on jobs are done when they are submitted.
    pub fn hurry(&self) {
        self.0.eager.store(true, Ordering::Relaxed);
    }

    /// The copier ends: what waits, wholly or in part, and what comes, is never carried out.
    pub fn end(&self, why: &str) {
        self.0.ways.lock().unwrap().iter_mut().for_each(VecDeque::clear);
        *self.0.fault.lock().unwrap() = Some(why.to_owned());
        self.0.progress.iter().for_each(|progress| progress.break_off(why));
    }

    /// One page of the oldest job of some direction; false if there is no job.
    pub fn step(&self, random: &mut Seeded) -> bool {
        let busy = WAYS.map(|way| !self.0.ways.lock().unwrap()[way as usize].is_empty());
        match busy {
            [false, false] => return false,
            [true, false] => self.page(Direction::In, random),
            [false, true] => self.page(Direction::Out, random),
            [true, true] => self.page(WAYS[random.below(2)], random),
        }
        true
    }

    /// All that are under way in a direction.
    pub fn finish(&self, way: Direction) {
        let mut random = Seeded(way as u64);
        while !self.0.ways.lock().unwrap()[way as usize].is_empty() {
            self.page(way, &mut random);
        }
    }

    pub fn finish_all(&self) {
        WAYS.into_iter().for_each(|way| self.finish(way));
    }

    pub fn plant(&self, way: Direction, space: u8) {
        *self.0.off_by_one.lock().unwrap() = Some((way, space));
    }

    fn page(&self, way: Direction, random: &mut Seeded) {
        let mut ways = self.0.ways.lock().unwrap();
        let Some(job) = ways[way as usize].front_mut() else { return };
        if !job.left.is_empty() {
            let (space, device, host) = job.left.swap_remove(random.below(job.left.len()));
            let planted = *self.0.off_by_one.lock().unwrap() == Some((way, space));
            let device = Slot(if planted { device.0.saturating_sub(1) } else { device.0 });
            self.0.memory.copy(way, space, device, host);
        }
        if job.left.is_empty() {
            self.0.progress[way as usize].job_done(job.ticket);
            ways[way as usize].pop_front();
        }
    }
}

impl Copier for Drip {
    fn submit(&mut self, job: CopyJob) {
        let spaces = (0u8..).zip(&job.pages);
        let left: Vec<_> =
            spaces.flat_map(|(space, pages)| pages.iter().map(move |&(d, h)| (space, d, h))).collect();
        let all = left.iter().map(|&(space, device, _)| (space, device)).collect();
        if self.fault().is_some() {
            return;
        }
        let job = (job.direction, Job { ticket: job.ticket, left, all });
        self.0.ways.lock().unwrap()[job.0 as usize].push_back(job.1);
        if self.0.eager.load(Ordering::Relaxed) {
            self.finish(job.0);
        }
    }

    fn progress(&self, direction: Direction) -> &Arc<Progress> {
        &self.0.progress[direction as usize]
    }

    fn relocate(&self) -> Option<Relocate> {
        let shared = Arc::clone(&self.0);
        let sizes = shared.memory.unified.clone()?;
        Some(Arc::new(move |space, frames| {
            let size = sizes[space as usize];
            let bytes = |space: usize, frame: Slot| {
                let start = frame.0 as usize * sizes[space];
                start..start + sizes[space]
            };
            // What a copy that is under way may touch stays where it is, and nobody gets its place.
            let ways = shared.ways.lock().unwrap();
            let busy: Vec<_> = ways.iter().flatten().flat_map(|job| &job.all).copied().collect();
            for &(from, to) in frames {
                for place in [bytes(space as usize, from), bytes(space as usize, to)] {
                    let met = |&(space, frame): &(u8, Slot)| {
                        let other = bytes(space as usize, frame);
                        other.start < place.end && place.start < other.end
                    };
                    assert!(!busy.iter().any(met), "a move of what a copy touches: {from:?} to {to:?}");
                }
                let from = bytes(space as usize, from);
                let mut device = shared.memory.device.lock().unwrap();
                device[0].copy_within(from, to.0 as usize * size);
            }
        }))
    }

    fn fault(&self) -> Option<String> {
        self.0.fault.lock().unwrap().clone()
    }
}
