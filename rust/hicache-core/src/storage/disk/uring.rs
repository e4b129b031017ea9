//! Requests through io_uring: one ring per batch, taken from a few that are kept.
//!
//! A ring with anything under way is never given back, and never dropped: a lane waits for its own. A ring
//! whose system call fails for good is not used again: what it hadn't passed on fails, the rest is waited for.
//! On error: making an engine tells why the system refuses; requests fail with the kernel's error.
#![allow(unsafe_code, reason = "passes addresses to the kernel")]

use super::engine::{Engine, Lane, Request};
use io_uring::{IoUring, Probe, opcode, squeue, types};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Rings kept for the next batch.
const KEPT: usize = 8;
/// `IORING_ENTER_GETEVENTS`.
const GET_EVENTS: u32 = 1;
/// Between two looks at a ring that can't be waited for.
const LOOK: Duration = Duration::from_millis(1);
/// So often in a row a submission is tried that the kernel puts off while nothing is under way.
const PATIENCE: u32 = 1000;

/// The engine.
pub struct Uring {
    entries: u32,
    rings: Mutex<Vec<IoUring>>,
}

impl Uring {
    /// Makes the first ring.
    ///
    /// # Errors
    /// The kernel's, when it has no io_uring, forbids it, or doesn't know the operations.
    pub fn new(depth: usize) -> io::Result<Self> {
        let entries = u32::try_from(depth.next_power_of_two()).map_err(io::Error::other)?;
        let mut ring = IoUring::new(entries)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Readv::CODE, opcode::Writev::CODE];
        if !needed.iter().all(|&code| probe.is_supported(code)) {
            return Err(io::Error::other("a kernel too old for reads and writes"));
        }
        // Rings may be allowed, and entering them not.
        let nothing = opcode::Nop::new().build();
        // SAFETY: it has no memory.
        unsafe { ring.submission().push(&nothing) }.map_err(io::Error::other)?;
        ring.submit_and_wait(1)?;
        ring.completion().next().ok_or_else(|| io::Error::other("a ring that completes nothing"))?;
        Ok(Self { entries, rings: Mutex::new(vec![ring]) })
    }
}

impl Engine for Uring {
    fn describe(&self) -> String {
        "io_uring".into()
    }

    fn lane(&self, depth: usize) -> io::Result<Box<dyn Lane + '_>> {
        if depth > self.entries as usize {
            return Err(io::Error::other(format!("a ring of {} has no depth {depth}", self.entries)));
        }
        let kept = self.rings.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let ring = kept.map_or_else(|| IoUring::new(self.entries), Ok)?;
        Ok(Box::new(UringLane {
            home: self,
            ring: Some(ring),
            queued: VecDeque::new(),
            refused: Vec::new(),
            flying: 0,
            broken: false,
            put_off: 0,
        }))
    }
}

struct UringLane<'u> {
    home: &'u Uring,
    /// `None` only while it is dropped.
    ring: Option<IoUring>,
    /// In the ring's queue; the kernel hasn't taken them yet.
    queued: VecDeque<u64>,
    /// Never reached the kernel.
    refused: Vec<(u64, io::Error)>,
    /// The kernel's.
    flying: usize,
    /// What is queued must not be passed on any more.
    broken: bool,
    put_off: u32,
}

impl UringLane<'_> {
    /// Passes on what is queued; with `wait`, returns when something has completed.
    fn enter(&mut self, wait: usize) {
        let Some(ring) = &mut self.ring else { return };
        let done = if self.broken {
            // SAFETY: no argument; what is queued stays there.
            unsafe { ring.submitter().enter::<()>(0, 1, GET_EVENTS, None) }
        } else {
            ring.submit_and_wait(wait)
        };
        // Its own count is not to be had where it failed half-way.
        let left = ring.submission().len();
        while !self.broken && self.queued.len() > left {
            self.queued.pop_front();
            self.flying += 1;
            self.put_off = 0;
        }
        match done {
            Ok(_) => {}
            // A signal came while it waited.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if passing(&error) && self.put_off < PATIENCE => {
                if wait > 0 {
                    self.put_off += u32::from(self.flying == 0);
                    std::thread::sleep(LOOK);
                }
            }
            Err(_) if self.broken => std::thread::sleep(LOOK),
            Err(error) => self.give_up(&error),
        }
    }

    fn give_up(&mut self, error: &io::Error) {
        self.broken = true;
        let refused = self.queued.drain(..).map(|id| (id, copy(error)));
        self.refused.extend(refused);
    }
}

impl Lane for UringLane<'_> {
    unsafe fn start(&mut self, request: Request<'_>) {
        let Some(ring) = &mut self.ring else { return };
        if self.broken {
            return self.refused.push((request.id, io::Error::other("the ring broke")));
        }
        // SAFETY: as promised to us, all that the entry names stays until it completes.
        if unsafe { ring.submission().push(&entry(&request)) }.is_err() {
            return self.refused.push((request.id, io::Error::other("the ring's queue is full")));
        }
        self.queued.push_back(request.id);
        self.enter(0);
    }

    fn finished(&mut self) -> Option<(u64, io::Result<usize>)> {
        loop {
            if let Some((id, error)) = self.refused.pop() {
                return Some((id, Err(error)));
            }
            if let Some(done) = self.ring.as_mut()?.completion().next() {
                self.flying -= 1;
                let moved = usize::try_from(done.result());
                return Some((
                    done.user_data(),
                    moved.map_err(|_| io::Error::from_raw_os_error(-done.result())),
                ));
            }
            if self.flying == 0 && self.queued.is_empty() {
                return None;
            }
            self.enter(1);
        }
    }
}

impl Drop for UringLane<'_> {
    fn drop(&mut self) {
        while self.finished().is_some() {}
        let Some(ring) = self.ring.take().filter(|_| !self.broken) else { return };
        let mut rings = self.home.rings.lock().unwrap_or_else(PoisonError::into_inner);
        if rings.len() < KEPT {
            rings.push(ring);
        }
    }
}

fn entry(request: &Request<'_>) -> squeue::Entry {
    let file = types::Fd(request.file.file().as_raw_fd());
    let (runs, count) = (request.runs.as_ptr().cast::<libc::iovec>(), request.runs.len());
    let entry = match (request.runs, u32::try_from(count), request.write) {
        // One run needs no list that the kernel reads first. Engine::limits keeps lengths below 2^31.
        (&[run], _, true) => {
            opcode::Write::new(file, run.at, length(run.bytes)).offset(request.offset).build()
        }
        (&[run], _, false) => {
            opcode::Read::new(file, run.at, length(run.bytes)).offset(request.offset).build()
        }
        (_, count, true) => {
            opcode::Writev::new(file, runs, count.unwrap_or(u32::MAX)).offset(request.offset).build()
        }
        (_, count, false) => {
            opcode::Readv::new(file, runs, count.unwrap_or(u32::MAX)).offset(request.offset).build()
        }
    };
    entry.user_data(request.id)
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy)
}

fn copy(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}
