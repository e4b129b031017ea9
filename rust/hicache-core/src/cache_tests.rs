//! Breaks each invariant of the books on purpose and sees the checker object.

use crate::cache::HiCache;
use crate::config::{Config, HostMode, PartSlots};
use crate::executor::{Executor, HostMemory};
use crate::hash::Namespace;
use crate::host::{LayoutKind, SlabOptions};
use crate::identity::Fingerprint;
use crate::ids::{HitId, Slot, Tier};
use crate::page::{PageSize, Tokens};
use crate::policy::StopOptions;
use crate::pool::{Needs, Plane, PoolSpec, Rows, SlotsOf};
use crate::staging::Side;
use crate::transfer::cpu::CpuOptions;
use crate::transfer::{Copier, CopyJob, Direction, GpuOptions, Progress, Relocate};
use crate::tree::Hold;
use crate::unified::{End, Gate};
use std::sync::Arc;

/// Copies nothing, at once.
#[derive(Default)]
struct Instant([Arc<Progress>; 2]);

impl Copier for Instant {
    fn submit(&mut self, job: CopyJob) {
        self.0[job.direction as usize].job_took(job.ticket, job.begun);
    }

    fn progress(&self, direction: Direction) -> &Arc<Progress> {
        &self.0[direction as usize]
    }

    fn relocate(&self) -> Option<Relocate> {
        Some(Arc::new(|_, _| ()))
    }
}

/// A cache with two pages on device and host, held by a hit.
fn cache() -> (HiCache, HitId) {
    made(config())
}

fn config() -> Config {
    let page_size = PageSize::new(2).unwrap();
    Config {
        page_size,
        bigrams: false,
        pools: vec![PoolSpec::new("kv", Vec::new()).unwrap()],
        device_slots: 8,
        engine_owns_slots: false,
        host_slots: 8,
        host_mode: HostMode::Cache,
        parts: Vec::new(),
        unified: None,
        checkpoints_per_path: 0,
        eviction: "lru".into(),
        writing: crate::policy::Writing::default(),
        layout: LayoutKind::PageUnified,
        memory: SlabOptions::default(),
        restart: None,
        gpu: None,
        gpu_copies: GpuOptions::default(),
        copies: CpuOptions::default(),
        identity: Fingerprint::of(&[], page_size, &[]),
        io_threads: 1,
        write_queue: 1,
        prefetch: StopOptions::named("wait_complete"),
        prefetch_deadline: 1.0,
        store_deadline: 1.0,
        prefetch_threshold: 0,
        load_threshold: 0,
    }
}

fn made(config: Config) -> (HiCache, HitId) {
    let executor = Executor::new(Box::new(Instant::default()), None, HostMemory::default());
    let mut cache = HiCache::new(config, executor, false).unwrap();
    let hit = cache.match_prefix(Tokens::EMPTY, &Namespace::default(), None, 0, 0.0).unwrap();
    cache.load(&[hit], None).unwrap();
    let slots = cache.allocate(2).unwrap().unwrap();
    cache.insert(hit, Tokens::I32(&[1, 2, 3, 4]), &slots).unwrap();
    cache.poll(None, 0.0).unwrap();
    cache.check().unwrap();
    (cache, hit)
}

fn objects(cache: &HiCache, invariant: &str) {
    let error = cache.check().unwrap_err().to_string();
    assert!(error.contains(invariant), "expected {invariant}, got: {error}");
}

#[test]
fn c1_device_slots() {
    // A page's slot that the pool thinks is with the engine.
    let (mut cache, hit) = cache();
    let slot = cache.hit_slots(hit).unwrap()[0];
    cache.device.displace(&[slot]);
    objects(&cache, "C1");

    // A slot that is placed without a page.
    let (mut cache, _) = self::cache();
    let slot = cache.device.take(1).unwrap()[0];
    cache.device.place(&[slot]);
    objects(&cache, "C1");
}

#[test]
fn c2_host_slots() {
    let (mut cache, _) = cache();
    cache.host.displace(&[Slot(0)]);
    objects(&cache, "C2");
}

#[test]
fn c3_host_slots_that_nobody_reads_into() {
    let (mut cache, _) = cache();
    cache.host.take(1).unwrap();
    objects(&cache, "C3");
}

#[test]
fn c4_pins() {
    let (mut cache, hit) = cache();
    let place = cache.tree.pinned(&cache.hits[&hit].pin);
    let _lost = cache.tree.pin(place, Hold::Device);
    objects(&cache, "C4");
    assert_eq!(cache.evict(Tier::Device, 9).unwrap(), [], "a lost receipt pins for ever");
}

#[test]
fn c7_sides_of_staging() {
    let staging = || made(Config { host_mode: HostMode::BufferOnly, ..config() });
    // A slot that a hit has and no side took.
    let (mut cache, hit) = staging();
    let slots = cache.host.take(1).unwrap();
    cache.hits.get_mut(&hit).unwrap().staged.slots = slots;
    objects(&cache, "C7");
    // As many as the share has; then two that nobody has.
    let (mut cache, hit) = staging();
    let slots = cache.stage(Side::Reads, 0, 8);
    assert_eq!(slots.len(), 6);
    cache.hits.get_mut(&hit).unwrap().staged.slots.clone_from(&slots);
    cache.check().unwrap();
    cache.hits.get_mut(&hit).unwrap().staged.slots.drain(..2);
    objects(&cache, "C3");
}

/// The same in a unified buffer.
fn unified() -> HiCache {
    let plane = |bytes_per_token| vec![Plane { layer: 0, role: 0, bytes_per_token }];
    let state = PoolSpec::new("state", plane(6)).unwrap().with(Rows::Page, SlotsOf::Own, Needs::Last);
    let pools = vec![PoolSpec::new("kv", plane(2)).unwrap(), state];
    let parts = vec![PartSlots { device: 9, host: 0 }];
    made(Config { pools, parts, unified: Some(64), host_slots: 0, ..config() }).0
}

#[test]
fn c5_slots_of_a_unified_buffer() {
    // A slot that the buffer gave away behind the books.
    let mut cache = unified();
    cache.unified.as_mut().unwrap().take(End::Up, 1).unwrap();
    objects(&cache, "C5: slots of Up");

    // One that it has back while a page lives there.
    let mut cache = unified();
    cache.unified.as_mut().unwrap().give_back(End::Down, &[Slot(1)]).unwrap();
    objects(&cache, "C5: slots of Down");

    // A gate that no copy closes.
    let mut cache = unified();
    cache.unified.as_mut().unwrap().open(Gate::Transfer(vec![(End::Down, Slot(1))])).unwrap();
    objects(&cache, "C5: gates");
}

#[test]
fn a_copier_that_cannot_move_pages_is_refused() {
    let error = HiCache::check_moves(&unified().config, false).unwrap_err().to_string();
    assert!(error.starts_with("unified: this copier"), "{error}");
    HiCache::check_moves(&config(), false).unwrap();
}
