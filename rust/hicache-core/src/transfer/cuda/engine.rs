//! The C library's engine as an owner.
//!
//! Assumes nothing of who calls when, except what `unsafe` functions name. Refuses to know jobs and layers' contents.
//! On error: [`CudaError`]; nothing was enqueued unless it is a CUDA error.
#![allow(unsafe_code, reason = "calls the C library")]

use super::answer::{CudaError, CudaResult, check, finished};
use super::ffi::{self, Page, RawCopy, RawEngine, RawSettings};
use crate::transfer::strided::{PlaneAt, Strided};
use crate::transfer::{Direction, GpuOptions};
use std::ptr::NonNull;

/// A `cudaStream_t` as an integer, as torch gives it (`stream.cuda_stream`); 0 is the default stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stream(pub u64);

/// Sets of per-layer events that rotate.
pub const LAYER_SETS: u64 = 3;

/// How copies are made. Pairs are by direction: in, out.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Number of the device.
    pub device: i32,
    /// Layers of the model: events per load.
    pub layers: u32,
    /// Runs of at least so many bytes go by the copy engine.
    pub engine_run: [u64; 2],
    /// Device memory for staging, in bytes; 0 never stages.
    pub staging: [u64; 2],
    /// Multiprocessors that a direct kernel may take.
    pub multiprocessors: [u32; 2],
}

impl Settings {
    /// The usual ones.
    pub fn new(device: i32, layers: u32) -> Self {
        Self::with(device, layers, GpuOptions::default())
    }

    /// With these options.
    pub const fn with(device: i32, layers: u32, options: GpuOptions) -> Self {
        let GpuOptions { engine_run, staging, multiprocessors } = options;
        Self { device, layers, engine_run, staging, multiprocessors }
    }
}

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// By the engine's thresholds.
    #[default]
    Auto = 0,
    /// Multiprocessors move it.
    Kernel = 1,
    /// The copy engine moves run by run.
    Engine = 2,
    /// The copy engine moves whole pages, a kernel orders them on the device.
    Staged = 3,
}

/// Streams, events and staging of one device. Dropped: waits for its own copies, unpins, frees.
#[derive(Debug)]
pub struct Engine(NonNull<RawEngine>);

// SAFETY: the library binds nothing to a thread.
unsafe impl Send for Engine {}
// SAFETY: `&self` functions are the queries, which the library allows beside any call but `destroy`.
unsafe impl Sync for Engine {}

impl Engine {
    /// # Errors
    /// No driver, no device, or what CUDA refused. Nothing is left behind.
    pub fn new(settings: &Settings) -> CudaResult<Self> {
        let Settings { device, layers, engine_run, staging, multiprocessors } = *settings;
        let raw = RawSettings { device, layers, engine_run, staging, multiprocessors };
        let mut engine = std::ptr::null_mut();
        // SAFETY: both are valid for the call.
        check("device", unsafe { ffi::hicache_cuda_create(&raw const raw, &raw mut engine) })?;
        NonNull::new(engine).map(Self).ok_or(CudaError::Memory)
    }

    /// Pins host memory, in pieces of so many bytes, one behind another.
    ///
    /// # Errors
    /// What CUDA refused; nothing stays pinned.
    ///
    /// # Safety
    /// The memory must stay mapped until it is unregistered or the engine is dropped.
    pub unsafe fn register(&mut self, base: *mut u8, pieces: &[u64]) -> CudaResult<()> {
        let count = u32::try_from(pieces.len()).map_err(|_| CudaError::Argument("host"))?;
        // SAFETY: the engine lives; the memory is the caller's promise.
        let code =
            unsafe { ffi::hicache_cuda_register(self.0.as_ptr(), base.cast(), pieces.as_ptr(), count) };
        check("host", code)
    }

    /// Undoes one `register`.
    ///
    /// # Errors
    /// When nothing was registered there, or CUDA failed.
    pub fn unregister(&mut self, base: *mut u8) -> CudaResult<()> {
        // SAFETY: the engine lives; an address that wasn't registered is refused.
        check("host", unsafe { ffi::hicache_cuda_unregister(self.0.as_ptr(), base.cast()) })
    }

    /// What follows in this direction starts after all that `stream` has now.
    ///
    /// # Errors
    /// A stream under capture, or CUDA's.
    ///
    /// # Safety
    /// `stream` must be a live stream of this device.
    pub unsafe fn fence(&mut self, direction: Direction, stream: Stream) -> CudaResult<()> {
        // SAFETY: the engine lives; the stream is the caller's promise.
        let code = unsafe { ffi::hicache_cuda_fence(self.0.as_ptr(), direction as u32, stream.0) };
        check("stream", code)
    }

    /// Enqueues a copy.
    ///
    /// # Errors
    /// An argument that can't be meant, or CUDA's.
    ///
    /// # Safety
    /// All device bytes that the copy names must be memory of this device, and nobody else's, until it is done.
    pub unsafe fn enqueue(
        &mut self,
        direction: Direction,
        shape: &Strided,
        planes: &[PlaneAt],
        pages: &[Page],
        route: Route,
    ) -> CudaResult<()> {
        let copy = raw_copy(shape, planes, pages, route);
        // SAFETY: slices live for the call, which keeps nothing of them; the bytes are the caller's promise.
        check("copy", unsafe {
            ffi::hicache_cuda_enqueue(self.0.as_ptr(), direction as u32, &raw const copy)
        })
    }

    /// Whether such copies would be staged.
    ///
    /// # Errors
    /// An argument that can't be meant.
    pub fn stages(&self, direction: Direction, shape: &Strided, planes: &[PlaneAt]) -> CudaResult<bool> {
        let copy = raw_copy(shape, planes, &[], Route::Auto);
        // SAFETY: as in `enqueue`; nothing is enqueued.
        let chosen = unsafe { ffi::hicache_cuda_choose(self.0.as_ptr(), direction as u32, &raw const copy) };
        check("copy", chosen.min(0)).map(|()| chosen == Route::Staged as i32)
    }

    /// The load that uses this set has the layer after what was enqueued.
    ///
    /// # Errors
    /// A layer or set that isn't there, or CUDA's.
    pub fn record_layer(&mut self, set: u32, layer: u32) -> CudaResult<()> {
        // SAFETY: the engine lives.
        check("layer", unsafe { ffi::hicache_cuda_record_layer(self.0.as_ptr(), set, layer) })
    }

    /// `stream` continues after that layer.
    ///
    /// # Errors
    /// A layer or set that isn't there, a stream under capture, or CUDA's.
    ///
    /// # Safety
    /// `stream` must be a live stream of this device.
    pub unsafe fn wait_layer(&mut self, set: u32, layer: u32, stream: Stream) -> CudaResult<()> {
        // SAFETY: the engine lives; the stream is the caller's promise.
        check("layer", unsafe { ffi::hicache_cuda_wait_layer(self.0.as_ptr(), set, layer, stream.0) })
    }

    /// Whether a layer is there.
    ///
    /// # Errors
    /// A layer or set that isn't there, or CUDA's.
    pub fn has_layer(&self, set: u32, layer: u32) -> CudaResult<bool> {
        // SAFETY: the engine lives.
        finished("layer", unsafe { ffi::hicache_cuda_query_layer(self.0.as_ptr(), set, layer) })
    }

    /// All that was enqueued so far in this direction belongs to `ticket`.
    ///
    /// # Errors
    /// CUDA's.
    pub fn record_done(&mut self, direction: Direction, ticket: u64) -> CudaResult<()> {
        // SAFETY: the engine lives.
        check("ticket", unsafe { ffi::hicache_cuda_record_done(self.0.as_ptr(), direction as u32, ticket) })
    }

    /// `stream` continues after that ticket.
    ///
    /// # Errors
    /// A stream under capture, or CUDA's.
    ///
    /// # Safety
    /// `stream` must be a live stream of this device.
    pub unsafe fn wait_done(&mut self, direction: Direction, ticket: u64, stream: Stream) -> CudaResult<()> {
        let (engine, direction) = (self.0.as_ptr(), direction as u32);
        // SAFETY: the engine lives; the stream is the caller's promise.
        check("ticket", unsafe { ffi::hicache_cuda_wait_done(engine, direction, ticket, stream.0) })
    }

    /// Whether a ticket is done.
    ///
    /// # Errors
    /// CUDA's: also of copies that failed on the device.
    pub fn is_done(&self, direction: Direction, ticket: u64) -> CudaResult<bool> {
        // SAFETY: the engine lives.
        finished("copy", unsafe { ffi::hicache_cuda_query_done(self.0.as_ptr(), direction as u32, ticket) })
    }
}

fn raw_copy(shape: &Strided, planes: &[PlaneAt], pages: &[Page], route: Route) -> RawCopy {
    // A copy beyond 2^32 pages would have to name a slot twice.
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    RawCopy {
        shape: *shape,
        planes: planes.as_ptr(),
        pages: pages.as_ptr(),
        plane_count: count(planes.len()),
        page_count: count(pages.len()),
        route: route as u32,
        reserved: 0,
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // SAFETY: ours, and never used again. A CUDA error here has nobody to tell: the library freed what it could.
        let _ = unsafe { ffi::hicache_cuda_destroy(self.0.as_ptr()) };
    }
}
