//! Requests through plain system calls, each by one of a few threads: where io_uring isn't, or isn't allowed.
//!
//! The threads serve all batches, and end with the engine.
//! On error: requests fail with the system's error; making the engine fails when there is no thread to be had.
#![allow(unsafe_code, reason = "passes addresses to the kernel")]

use super::Run;
use super::engine::{Engine, Lane, Request};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::thread::JoinHandle;

/// The engine.
pub struct Threads {
    /// `None` only while it is dropped.
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

/// A request whose lifetime its lane sees to.
struct Job {
    id: u64,
    write: bool,
    file: RawFd,
    offset: u64,
    runs: *const Run,
    count: usize,
    done: Sender<(u64, io::Result<usize>)>,
}

// SAFETY: whoever started it promised that its memory stays, and is nobody else's, until it is done.
unsafe impl Send for Job {}

impl Threads {
    /// Starts the threads; one at least.
    ///
    /// # Errors
    /// When the system has no thread to give. Those that were started end.
    pub fn new(threads: usize) -> io::Result<Self> {
        let (jobs, waiting) = unbounded::<Job>();
        let mut engine = Self { jobs: Some(jobs), threads: Vec::new() };
        for n in 0..threads.max(1) {
            let waiting = waiting.clone();
            let work = move || {
                for job in waiting {
                    // SAFETY: its runs and its file stay until it is done.
                    let moved = unsafe { transfer(&job) };
                    // Nobody listens only where a lane was dropped with requests under way, which none is.
                    let _ = job.done.send((job.id, moved));
                }
            };
            let thread = std::thread::Builder::new().name(format!("hicache-disk-{n}")).spawn(work)?;
            engine.threads.push(thread);
        }
        Ok(engine)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Engine for Threads {
    fn describe(&self) -> String {
        format!("{} threads", self.threads.len())
    }

    fn lane(&self, _depth: usize) -> io::Result<Box<dyn Lane + '_>> {
        let (done, finished) = unbounded();
        Ok(Box::new(ThreadsLane { home: self, flying: 0, done, finished }))
    }
}

struct ThreadsLane<'t> {
    home: &'t Threads,
    flying: usize,
    done: Sender<(u64, io::Result<usize>)>,
    finished: Receiver<(u64, io::Result<usize>)>,
}

impl Lane for ThreadsLane<'_> {
    unsafe fn start(&mut self, request: Request<'_>) {
        let job = Job {
            id: request.id,
            write: request.write,
            file: request.file.file().as_raw_fd(),
            offset: request.offset,
            runs: request.runs.as_ptr(),
            count: request.runs.len(),
            done: self.done.clone(),
        };
        self.flying += 1;
        let sent = self.home.jobs.as_ref().map(|jobs| jobs.send(job));
        if !matches!(sent, Some(Ok(()))) {
            let _ = self.done.send((request.id, Err(io::Error::other("the threads have ended"))));
        }
    }

    fn finished(&mut self) -> Option<(u64, io::Result<usize>)> {
        if self.flying == 0 {
            return None;
        }
        let done = self.finished.recv().ok();
        self.flying -= 1;
        done
    }
}

impl Drop for ThreadsLane<'_> {
    fn drop(&mut self) {
        while self.finished().is_some() {}
    }
}

/// # Safety
/// The job's file is open; its runs, and their memory, are there and nobody else's.
unsafe fn transfer(job: &Job) -> io::Result<usize> {
    let runs = job.runs.cast::<libc::iovec>();
    let count = libc::c_int::try_from(job.count).map_err(io::Error::other)?;
    let offset = libc::off_t::try_from(job.offset).map_err(io::Error::other)?;
    let moved = if job.write {
        // SAFETY: as promised to us; a run is laid out like an iovec.
        unsafe { libc::pwritev(job.file, runs, count, offset) }
    } else {
        // SAFETY: as above.
        unsafe { libc::preadv(job.file, runs, count, offset) }
    };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}
