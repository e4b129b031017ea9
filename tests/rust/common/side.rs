//! Pools of several shapes, their device tensors, and a real copier between them and a host slab.
#![allow(unsafe_code, reason = "the CPU copier takes addresses; slabs are looked into")]

use hicache_core::hash::page_digest;
use hicache_core::host::{Layout, LayoutKind, Slab};
use hicache_core::ids::Slot;
use hicache_core::page::{PageSize, Tokens};
use hicache_core::pool::{Plane, PoolSpec};
use hicache_core::transfer::cpu::{CpuCopier, PlaneMemory};
use hicache_core::transfer::plan::PlanePair;
use hicache_core::transfer::{Copier, CopyJob, Direction};
use std::sync::Arc;
use std::time::Duration;

/// One pool's shape: K and V rows of `heads` × their size × 2 bytes (fp16).
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub page: u32,
    pub layers: u32,
    pub heads: usize,
    pub k: usize,
    pub v: usize,
}

pub const SHAPES: [Shape; 6] = [
    Shape { page: 2, layers: 2, heads: 2, k: 4, v: 4 },
    Shape { page: 2, layers: 2, heads: 1, k: 4, v: 4 },
    Shape { page: 1, layers: 2, heads: 2, k: 4, v: 4 },
    Shape { page: 4, layers: 3, heads: 2, k: 6, v: 4 },
    // 24 bytes a page, padded to 32 where pages are unified.
    Shape { page: 1, layers: 2, heads: 1, k: 3, v: 3 },
    // A pool whose pages have no bytes.
    Shape { page: 2, layers: 1, heads: 1, k: 0, v: 0 },
];

impl Shape {
    pub fn size(self) -> PageSize {
        PageSize::new(self.page).unwrap()
    }

    pub fn spec(self, name: &str) -> PoolSpec {
        let bytes = |role| 2 * self.heads * if role == 0 { self.k } else { self.v };
        let plane = |layer, role| Plane { layer, role, bytes_per_token: bytes(role) };
        let planes = (0..self.layers).flat_map(|layer| [plane(layer, 0), plane(layer, 1)]);
        PoolSpec::new(name, planes.collect()).unwrap()
    }

    /// Bytes of a page's K or V of one layer.
    pub fn bytes(self, role: usize) -> usize {
        self.page as usize * 2 * self.heads * if role == 0 { self.k } else { self.v }
    }

    pub fn page_bytes(self) -> usize {
        self.layers as usize * (self.bytes(0) + self.bytes(1))
    }

    /// Where the axes of the layout put a page's plane, by the text of the layout's documentation.
    pub fn address(self, kind: LayoutKind, slots: usize, slot: usize, layer: usize, role: usize) -> usize {
        let (k, v) = (self.bytes(0), self.bytes(1));
        match kind {
            // (2, L, N·P, H, D)
            LayoutKind::LayerFirst if role == 0 => (layer * slots + slot) * k,
            LayoutKind::LayerFirst => self.layers as usize * slots * k + (layer * slots + slot) * v,
            // (N, L, 2, P, H, D), every page padded to 32
            LayoutKind::PageUnified => {
                slot * self.page_bytes().div_ceil(32) * 32 + layer * (k + v) + role * k
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
        let spec = shape.spec("kv");
        let layout = Layout::new(kind, &spec, shape.size(), slots).unwrap();
        let slab = Arc::new(Slab::new(layout.bytes()).unwrap());
        let mut device: Vec<Vec<u8>> = Vec::new();
        let mut planes = Vec::new();
        for (at, plane) in spec.planes.iter().enumerate() {
            let (rows, bytes) = (layout.plane(at), shape.bytes(plane.role as usize));
            device.push(vec![0xDD; bytes * 8]);
            let pair =
                PlanePair { layer: plane.layer, device_stride: bytes, host_stride: rows.stride, bytes };
            let host = slab.address(rows.offset..rows.offset).unwrap();
            let device = device[at].as_mut_ptr();
            planes.push(PlaneMemory { pair, device, host, slab: Arc::clone(&slab) });
        }
        // SAFETY: `device` lives as long as the copier, beside it, and its planes never grow.
        let copier = unsafe { CpuCopier::new(planes) }.unwrap();
        Self { shape, device, layout, slab, copier, tickets: [0; 2] }
    }

    pub fn copy(&mut self, direction: Direction, pages: &[(u32, u32)]) {
        let ticket = self.tickets[direction as usize] + 1;
        self.tickets[direction as usize] = ticket;
        let pages = pages.iter().map(|&(device, host)| (Slot(device), Slot(host))).collect();
        self.copier.submit(CopyJob { ticket, direction, pages });
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
