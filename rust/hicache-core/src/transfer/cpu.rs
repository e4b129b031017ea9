//! The copier for memory that the CPU reaches: one thread per direction, page by page, layer by layer.
//!
//! A job's device and host slots belong to it until it is finished (the tree pins them), so that no
//! other thread reads what it writes or writes what it reads. Dropping the copier finishes its jobs.
#![allow(unsafe_code, reason = "copies between raw addresses that slots guard")]

use super::plan::{PlanePair, runs};
use super::{Copier, CopyJob, Direction, Progress};
use crate::error::{Result, argument};
use crate::host::Slab;
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::sync::Arc;
use std::thread::JoinHandle;

/// One plane's addresses on both sides.
#[derive(Clone, Debug)]
pub struct PlaneMemory {
    /// Strides and sizes.
    pub pair: PlanePair,
    /// Of the plane's slot 0 on the device.
    pub device: *mut u8,
    /// Of the plane's slot 0 on the host, inside the slab.
    pub host: *mut u8,
    /// Keeps the host side mapped.
    pub slab: Arc<Slab>,
}

// SAFETY: addresses are only used by jobs, for slots that the job owns.
unsafe impl Send for PlaneMemory {}
// SAFETY: as above; a `PlaneMemory` is never changed.
unsafe impl Sync for PlaneMemory {}

/// Copies with the CPU.
#[derive(Debug)]
pub struct CpuCopier {
    streams: [Stream; 2],
}

#[derive(Debug)]
struct Stream {
    jobs: Option<Sender<CopyJob>>,
    progress: Arc<Progress>,
    thread: Option<JoinHandle<()>>,
}

impl CpuCopier {
    /// A copier over planes in order of layer.
    ///
    /// # Errors
    /// When the system has no thread to give.
    ///
    /// # Safety
    /// Every plane's device memory must stay valid and unmoved until the copier is dropped, for every
    /// slot that a job may name.
    pub unsafe fn new(planes: Vec<PlaneMemory>) -> Result<Self> {
        let planes = Arc::new(planes);
        Ok(Self { streams: [Stream::start("hicache-in", &planes)?, Stream::start("hicache-out", &planes)?] })
    }
}

impl Stream {
    fn start(name: &str, planes: &Arc<Vec<PlaneMemory>>) -> Result<Self> {
        let (sender, receiver) = unbounded();
        let progress = Arc::new(Progress::default());
        let (planes, seen) = (Arc::clone(planes), Arc::clone(&progress));
        let work = move || carry_out(&planes, &receiver, &seen);
        match std::thread::Builder::new().name(name.to_owned()).spawn(work) {
            Ok(thread) => Ok(Self { jobs: Some(sender), progress, thread: Some(thread) }),
            Err(error) => argument("pools", format!("no thread to be had for copies: {error}")),
        }
    }
}

impl Copier for CpuCopier {
    fn submit(&mut self, job: CopyJob) {
        if let Some(jobs) = &self.streams[job.direction as usize].jobs {
            // The receiver lives as long as the stream: sending can't fail.
            let _ = jobs.send(job);
        }
    }

    fn progress(&self, direction: Direction) -> &Arc<Progress> {
        &self.streams[direction as usize].progress
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // Copies are finite: this ends.
            let _ = thread.join();
        }
    }
}

fn carry_out(planes: &[PlaneMemory], jobs: &Receiver<CopyJob>, progress: &Progress) {
    for job in jobs {
        for (at, plane) in planes.iter().enumerate() {
            copy_plane(plane, &job);
            let last_of_layer = planes.get(at + 1).is_none_or(|next| next.pair.layer != plane.pair.layer);
            if last_of_layer {
                progress.layer_done(plane.pair.layer + 1);
            }
        }
        progress.job_done(job.ticket);
    }
}

fn copy_plane(plane: &PlaneMemory, job: &CopyJob) {
    for run in runs(plane.pair, &job.pages) {
        // `wrapping_add` stays inside both planes: the slots exist, checked when they were allocated.
        let (device, host) = (plane.device.wrapping_add(run.device), plane.host.wrapping_add(run.host));
        let (from, to) = match job.direction {
            Direction::In => (host, device),
            Direction::Out => (device, host),
        };
        // SAFETY: both runs are inside their planes; device tensors and slab never overlap; the job owns
        // both sides' slots until it is finished.
        unsafe { std::ptr::copy_nonoverlapping(from, to, run.bytes) };
    }
}
