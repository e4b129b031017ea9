//! Pages as callers have them: runs, each anything with the buffer protocol, exported while they are held.
//!
//! On error: `ArgumentError` names the argument.

use crate::errors::OrRaise;
use hicache_core::Error;
use hicache_core::storage::{self as core, PageMut, PageRef};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;

/// A page: its runs.
pub type Runs<'py> = Vec<Bound<'py, PyAny>>;

/// An argument that can't be meant.
pub fn wrong<T>(py: Python<'_>, argument: &'static str, reason: String) -> PyResult<T> {
    Err(Error::Argument { argument, reason }).or_raise(py)
}

/// The buffers of all pages, which stay exported while they are held.
pub struct Buffers(Vec<Vec<PyUntypedBuffer>>);

impl Buffers {
    pub fn get(py: Python<'_>, pages: &[Runs<'_>], keys: usize, writable: bool) -> PyResult<Self> {
        if pages.len() != keys {
            return wrong(py, "pages", format!("{keys} keys, but {} pages", pages.len()));
        }
        let buffer = |run: &Bound<'_, PyAny>| {
            let buffer = PyUntypedBuffer::get(run)?;
            if !buffer.is_c_contiguous() {
                return wrong(py, "pages", "need contiguous memory".to_owned());
            }
            if writable && buffer.readonly() {
                return wrong(py, "pages", "need memory that can be written to".to_owned());
            }
            Ok(buffer)
        };
        let page = |runs: &Runs<'_>| runs.iter().map(buffer).collect::<PyResult<Vec<_>>>();
        let buffers = Self(pages.iter().map(page).collect::<PyResult<Vec<_>>>()?);
        if writable && buffers.overlap() {
            return wrong(py, "pages", "overlap".to_owned());
        }
        Ok(buffers)
    }

    fn overlap(&self) -> bool {
        let range = |run: &PyUntypedBuffer| (run.buf_ptr().addr(), run.len_bytes());
        let mut ranges: Vec<_> = self.0.iter().flatten().map(range).filter(|range| range.1 > 0).collect();
        ranges.sort_unstable();
        ranges.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0)
    }

    pub fn addresses(&self) -> Vec<core::Page> {
        let run = |run: &PyUntypedBuffer| (run.buf_ptr().cast::<u8>(), run.len_bytes());
        self.0.iter().map(|page| core::Page(page.iter().map(run).collect())).collect()
    }
}

/// # Safety
/// The memory is there, and nobody else's, as long as the view is.
#[allow(unsafe_code)]
pub unsafe fn view_mut<'a>(page: &core::Page) -> PageMut<'a> {
    let run = |&(at, bytes): &(*mut u8, usize)| {
        if bytes == 0 {
            return &mut [][..];
        }
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts_mut(at, bytes) }
    };
    PageMut::new(page.0.iter().map(run).collect())
}

/// # Safety
/// The memory is there as long as the view is; nobody writes to it.
#[allow(unsafe_code)]
pub unsafe fn view<'a>(page: &core::Page) -> PageRef<'a> {
    let run = |&(at, bytes): &(*mut u8, usize)| {
        if bytes == 0 {
            return &[][..];
        }
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts(at.cast_const(), bytes) }
    };
    PageRef::new(page.0.iter().map(run).collect())
}
