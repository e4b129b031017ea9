//! `Copier` for a GPU: jobs become enqueued copies and events; one thread asks how far they are.
//!
//! A load's layers are copied in order, each with an event that the engine's stream waits for; a backup has one event.
//! Every job starts after what the engine's stream had when it was submitted: slots that a load fills are no longer
//! read, pages that a backup reads are written. Nothing here waits for the device, except dropping and a fault.
//! On error: the first CUDA error ends the engine, once nothing of it runs any more; then it is told (`fault`) to all
//! who wait, and no job finishes after it.
#![allow(unsafe_code, reason = "hands the engine's addresses to the device")]

use super::answer::{CudaError, CudaResult};
use super::engine::{Engine, Settings, Stream};
use super::ffi::Page;
use super::parts::{Parts, set_of};
use super::pin::{Pinned, pin};
use crate::error::Error;
use crate::ids::Slot;
use crate::measured::Begun;
use crate::transfer::plan::Plan;
use crate::transfer::{Copier, CopyJob, Direction, Progress, WaitOnStream};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two questions while something flies.
const ASK_EVERY: Duration = Duration::from_micros(50);

/// Copies with a GPU.
pub struct CudaCopier {
    layers: Layers,
    watcher: Option<JoinHandle<()>>,
}

/// Lets the engine's stream wait for layers, from any thread.
#[derive(Clone)]
pub struct Layers(Arc<Shared>);

struct Shared {
    /// Gone once the copier is dropped.
    engine: Mutex<Option<Engine>>,
    parts: Parts,
    /// The engine's stream: a `cudaStream_t`.
    follows: AtomicU64,
    progress: [Arc<Progress>; 2],
    flying: Mutex<[VecDeque<(u64, Begun)>; 2]>,
    fault: Mutex<Option<CudaError>>,
    closing: AtomicBool,
    /// What is pinned; dropped after the engine, which unpins it.
    _memory: Arc<dyn Any + Send + Sync>,
}

impl CudaCopier {
    /// Pins the host memory and starts the thread that asks. `memory` keeps what is pinned; tickets up to
    /// `finished` (in, out) count as finished, so that a new copier goes on counting.
    ///
    /// # Errors
    /// No driver, no device, or what CUDA refused. Nothing is left behind.
    ///
    /// # Safety
    /// All memory that the plan and later jobs name must stay valid until the copier is dropped; the host's is in
    /// `pinned`, which `memory` keeps mapped; and what [`Copier::follow`] is told must be live streams of the
    /// device.
    pub unsafe fn new(
        settings: &Settings,
        plan: &Plan,
        pinned: &[Pinned],
        memory: &Arc<dyn Any + Send + Sync>,
        finished: [u64; 2],
    ) -> CudaResult<Self> {
        let mut engine = Engine::new(settings)?;
        for region in pinned {
            // SAFETY: the caller's promise; the engine is dropped before `_memory`.
            unsafe { pin(&mut engine, region) }?;
        }
        let parts = Parts::new(&engine, plan, pinned, settings.layers)?;
        let shared = Arc::new(Shared {
            engine: Mutex::new(Some(engine)),
            parts,
            follows: AtomicU64::new(0),
            progress: finished.map(|ticket| Arc::new(Progress::starting_at(ticket))),
            flying: Mutex::default(),
            fault: Mutex::default(),
            closing: AtomicBool::new(false),
            _memory: Arc::clone(memory),
        });
        let seen = Arc::clone(&shared);
        let start = std::thread::Builder::new().name("hicache-cuda".to_owned());
        let watcher = start.spawn(move || seen.watch()).map_err(|_| CudaError::Memory)?;
        Ok(Self { layers: Layers(shared), watcher: Some(watcher) })
    }

    /// Waiting on the device, apart from the copier.
    pub fn layers(&self) -> Layers {
        self.layers.clone()
    }
}

impl Layers {
    /// `stream` continues after layer `layer` of load `ticket`, and of all before it; after the whole load if
    /// there are fewer layers, as on the CPU.
    ///
    /// # Errors
    /// A stream under capture, CUDA's, or the copier's fault.
    ///
    /// # Safety
    /// `stream` must be a live stream of the copier's device.
    pub unsafe fn wait(&self, ticket: u64, layer: u32, stream: Stream) -> CudaResult<()> {
        let shared = &self.0;
        if let Some(fault) = self.fault() {
            return Err(fault);
        }
        if shared.progress[Direction::In as usize].finished() >= ticket {
            return Ok(());
        }
        match shared.engine().as_mut() {
            // A later load that has taken over the set since is a stronger condition: copies are in order.
            // SAFETY: the caller's promise.
            Some(engine) => unsafe {
                engine.wait_layer(set_of(ticket), layer.min(shared.parts.layers - 1), stream)
            },
            // Ended by a fault meanwhile, or dropped: then it waited for all copies.
            None => self.fault().map_or(Ok(()), Err),
        }
    }

    /// The first CUDA error: from then on nothing runs and nothing finishes.
    pub fn fault(&self) -> Option<CudaError> {
        locked(&self.0.fault).clone()
    }
}

impl Copier for CudaCopier {
    fn submit(&mut self, job: CopyJob) {
        let shared = &self.layers.0;
        let (direction, flying) = (job.direction, (job.ticket, job.begun));
        match shared.enqueue(job) {
            Ok(()) => {
                locked(&shared.flying)[direction as usize].push_back(flying);
                if let Some(watcher) = &self.watcher {
                    watcher.thread().unpark();
                }
            }
            Err(fault) => shared.fail(fault),
        }
    }

    fn progress(&self, direction: Direction) -> &Arc<Progress> {
        &self.layers.0.progress[direction as usize]
    }

    fn follow(&self, stream: u64) {
        self.layers.0.follows.store(stream, Ordering::Relaxed);
    }

    fn fault(&self) -> Option<String> {
        self.layers.fault().map(|fault| fault.to_string())
    }

    fn wait_on_stream(&self) -> Option<WaitOnStream> {
        let layers = self.layers();
        Some(Arc::new(move |ticket, layer, stream| {
            // SAFETY: `CudaCopier::new` passes the promise about streams on to its caller.
            let waited = unsafe { layers.wait(ticket, layer, Stream(stream)) };
            waited.map_err(|error| Error::Device(error.to_string()))
        }))
    }
}

impl Drop for CudaCopier {
    fn drop(&mut self) {
        self.layers.0.closing.store(true, Ordering::Relaxed);
        if let Some(watcher) = self.watcher.take() {
            watcher.thread().unpark();
            // It only asks, and looks at `closing` between any two questions.
            let _ = watcher.join();
        }
        // Waits for the copies that still run: afterwards the device's memory is the engine's alone.
        self.layers.0.engine().take();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn engine(&self) -> MutexGuard<'_, Option<Engine>> {
        locked(&self.engine)
    }

    /// The first error ends the engine. It is told when no copy can touch memory any more: who hears of it may give
    /// slots away.
    fn fail(&self, fault: CudaError) {
        let mut engine = self.engine();
        // Waits for what was enqueued before the error.
        drop(engine.take());
        let text = fault.to_string();
        locked(&self.fault).get_or_insert(fault);
        self.progress.iter().for_each(|progress| progress.break_off(&text));
    }

    fn enqueue(&self, job: CopyJob) -> CudaResult<()> {
        if let Some(fault) = locked(&self.fault).clone() {
            return Err(fault);
        }
        let of_space = |pages: Vec<(Slot, Slot)>| pages.into_iter().map(Page::from).collect();
        let pages: Vec<Vec<Page>> = job.pages.into_iter().map(of_space).collect();
        let mut engine = self.engine();
        let Some(engine) = engine.as_mut() else { return Err(CudaError::Argument("copier")) };
        // SAFETY: `CudaCopier::new` passes the promise on to its caller.
        unsafe { engine.fence(job.direction, Stream(self.follows.load(Ordering::Relaxed))) }?;
        match job.direction {
            // SAFETY: device memory is promised to `new`; a job owns its slots until it is finished.
            Direction::In => unsafe { self.parts.load(engine, job.ticket, &pages) }?,
            // SAFETY: as above.
            Direction::Out => unsafe { self.parts.back_up(engine, &pages) }?,
        }
        engine.record_done(job.direction, job.ticket)
    }

    /// The thread's life: asks while something flies, else sleeps until a job comes.
    fn watch(&self) {
        while !self.closing.load(Ordering::Relaxed) {
            let idle = [Direction::In, Direction::Out].map(|direction| self.ask(direction));
            match idle {
                [Ok(true), Ok(true)] => std::thread::park(),
                [Ok(_), Ok(_)] => std::thread::park_timeout(ASK_EVERY),
                [Err(fault), _] | [_, Err(fault)] => {
                    self.fail(fault);
                    return;
                }
            }
        }
    }

    /// Tells progress of what is finished. True if nothing flies in this direction.
    fn ask(&self, direction: Direction) -> CudaResult<bool> {
        let progress = &self.progress[direction as usize];
        loop {
            let front = locked(&self.flying)[direction as usize].front().copied();
            let Some((ticket, begun)) = front else { return Ok(true) };
            let engine = self.engine();
            let Some(engine) = engine.as_ref() else { return Ok(true) };
            if !engine.is_done(direction, ticket)? {
                if direction == Direction::In {
                    progress.layer_done(self.layers_there(engine, ticket)?);
                }
                return Ok(false);
            }
            locked(&self.flying)[direction as usize].pop_front();
            progress.job_took(ticket, begun);
        }
    }

    fn layers_there(&self, engine: &Engine, ticket: u64) -> CudaResult<u32> {
        let mut there = 0;
        while there < self.parts.layers && engine.has_layer(set_of(ticket), there)? {
            there += 1;
        }
        Ok(there)
    }
}
