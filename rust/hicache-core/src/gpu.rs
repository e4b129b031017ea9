//! From a plan and host memory to the copier for a GPU: what is pinned in which pieces, how many layers there are.
//!
//! In builds without the feature `cuda` there is none. On error: says what is missing; nothing stays pinned.
#![allow(unsafe_code, reason = "takes the engine's addresses")]

use crate::error::{Error, Result};
use crate::executor::HostMemory;
use crate::transfer::plan::Plan;
use crate::transfer::{Copier, GpuOptions};
use std::sync::Arc;

/// The copier for the GPU of this number.
///
/// # Errors
/// No driver, no such device, or what CUDA refused; or this build has no copies for GPUs.
///
/// # Safety
/// All device memory that the plan and later jobs name must stay valid until the copier is dropped.
#[cfg(feature = "cuda")]
pub unsafe fn copier(
    device: i32,
    options: GpuOptions,
    plan: &Plan,
    memory: &Arc<HostMemory>,
    finished: [u64; 2],
) -> Result<Box<dyn Copier>> {
    use crate::transfer::cuda::{CudaCopier, Settings};
    use std::any::Any;

    let layers = plan.parts.iter().filter_map(|part| part.layers.last()).max();
    let settings = Settings::with(device, layers.map_or(1, |last| last + 1), options);
    let pinned = pinned(memory)?;
    let memory: Arc<dyn Any + Send + Sync> = Arc::clone(memory) as _;
    // SAFETY: device memory is the caller's promise; the slabs that are pinned are in `memory`.
    let copier = unsafe { CudaCopier::new(&settings, plan, &pinned, &memory, finished) };
    copier.map(|copier| Box::new(copier) as Box<dyn Copier>).map_err(|error| Error::Device(error.to_string()))
}

/// Every slab, in pieces that end with pages of the cache.
#[cfg(feature = "cuda")]
fn pinned(memory: &HostMemory) -> Result<Vec<crate::transfer::cuda::Pinned>> {
    use crate::executor::HostPool;
    /// Pinning more at once is one long call; every border costs a look-up a run.
    const PIECE: usize = 16 << 30;
    let mut all = Vec::new();
    for HostPool { layout, slab, .. } in memory.pools.iter().filter(|pool| pool.layout.bytes() > 0) {
        let Some(base) = slab.address(0..layout.bytes()) else {
            return Err(Error::Device("a slab is smaller than its layout".to_owned()));
        };
        all.push(crate::transfer::cuda::Pinned::of(base, layout.regions(), layout.bytes(), PIECE));
    }
    Ok(all)
}

/// There is none.
///
/// # Errors
/// Always: this build has no copies for GPUs.
///
/// # Safety
/// None is needed.
#[cfg(not(feature = "cuda"))]
pub unsafe fn copier(
    device: i32,
    _options: GpuOptions,
    _plan: &Plan,
    _memory: &Arc<HostMemory>,
    _finished: [u64; 2],
) -> Result<Box<dyn Copier>> {
    Err(Error::Device(format!(
        "this build has no copies for GPUs, and memory is on GPU {device}: make wheel-cuda"
    )))
}
