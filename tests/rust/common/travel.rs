//! Any pool's device tensors and host slab as plain bytes, and a real copier between them.
#![allow(unsafe_code, reason = "the CPU copier takes addresses; slabs are looked into")]

use super::Seeded;
use hicache_core::host::{Layout, LayoutKind, Slab};
use hicache_core::ids::Slot;
use hicache_core::page::PageSize;
use hicache_core::pool::PoolSpec;
use hicache_core::transfer::cpu::{CpuCopier, CpuOptions};
use hicache_core::transfer::plan::{Plan, PlanePair};
use hicache_core::transfer::{Copier, CopyJob, Direction};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// What nobody wrote.
const UNTOUCHED: u8 = 0xEE;
const PAGES: usize = 6;

/// Both sides of one pool, six slots each.
pub struct Travel {
    pub device: Vec<Vec<u8>>,
    sizes: Vec<usize>,
    layout: Layout,
    slab: Arc<Slab>,
    copier: CpuCopier,
    tickets: [u64; 2],
}

/// What a test plants.
pub type Fault = fn(&mut Plan);

impl Travel {
    pub fn new(spec: &PoolSpec, page: PageSize, kind: LayoutKind, options: CpuOptions, fault: Fault) -> Self {
        let layout = Layout::new(kind, spec, page, u32::try_from(PAGES).unwrap()).unwrap();
        let slab = Arc::new(Slab::new(layout.bytes()).unwrap());
        let rows = spec.rows_per_page(page);
        let sizes: Vec<usize> = spec.planes.iter().map(|plane| plane.bytes_per_token * rows).collect();
        let mut device: Vec<Vec<u8>> = sizes.iter().map(|size| vec![UNTOUCHED; size * PAGES]).collect();
        let start = slab.address(0..layout.bytes()).unwrap();
        // SAFETY: the whole slab, and nobody has it yet.
        unsafe { start.write_bytes(UNTOUCHED, layout.bytes()) };
        let host = start.expose_provenance() as u64;
        let pair = |(at, plane): (usize, &mut Vec<u8>)| {
            let device = plane.as_mut_ptr().expose_provenance() as u64;
            PlanePair::rows(spec.planes[at].layer, device, host, layout.axes(at))
        };
        let mut plan = Plan::new(&device.iter_mut().enumerate().map(pair).collect::<Vec<_>>());
        fault(&mut plan);
        let memory: Arc<dyn Any + Send + Sync> = Arc::<Slab>::clone(&slab);
        // SAFETY: `device` lives as long as the copier, beside it, and its planes never grow.
        let copier = unsafe { CpuCopier::new(&plan, &memory, options, [0; 2]) }.unwrap();
        Self { device, sizes, layout, slab, copier, tickets: [0; 2] }
    }

    pub fn copy(&mut self, direction: Direction, pages: &[(u32, u32)]) {
        let ticket = self.tickets[direction as usize] + 1;
        self.tickets[direction as usize] = ticket;
        let pages = pages.iter().map(|&(device, host)| (Slot(device), Slot(host))).collect();
        self.copier.submit(CopyJob::of(ticket, direction, vec![pages]));
        assert!(self.copier.progress(direction).wait(ticket + 1, 0, Duration::from_secs(20)));
    }

    /// Random bytes in a device slot; returns them, plane after plane.
    pub fn compute(&mut self, slot: u32, seed: &mut Seeded) -> Vec<u8> {
        for (plane, size) in self.device.iter_mut().zip(&self.sizes) {
            let page = &mut plane[slot as usize * size..][..*size];
            page.iter_mut().for_each(|byte| *byte = u8::try_from(seed.below(256)).unwrap());
        }
        self.device_page(slot)
    }

    pub fn device_page(&self, slot: u32) -> Vec<u8> {
        let planes = self.device.iter().zip(&self.sizes);
        planes.flat_map(|(plane, size)| &plane[slot as usize * size..][..*size]).copied().collect()
    }

    /// A host slot's payload, run after run, as storage sees it.
    pub fn payload(&self, slot: u32) -> Vec<u8> {
        self.layout.runs(slot).flat_map(|run| self.bytes()[run].to_vec()).collect()
    }

    pub fn fill(&mut self, slot: u32, page: &[u8]) {
        let mut at = 0;
        for run in self.layout.runs(slot) {
            let address = self.slab.address(run.clone()).unwrap();
            // SAFETY: inside the slab; no copy is under way.
            unsafe { std::ptr::copy_nonoverlapping(page[at..].as_ptr(), address, run.len()) };
            at += run.len();
        }
    }

    /// Whether nothing was written outside of these slots, on both sides.
    pub fn untouched_but(&self, device: &[u32], host: &[u32]) -> bool {
        let mut bytes = self.bytes().to_vec();
        host.iter().flat_map(|&slot| self.layout.runs(slot)).for_each(|run| bytes[run].fill(UNTOUCHED));
        let others = (0..6).filter(|slot| !device.contains(slot)).map(|slot| self.device_page(slot));
        bytes.iter().chain(others.collect::<Vec<_>>().concat().iter()).all(|&byte| byte == UNTOUCHED)
    }

    fn bytes(&self) -> &[u8] {
        let address = self.slab.address(0..self.layout.bytes()).unwrap();
        // SAFETY: the whole slab; no copy is under way.
        unsafe { std::slice::from_raw_parts(address, self.layout.bytes()) }
    }
}

/// A pool of one plane with 5,120 slots of a megabyte on either side: five gigabytes that nobody touches.
pub struct Far {
    device: Slab,
    copier: CpuCopier,
    tickets: [u64; 2],
}

impl Far {
    pub fn new(spec: &PoolSpec, kind: LayoutKind) -> Self {
        let layout = Layout::new(kind, spec, PageSize::new(1).unwrap(), 5120).unwrap();
        let (device, slab) =
            (Slab::new(layout.bytes()).unwrap(), Arc::new(Slab::new(layout.bytes()).unwrap()));
        let start = |slab: &Slab| slab.address(0..layout.bytes()).unwrap().expose_provenance() as u64;
        let plan = Plan::new(&[PlanePair::rows(0, start(&device), start(&slab), layout.axes(0))]);
        let memory: Arc<dyn Any + Send + Sync> = slab;
        // SAFETY: `device` is as large as the slab, and lives beside the copier.
        let copier = unsafe { CpuCopier::new(&plan, &memory, CpuOptions::default(), [0; 2]) }.unwrap();
        Self { device, copier, tickets: [0; 2] }
    }

    pub fn copy(&mut self, direction: Direction, (device, host): (u32, u32)) {
        let ticket = self.tickets[direction as usize] + 1;
        self.tickets[direction as usize] = ticket;
        self.copier.submit(CopyJob::of(ticket, direction, vec![vec![(Slot(device), Slot(host))]]));
        assert!(self.copier.progress(direction).wait(ticket + 1, 0, Duration::from_secs(20)));
    }

    pub fn compute(&mut self, slot: usize) -> Vec<u8> {
        let page: Vec<u8> = (0..1usize << 20).map(|at| (at * 31 / 8).to_le_bytes()[0]).collect();
        let address = self.device.address(slot << 20..(slot + 1) << 20).unwrap();
        // SAFETY: a whole page inside the device's memory; no copy is under way.
        unsafe { std::ptr::copy_nonoverlapping(page.as_ptr(), address, page.len()) };
        page
    }

    pub fn device_page(&self, slot: usize) -> Vec<u8> {
        let address = self.device.address(slot << 20..(slot + 1) << 20).unwrap();
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(address, 1 << 20) }.to_vec()
    }
}
