//! One transfer between memory and a place in a file: what it moves, and who owns that meanwhile.
//!
//! May assume nothing. Refuses to know engines and alignment.
//! On error: none; what an operation can't do is told when it is done.
#![allow(unsafe_code, reason = "gives its own memory back as slices")]

use super::DataFile;
use std::marker::PhantomData;
use std::sync::Arc;

/// A run of bytes in memory, laid out as the kernel has it (`struct iovec`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Where it begins.
    pub at: *mut u8,
    /// How long it is.
    pub bytes: usize,
}

const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<Run>() == size_of::<libc::iovec>());
    assert!(offset_of!(Run, at) == offset_of!(libc::iovec, iov_base));
    assert!(offset_of!(Run, bytes) == offset_of!(libc::iovec, iov_len));
};

/// Most pages are one run: these need no memory of their own.
#[derive(Debug)]
enum Runs {
    One(Run),
    Many(Vec<Run>),
}

/// Bytes to write to, or to read from, one place of one file. Has its memory until it is done.
#[derive(Debug)]
pub struct Op<'m> {
    /// The caller's name for it.
    pub tag: usize,
    pub(super) write: bool,
    pub(super) file: Arc<DataFile>,
    pub(super) offset: u64,
    runs: Runs,
    memory: PhantomData<&'m mut [u8]>,
}

impl<'m> Op<'m> {
    /// Writes these runs, one behind the other, at `offset` (a multiple of [`ALIGN`](super::ALIGN)) of the file.
    pub fn write(
        tag: usize,
        file: Arc<DataFile>,
        offset: u64,
        runs: impl IntoIterator<Item = &'m [u8]>,
    ) -> Self {
        let runs = runs.into_iter().map(|run| Run { at: run.as_ptr().cast_mut(), bytes: run.len() });
        Self { tag, write: true, file, offset, runs: gathered(runs), memory: PhantomData }
    }

    /// Reads into these runs what is at `offset` (a multiple of [`ALIGN`](super::ALIGN)) of the file.
    pub fn read(
        tag: usize,
        file: Arc<DataFile>,
        offset: u64,
        runs: impl IntoIterator<Item = &'m mut [u8]>,
    ) -> Self {
        let runs = runs.into_iter().map(|run| Run { at: run.as_mut_ptr(), bytes: run.len() });
        Self { tag, write: false, file, offset, runs: gathered(runs), memory: PhantomData }
    }

    /// As [`write`](Self::write) or [`read`](Self::read), of addresses.
    ///
    /// # Safety
    /// Until the operation is gone every run must stay mapped, and belong to it alone: nobody else may write to
    /// its bytes and, where it reads into them, nobody may look at them.
    pub unsafe fn raw(
        tag: usize,
        write: bool,
        file: Arc<DataFile>,
        offset: u64,
        runs: &[(*mut u8, usize)],
    ) -> Self {
        let runs = gathered(runs.iter().map(|&(at, bytes)| Run { at, bytes }));
        Self { tag, write, file, offset, runs, memory: PhantomData }
    }

    /// Size of the payload.
    pub fn bytes(&self) -> usize {
        self.runs().iter().map(|run| run.bytes).sum()
    }

    /// The payload, run by run. Undefined where a read hasn't succeeded.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        // SAFETY: the operation has its runs' memory for `'m`, which outlives it.
        self.runs().iter().map(|run| unsafe { std::slice::from_raw_parts(run.at, run.bytes) })
    }

    pub(super) fn runs(&self) -> &[Run] {
        match &self.runs {
            Runs::One(run) => std::slice::from_ref(run),
            Runs::Many(runs) => runs,
        }
    }
}

/// Empty runs are left out: an address that means nothing isn't shown to the kernel.
fn gathered(runs: impl Iterator<Item = Run>) -> Runs {
    let mut runs = runs.filter(|run| run.bytes > 0);
    match (runs.next(), runs.next()) {
        (None, _) => Runs::Many(Vec::new()),
        (Some(run), None) => Runs::One(run),
        (Some(first), Some(second)) => Runs::Many([first, second].into_iter().chain(runs).collect()),
    }
}
