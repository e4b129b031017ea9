//! From a configuration and the device's memory to a running cache.
//!
//! On error: names what can't be had (memory for the slab, a directory for the store).
#![allow(unsafe_code, reason = "takes the engine's addresses")]

use crate::cache::HiCache;
use crate::config::Config;
use crate::error::{Result, argument};
use crate::executor::{Executor, HostMemory};
use crate::host::{Layout, Slab};
use crate::storage::{self, Store, Workers};
use crate::transfer::cpu::{CpuCopier, PlaneMemory};
use crate::transfer::plan::PlanePair;
use std::sync::Arc;

/// The device memory of one plane: rows of tokens, slot after slot.
#[derive(Clone, Copy, Debug)]
pub struct DevicePlane {
    /// Address of slot 0.
    pub address: usize,
    /// Size in bytes.
    pub bytes: usize,
}

impl HiCache {
    /// A cache over device memory that the CPU reaches, one list of planes per pool in the pool's order,
    /// with the store that `storage` names.
    ///
    /// # Errors
    /// Names the field that can't be meant or had. Nothing was started.
    ///
    /// # Safety
    /// The device memory must stay valid and unmoved until the cache is dropped.
    pub unsafe fn over_memory(
        config: Config,
        device: &[Vec<DevicePlane>],
        storage: Option<&str>,
    ) -> Result<Self> {
        config.check()?;
        check_device(&config, device)?;
        if storage.is_some() && config.host_slots == 0 {
            return argument("host", "storage needs a host tier: pages pass through it");
        }
        let memory = host_memory(&config)?;
        let store = storage.map(|url| storage::open(url, config.identity)).transpose()?;
        let planes = planes(&config, device, &memory)?;
        // SAFETY: handed on to our caller.
        let copier = unsafe { CpuCopier::new(planes) }?;
        let has_storage = store.is_some();
        let start = |store: Arc<dyn Store>| Workers::start(&store, config.io_threads, config.write_queue);
        let executor = Executor::new(Box::new(copier), store.map(start).transpose()?, memory);
        Self::new(config, executor, has_storage)
    }
}

/// Host memory for all pools of a configuration.
///
/// # Errors
/// When the system has no memory for it.
pub fn host_memory(config: &Config) -> Result<HostMemory> {
    let mut pools = Vec::with_capacity(config.pools.len());
    for spec in &config.pools {
        let layout = Layout::new(config.layout, spec, config.page_size, config.host_slots)?;
        let slab = Arc::new(Slab::new(layout.bytes())?);
        pools.push((layout, slab));
    }
    Ok(HostMemory { pools })
}

fn check_device(config: &Config, device: &[Vec<DevicePlane>]) -> Result<()> {
    if device.len() != config.pools.len() {
        return argument("pools", "every pool needs its device memory");
    }
    for (spec, planes) in config.pools.iter().zip(device) {
        if planes.len() != spec.planes.len() {
            let (need, got) = (spec.planes.len(), planes.len());
            return argument("pools", format!("pool {}: {need} planes declared, {got} given", spec.name));
        }
        for (declared, plane) in spec.planes.iter().zip(planes) {
            let page = declared.bytes_per_token * config.page_size.tokens();
            if page.saturating_mul(config.device_slots as usize) > plane.bytes {
                let reason = format!("pool {}: layer {} is too small", spec.name, declared.layer);
                return argument("pools", format!("{reason} for {} slots", config.device_slots));
            }
        }
    }
    Ok(())
}

/// Both sides of every plane of every pool, in order of layer.
fn planes(config: &Config, device: &[Vec<DevicePlane>], memory: &HostMemory) -> Result<Vec<PlaneMemory>> {
    let mut planes = Vec::new();
    for ((spec, device), (layout, slab)) in config.pools.iter().zip(device).zip(&memory.pools) {
        for (at, (declared, plane)) in spec.planes.iter().zip(device).enumerate() {
            let rows = layout.plane(at);
            // Without a host tier nothing is ever copied: any address will do.
            let start = if config.host_slots == 0 { 0 } else { rows.offset };
            let Some(host) = slab.address(start..start) else {
                return argument("host", format!("pool {}: a plane is outside of its slab", spec.name));
            };
            let bytes = declared.bytes_per_token * config.page_size.tokens();
            let pair =
                PlanePair { layer: declared.layer, device_stride: bytes, host_stride: rows.stride, bytes };
            let device = plane.address as *mut u8;
            planes.push(PlaneMemory { pair, device, host, slab: Arc::clone(slab) });
        }
    }
    planes.sort_by_key(|plane| plane.pair.layer);
    Ok(planes)
}
