//! Memory that the system pins in small pieces only, or not at all.

use super::common::Seeded;
use super::{alive, machine, settings};
use hicache_core::host::{Layout, LayoutKind, Slab};
use hicache_core::page::PageSize;
use hicache_core::pool::{Plane, PoolSpec};
use hicache_core::transfer::cuda::{CudaCopier, CudaError, CudaResult, Pinned};
use hicache_core::transfer::plan::Plan;
use std::any::Any;
use std::sync::Arc;

unsafe extern "C" {
    fn emulated_limits(one: usize, all: usize);
}

const MIB: usize = 1 << 20;

/// Starts a copier over `slabs` slabs of 400 MiB that nobody touches; what it left pinned while it lived.
fn start(slabs: usize, [one, all]: [usize; 2]) -> CudaResult<usize> {
    let _one = machine(1, 13000, 1);
    // SAFETY: the machine is this test's.
    unsafe { emulated_limits(one, all) };
    let spec = PoolSpec::new("kv", vec![Plane { layer: 0, role: 0, bytes_per_token: 3000 }]).unwrap();
    let slots = u32::try_from(400 * MIB / 48_000).unwrap();
    let layout = Layout::new(LayoutKind::PageUnified, &spec, PageSize::new(16).unwrap(), slots).unwrap();
    let memory: Arc<Vec<Slab>> = Arc::new((0..slabs).map(|_| Slab::new(layout.bytes()).unwrap()).collect());
    let pin =
        |slab: &Slab| Pinned::of(slab.address(0..1).unwrap(), layout.regions(), layout.bytes(), 16 << 30);
    let pinned: Vec<Pinned> = memory.iter().map(pin).collect();
    let kept: Arc<dyn Any + Send + Sync> = Arc::<Vec<Slab>>::clone(&memory);
    // SAFETY: the plan is empty: nothing is copied.
    let made = unsafe { CudaCopier::new(&settings(1, 1, 0), &Plan::default(), &pinned, &kept, [0; 2]) };
    let pieces = made.map(|copier| {
        let with = alive();
        drop(copier);
        with
    });
    assert_eq!(alive(), 0, "something stays pinned");
    pieces
}

#[test]
fn pieces_are_halved_until_the_system_takes_them() {
    let whole = start(1, [usize::MAX; 2]).unwrap();
    let mut random = Seeded(8);
    for _ in 0..6 {
        let one = (70 + random.below(330)) * MIB;
        let pieces = start(2, [one, usize::MAX]).unwrap() - (whole - 1);
        // At most twice as many as there must be, of each slab, and one for what is left.
        let least = (400 * MIB).div_ceil(one);
        assert!((2 * least..=2 * (2 * least + 1)).contains(&pieces), "{pieces} pieces of {one}");
    }
}

#[test]
fn what_cannot_be_pinned_is_said_with_its_size() {
    // Not even small pieces; and, with pieces that could be had, not all.
    for limits in [[MIB, usize::MAX], [150 * MIB, 300 * MIB], [usize::MAX, 700 * MIB]] {
        let error = start(2, limits).unwrap_err();
        assert!(matches!(error, CudaError::Pinning { bytes, .. } if bytes > 399 << 20), "{error}");
        let text = error.to_string();
        assert!(text.starts_with("host: 4194") && text.contains("can't be pinned"), "{text}");
    }
}
