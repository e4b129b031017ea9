//! What carries requests to the kernel: the seam between [`Disk`](super::Disk), which knows operations, and
//! io_uring or threads, which know requests.
//!
//! A request may move less than it asks for, fail, or take its time; [`Disk`](super::Disk) continues, reports
//! or waits. An engine around another one can make any of that happen.
//! On error: per request, as the kernel tells it.
#![allow(unsafe_code, reason = "whoever starts a request answers for its memory")]

use super::{DataFile, Run};
use std::io;
use std::sync::Arc;

/// One system call's worth of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// Names its completion; never used twice.
    pub id: u64,
    /// To the file, or from it.
    pub write: bool,
    /// The file.
    pub file: &'r Arc<DataFile>,
    /// Where in it.
    pub offset: u64,
    /// The memory; not empty, no run is.
    pub runs: &'r [Run],
}

/// How requests are carried out.
pub trait Engine: Send + Sync {
    /// For people: which one, and why not a better one.
    fn describe(&self) -> String;

    /// Most bytes of one request, and most runs. The kernel's own limits are 2 GiB less a page and 1,024.
    fn limits(&self) -> (usize, usize) {
        (1 << 30, 1024)
    }

    /// A way to the disk for one batch, with at most `depth` requests under way.
    ///
    /// # Errors
    /// When the system has no more to give.
    fn lane(&self, depth: usize) -> io::Result<Box<dyn Lane + '_>>;
}

/// One batch's way to the disk. Whoever starts requests sees each of them finish before the lane goes.
pub trait Lane {
    /// Begins a request. A fault is told as its completion.
    ///
    /// # Safety
    /// Until its completion was handed out: its runs (the list and the memory) stay where they are, nobody else
    /// uses the memory, and the file stays open.
    unsafe fn start(&mut self, request: Request<'_>);

    /// A request that finished, and how many bytes it moved. Waits for one if there is none yet; `None` only if
    /// none is under way, or to be asked again.
    fn finished(&mut self) -> Option<(u64, io::Result<usize>)>;
}
