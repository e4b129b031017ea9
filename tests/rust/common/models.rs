//! Models with windows and states: how their pools are declared, and how much room they have.

use super::rig::usual;
use hicache_core::host::{LayoutKind, SlabOptions};
use hicache_core::identity::Fingerprint;
use hicache_core::page::PageSize;
use hicache_core::policy::{StopOptions, Writing};
use hicache_core::pool::{Needs, Plane, PoolSpec, Rows, SlotsOf};
use hicache_core::transfer::GpuOptions;
use hicache_core::transfer::cpu::CpuOptions;
use hicache_core::{Config, HostMode, PartSlots};

/// What a model needs besides all pages.
pub const WINDOW: Needs = Needs::Window { tokens: 4 };
pub const STATE: Needs = Needs::Last;

/// What differs between tests. Parts: what is needed of each, and its slots on device and host.
#[derive(Clone, Debug)]
pub struct Shape {
    pub page: u32,
    pub device: u32,
    pub host: u32,
    pub parts: Vec<(Needs, u32, u32)>,
    /// Bytes of one buffer for all of the device.
    pub unified: Option<u64>,
    pub cap: usize,
    pub deadline: f64,
    pub layout: LayoutKind,
    pub writing: Writing,
    pub mode: HostMode,
    pub threads: usize,
    pub queue: usize,
    /// In tokens, of prefetches.
    pub threshold: usize,
}

impl Shape {
    pub fn of(parts: &[(Needs, u32, u32)]) -> Self {
        let (layout, parts, writing) = (LayoutKind::PageUnified, parts.to_vec(), usual());
        Self {
            page: 2,
            device: 32,
            host: 64,
            parts,
            unified: None,
            cap: 0,
            deadline: 10.0,
            layout,
            writing,
            mode: HostMode::Cache,
            threads: 2,
            queue: 16,
            threshold: 0,
        }
    }
}

/// Each part has a pool that follows it, of another size.
pub fn pools(shape: &Shape) -> Vec<PoolSpec> {
    let plane = |layer, role, bytes| Plane { layer, role, bytes_per_token: bytes };
    let mut pools = vec![PoolSpec::new("kv", vec![plane(0, 0, 8), plane(0, 1, 4), plane(3, 0, 8)]).unwrap()];
    for (at, &(needs, ..)) in shape.parts.iter().enumerate() {
        let (name, layer) = (format!("part{at}"), u32::try_from(at).unwrap() + 1);
        let rows = if needs == Needs::Last { Rows::Page } else { Rows::Token };
        let own = PoolSpec::new(&name, vec![plane(layer, 0, 12), plane(layer, 1, 4)]).unwrap();
        let with = PoolSpec::new(&format!("{name}'s"), vec![plane(layer, 0, 6)]).unwrap();
        pools.push(own.with(rows, SlotsOf::Own, needs));
        pools.push(with.with(Rows::Page, SlotsOf::Pool(name), needs));
    }
    pools
}

pub fn config(shape: &Shape) -> Config {
    let (page_size, pools) = (PageSize::new(shape.page).unwrap(), pools(shape));
    let parts = shape.parts.iter().map(|&(_, device, host)| PartSlots { device, host });
    Config {
        identity: Fingerprint::of(&[], page_size, &pools),
        page_size,
        bigrams: false,
        pools,
        device_slots: shape.device,
        engine_owns_slots: false,
        host_slots: shape.host,
        host_mode: shape.mode,
        parts: parts.collect(),
        unified: shape.unified,
        checkpoints_per_path: shape.cap,
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
        load_threshold: 0,
    }
}

/// Models of all kinds, with little room anywhere.
pub fn shapes() -> Vec<Shape> {
    let wide = Needs::Window { tokens: 7 };
    let kinds: [&[(Needs, u32, u32)]; 5] = [
        &[(WINDOW, 12, 14)],
        &[(STATE, 5, 7)],
        &[(WINDOW, 12, 14), (STATE, 5, 7)],
        &[(STATE, 4, 4), (wide, 14, 20), (Needs::Window { tokens: 1 }, 7, 9)],
        &[(STATE, 5, 0), (wide, 14, 16)],
    ];
    let shape = |parts: &[_]| Shape { device: 20, host: 26, ..Shape::of(parts) };
    kinds.iter().map(|parts| shape(parts)).collect()
}

/// The same with one part each, in a buffer that is no room for much of both.
pub fn unified_shapes() -> Vec<Shape> {
    let kinds = [(WINDOW, 60, 14), (STATE, 60, 9), (Needs::Window { tokens: 7 }, 40, 20), (STATE, 6, 0)];
    let shape = |part| Shape { device: 60, host: 26, unified: Some(1100), cap: 2, ..Shape::of(&[part]) };
    kinds.map(shape).to_vec()
}
