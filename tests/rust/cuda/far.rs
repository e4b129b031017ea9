//! Slots whose bytes begin beyond 4 GiB, by every way. Only the pages that are used cost memory.

use super::{alive, job, machine, settings};
use hicache_core::host::{Layout, LayoutKind, Slab};
use hicache_core::page::PageSize;
use hicache_core::pool::{Plane, PoolSpec};
use hicache_core::transfer::cuda::{CudaCopier, Pinned};
use hicache_core::transfer::plan::{Plan, PlanePair};
use hicache_core::transfer::{Copier, Direction};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

const PAGE: usize = 1 << 20;
const SLOTS: u32 = 5120;

#[allow(clippy::mut_from_ref, reason = "memory that only its owner of slots guards")]
fn page(memory: &Slab, slot: usize) -> &mut [u8] {
    let address = memory.address(slot * PAGE..(slot + 1) * PAGE).unwrap();
    // SAFETY: inside the memory; no copy is under way when a test looks, and it looks at one at a time.
    unsafe { std::slice::from_raw_parts_mut(address, PAGE) }
}

#[test]
fn pages_beyond_four_gigabytes_arrive_by_every_way() {
    let spec = PoolSpec::new("kv", vec![Plane { layer: 0, role: 0, bytes_per_token: PAGE }]).unwrap();
    let layout = Layout::new(LayoutKind::PageUnified, &spec, PageSize::new(1).unwrap(), SLOTS).unwrap();
    let stamp: Vec<u8> = (0..PAGE).map(|at| (at * 31 / 8).to_le_bytes()[0]).collect();
    // By the copy engine, by kernels, and staged.
    for (run, staging) in [(1, 0), (1 << 40, 0), (1 << 40, 4 << 20)] {
        let _one = machine(2, 13000, 1);
        let device = Slab::new(layout.bytes()).unwrap();
        let host = Arc::new(Slab::new(layout.bytes()).unwrap());
        let start = |slab: &Slab| slab.address(0..layout.bytes()).unwrap();
        let at = |slab: &Slab| start(slab).expose_provenance() as u64;
        let plan = Plan::new(&[PlanePair::rows(0, at(&device), at(&host), layout.axes(0))]);
        let pinned = [Pinned::of(start(&host), layout.regions(), layout.bytes(), 1 << 30)];
        let memory: Arc<dyn Any + Send + Sync> = Arc::<Slab>::clone(&host);
        let settings = settings(1, run, staging);
        // SAFETY: `device` outlives the copier.
        let mut copier = unsafe { CudaCopier::new(&settings, &plan, &pinned, &memory, [0; 2]) }.unwrap();
        page(&device, 5100).copy_from_slice(&stamp);
        for (direction, pages) in [(Direction::Out, (5100, 5110)), (Direction::In, (5105, 5110))] {
            copier.submit(job(1, direction, &[pages]));
            assert!(copier.progress(direction).wait(2, 0, Duration::from_secs(60)), "{:?}", copier.fault());
        }
        assert!(*page(&host, 5110) == stamp, "{run} {staging}");
        assert!(*page(&device, 5105) == stamp, "{run} {staging}");
        drop(copier);
        assert_eq!(alive(), 0);
    }
}
