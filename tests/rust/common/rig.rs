//! A cache over doubles, and an engine that computes stamps instead of attention.

use super::copier::Gate;
use super::memory::{Memory, stamp};
use super::store::FaultStore;
use hicache_core::executor::Executor;
use hicache_core::hash::Namespace;
use hicache_core::host::{LayoutKind, SlabOptions};
use hicache_core::identity::Fingerprint;
use hicache_core::ids::{Cursor, HitId, Slot, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::policy::fetching::Fair;
use hicache_core::policy::{Eviction, HostCopies, Lru, ReadOrder, StopOptions, Write, Writing};
use hicache_core::pool::{Plane, PoolSpec};
use hicache_core::storage::{Store, Workers};
use hicache_core::transfer::GpuOptions;
use hicache_core::transfer::cpu::CpuOptions;
use hicache_core::{Config, HiCache, HitView, HostMode, assemble};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The host has what the device has as long as the device has it, and nothing is copied but what comes: what most tests
/// are about shows best there.
pub const MIRRORED: Writing = Writing {
    host: Write::Through,
    storage: Write::Through,
    host_copies: HostCopies::Keep,
    clean_reserve: 0.0,
};

/// What tests use that say nothing else: [`MIRRORED`], or `GIVE_WAY=1` what a cache does by default. What tests assert of
/// a host that has all that the device has doesn't hold then; that nothing is wrong, lost or leaked does.
pub fn usual() -> Writing {
    if std::env::var_os("GIVE_WAY").is_some() { Writing::default() } else { MIRRORED }
}

/// What differs between tests.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub page: u32,
    pub device: u32,
    pub host: u32,
    pub mode: HostMode,
    pub layout: LayoutKind,
    pub threads: usize,
    pub queue: usize,
    /// In seconds.
    pub deadline: f64,
    /// In tokens.
    pub threshold: usize,
    pub writing: Writing,
    /// The same, of loads.
    pub load: usize,
    pub engine_owns_slots: bool,
}

impl Default for Shape {
    fn default() -> Self {
        let layout = LayoutKind::PageUnified;
        Self {
            page: 2,
            device: 16,
            host: 32,
            mode: HostMode::Cache,
            layout,
            threads: 2,
            queue: 16,
            deadline: 10.0,
            threshold: 0,
            writing: usual(),
            load: 0,
            engine_owns_slots: false,
        }
    }
}

pub fn config(shape: Shape) -> Config {
    let plane = |layer, role| Plane { layer, role, bytes_per_token: if role == 0 { 8 } else { 4 } };
    let planes = vec![plane(0, 0), plane(0, 1), plane(1, 0), plane(1, 1)];
    let page_size = PageSize::new(shape.page).unwrap();
    let pools = vec![PoolSpec::new("kv", planes).unwrap()];
    Config {
        identity: Fingerprint::of(&[], page_size, &pools),
        page_size,
        bigrams: false,
        pools,
        device_slots: shape.device,
        engine_owns_slots: shape.engine_owns_slots,
        host_slots: shape.host,
        host_mode: shape.mode,
        parts: Vec::new(),
        unified: None,
        checkpoints_per_path: 0,
        eviction: "lru".into(),
        writing: shape.writing,
        layout: shape.layout,
        memory: SlabOptions::default(),
        restart: None,
        gpu: None,
        gpu_copies: GpuOptions::default(),
        copies: CpuOptions::default(),
        io_threads: shape.threads,
        write_queue: shape.queue,
        prefetch: StopOptions::named("wait_complete"),
        prefetch_deadline: shape.deadline,
        store_deadline: shape.deadline,
        prefetch_threshold: shape.threshold,
        load_threshold: shape.load,
    }
}

pub struct Rig {
    pub cache: HiCache,
    pub memory: Arc<Memory>,
    pub gate: Gate,
    pub namespace: Namespace,
    /// Whose stamps pages get, where that is not the namespace.
    pub stamps: Option<Namespace>,
    size: usize,
}

impl Rig {
    pub fn new(shape: Shape, store: Option<&Arc<FaultStore>>) -> Self {
        Self::with_policy(shape, store, Box::new(Lru::default()))
    }

    pub fn with_policy(shape: Shape, store: Option<&Arc<FaultStore>>, policy: Box<dyn Eviction>) -> Self {
        Self::with_order(shape, store, policy, Box::<Fair>::default())
    }

    pub fn with_order(
        shape: Shape,
        store: Option<&Arc<FaultStore>>,
        policy: Box<dyn Eviction>,
        order: Box<dyn ReadOrder>,
    ) -> Self {
        Self::over(config(shape), store, policy, order)
    }

    pub fn over(
        config: Config,
        store: Option<&Arc<FaultStore>>,
        policy: Box<dyn Eviction>,
        order: Box<dyn ReadOrder>,
    ) -> Self {
        let size = config.page_size.tokens();
        let host = assemble::host_memory(&config).unwrap();
        let memory = Arc::new(Memory::new(&config, &host));
        let gate = Gate::new(Arc::clone(&memory));
        let workers = store.map(|store| {
            let store: Arc<dyn Store> = Arc::<FaultStore>::clone(store);
            let workers = Workers::with_order(&store, config.io_threads, config.write_queue, order);
            (workers.unwrap(), config.identity)
        });
        let storage = workers.is_some();
        let executor = Executor::new(Box::new(gate.clone()), workers, host);
        let cache = HiCache::with_policy(config, executor, storage, policy).unwrap();
        Self { cache, memory, gate, namespace: Namespace::default(), stamps: None, size }
    }

    pub fn find(&mut self, tokens: &[i32]) -> HitId {
        self.find_after(tokens, None).unwrap()
    }

    pub fn find_after(&mut self, tokens: &[i32], after: Option<Cursor>) -> hicache_core::Result<HitId> {
        self.cache.match_prefix(Tokens::I32(tokens), &self.namespace, after, usize::MAX, 0.0)
    }

    pub fn view(&self, hit: HitId) -> HitView {
        self.cache.view(hit).unwrap()
    }

    pub fn poll(&mut self, at: f64) {
        self.cache.poll(None, at).unwrap();
        self.books();
    }

    pub fn books(&self) {
        self.cache.check().unwrap();
    }

    /// Polls until `done`; a test that waits in vain fails.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            self.poll(0.0);
            if done(self) {
                return;
            }
            assert!(Instant::now() < end, "waited in vain: {what}");
            std::thread::sleep(Duration::from_micros(200));
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

    /// Computes what of `tokens` a loaded hit lacks and inserts it; false if there is no room.
    pub fn compute(&mut self, hit: HitId, tokens: &[i32]) -> bool {
        let from = self.view(hit).device as usize;
        let pages = tokens.len() / self.size - from;
        let Some(slots) = self.cache.allocate(pages).unwrap() else { return false };
        for (page, &slot) in (from..).zip(&slots) {
            self.memory.write_device(slot, &self.stamp(tokens, page));
        }
        let rest = Tokens::I32(&tokens[from * self.size..]);
        let done = self.cache.insert(hit, rest, &slots).unwrap();
        assert_eq!(done.depth as usize, from + pages);
        self.cache.free(&slots[..done.duplicates]).unwrap();
        self.books();
        true
    }

    /// One request from match to release. Returns what its load found.
    pub fn serve(&mut self, tokens: &[i32]) -> HitView {
        let hit = self.find(tokens);
        let found = self.load(hit);
        self.compute(hit, tokens);
        self.cache.release(hit, 0).unwrap();
        found
    }

    /// The stamp of a page of these tokens.
    pub fn stamp(&self, tokens: &[i32], page: usize) -> Vec<u8> {
        stamp(
            self.stamps.as_ref().unwrap_or(&self.namespace),
            &tokens[..(page + 1) * self.size],
            self.memory.page_bytes(),
        )
    }

    /// Every page of a loaded hit must carry its stamp. Loads must have landed.
    pub fn verify(&self, hit: HitId, tokens: &[i32]) {
        for (page, slot) in self.cache.hit_slots(hit).unwrap().into_iter().enumerate() {
            assert_eq!(self.memory.device_page(slot), self.stamp(tokens, page), "page {page} at {slot:?}");
        }
    }

    pub fn size(&self) -> usize {
        self.size
    }

    pub fn free(&self, tier: Tier) -> usize {
        self.cache.slots(tier).free()
    }

    pub fn evict(&mut self, tier: Tier, pages: usize) -> Vec<Slot> {
        let slots = self.cache.evict(tier, pages).unwrap();
        self.books();
        slots
    }

    /// After a fault and when no hit is loaded: other device memory, and a copier that has no fault.
    pub fn wake_elsewhere(&mut self) {
        let slots = u32::try_from(self.cache.slots(Tier::Device).capacity()).unwrap();
        self.cache.detach().unwrap();
        self.attach_elsewhere(slots);
    }

    /// Other device memory for a cache that is detached.
    pub fn attach_elsewhere(&mut self, slots: u32) {
        self.memory.forget_device();
        let memory = Arc::clone(&self.memory);
        let mut made = None;
        let attached = self.cache.attach_copier(&[slots], |_, _, finished| {
            let gate = Gate::after(memory, finished);
            made = Some(gate.clone());
            Ok(Box::new(gate))
        });
        attached.unwrap();
        self.gate = made.unwrap();
        self.books();
    }

    /// With no hit and no transfer left, everything can go and nothing is lost.
    pub fn drained(&mut self) {
        self.settle();
        for tier in Tier::ALL {
            self.evict(tier, usize::MAX);
            assert_eq!(self.free(tier), self.cache.slots(tier).capacity(), "{tier:?}");
        }
        assert_eq!(self.cache.tree().nodes(), 0);
    }
}
