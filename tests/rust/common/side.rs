//! Pools of several shapes, their device tensors, and a real copier between them and a host slab.
#![allow(unsafe_code, reason = "the CPU copier takes addresses; slabs are looked into")]

use hicache_core::hash::page_digest;
use hicache_core::host::{Layout, LayoutKind, Slab};
use hicache_core::ids::Slot;
use hicache_core::page::{PageSize, Tokens};
use hicache_core::pool::{Plane, PoolSpec};
use hicache_core::transfer::cpu::{CpuCopier, CpuOptions};
use hicache_core::transfer::plan::{Plan, PlanePair};
use hicache_core::transfer::{Copier, CopyJob, Direction};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// One pool's shape: K and V rows of `heads` × their size × 2 bytes (fp16).
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub page: u32,
    pub layers: u32,
    pub heads: usize,
    pub groups: usize,
    pub k: usize,
    pub v: usize,
}

const fn shape(page: u32, layers: u32, [heads, groups]: [usize; 2], [k, v]: [usize; 2]) -> Shape {
    Shape { page, layers, heads, groups, k, v }
}

pub const SHAPES: [Shape; 8] = [
    shape(2, 2, [2, 1], [4, 4]),
    shape(2, 2, [1, 1], [4, 4]),
    shape(1, 2, [2, 2], [4, 4]),
    shape(4, 3, [2, 1], [6, 4]),
    // 24 bytes a page, padded to 32 where pages are unified.
    shape(1, 2, [1, 1], [3, 3]),
    // A pool whose pages have no bytes.
    shape(2, 1, [1, 1], [0, 0]),
    // Lines of 64 bytes, and then some.
    shape(5, 3, [4, 2], [36, 36]),
    shape(3, 2, [6, 3], [33, 17]),
];

impl Shape {
    pub fn size(self) -> PageSize {
        PageSize::new(self.page).unwrap()
    }

    pub fn spec(self, name: &str) -> PoolSpec {
        let bytes = |role| 2 * self.heads * if role == 0 { self.k } else { self.v };
        let plane = |layer, role| Plane { layer, role, bytes_per_token: bytes(role) };
        let planes = (0..self.layers).flat_map(|layer| [plane(layer, 0), plane(layer, 1)]);
        let (heads, groups) = (u32::try_from(self.heads).unwrap(), u32::try_from(self.groups).unwrap());
        PoolSpec::new(name, planes.collect()).unwrap().with_heads(heads, groups).unwrap()
    }

    /// Bytes of a page's K or V of one layer.
    pub fn bytes(self, role: usize) -> usize {
        self.page as usize * 2 * self.heads * if role == 0 { self.k } else { self.v }
    }

    pub fn page_bytes(self) -> usize {
        self.layers as usize * (self.bytes(0) + self.bytes(1))
    }

    /// Where a head of a row of a page's plane is: `at` is [layer, role, slot, row, head], and the axes are
    /// spelled as the layout's documentation has them, row-major.
    pub fn address(self, kind: LayoutKind, slots: usize, at: [usize; 5]) -> usize {
        let [layer, role, slot, row, head] = at;
        let (layers, page, heads) = (self.layers as usize, self.page as usize, self.heads);
        let sizes = [2 * self.k, 2 * self.v];
        let size = sizes[role];
        let half = role * slots * page * layers * heads * sizes[0];
        let token = slot * page + row;
        match kind {
            // (2, L, N·P, H, D)
            LayoutKind::LayerFirst => {
                half + flat(&[(layer, layers), (token, slots * page), (head, heads)]) * size
            }
            // (2, N·P, L, H, D)
            LayoutKind::PageFirst => {
                half + flat(&[(token, slots * page), (layer, layers), (head, heads)]) * size
            }
            // (2, N, L, P, H, D)
            LayoutKind::PageFirstDirect => {
                half + flat(&[(slot, slots), (layer, layers), (row, page), (head, heads)]) * size
            }
            // (2, N, H, P, L, D)
            LayoutKind::PageHead => {
                half + flat(&[(slot, slots), (head, heads), (row, page), (layer, layers)]) * size
            }
            // (N, G, L, 2, P, H/G, D), every page padded to 32
            LayoutKind::PageUnified => {
                let group = heads / self.groups;
                let outer = flat(&[(head / group, self.groups), (layer, layers)]);
                let inner = flat(&[(row, page), (head % group, group)]);
                let both = page * group * (sizes[0] + sizes[1]);
                slot * self.page_bytes().div_ceil(32) * 32
                    + outer * both
                    + role * page * group * sizes[0]
                    + inner * size
            }
        }
    }

    /// The stamp of a page's plane: no two bytes of a small pool are alike by accident.
    pub fn stamp(self, page: u32, layer: usize, role: usize) -> Vec<u8> {
        let place = i32::try_from(page as usize * 1000 + layer * 10 + role).unwrap();
        let seed = page_digest(None, Tokens::I32(&[place])).0;
        (0..self.bytes(role)).map(|at| seed[at % 32].wrapping_add(u8::try_from(at / 32).unwrap())).collect()
    }
}

/// Device tensors of one pool and a copier between them and a host slab.
pub struct Side {
    shape: Shape,
    pub device: Vec<Vec<u8>>,
    layout: Layout,
    slab: Arc<Slab>,
    copier: CpuCopier,
    tickets: [u64; 2],
}

impl Side {
    pub fn new(shape: Shape, kind: LayoutKind, slots: u32) -> Self {
        Self::with(shape, kind, slots, CpuOptions::default())
    }

    pub fn with(shape: Shape, kind: LayoutKind, slots: u32, options: CpuOptions) -> Self {
        let spec = shape.spec("kv");
        let layout = Layout::new(kind, &spec, shape.size(), slots).unwrap();
        let slab = Arc::new(Slab::new(layout.bytes()).unwrap());
        let mut device: Vec<Vec<u8>> = Vec::new();
        let mut planes = Vec::new();
        let host = slab.address(0..0).unwrap().expose_provenance() as u64;
        for (at, plane) in spec.planes.iter().enumerate() {
            device.push(vec![0xDD; shape.bytes(plane.role as usize) * 8]);
            let device = device[at].as_mut_ptr().expose_provenance() as u64;
            planes.push(PlanePair::rows(plane.layer, device, host, layout.axes(at)));
        }
        let memory: Arc<dyn Any + Send + Sync> = Arc::<Slab>::clone(&slab);
        // SAFETY: `device` lives as long as the copier, beside it, and its planes never grow.
        let copier = unsafe { CpuCopier::new(&Plan::new(&planes), &memory, options, [0; 2]) }.unwrap();
        Self { shape, device, layout, slab, copier, tickets: [0; 2] }
    }

    pub fn copy(&mut self, direction: Direction, pages: &[(u32, u32)]) {
        let ticket = self.tickets[direction as usize] + 1;
        self.tickets[direction as usize] = ticket;
        let pages = pages.iter().map(|&(device, host)| (Slot(device), Slot(host))).collect();
        self.copier.submit(CopyJob::of(ticket, direction, vec![pages]));
        let progress = self.copier.progress(direction);
        assert!(progress.wait(ticket, self.shape.layers, Duration::from_secs(5)));
        assert!(progress.wait(ticket + 1, 0, Duration::from_secs(5)), "the whole job");
    }

    fn planes(&self) -> Vec<(usize, usize)> {
        (0..self.shape.layers as usize).flat_map(|layer| [(layer, 0), (layer, 1)]).collect()
    }

    pub fn compute(&mut self, slot: usize, page: u32) {
        for (at, (layer, role)) in self.planes().into_iter().enumerate() {
            let bytes = self.shape.bytes(role);
            self.device[at][slot * bytes..][..bytes].copy_from_slice(&self.shape.stamp(page, layer, role));
        }
    }

    pub fn verify(&self, slot: usize, page: u32) {
        for (at, (layer, role)) in self.planes().into_iter().enumerate() {
            let bytes = self.shape.bytes(role);
            let got = &self.device[at][slot * bytes..][..bytes];
            assert_eq!(
                got,
                self.shape.stamp(page, layer, role),
                "{:?} slot {slot} {layer} {role}",
                self.shape
            );
        }
    }

    /// A host slot's payload, run after run, as storage sees it.
    pub fn payload(&self, slot: u32) -> Vec<u8> {
        let mut page = Vec::new();
        for run in self.layout.runs(slot) {
            let address = self.slab.address(run.clone()).unwrap();
            // SAFETY: inside the slab; no copy is under way.
            page.extend_from_slice(unsafe { std::slice::from_raw_parts(address, run.len()) });
        }
        page
    }

    pub fn fill(&self, slot: u32, page: &[u8]) {
        let mut at = 0;
        for run in self.layout.runs(slot) {
            let address = self.slab.address(run.clone()).unwrap();
            // SAFETY: inside the slab; no copy is under way.
            unsafe { std::ptr::copy_nonoverlapping(page[at..].as_ptr(), address, run.len()) };
            at += run.len();
        }
    }
}

/// Row-major index of (index, extent) from outer to inner.
fn flat(axes: &[(usize, usize)]) -> usize {
    axes.iter().fold(0, |at, &(index, extent)| {
        assert!(index < extent);
        at * extent + index
    })
}
