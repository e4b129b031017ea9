//! `Cache`: the core's verbs, in path order.
//!
//! Slots come as int32/int64 buffers and go as byte arrays of int32, which torch and `NumPy` view
//! without a copy. Hits are numbers. Nothing is decided here.

use crate::errors::{OrRaise, raise};
use crate::fetching::{StopArgument, stop};
use crate::landing::{self, Counts, counts};
use crate::load::seconds;
use crate::place::Place;
use crate::pools::{self, CopiesArgument, GpuArgument, HostArgument, MemoryArgument, PoolArgument};
use crate::process::Origin;
use crate::reader::Reader;
use crate::slots::Given;
use crate::store::{IdentityArgument, StorageArgument, client};
use crate::tokens::{TokenBuffer, explain, slots};
use hicache_core::assemble::Opening;
use hicache_core::hash::Namespace;
use hicache_core::host::SlabOptions;
use hicache_core::identity::Identity;
use hicache_core::ids::{HitId, Tier};
use hicache_core::page::PageSize;
use hicache_core::{Config, Error, HiCache, HostMode};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::mem::ManuallyDrop;
use std::path::PathBuf;

#[pyclass(module = "hicache._hicache")]
pub struct Cache {
    /// Dropped before `keep`, since its threads use the device memory; and only where they are.
    pub(crate) core: ManuallyDrop<HiCache>,
    /// Keeps the device memory: the engine's tensors. None while it is detached.
    keep: Option<Py<PyAny>>,
    pub(crate) identity: Identity,
    /// This process's rank, and the world it is in.
    pub(crate) place: (Vec<u32>, Vec<u32>),
    origin: Origin,
}

impl Drop for Cache {
    fn drop(&mut self) {
        // A forked child has the memory, but not the threads that dropping would wait for.
        if self.origin.is_here() {
            // SAFETY: never used again: we are being dropped.
            #[allow(unsafe_code)]
            unsafe {
                ManuallyDrop::drop(&mut self.core);
            }
        }
    }
}

#[pymethods]
impl Cache {
    #[new]
    #[pyo3(signature = (*, page_size, bigrams, pools, memory, keep, device_slots, engine_owns_slots, unified, checkpoints_per_path, policies, host_mode, host, restart,
        copies, gpu, gpu_copies, storage, identity, io_threads, write_queue, prefetch, prefetch_deadline, store_deadline, prefetch_threshold,
        load_threshold))]
    #[allow(
        clippy::too_many_arguments,
        clippy::needless_pass_by_value,
        reason = "Python's keyword arguments"
    )]
    fn new(
        py: Python<'_>,
        page_size: u32,
        bigrams: bool,
        pools: Vec<PoolArgument>,
        memory: Option<MemoryArgument>,
        keep: Option<Py<PyAny>>,
        device_slots: Vec<u32>,
        engine_owns_slots: bool,
        unified: Option<u64>,
        checkpoints_per_path: usize,
        policies: pools::PoliciesArgument,
        host_mode: &str,
        host: HostArgument,
        restart: Option<PathBuf>,
        copies: CopiesArgument,
        gpu: Option<i32>,
        gpu_copies: GpuArgument,
        storage: Option<StorageArgument>,
        identity: IdentityArgument,
        io_threads: usize,
        write_queue: usize,
        prefetch: StopArgument,
        prefetch_deadline: f64,
        store_deadline: f64,
        prefetch_threshold: usize,
        load_threshold: usize,
    ) -> PyResult<Self> {
        let page_size = PageSize::new(page_size).or_raise(py)?;
        let pools = pools.into_iter().map(pools::spec).collect::<Result<Vec<_>, Error>>().or_raise(py)?;
        let device = memory.map(pools::device);
        let place = (identity.1.clone(), identity.2.clone());
        let (identity, client) = client(identity, page_size, &pools).or_raise(py)?;
        let (host_slots, layout, shared, prefault_threads, node) = host;
        let (device_slots, host_slots, parts) = pools::slots(&device_slots, &host_slots).or_raise(py)?;
        let config = Config {
            page_size,
            bigrams,
            pools,
            device_slots,
            engine_owns_slots,
            host_slots,
            host_mode: HostMode::named(host_mode).or_raise(py)?,
            parts,
            unified,
            checkpoints_per_path,
            writing: pools::writing(&policies).or_raise(py)?,
            eviction: policies.0,
            layout: layout.parse().or_raise(py)?,
            memory: SlabOptions { shared, prefault_threads, node },
            restart,
            copies: pools::copies(&copies).or_raise(py)?,
            gpu,
            gpu_copies: pools::gpu(gpu_copies),
            identity: client.identity,
            io_threads,
            write_queue,
            prefetch: stop(prefetch),
            prefetch_deadline,
            store_deadline,
            prefetch_threshold,
            load_threshold,
        };
        // SAFETY: `keep` holds the tensors whose addresses `device` names until the core is dropped.
        #[allow(unsafe_code)]
        let core = unsafe {
            let store = storage.map(|storage| move || storage.open(&client));
            let store = store.as_ref().map(|store| store as Opening<'_>);
            HiCache::over_memory(config, device.as_deref(), store)
        }
        .or_raise(py)?;
        Ok(Self { core: ManuallyDrop::new(core), keep, identity, place, origin: Origin::here() })
    }

    #[pyo3(signature = (memory, keep, device_slots, gpu))]
    #[allow(clippy::needless_pass_by_value, reason = "from a Python list")]
    fn attach(
        &mut self,
        py: Python<'_>,
        memory: MemoryArgument,
        keep: Py<PyAny>,
        device_slots: Vec<u32>,
        gpu: Option<i32>,
    ) -> PyResult<()> {
        let device = pools::device(memory);
        self.core(py)?.on_gpu(gpu);
        // SAFETY: `keep` holds the tensors whose addresses `device` names until they are detached.
        #[allow(unsafe_code)]
        unsafe { self.core(py)?.attach(&device, &device_slots) }.or_raise(py)?;
        self.keep = Some(keep);
        Ok(())
    }

    fn detach(&mut self, py: Python<'_>) -> PyResult<usize> {
        let dropped = self.core(py)?.detach().or_raise(py)?;
        self.keep = None;
        Ok(dropped)
    }

    #[getter]
    fn attached(&self) -> bool {
        self.core.attached()
    }

    /// Address, bytes and descriptor of each pool's host memory.
    fn host_memory(&self) -> Vec<(usize, usize, Option<i32>)> {
        self.core.host_memory()
    }

    #[pyo3(signature = (tokens, extra_key, salt, adapter, after, limit, at))]
    #[allow(clippy::too_many_arguments, reason = "a namespace in parts")]
    fn match_prefix(
        &mut self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        extra_key: Option<String>,
        salt: Option<String>,
        adapter: Option<String>,
        after: Option<&Place>,
        limit: Option<usize>,
        at: f64,
    ) -> PyResult<u64> {
        let buffer = TokenBuffer::get(tokens, "tokens")?;
        let namespace = Namespace { extra_key, salt, adapter };
        let after = after.map(|place| place.0);
        let core = self.core(py)?;
        let hit = core.match_prefix(buffer.view(), &namespace, after, limit.unwrap_or(usize::MAX), at);
        Ok(hit.or_raise(py)?.0)
    }

    /// Copies of later calls come after what this stream of the device has then.
    fn follow(&mut self, py: Python<'_>, stream: u64) -> PyResult<()> {
        self.core(py)?.follow(stream);
        Ok(())
    }

    fn allocate(&mut self, py: Python<'_>, pages: usize) -> PyResult<Option<Given>> {
        let slots = self.core(py)?.allocate(pages).or_raise(py)?;
        Ok(slots.map(Given::new))
    }

    fn insert(
        &mut self,
        py: Python<'_>,
        hit: u64,
        tokens: &Bound<'_, PyAny>,
        given: &Bound<'_, PyAny>,
    ) -> PyResult<(u32, Given, usize)> {
        let buffer = TokenBuffer::get(tokens, "tokens")?;
        let given = slots(given, "slots")?;
        let done = self.core(py)?.insert(HitId(hit), buffer.view(), given.get());
        let done = explain(Some(&given), done).or_raise(py)?;
        Ok((done.depth, Given::new(done.slots), done.duplicates))
    }

    fn free(&mut self, py: Python<'_>, given: &Bound<'_, PyAny>) -> PyResult<()> {
        let given = slots(given, "slots")?;
        explain(Some(&given), self.core(py)?.free(given.get())).or_raise(py)
    }

    fn backup(&mut self, py: Python<'_>, hit: u64) -> PyResult<usize> {
        self.core(py)?.backup(HitId(hit)).or_raise(py)
    }

    fn evict(&mut self, py: Python<'_>, host: bool, pages: usize) -> PyResult<Given> {
        let tier = if host { Tier::Host } else { Tier::Device };
        self.core(py)?.evict(tier, pages).map(Given::new).or_raise(py)
    }

    fn ready(&mut self, py: Python<'_>) -> PyResult<Counts> {
        Ok(counts(self.core(py)?.ready()))
    }

    #[pyo3(signature = (limits, at))]
    fn poll(&mut self, py: Python<'_>, limits: Option<Counts>, at: f64) -> PyResult<Counts> {
        let limits = limits.map(landing::limits);
        Ok(counts(self.core(py)?.poll(limits, at).or_raise(py)?))
    }

    fn release(&mut self, py: Python<'_>, hit: u64, generated: u64) -> PyResult<Place> {
        Ok(Place(self.core(py)?.release(HitId(hit), generated).or_raise(py)?))
    }

    fn reader(&mut self, py: Python<'_>) -> PyResult<Reader> {
        Ok(Reader(self.core(py)?.reader()))
    }

    fn digest(&self) -> u64 {
        self.core.tree().digest()
    }

    fn copying(&self) -> usize {
        self.core.copying()
    }

    fn pending(&self) -> usize {
        self.core.pending()
    }

    fn in_flight(&self) -> usize {
        self.core.in_flight()
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        crate::stats::to_dict(py, &self.core)
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.core.check().or_raise(py)
    }

    fn close(&mut self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let most = seconds(py, timeout)?;
        let core = self.core(py)?;
        py.detach(|| core.close(most));
        Ok(())
    }
}

impl Cache {
    /// The core, unless a fork brought it here: its threads did not come along.
    pub(crate) fn core(&mut self, py: Python<'_>) -> PyResult<&mut HiCache> {
        if self.origin.is_here() {
            return Ok(&mut self.core);
        }
        Err(raise(py, &Error::Forked))
    }
}
