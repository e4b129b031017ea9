//! From a configuration and the device's memory to a running cache; and other device memory for a running one.
//!
//! On error: names what can't be had (memory for the slab, a directory for the store).
#![allow(unsafe_code, reason = "takes the engine's addresses")]

use crate::cache::HiCache;
use crate::config::{Config, check_device_slots};
use crate::entry;
use crate::error::{Result, argument};
use crate::executor::{Executor, HostMemory, HostPool};
use crate::gpu;
use crate::host::{Layout, Room, Slab};
use crate::ids::Slot;
use crate::parts::DeviceSlots;
use crate::pool::{self, PoolSpec};
use crate::restart::{Kept, Opened};
use crate::storage::Store;
use crate::transfer::Copier;
use crate::transfer::cpu::{CpuCopier, DeviceBuffer};
use crate::transfer::plan::{Plan, PlanePair};
use std::any::Any;
use std::fs::File;
use std::sync::Arc;

/// The device memory of one plane: rows, slot after slot.
#[derive(Clone, Copy, Debug)]
pub struct DevicePlane {
    /// Address of slot 0.
    pub address: usize,
    /// Size in bytes.
    pub bytes: usize,
}

/// Opens a cache's store, once all else is there. Its client has the configuration's identity.
pub type Opening<'a> = &'a dyn Fn() -> Result<Arc<dyn Store>>;

impl HiCache {
    /// A cache over device memory that the CPU reaches, one list of planes per pool in the pool's order,
    /// with the store that `storage` opens. Without device memory the cache begins detached.
    ///
    /// # Errors
    /// Names the field that can't be meant or had. Nothing was started.
    ///
    /// # Safety
    /// The device memory must stay valid and unmoved until it is detached or the cache is dropped.
    pub unsafe fn over_memory(
        config: Config,
        device: Option<&[Vec<DevicePlane>]>,
        storage: Option<Opening<'_>>,
    ) -> Result<Self> {
        config.check()?;
        if let Some(device) = device {
            check_device(&config, device, &config.device_spaces())?;
        }
        let (memory, kept) = memory(&config, storage.is_some())?;
        let slots = config.device_spaces();
        let hashes = storage.is_some() || kept.is_some();
        let mut cache = Self::new(config, Executor::detached(memory), hashes)?;
        cache.leave_device();
        if let Some((kept, left)) = kept {
            cache.keep(kept, &left);
        }
        if let Some(device) = device {
            // SAFETY: handed on to our caller.
            unsafe { cache.attach(device, &slots) }?;
        }
        // Last, since it leaves a directory behind.
        let store = storage.map(|open| open()).transpose()?;
        cache.employ(store)?;
        Ok(cache)
    }

    /// Device memory that is attached from now on is on this GPU, or where the CPU reaches it.
    pub const fn on_gpu(&mut self, gpu: Option<i32>) {
        self.config.gpu = gpu;
    }

    /// Gives a detached cache device memory of so many slots of each space (the cache's own, then the parts'), all
    /// free (or the engine's, if it owns them).
    ///
    /// # Errors
    /// When device memory is attached, or this doesn't fit what was declared. Nothing was changed.
    ///
    /// # Safety
    /// The device memory must stay valid and unmoved until it is detached or the cache is dropped.
    pub unsafe fn attach(&mut self, device: &[Vec<DevicePlane>], slots: &[u32]) -> Result<()> {
        self.attach_copier(slots, |config, memory, finished| {
            check_device(config, device, slots)?;
            let plan = plan(config, device, memory)?;
            if let Some(device) = config.gpu {
                // SAFETY: handed on to our caller.
                return unsafe { gpu::copier(device, config.gpu_copies, &plan, memory, finished) };
            }
            let memory: Arc<dyn Any + Send + Sync> = Arc::<HostMemory>::clone(memory);
            // SAFETY: handed on to our caller; slabs are kept by `memory` and never overlap device memory.
            let copier = unsafe { CpuCopier::new(&plan, &memory, config.copies, finished) }?;
            Ok(Box::new(match (config.unified, buffer(device)) {
                (Some(bytes), Some(plane)) => {
                    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                    let sizes = entry::page_bytes(&config.pools, config.page_size);
                    // SAFETY: the caller's; what moves, nothing else under way touches.
                    copier.with_buffer(unsafe { DeviceBuffer::new(plane.address, bytes, sizes) })
                }
                _ => copier,
            }))
        })
    }

    /// The same with a copier of one's own, made for a configuration and its host memory. It goes on counting after
    /// the tickets that it is told, in and out.
    ///
    /// # Errors
    /// When device memory is attached, slots don't fit what was declared, or the copier can't be made. Nothing was
    /// changed.
    pub fn attach_copier(
        &mut self,
        slots: &[u32],
        make: impl FnOnce(&Config, &Arc<HostMemory>, [u64; 2]) -> Result<Box<dyn Copier>>,
    ) -> Result<()> {
        self.open()?;
        if self.executor.attached() {
            return argument("pools", "device memory is attached already: detach it first");
        }
        check_device_slots(&self.config.pools, slots)?;
        let device = DeviceSlots::new(&self.config, slots)?;
        let finished = [self.flights.loads_submitted, self.flights.backups_submitted];
        let copier = make(&self.config, self.executor.memory(), finished)?;
        Self::check_moves(&self.config, copier.relocate().is_some())?;
        self.executor.attach(copier);
        self.enter_device(slots, device);
        Ok(())
    }
}

/// What is in memory that outlives the process, and the slots of each space that something is left in, best first.
pub type TakenOver = (Kept, Vec<Vec<Slot>>);

/// Host memory for all pools of a configuration.
///
/// # Errors
/// When there is less memory than it needs, in this process's control groups or on the machine, or the
/// kernel refuses it.
pub fn host_memory(config: &Config) -> Result<HostMemory> {
    Ok(memory(config, false)?.0)
}

/// The same; if it outlives the process also the table of what is in it, and what the process before this one left.
/// `behind`: whether there is a store, too.
///
/// # Errors
/// The same, and when its directory can't be had.
pub fn memory(config: &Config, behind: bool) -> Result<(HostMemory, Option<TakenOver>)> {
    let slots = config.host_spaces();
    let layout = |(spec, space): (_, u8)| {
        let slots = slots.get(space as usize).copied().unwrap_or_default();
        Ok((space, Layout::new(config.layout, spec, config.page_size, slots)?))
    };
    let spaces = pool::spaces(&config.pools);
    let layouts = config.pools.iter().zip(spaces).map(layout).collect::<Result<Vec<_>>>()?;
    if let Some(path) = &config.restart {
        let only: Vec<Layout> = layouts.iter().map(|(_, layout)| layout.clone()).collect();
        let Opened { kept, slabs, left } = Kept::open(path, config, &only, behind)?;
        let pool = |((space, layout), file): ((u8, Layout), File)| {
            let slab = Arc::new(Slab::over(&file, layout.bytes(), config.memory)?);
            Ok(HostPool { space, layout, slab })
        };
        let memory =
            HostMemory { pools: layouts.into_iter().zip(slabs).map(pool).collect::<Result<Vec<_>>>()? };
        kept.place(&memory);
        return Ok((memory, Some((kept, left))));
    }
    let need = layouts.iter().map(|(_, layout)| layout.bytes() as u64).fold(0, u64::saturating_add);
    Room::here().check(need)?;
    let pool = |(space, layout): (u8, Layout)| {
        let slab = Arc::new(Slab::with(layout.bytes(), config.memory)?);
        Ok(HostPool { space, layout, slab })
    };
    Ok((HostMemory { pools: layouts.into_iter().map(pool).collect::<Result<Vec<_>>>()? }, None))
}

/// The one plane that is a whole unified buffer.
fn buffer(device: &[Vec<DevicePlane>]) -> Option<DevicePlane> {
    match device {
        [planes] => planes.first().copied().filter(|_| planes.len() == 1),
        _ => None,
    }
}

fn check_device(config: &Config, device: &[Vec<DevicePlane>], slots: &[u32]) -> Result<()> {
    if let Some(bytes) = config.unified {
        let Some(plane) = buffer(device) else {
            return argument("unified", "needs one buffer as the memory of all pools");
        };
        if (plane.bytes as u64) < bytes {
            return argument(
                "unified",
                format!("the buffer has {} bytes, {bytes} are declared", plane.bytes),
            );
        }
        return Ok(());
    }
    if device.len() != config.pools.len() {
        return argument("pools", "every pool needs its device memory");
    }
    let slots = pool::spaces(&config.pools).into_iter().map(|space| slots.get(space as usize).copied());
    for ((spec, planes), slots) in config.pools.iter().zip(device).zip(slots) {
        let slots = slots.unwrap_or_default();
        if planes.len() != spec.planes.len() {
            let (need, got) = (spec.planes.len(), planes.len());
            return argument("pools", format!("pool {}: {need} planes declared, {got} given", spec.name));
        }
        for (declared, plane) in spec.planes.iter().zip(planes) {
            let page = declared.bytes_per_token * spec.rows_per_page(config.page_size);
            if page.saturating_mul(slots as usize) > plane.bytes {
                let reason = format!("pool {}: layer {} is too small", spec.name, declared.layer);
                return argument("pools", format!("{reason} for {slots} slots"));
            }
        }
    }
    Ok(())
}

/// The copies of all planes of all pools, in order of the model's layers.
///
/// # Errors
/// When a slab isn't what its layout needs.
pub fn plan(config: &Config, device: &[Vec<DevicePlane>], memory: &HostMemory) -> Result<Plan> {
    if config.host_slots == 0 {
        // Without a host tier nothing is ever copied.
        return Ok(Plan::default());
    }
    if config.unified.is_some() {
        return plan_in_buffer(config, device, memory);
    }
    let mut planes = Vec::new();
    for ((spec, device), HostPool { space, layout, slab }) in
        config.pools.iter().zip(device).zip(&memory.pools).filter(|(_, pool)| pool.layout.bytes() > 0)
    {
        let start = slab_start(spec, layout, slab)?;
        for (at, (declared, plane)) in spec.planes.iter().zip(device).enumerate() {
            let pair = PlanePair::rows(declared.layer, plane.address as u64, start, layout.axes(at));
            planes.push(pair.in_space(u32::from(*space)));
        }
    }
    planes.sort_by_key(|plane| plane.layer);
    Ok(Plan::new(&planes))
}

/// The same where device pages are runs of all planes of their space in one buffer.
#[expect(clippy::cast_possible_wrap, reason = "inside one address space")]
fn plan_in_buffer(config: &Config, device: &[Vec<DevicePlane>], memory: &HostMemory) -> Result<Plan> {
    let Some(buffer) = buffer(device) else {
        return argument("unified", "needs one buffer as the memory of all pools");
    };
    let sizes = entry::page_bytes(&config.pools, config.page_size);
    let mut planes = Vec::new();
    for ((spec, entries), HostPool { space, layout, slab }) in config
        .pools
        .iter()
        .zip(entry::planes(&config.pools, config.page_size))
        .zip(&memory.pools)
        .filter(|(_, pool)| pool.layout.bytes() > 0)
    {
        let start = slab_start(spec, layout, slab)?;
        for (at, (declared, entry)) in spec.planes.iter().zip(entries).enumerate() {
            let address = (buffer.address + entry.offset) as u64;
            let pair = PlanePair::rows(declared.layer, address, start, layout.axes(at));
            let pair = pair.interleaved(sizes[*space as usize] as i64, entry.row as i64);
            planes.push(pair.in_space(u32::from(*space)));
        }
    }
    planes.sort_by_key(|plane| plane.layer);
    Ok(Plan::new(&planes))
}

fn slab_start(spec: &PoolSpec, layout: &Layout, slab: &Slab) -> Result<u64> {
    match slab.address(0..layout.bytes()) {
        Some(start) => Ok(start.expose_provenance() as u64),
        None => argument("host", format!("pool {}: its slab is too small", spec.name)),
    }
}
