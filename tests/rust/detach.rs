//! Device memory that goes and comes: host and storage keep what they have, nothing leaks, nothing is wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]
#![allow(unsafe_code, reason = "a cache over plain memory takes addresses")]

mod common;

use common::memory::stamp;
use common::over::over_store;
use common::rig::{self, Rig, Shape};
use hicache_core::assemble::DevicePlane;
use hicache_core::hash::Namespace;
use hicache_core::ids::{HitId, Slot, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::transfer::Direction;
use hicache_core::transfer::cpu::CpuOptions;
use hicache_core::{Config, Error, HiCache};
use std::time::{Duration, Instant};

const PROMPT: [i32; 8] = [5, 6, 7, 8, 9, 10, 11, 12];

/// Rows of K and V of two layers, with room for so many pages of two tokens.
struct Device(Vec<Vec<u8>>);

impl Device {
    const ROWS: [usize; 4] = [8, 4, 8, 4];

    fn new(slots: usize) -> Self {
        Self(Self::ROWS.iter().map(|row| vec![0; row * 2 * slots]).collect())
    }

    fn planes(&mut self) -> Vec<Vec<DevicePlane>> {
        let plane = |bytes: &mut Vec<u8>| DevicePlane {
            address: bytes.as_mut_ptr().expose_provenance(),
            bytes: bytes.len(),
        };
        vec![self.0.iter_mut().map(plane).collect()]
    }

    fn page(&mut self, slot: Slot) -> Vec<&mut [u8]> {
        let planes = self.0.iter_mut().zip(Self::ROWS);
        planes.map(|(plane, row)| &mut plane[slot.0 as usize * row * 2..][..row * 2]).collect()
    }
}

fn stamp_of(page: usize) -> Vec<u8> {
    stamp(&Namespace::default(), &PROMPT[..(page + 1) * 2], 48)
}

fn until_idle(cache: &mut HiCache) {
    let end = Instant::now() + Duration::from_secs(10);
    while cache.in_flight() > 0 {
        cache.poll(None, 0.0).unwrap();
        assert!(Instant::now() < end, "transfers never end");
    }
    cache.check().unwrap();
}

fn find(cache: &mut HiCache) -> HitId {
    cache.match_prefix(Tokens::I32(&PROMPT), &Namespace::default(), None, usize::MAX, 0.0).unwrap()
}

/// Computes the prompt's pages into a cache that has none of them.
fn compute(cache: &mut HiCache, device: &mut Device) {
    let hit = find(cache);
    cache.load(&[hit], None).unwrap();
    let slots = cache.allocate(4).unwrap().unwrap();
    for (page, &slot) in slots.iter().enumerate() {
        let (mut at, stamp) = (0, stamp_of(page));
        for plane in device.page(slot) {
            plane.copy_from_slice(&stamp[at..at + plane.len()]);
            at += plane.len();
        }
    }
    cache.insert(hit, Tokens::I32(&PROMPT), &slots).unwrap();
    until_idle(cache);
    cache.release(hit, 0).unwrap();
}

/// Loads what hits, and compares it.
fn verify(cache: &mut HiCache, device: &mut Device, pages: usize) {
    let hit = find(cache);
    let ticket = cache.load(&[hit], None).unwrap().ticket;
    assert!(cache.progress(Direction::In).wait(ticket, 2, Duration::from_secs(5)));
    until_idle(cache);
    let slots = cache.hit_slots(hit).unwrap();
    assert_eq!(slots.len(), pages);
    for (page, slot) in slots.into_iter().enumerate() {
        assert_eq!(device.page(slot).concat(), stamp_of(page), "page {page}");
    }
    cache.release(hit, 0).unwrap();
}

fn config(host: u32) -> Config {
    rig::config(Shape { device: 6, host, ..Shape::default() })
}

fn over(config: &Config, device: Option<&mut Device>, url: Option<&str>) -> HiCache {
    let planes = device.map(Device::planes);
    // SAFETY: the tests keep a device's memory until it is detached or the cache is gone.
    unsafe {
        match url {
            Some(url) => over_store(config.clone(), planes.as_deref(), url),
            None => HiCache::over_memory(config.clone(), planes.as_deref(), None),
        }
    }
    .unwrap()
}

fn attach(cache: &mut HiCache, device: &mut Device, slots: u32) -> hicache_core::Result<()> {
    // SAFETY: as above.
    unsafe { cache.attach(&device.planes(), &[slots]) }
}

#[test]
fn an_engine_sleeps_and_wakes_up_with_other_memory() {
    let mut first = Device::new(6);
    let mut cache = over(&config(8), Some(&mut first), None);
    compute(&mut cache, &mut first);
    for (slots, round) in [(3, 0), (9, 1)] {
        assert_eq!(cache.detach().unwrap(), 0, "all pages are on the host");
        cache.check().unwrap();
        assert_eq!((cache.slots(Tier::Device).capacity(), cache.tree().resident(Tier::Device)), (0, 0));
        assert_eq!(cache.tree().resident(Tier::Host), 4, "round {round}");
        // The old memory is the engine's again.
        first.0.iter_mut().for_each(|plane| plane.fill(0xAA));
        let mut other = Device::new(slots);
        attach(&mut cache, &mut other, u32::try_from(slots).unwrap()).unwrap();
        assert_eq!(cache.slots(Tier::Device).free(), slots);
        verify(&mut cache, &mut other, slots.min(4));
        assert!(first.0.iter().flatten().all(|&byte| byte == 0xAA), "nobody writes to memory that went");
        first = other;
    }
}

#[test]
fn what_has_no_host_copy_goes_with_the_memory() {
    let mut device = Device::new(6);
    let mut cache = over(&config(3), Some(&mut device), None);
    compute(&mut cache, &mut device);
    assert_eq!(cache.tree().resident(Tier::Host), 3);
    assert_eq!(cache.detach().unwrap(), 1);
    attach(&mut cache, &mut device, 6).unwrap();
    verify(&mut cache, &mut device, 3);
}

#[test]
fn without_device_memory_a_cache_still_finds_and_fetches() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}", dir.path().display());
    let mut device = Device::new(6);
    let mut writer = over(&config(8), Some(&mut device), Some(&url));
    compute(&mut writer, &mut device);
    drop(writer);
    device.0.iter_mut().for_each(|plane| plane.fill(0));

    // A leader that only declares its pools.
    let mut cache = over(&config(8), None, Some(&url));
    assert!(!cache.attached());
    let hit = find(&mut cache);
    assert!(cache.prefetch(hit).unwrap());
    let end = Instant::now() + Duration::from_secs(10);
    while cache.view(hit).unwrap().waiting {
        cache.poll(None, 0.0).unwrap();
        assert!(Instant::now() < end, "a prefetch never ends");
    }
    assert_eq!(cache.view(hit).unwrap().usable, 4);
    assert_eq!(cache.load(&[hit], None), Err(Error::Detached));
    assert_eq!(cache.allocate(1), Err(Error::Detached));
    assert_eq!(cache.insert(hit, Tokens::I32(&PROMPT), &[]), Err(Error::Detached));
    assert_eq!(cache.detach(), Err(Error::Detached));
    assert_eq!(cache.evict(Tier::Device, 9).unwrap(), []);
    cache.check().unwrap();
    let error = attach(&mut cache, &mut Device::new(3), 4).unwrap_err().to_string();
    assert!(error.contains("too small for 4 slots"), "{error}");
    assert!(attach(&mut cache, &mut device, 0).is_err());
    attach(&mut cache, &mut device, 6).unwrap();
    assert!(attach(&mut cache, &mut device, 6).unwrap_err().to_string().contains("attached already"));
    cache.release(hit, 0).unwrap();
    verify(&mut cache, &mut device, 4);
}

#[test]
fn memory_that_somebody_uses_can_not_go() {
    let mut rig = Rig::new(Shape::default(), None);
    let refused = |rig: &mut Rig, why: &str| {
        let error = rig.cache.detach().unwrap_err().to_string();
        assert!(error.starts_with("pools: ") && error.contains(why), "{error}");
        assert!(rig.cache.attached());
        rig.books();
    };
    let hit = rig.find(&PROMPT);
    rig.load(hit);
    refused(&mut rig, "1 hits are loaded");
    rig.gate.shut(Direction::Out);
    assert!(rig.compute(hit, &PROMPT));
    rig.cache.release(hit, 0).unwrap();
    refused(&mut rig, "copies are under way");
    rig.gate.open(Direction::Out);
    refused(&mut rig, "copies are under way");
    rig.settle();
    let out = rig.cache.allocate(2).unwrap().unwrap();
    refused(&mut rig, "2 device slots are out");
    rig.cache.free(&out).unwrap();
    // A hit that only waits does not keep it.
    let waiting = rig.find(&PROMPT);
    assert_eq!(rig.cache.detach().unwrap(), 0);
    rig.books();
    assert_eq!((rig.view(waiting).device, rig.view(waiting).usable), (0, 4));
    rig.cache.release(waiting, 0).unwrap();
    rig.drained();
    rig.cache.close(Duration::from_secs(1));
    assert_eq!(rig.cache.detach(), Err(Error::Closed));
}

#[test]
fn an_engine_that_owns_the_slots_needs_not_give_them_back() {
    let config = Config { engine_owns_slots: true, ..config(8) };
    let mut device = Device::new(6);
    let mut cache = over(&config, Some(&mut device), None);
    assert_eq!(cache.slots(Tier::Device).out(), 6);
    cache.detach().unwrap();
    attach(&mut cache, &mut device, 5).unwrap();
    assert_eq!(cache.slots(Tier::Device).out(), 5);
    cache.check().unwrap();
}

#[test]
fn a_cache_that_can_not_be_leaves_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}/store", dir.path().display());
    let mut device = Device::new(6);
    let planes = device.planes();
    let pairs = PageSize::new(1 << 20).unwrap();
    let cases = [
        (Config { gpu: Some(99), ..config(8) }, "GPU"),
        (Config { page_size: pairs, bigrams: true, ..config(8) }, "page_size"),
        (Config { copies: CpuOptions { threads: 0, ..CpuOptions::default() }, ..config(8) }, "copy_threads"),
        (config(0), "host"),
    ];
    for (config, why) in cases {
        // SAFETY: nothing is made that could keep the memory.
        let made = unsafe { over_store(config, Some(&planes), &url) };
        let error = made.err().expect(why).to_string();
        assert!(cfg!(feature = "cuda") || error.contains(why), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{why}");
    }
}
