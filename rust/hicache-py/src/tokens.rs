//! Tokens as callers have them: any one-dimensional int32 or int64 buffer, read without a copy.
//!
//! On error: `TypeError` names the argument for another dtype, shape or a buffer with gaps.

use hicache_core::page::Tokens;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// A buffer that stays exported, hence unmoved, while it is held.
pub enum TokenBuffer {
    I32(PyBuffer<i32>),
    I64(PyBuffer<i64>),
}

impl TokenBuffer {
    pub fn get(value: &Bound<'_, PyAny>, argument: &str) -> PyResult<Self> {
        if let Ok(buffer) = PyBuffer::<i32>::get(value) {
            return check(&buffer, argument).map(|()| Self::I32(buffer));
        }
        if let Ok(buffer) = PyBuffer::<i64>::get(value) {
            return check(&buffer, argument).map(|()| Self::I64(buffer));
        }
        let kind = value.get_type().name()?;
        Err(PyTypeError::new_err(format!("{argument}: need an int32 or int64 buffer, got {kind}")))
    }

    pub fn view(&self) -> Tokens<'_> {
        match self {
            Self::I32(buffer) => Tokens::I32(slice(buffer)),
            Self::I64(buffer) => Tokens::I64(slice(buffer)),
        }
    }
}

fn check<T: Element>(buffer: &PyBuffer<T>, argument: &str) -> PyResult<()> {
    if buffer.dimensions() != 1 {
        let dimensions = buffer.dimensions();
        return Err(PyTypeError::new_err(format!("{argument}: need one dimension, got {dimensions}")));
    }
    if !buffer.is_c_contiguous() {
        return Err(PyTypeError::new_err(format!("{argument}: need a contiguous buffer")));
    }
    Ok(())
}

fn slice<T: Element>(buffer: &PyBuffer<T>) -> &[T] {
    if buffer.item_count() == 0 {
        return &[];
    }
    // SAFETY: `check` saw a contiguous buffer of this element type, which CPython keeps exported while
    // `buffer` lives; the GIL is held for the whole call, so that no Python code writes to it meanwhile.
    #[allow(unsafe_code)]
    unsafe {
        std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.item_count())
    }
}
