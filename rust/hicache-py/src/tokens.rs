//! Tokens as callers have them: any one-dimensional int32 or int64 buffer, read without a copy.
//!
//! On error: `ArgumentError` names the argument for another dtype, shape or a buffer with gaps.

use crate::errors::OrRaise;
use hicache_core::Error;
use hicache_core::ids::Slot;
use hicache_core::page::Tokens;
use numpy::{PyArray1, PyArrayMethods as _, PyUntypedArrayMethods as _};
use pyo3::buffer::{Element, PyBuffer, PyUntypedBuffer};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

/// A buffer that stays exported, hence unmoved, while it is held; or an array, which isn't moved while a call
/// runs: the interpreter is ours as long.
pub enum TokenBuffer<'py> {
    ArrayI32(Bound<'py, PyArray1<i32>>),
    ArrayI64(Bound<'py, PyArray1<i64>>),
    I32(PyBuffer<i32>),
    I64(PyBuffer<i64>),
    Empty,
}

impl<'py> TokenBuffer<'py> {
    pub fn get(value: &Bound<'py, PyAny>, argument: &'static str) -> PyResult<Self> {
        // Without the buffer protocol, which costs an array as much as the rest of a short call.
        if let Ok(array) = value.cast::<PyArray1<i32>>() {
            return contiguous(array, argument).map(|array| Self::ArrayI32(array.clone()));
        }
        if let Ok(array) = value.cast::<PyArray1<i64>>() {
            return contiguous(array, argument).map(|array| Self::ArrayI64(array.clone()));
        }
        if let Ok(buffer) = PyUntypedBuffer::get(value) {
            // By size first: a refused type costs as much as the rest of a call.
            if buffer.item_size() == size_of::<i32>() {
                if let Ok(buffer) = buffer.into_typed::<i32>() {
                    return check(value.py(), &buffer, argument).map(|()| Self::I32(buffer));
                }
            } else if let Ok(buffer) = buffer.into_typed::<i64>() {
                return check(value.py(), &buffer, argument).map(|()| Self::I64(buffer));
            }
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
            // SAFETY: `contiguous` saw that it is. Nobody else runs during the call, see above.
            #[allow(unsafe_code)]
            Self::ArrayI32(array) => Tokens::I32(unsafe { array.as_slice() }.unwrap_or_default()),
            // SAFETY: the same.
            #[allow(unsafe_code)]
            Self::ArrayI64(array) => Tokens::I64(unsafe { array.as_slice() }.unwrap_or_default()),
            Self::I32(buffer) => Tokens::I32(slice(buffer)),
            Self::I64(buffer) => Tokens::I64(slice(buffer)),
            Self::Empty => Tokens::EMPTY,
        }
    }
}

fn refuse<T>(py: Python<'_>, argument: &'static str, reason: String) -> PyResult<T> {
    Err(Error::Argument { argument, reason }).or_raise(py)
}

fn contiguous<'a, 'py, T>(
    array: &'a Bound<'py, PyArray1<T>>,
    argument: &'static str,
) -> PyResult<&'a Bound<'py, PyArray1<T>>> {
    if array.is_c_contiguous() {
        return Ok(array);
    }
    refuse(array.py(), argument, "need a contiguous buffer".to_owned())
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
    if buffer.item_count() == 0 {
        return &[];
    }
    // SAFETY: `check` saw a contiguous buffer of this element type, which CPython keeps exported while
    // `buffer` lives. That nobody writes to it during the call is the caller's part, as documented.
    #[allow(unsafe_code)]
    unsafe {
        std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.item_count())
    }
}

/// Slots from an int32/int64 buffer: read in place where they are int32.
pub enum SlotBuffer<'py> {
    InPlace(TokenBuffer<'py>),
    Copied(Vec<Slot>),
}

impl SlotBuffer<'_> {
    pub fn get(&self) -> &[Slot] {
        match self {
            Self::InPlace(buffer) => match buffer.view() {
                // SAFETY: a slot is a transparent u32, and `slots` saw that none is negative.
                #[allow(unsafe_code)]
                Tokens::I32(numbers) => unsafe {
                    std::slice::from_raw_parts(numbers.as_ptr().cast(), numbers.len())
                },
                _ => &[],
            },
            Self::Copied(slots) => slots,
        }
    }
}

pub fn slots<'py>(value: &Bound<'py, PyAny>, argument: &'static str) -> PyResult<SlotBuffer<'py>> {
    let buffer = TokenBuffer::get(value, argument)?;
    let numbers = buffer.view();
    if let (Tokens::I32(_), true) = (numbers, numbers.is_narrow()) {
        return Ok(SlotBuffer::InPlace(buffer));
    }
    // Narrow, as tokens are; a negative number is as wide as can be.
    if let Some(slots) = numbers.narrow() {
        return Ok(SlotBuffer::Copied(slots.into_iter().map(Slot).collect()));
    }
    let mut wrong = None;
    numbers.for_each(|slot| wrong = wrong.or((slot >> 32 != 0).then_some(slot.cast_signed())));
    refuse(value.py(), argument, format!("{} is no slot", wrong.unwrap_or_default()))
}

/// Slots as a byte array of int32, in the machine's order.
pub fn slot_bytes<'py>(py: Python<'py>, slots: &[Slot]) -> Bound<'py, PyByteArray> {
    // SAFETY: a slot is a transparent u32, which has no padding, and bytes need no alignment.
    #[allow(unsafe_code)]
    let bytes = unsafe { std::slice::from_raw_parts(slots.as_ptr().cast(), size_of_val(slots)) };
    PyByteArray::new(py, bytes)
}
