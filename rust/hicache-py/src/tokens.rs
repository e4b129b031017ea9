//! Tokens as callers have them: any one-dimensional int32 or int64 buffer, read without a copy.
//!
//! On error: `ArgumentError` names the argument for another dtype, shape or a buffer with gaps.

use crate::errors::OrRaise;
use hicache_core::Error;
use hicache_core::ids::Slot;
use hicache_core::page::Tokens;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

/// A buffer that stays exported, hence unmoved, while it is held.
pub enum TokenBuffer {
    I32(PyBuffer<i32>),
    I64(PyBuffer<i64>),
    Empty,
}

impl TokenBuffer {
    pub fn get(value: &Bound<'_, PyAny>, argument: &'static str) -> PyResult<Self> {
        if let Ok(buffer) = PyBuffer::<i32>::get(value) {
            return check(value.py(), &buffer, argument).map(|()| Self::I32(buffer));
        }
        if let Ok(buffer) = PyBuffer::<i64>::get(value) {
            return check(value.py(), &buffer, argument).map(|()| Self::I64(buffer));
        }
        // An empty `array` has no memory at all, which typed buffers refuse.
        let code = value.getattr("typecode").and_then(|code| code.extract::<char>());
        if value.len().is_ok_and(|length| length == 0) && code.is_ok_and(|code| "ilq".contains(code)) {
            return Ok(Self::Empty);
        }
        let kind = value.get_type().name()?;
        refuse(value.py(), argument, format!("need an int32 or int64 buffer, got {kind}"))
    }

    pub fn view(&self) -> Tokens<'_> {
        match self {
            Self::I32(buffer) => Tokens::I32(slice(buffer)),
            Self::I64(buffer) => Tokens::I64(slice(buffer)),
            Self::Empty => Tokens::EMPTY,
        }
    }
}

fn refuse<T>(py: Python<'_>, argument: &'static str, reason: String) -> PyResult<T> {
    Err(Error::Argument { argument, reason }).or_raise(py)
}

fn check<T: Element>(py: Python<'_>, buffer: &PyBuffer<T>, argument: &'static str) -> PyResult<()> {
    if buffer.dimensions() != 1 {
        return refuse(py, argument, format!("need one dimension, got {}", buffer.dimensions()));
    }
    if !buffer.is_c_contiguous() {
        return refuse(py, argument, "need a contiguous buffer".to_owned());
    }
    let foreign: &[u8] = if cfg!(target_endian = "little") { b">!" } else { b"<" };
    if buffer.format().to_bytes().first().is_some_and(|order| foreign.contains(order)) {
        return refuse(py, argument, "need the machine's byte order".to_owned());
    }
    Ok(())
}

fn slice<T: Element>(buffer: &PyBuffer<T>) -> &[T] {
    // SAFETY: `check` saw a contiguous buffer of this element type, which CPython keeps exported while
    // `buffer` lives; the GIL is held for the whole call, so that no Python code writes to it meanwhile.
    #[allow(unsafe_code)]
    unsafe {
        std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.item_count())
    }
}

/// Slots from an int32/int64 buffer.
pub fn slots(value: &Bound<'_, PyAny>, argument: &'static str) -> PyResult<Vec<Slot>> {
    let buffer = TokenBuffer::get(value, argument)?;
    let mut slots = Vec::with_capacity(buffer.view().len());
    let mut wrong = None;
    let mut put = |slot: i64| match u32::try_from(slot) {
        Ok(slot) => slots.push(Slot(slot)),
        Err(_) => wrong = Some(slot),
    };
    match &buffer {
        TokenBuffer::I32(buffer) => slice(buffer).iter().for_each(|&slot| put(slot.into())),
        TokenBuffer::I64(buffer) => slice(buffer).iter().for_each(|&slot| put(slot)),
        TokenBuffer::Empty => {}
    }
    match wrong {
        Some(slot) => refuse(value.py(), argument, format!("{slot} is no slot")),
        None => Ok(slots),
    }
}

/// Slots as a byte array of int32, in the machine's order.
pub fn slot_bytes<'py>(py: Python<'py>, slots: &[Slot]) -> Bound<'py, PyByteArray> {
    let bytes: Vec<u8> = slots.iter().flat_map(|slot| slot.0.to_ne_bytes()).collect();
    PyByteArray::new(py, &bytes)
}
