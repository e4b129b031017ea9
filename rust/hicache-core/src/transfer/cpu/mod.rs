//! The copier for memory that the CPU reaches: threads of its own for each direction.
//!
//! | file | what |
//! |---|---|
//! | `route` | the order in which a plan is walked |
//! | `jobs` | what is left of each job, and how far the stream is |
//! | `walk` | runs of runs over pages |
//! | `nontemporal` | copies past the caches |
//! | `buffer` | moves inside the device's memory |
//!
//! A job's device and host slots belong to it until it is finished (the tree pins them), so that no
//! other thread reads what it writes or writes what it reads. Dropping the copier finishes its jobs.
//! On error: a copy can't fail; threads that can't be had are an error before there is a copier.
#![allow(unsafe_code, reason = "copies between raw addresses that slots guard")]

mod buffer;
mod jobs;
mod nontemporal;
mod route;
mod walk;

pub use buffer::DeviceBuffer;
pub use route::Arrival;

use super::plan::Plan;
use super::{Copier, CopyJob, Direction, Progress, Relocate};
use crate::error::{Result, argument};
use crate::processors;
use crossbeam_channel::{Receiver, Sender, unbounded};
use jobs::{Jobs, Running};
use nontemporal::CopyRuns;
use route::Route;
use std::any::Any;
use std::sync::Arc;
use std::thread::JoinHandle;

/// More threads a direction are a mistake in the unit.
pub const MAX_THREADS: usize = 256;

/// How the CPU copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// Threads of each direction.
    pub threads: usize,
    /// When the layers of a load arrive.
    pub arrival: Arrival,
    /// Bytes of a job from which on its copies pass the caches by.
    pub past_caches_from: usize,
}

impl CpuOptions {
    /// A quarter of so many processors, at most four: one already moves what one memory channel can.
    pub fn on(processors: usize) -> Self {
        Self { threads: (processors / 4).clamp(1, 4), arrival: Arrival::Auto, past_caches_from: 4 << 20 }
    }
}

impl Default for CpuOptions {
    /// For the processors that this process may use.
    fn default() -> Self {
        Self::on(processors::allowed())
    }
}

/// Copies with the CPU.
#[derive(Debug)]
pub struct CpuCopier {
    streams: [Stream; 2],
    buffer: Option<DeviceBuffer>,
}

#[derive(Debug)]
struct Stream {
    route: Arc<Route>,
    /// One queue a thread; each gets every job.
    queues: Vec<Sender<Arc<Running>>>,
    jobs: Arc<Jobs>,
    past_caches_from: usize,
    threads: Vec<JoinHandle<()>>,
}

impl CpuCopier {
    /// A copier that carries out a plan, and keeps `memory` (what the plan's host addresses point into).
    /// `finished`: tickets that count as finished, in and out, so that a new copier goes on counting.
    ///
    /// # Errors
    /// When the options can't be meant, or the system has no thread to give.
    ///
    /// # Safety
    /// The memory at the plan's addresses must stay valid and unmoved until the copier is dropped, for every
    /// slot that a job may name, and the sides of the plan must not overlap.
    pub unsafe fn new(
        plan: &Plan,
        memory: &Arc<dyn Any + Send + Sync>,
        options: CpuOptions,
        finished: [u64; 2],
    ) -> Result<Self> {
        if options.threads == 0 || options.threads > MAX_THREADS {
            let threads = options.threads;
            return argument("copy_threads", format!("must be 1 to {MAX_THREADS}, got {threads}"));
        }
        let stream = |direction: Direction| {
            let route = Route::new(plan, direction, options.arrival);
            Stream::start(direction, route, memory, options, finished[direction as usize])
        };
        Ok(Self { streams: [stream(Direction::In)?, stream(Direction::Out)?], buffer: None })
    }

    /// The same where the device's memory is one buffer, inside which pages move.
    #[must_use]
    pub fn with_buffer(self, buffer: DeviceBuffer) -> Self {
        Self { buffer: Some(buffer), ..self }
    }
}

impl Stream {
    fn start(
        direction: Direction,
        route: Route,
        memory: &Arc<dyn Any + Send + Sync>,
        options: CpuOptions,
        finished: u64,
    ) -> Result<Self> {
        let jobs = Arc::new(Jobs::new(Arc::new(Progress::starting_at(finished))));
        let past_caches_from = options.past_caches_from;
        let mut stream =
            Self { route: Arc::new(route), queues: Vec::new(), jobs, past_caches_from, threads: Vec::new() };
        let name = if direction == Direction::In { "hicache-in" } else { "hicache-out" };
        for at in 0..options.threads {
            let (sender, receiver) = unbounded();
            let (jobs, memory) = (Arc::clone(&stream.jobs), Arc::clone(memory));
            let work = move || {
                carry_out(&receiver, &jobs);
                drop(memory);
            };
            // Those that were started end when the stream is dropped.
            match std::thread::Builder::new().name(format!("{name}-{at}")).spawn(work) {
                Ok(thread) => stream.threads.push(thread),
                Err(error) => return argument("copy_threads", format!("no thread to be had: {error}")),
            }
            stream.queues.push(sender);
        }
        Ok(stream)
    }
}

impl Copier for CpuCopier {
    fn submit(&mut self, job: CopyJob) {
        let stream = &self.streams[job.direction as usize];
        let running = Arc::new(Running::new(Arc::clone(&stream.route), job, stream.past_caches_from));
        stream.jobs.begin(Arc::clone(&running));
        for queue in &stream.queues {
            // The receivers live as long as the stream: sending can't fail.
            let _ = queue.send(Arc::clone(&running));
        }
    }

    fn progress(&self, direction: Direction) -> &Arc<Progress> {
        self.streams[direction as usize].jobs.progress()
    }

    fn relocate(&self) -> Option<Relocate> {
        let buffer = self.buffer.clone()?;
        Some(Arc::new(move |space, pages| buffer.relocate(space, pages)))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.queues.clear();
        for thread in self.threads.drain(..) {
            // Copies are finite: this ends.
            let _ = thread.join();
        }
    }
}

fn carry_out(queue: &Receiver<Arc<Running>>, jobs: &Jobs) {
    let past_caches = nontemporal::past_caches();
    for running in queue {
        let copy: CopyRuns = if running.past_caches { past_caches } else { nontemporal::PLAIN };
        while let Some(task) = running.next() {
            let (nest, pages) = running.work(task);
            // SAFETY: the plan's addresses are valid for all slots (`CpuCopier::new`); the job owns its slots
            // on both sides until it is finished; a task's planes and pages are nobody else's.
            unsafe { walk::pages(nest, running.direction(), pages, copy) };
            nontemporal::fence();
            if running.done(task) {
                jobs.advance();
            }
        }
    }
}
