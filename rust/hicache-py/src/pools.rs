//! Pools as Python declares them, the memory behind them, and where a layout puts their bytes.

use crate::errors::OrRaise;
use hicache_core::assemble::DevicePlane;
use hicache_core::error::Error;
use hicache_core::host::{self, Layout as Addresses, Room};
use hicache_core::page::PageSize;
use hicache_core::policy::{HostCopies, Write, Writing};
use hicache_core::pool::{Needs, Plane, PoolSpec, Rows, SlotsOf};
use hicache_core::transfer::GpuOptions;
use hicache_core::transfer::cpu::CpuOptions;
use hicache_core::{PartSlots, Result};
use pyo3::prelude::*;

/// Name; planes as (layer, role, bytes of a row); heads and head groups; whether a row is a page; whose slots
/// ("" for the first pool's, its own name for its own); needs: 0 for all pages, 1 for the last, else 1 + a
/// window's tokens.
pub type PoolArgument = (String, Vec<(u32, u32, usize)>, (u32, u32), bool, String, u32);

/// (address, bytes) of each plane of each pool.
pub type MemoryArgument = Vec<Vec<(usize, usize)>>;

/// Of the host tier: slots of each space; layout; whether other processes can map it; threads that touch it beforehand;
/// NUMA node.
pub type HostArgument = (Vec<u32>, String, bool, usize, Option<u32>);

/// Threads of each direction, and when layers arrive.
pub type CopiesArgument = (Option<usize>, String);

/// What a full tier gives up; when pages are copied to the host and to storage; what becomes of host copies; the share of
/// clean reserve.
pub type PoliciesArgument = (String, String, String, String, f64);

/// Of a GPU's copies, in and out: bytes from which on the copy engine takes a run, bytes of staging,
/// multiprocessors. None: as usual.
pub type GpuArgument = (Option<[u64; 2]>, Option<[u64; 2]>, Option<[u32; 2]>);

/// The core's options.
pub fn gpu((engine_run, staging, multiprocessors): GpuArgument) -> GpuOptions {
    let usual = GpuOptions::default();
    GpuOptions {
        engine_run: engine_run.unwrap_or(usual.engine_run),
        staging: staging.unwrap_or(usual.staging),
        multiprocessors: multiprocessors.unwrap_or(usual.multiprocessors),
    }
}

/// Slots of the cache's own space on both sides, and of the parts. A list is in order of spaces.
pub fn slots(device: &[u32], host: &[u32]) -> Result<(u32, u32, Vec<PartSlots>)> {
    let ([own_device, device @ ..], [own_host, host @ ..]) = (device, host) else {
        return Err(Error::Argument { argument: "pools", reason: "no slots are given".to_owned() });
    };
    if device.len() != host.len() {
        let reason =
            format!("slots of {} parts on the device and of {} on the host", device.len(), host.len());
        return Err(Error::Argument { argument: "pools", reason });
    }
    let parts = device.iter().zip(host).map(|(&device, &host)| PartSlots { device, host });
    Ok((*own_device, *own_host, parts.collect()))
}

/// The core's options.
pub fn copies((threads, arrival): &CopiesArgument) -> Result<CpuOptions> {
    let usual = CpuOptions::default();
    Ok(CpuOptions { threads: threads.unwrap_or(usual.threads), arrival: arrival.parse()?, ..usual })
}

/// The core's settings.
pub fn writing((_, host, storage, host_copies, clean_reserve): &PoliciesArgument) -> Result<Writing> {
    Ok(Writing {
        host: Write::named("write", host)?,
        storage: Write::named("write_storage", storage)?,
        host_copies: HostCopies::named(host_copies)?,
        clean_reserve: *clean_reserve,
    })
}

/// The core's declaration.
pub fn spec((name, planes, (heads, groups), of_pages, slots, needs): PoolArgument) -> Result<PoolSpec> {
    let plane = |(layer, role, bytes_per_token)| Plane { layer, role, bytes_per_token };
    let spec = PoolSpec::new(&name, planes.into_iter().map(plane).collect())?.with_heads(heads, groups)?;
    let slots = match slots.as_str() {
        "" => SlotsOf::First,
        own if own == name => SlotsOf::Own,
        _ => SlotsOf::Pool(slots),
    };
    let needs = match needs {
        0 => Needs::All,
        1 => Needs::Last,
        more => Needs::Window { tokens: more - 1 },
    };
    Ok(spec.with(if of_pages { Rows::Page } else { Rows::Token }, slots, needs))
}

/// The core's planes.
pub fn device(memory: MemoryArgument) -> Vec<Vec<DevicePlane>> {
    let plane = |(address, bytes)| DevicePlane { address, bytes };
    memory.into_iter().map(|planes| planes.into_iter().map(plane).collect()).collect()
}

/// Bytes that this process may still take, as far as can be read.
#[pyfunction]
pub fn memory_available() -> Option<u64> {
    Room::here().available()
}

/// Processors that this process may keep busy.
#[pyfunction]
pub fn processors() -> usize {
    hicache_core::processors::allowed()
}

/// Where the bytes of a pool's pages are in host memory.
#[pyclass(module = "hicache._hicache", frozen)]
pub struct Layout {
    addresses: Addresses,
    planes: Vec<Plane>,
    heads: usize,
    slots: u32,
}

#[pymethods]
impl Layout {
    #[new]
    #[allow(clippy::needless_pass_by_value, reason = "Python's arguments")]
    fn new(py: Python<'_>, layout: &str, pool: PoolArgument, page_size: u32, slots: u32) -> PyResult<Self> {
        let spec = spec(pool).or_raise(py)?;
        let page_size = PageSize::new(page_size).or_raise(py)?;
        let addresses = Addresses::new(layout.parse().or_raise(py)?, &spec, page_size, slots).or_raise(py)?;
        Ok(Self { addresses, planes: spec.planes, heads: spec.heads as usize, slots })
    }

    #[getter]
    const fn bytes(&self) -> usize {
        self.addresses.bytes()
    }

    #[getter]
    const fn page_bytes(&self) -> usize {
        self.addresses.page_bytes()
    }

    fn address(
        &self,
        py: Python<'_>,
        layer: u32,
        role: u32,
        slot: u32,
        row: usize,
        head: usize,
    ) -> PyResult<usize> {
        let plane = self.planes.iter().position(|plane| (plane.layer, plane.role) == (layer, role));
        let inside = plane.map(|plane| self.addresses.axes(plane));
        match inside.filter(|axes| slot < self.slots && row < axes.rows && head < self.heads) {
            Some(axes) => Ok(axes.address(slot as usize, row, head)),
            None => Err(outside("no such element")).or_raise(py),
        }
    }

    fn runs(&self, py: Python<'_>, slot: u32) -> PyResult<Vec<(usize, usize)>> {
        if slot >= self.slots {
            return Err(outside("no such slot")).or_raise(py);
        }
        Ok(self.addresses.runs(slot).map(|run| (run.start, run.len())).collect())
    }

    fn window(
        &self,
        py: Python<'_>,
        slot: u32,
        group: usize,
        start: u32,
        end: u32,
    ) -> PyResult<(usize, usize)> {
        let run = self.addresses.window(slot, group, start..end).filter(|_| slot < self.slots);
        let Some(run) = run else {
            return Err(outside("a head group's layers are one run in page_unified only")).or_raise(py);
        };
        Ok((run.start, run.len()))
    }

    fn pieces(&self, most: usize) -> Vec<(usize, usize)> {
        let pieces = host::pieces(&self.addresses.regions(), self.addresses.bytes(), most.max(1));
        pieces.into_iter().map(|piece| (piece.start, piece.len())).collect()
    }
}

fn outside(reason: &str) -> Error {
    Error::Argument { argument: "layout", reason: reason.to_owned() }
}
