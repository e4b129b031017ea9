//! A whole cache whose device memory is on the (emulated) GPU: there and back through the host, asleep and awake.

use hicache_core::assemble::DevicePlane;
use hicache_core::hash::Namespace;
use hicache_core::host::{LayoutKind, SlabOptions};
use hicache_core::identity::Fingerprint;
use hicache_core::ids::{HitId, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::policy::StopOptions;
use hicache_core::pool::{Plane, PoolSpec};
use hicache_core::transfer::cpu::CpuOptions;
use hicache_core::transfer::{Direction, GpuOptions};
use hicache_core::{Config, Error, HiCache, HostMode};
use std::time::{Duration, Instant};

/// Bytes of a token in each plane: K and V of two layers, and a side pool of one plane.
const POOLS: [&[(u32, u32, usize)]; 2] = [&[(0, 0, 96), (0, 1, 96), (1, 0, 96), (1, 1, 96)], &[(1, 0, 40)]];
const PAGE: usize = 4;
const SLOTS: u32 = 6;

fn config(layout: LayoutKind) -> Config {
    let page_size = PageSize::new(4).unwrap();
    let plane = |&(layer, role, bytes_per_token): &(u32, u32, usize)| Plane { layer, role, bytes_per_token };
    let pool =
        |(planes, name): (&&[_], &str)| PoolSpec::new(name, planes.iter().map(plane).collect()).unwrap();
    let pools: Vec<PoolSpec> = POOLS.iter().zip(["kv", "side"]).map(pool).collect();
    Config {
        identity: Fingerprint::of(&[], page_size, &pools),
        page_size,
        bigrams: false,
        pools,
        device_slots: SLOTS,
        engine_owns_slots: false,
        eviction: "lru".to_owned(),
        writing: hicache_core::policy::Writing::default(),
        host_slots: SLOTS,
        host_mode: HostMode::Cache,
        parts: Vec::new(),
        unified: None,
        checkpoints_per_path: 0,
        layout,
        memory: SlabOptions::default(),
        restart: None,
        gpu: Some(0),
        gpu_copies: GpuOptions::default(),
        copies: CpuOptions::default(),
        io_threads: 1,
        write_queue: 4,
        prefetch: StopOptions::named("wait_complete"),
        prefetch_deadline: 10.0,
        store_deadline: 10.0,
        prefetch_threshold: 0,
        load_threshold: 0,
    }
}

struct Memory(Vec<Vec<Vec<u8>>>);

impl Memory {
    fn new() -> Self {
        let plane = |&(_, _, bytes): &(u32, u32, usize)| vec![0xDD; bytes * PAGE * SLOTS as usize];
        Self(POOLS.iter().map(|planes| planes.iter().map(plane).collect()).collect())
    }

    fn device(&mut self) -> Vec<Vec<DevicePlane>> {
        let plane =
            |p: &mut Vec<u8>| DevicePlane { address: p.as_mut_ptr().expose_provenance(), bytes: p.len() };
        self.0.iter_mut().map(|pool| pool.iter_mut().map(plane).collect()).collect()
    }

    /// The page of a slot in every plane, by position.
    fn pages(&mut self, slot: u32) -> Vec<&mut [u8]> {
        let page = |(plane, shape): (_, &(u32, u32, usize))| {
            let (plane, bytes): (&mut Vec<u8>, usize) = (plane, shape.2 * PAGE);
            &mut plane[slot as usize * bytes..][..bytes]
        };
        self.0
            .iter_mut()
            .zip(POOLS)
            .flat_map(|(pool, shapes)| pool.iter_mut().zip(shapes))
            .map(page)
            .collect()
    }

    fn compute(&mut self, slot: u32, id: u8) {
        self.pages(slot).into_iter().zip(0..).for_each(|(page, plane)| fill(page, id, plane));
    }

    fn verify(&mut self, slot: u32, id: u8) {
        for (page, plane) in self.pages(slot).into_iter().zip(0..) {
            let mut wanted = page.to_vec();
            fill(&mut wanted, id, plane);
            assert_eq!(page, wanted, "slot {slot}, plane {plane}");
        }
    }
}

fn fill(page: &mut [u8], id: u8, plane: u8) {
    page.iter_mut().zip(0u8..=u8::MAX).for_each(|(byte, at)| *byte = at.wrapping_mul(7) ^ (id * 16 + plane));
}

fn until_idle(cache: &mut HiCache) {
    let end = Instant::now() + Duration::from_secs(20);
    while cache.in_flight() > 0 {
        cache.poll(None, 0.0).unwrap();
        assert!(Instant::now() < end, "transfers never end");
    }
    cache.check().unwrap();
}

fn matched(cache: &mut HiCache, tokens: &[i32]) -> HitId {
    cache.match_prefix(Tokens::I32(tokens), &Namespace::default(), None, usize::MAX, 0.0).unwrap()
}

/// Loads what the host has, waits for each layer, and looks at every byte.
fn bring_back(cache: &mut HiCache, tokens: &[i32], memory: &mut Memory) {
    let hit = matched(cache, tokens);
    let loaded = cache.load(&[hit], None).unwrap();
    let wait = cache.wait_on_stream().expect("a GPU has streams");
    for layer in 0..2 {
        wait(loaded.ticket, layer, 0).unwrap();
        assert!(cache.progress(Direction::In).wait(loaded.ticket, layer + 1, Duration::from_secs(20)));
    }
    until_idle(cache);
    let slots = cache.hit_slots(hit).unwrap();
    assert_eq!(slots.len(), 3);
    (1..).zip(&slots).for_each(|(id, slot)| memory.verify(slot.0, id));
    cache.release(hit, 0).unwrap();
}

/// `alive`: streams, events, allocations and pinned pieces of the machine.
pub fn there_and_back(layout: LayoutKind, alive: fn() -> usize) {
    let tokens: Vec<i32> = (0..12).collect();
    let mut memory = Memory::new();
    // SAFETY: `memory` outlives the cache or its detaching, and never moves its planes.
    let mut cache = unsafe { HiCache::over_memory(config(layout), Some(&memory.device()), None) }.unwrap();
    cache.follow(0);
    let hit = matched(&mut cache, &tokens);
    cache.load(&[hit], None).unwrap();
    let slots = cache.allocate(3).unwrap().unwrap();
    (1..).zip(&slots).for_each(|(id, slot)| memory.compute(slot.0, id));
    cache.insert(hit, Tokens::I32(&tokens), &slots).unwrap();
    cache.release(hit, 0).unwrap();
    until_idle(&mut cache);
    assert_eq!(cache.evict(Tier::Device, 3).unwrap().len(), 3);
    let mut other = Memory::new();
    bring_back(&mut cache, &tokens, &mut memory);

    // Asleep: nothing of the device is used any more. Awake, elsewhere: the host has kept everything.
    cache.detach().unwrap();
    assert_eq!(alive(), 0, "a detached cache holds on to the device");
    drop(memory);
    // SAFETY: as above.
    unsafe { cache.attach(&other.device(), &[SLOTS]) }.unwrap();
    bring_back(&mut cache, &tokens, &mut other);
    drop(cache);
    assert_eq!(alive(), 0, "something was left behind");
}

/// A backup and a load with these options.
pub fn goes_by(options: GpuOptions) {
    let mut memory = Memory::new();
    let config = Config { gpu_copies: options, ..config(LayoutKind::PageUnified) };
    // SAFETY: `memory` outlives the cache and never moves its planes.
    let mut cache = unsafe { HiCache::over_memory(config, Some(&memory.device()), None) }.unwrap();
    for _ in 0..2 {
        assert!(serve(&mut cache, &[1, 2, 3, 4], &mut memory));
        cache.evict(Tier::Device, 9).unwrap();
    }
}

/// After CUDA has failed, the verbs that copy say so, and nothing else hangs.
pub fn says_what_failed(break_it: impl Fn()) {
    let tokens: Vec<i32> = (0..12).collect();
    let mut memory = Memory::new();
    // SAFETY: `memory` outlives the cache.
    let made = unsafe { HiCache::over_memory(config(LayoutKind::PageUnified), Some(&memory.device()), None) };
    let mut cache = made.unwrap();
    break_it();
    let hit = matched(&mut cache, &tokens);
    cache.load(&[hit], None).unwrap();
    let slots = cache.allocate(3).unwrap().unwrap();
    // What it starts to back up, with the next poll, is the first to fail.
    cache.insert(hit, Tokens::I32(&tokens), &slots).unwrap();
    cache.poll(None, 0.0).unwrap();
    let failed = cache.allocate(1).map(|_| ()).unwrap_err();
    assert!(matches!(&failed, Error::Device(text) if text.contains("700")), "{failed}");
    cache.poll(None, 0.0).unwrap();
    cache.close(Duration::from_secs(1));
}

/// A backup or a load fails: what it was to bring is never served. With other memory the cache goes on. True if
/// something failed.
pub fn goes_on_after_a_fault(break_it: impl Fn(), alive: fn() -> usize) -> bool {
    let tokens: Vec<i32> = (0..12).collect();
    let (mut memory, mut other) = (Memory::new(), Memory::new());
    // SAFETY: both outlive the cache or its detaching, and never move their planes.
    let made = unsafe { HiCache::over_memory(config(LayoutKind::PageUnified), Some(&memory.device()), None) };
    let mut cache = made.unwrap();
    assert!(serve(&mut cache, &tokens[..4], &mut memory));
    cache.evict(Tier::Device, 9).unwrap();
    break_it();
    // Loads a page and backs two others up; then loads three.
    if serve(&mut cache, &tokens, &mut memory) {
        cache.evict(Tier::Device, 9).unwrap();
        if serve(&mut cache, &tokens, &mut memory) {
            return false;
        }
    }
    assert_eq!(alive(), 0, "a fault ends all that uses the device");
    assert_eq!((cache.in_flight(), cache.tree().resident(Tier::Device)), (0, 0));
    assert!(cache.tree().resident(Tier::Host) >= 1, "what was there before stays");
    cache.detach().unwrap();
    // SAFETY: as above.
    unsafe { cache.attach(&other.device(), &[SLOTS]) }.unwrap();
    for _ in 0..2 {
        assert!(serve(&mut cache, &tokens, &mut other), "other memory, and no fault");
        assert_eq!(cache.tree().resident(Tier::Host), 3);
        assert_eq!(cache.evict(Tier::Device, 9).unwrap().len(), 3);
    }
    true
}

/// One request, with every byte of the pages that it finds looked at; false if the device failed meanwhile.
fn serve(cache: &mut HiCache, tokens: &[i32], memory: &mut Memory) -> bool {
    let hit = matched(cache, tokens);
    let served = compute(cache, hit, tokens, memory);
    cache.release(hit, 0).unwrap();
    until_idle(cache);
    cache.poll(None, 0.0).unwrap();
    cache.check().unwrap();
    served.is_some() && cache.allocate(0).is_ok()
}

/// Loads what hits, computes what doesn't, and inserts it; `None` if the device failed.
fn compute(cache: &mut HiCache, hit: HitId, tokens: &[i32], memory: &mut Memory) -> Option<()> {
    let ticket = cache.load(&[hit], None).ok()?.ticket;
    cache.progress(Direction::In).wait(ticket, 2, Duration::from_secs(3600)).then_some(())?;
    let slots = cache.hit_slots(hit).ok()?;
    (1..).zip(&slots).for_each(|(id, slot)| memory.verify(slot.0, id));
    let new = cache.allocate(tokens.len() / PAGE - slots.len()).ok()??;
    let first = u8::try_from(slots.len()).unwrap() + 1;
    (first..).zip(&new).for_each(|(id, slot)| memory.compute(slot.0, id));
    if cache.insert(hit, Tokens::I32(&tokens[slots.len() * PAGE..]), &new).is_err() {
        cache.free(&new).unwrap();
        return None;
    }
    Some(())
}
