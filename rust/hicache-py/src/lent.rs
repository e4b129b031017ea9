//! `Lent`: memory of a page while a store in Python has it: a buffer that can be taken back.
//!
//! The memory is the core's, which waits for the call to end. So `end` tells whether anybody can still reach it: then the
//! core must go on waiting. What it can't see is who took an address out of a view (ctypes); what keeps a view
//! without exporting it (torch) shows in the view's references.
//! On error: `BufferError` for who comes after the end.
#![allow(unsafe_code, reason = "the buffer protocol over the core's pages")]

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// One run of a page.
#[pyclass(module = "hicache._hicache", frozen)]
pub struct Lent {
    at: *mut u8,
    bytes: usize,
    writable: bool,
    live: AtomicBool,
    exports: AtomicUsize,
}

// SAFETY: whoever reads or writes does it through the buffer; the core's thread that owns the memory waits meanwhile.
unsafe impl Send for Lent {}
// SAFETY: the same.
unsafe impl Sync for Lent {}

#[pymethods]
impl Lent {
    /// # Safety
    /// Called by Python, with a view to fill.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let run = slf.get();
        if !run.live.load(Ordering::Relaxed) {
            return Err(PyBufferError::new_err("the call that lent this page has ended"));
        }
        let bytes = isize::try_from(run.bytes).map_err(|_| PyBufferError::new_err("too large"))?;
        let readonly = c_int::from(!run.writable);
        // SAFETY: the core keeps the memory until nothing exports it any more.
        let failed =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), run.at.cast(), bytes, readonly, flags) };
        if failed != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        run.exports.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// # Safety
    /// Called by Python, once per view.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.exports.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A run and the view of it that a store is given.
pub struct Loan {
    run: Py<Lent>,
    view: Py<PyMemoryView>,
}

impl Loan {
    /// Of memory that stays where it is until `end` says that nobody has it.
    pub fn new(py: Python<'_>, (at, bytes): (*mut u8, usize), writable: bool) -> PyResult<Self> {
        let (live, exports) = (AtomicBool::new(true), AtomicUsize::new(0));
        let run = Bound::new(py, Lent { at, bytes, writable, live, exports })?;
        let view = PyMemoryView::from(run.as_any())?;
        Ok(Self { run: run.unbind(), view: view.unbind() })
    }

    /// What the store is given.
    pub fn view<'py>(&self, py: Python<'py>) -> Bound<'py, PyMemoryView> {
        self.view.bind(py).clone()
    }

    /// Takes it back; whether nobody has it any more. `lists`: lists of ours that still refer to the view.
    pub fn end(&self, py: Python<'_>, lists: isize) -> bool {
        let run = self.run.get();
        run.live.store(false, Ordering::Relaxed);
        // Refused while something made of the view (an array, a transfer under way) has it.
        let _ = self.view.call_method0(py, "release");
        let kept = run.exports.load(Ordering::Relaxed) > 0;
        // torch takes the memory of a view and keeps no export, only a reference. Who only reads does no harm.
        // SAFETY: a living object of ours.
        let references = unsafe { ffi::Py_REFCNT(self.view.as_ptr()) };
        !kept && (!run.writable || references <= 1 + lists)
    }
}
