//! Slots on their way to Python: a buffer of int32 in the machine's order. Of many, it is what the core handed out.
//!
//! On error: nothing here fails but Python's own refusal of a buffer's flags.
#![allow(unsafe_code, reason = "the buffer protocol")]

use hicache_core::ids::Slot;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use std::cell::UnsafeCell;
use std::ffi::c_int;

/// Slots that Python may read, and write to as its own, without a copy. As bytes, like a bytearray.
#[pyclass(module = "hicache._hicache", frozen)]
pub struct Slots(UnsafeCell<Vec<Slot>>);

// SAFETY: nobody reads or writes the slots but through the buffer, as with any buffer that Python shares; the
// vector itself never changes.
unsafe impl Sync for Slots {}

/// Slots from which on an object of their own costs less than a copy in one of Python's.
const MANY: usize = 1024;

/// A buffer of slots.
pub enum Given {
    Few(Vec<Slot>),
    Many(Slots),
}

impl Given {
    pub const fn new(slots: Vec<Slot>) -> Self {
        if slots.len() < MANY { Self::Few(slots) } else { Self::Many(Slots(UnsafeCell::new(slots))) }
    }
}

impl<'py> IntoPyObject<'py> for Given {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Few(slots) => Ok(PyByteArray::new(py, bytes(&slots)).into_any()),
            Self::Many(slots) => Ok(Bound::new(py, slots)?.into_any()),
        }
    }
}

fn bytes(slots: &[Slot]) -> &[u8] {
    // SAFETY: a slot is a transparent u32, which has no padding, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(slots.as_ptr().cast(), size_of_val(slots)) }
}

impl Slots {
    const fn vector(&self) -> &Vec<Slot> {
        // SAFETY: the vector (where its memory is, and how much) is never written to.
        unsafe { &*self.0.get() }
    }
}

#[pymethods]
impl Slots {
    fn __len__(&self) -> usize {
        self.vector().len() * size_of::<Slot>()
    }

    /// # Safety
    /// Called by Python, with a view to fill.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let slots = slf.get().vector();
        let bytes = isize::try_from(size_of_val(slots.as_slice()))
            .map_err(|_| PyBufferError::new_err("more slots than fit in memory"))?;
        let memory = slots.as_ptr().cast_mut().cast();
        // SAFETY: the memory lives as long as the object, of which the view keeps a reference; a slot is a
        // transparent u32, of which any bytes make one.
        let failed = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), memory, bytes, 0, flags) };
        if failed == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
