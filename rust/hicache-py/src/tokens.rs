//! Tokens as callers have them: any one-dimensional int32 or int64 buffer, read without a copy.
//!
//! On error: `ArgumentError` names the argument, and what of its dtype, shape, order or alignment can't be read.

use crate::errors::OrRaise;
use hicache_core::Error;
use hicache_core::ids::Slot;
use hicache_core::page::Tokens;
use numpy::{
    PyArray1, PyArrayDescrMethods as _, PyArrayMethods as _, PyUntypedArray, PyUntypedArrayMethods as _,
};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyMemoryView;

/// A buffer that stays exported, hence unmoved, while it is held; or an array, which isn't moved while a call
/// runs: the interpreter is ours as long.
pub enum TokenBuffer<'py> {
    ArrayI32(Bound<'py, PyArray1<i32>>),
    ArrayI64(Bound<'py, PyArray1<i64>>),
    I32(PyUntypedBuffer),
    I64(PyUntypedBuffer),
    Empty,
}

impl<'py> TokenBuffer<'py> {
    pub fn get(value: &Bound<'py, PyAny>, argument: &'static str) -> PyResult<Self> {
        // Without the buffer protocol, which costs an array as much as the rest of a short call.
        if is_array(value) {
            match integers(value) {
                #[allow(unsafe_code)]
                Some(4) => {
                    // SAFETY: `integers` saw one dimension and signed integers of 4 bytes in the machine's order.
                    let array = unsafe { value.cast_unchecked::<PyArray1<i32>>() };
                    return readable(array, argument).map(|array| Self::ArrayI32(array.clone()));
                }
                #[allow(unsafe_code)]
                Some(8) => {
                    // SAFETY: the same, of 8 bytes.
                    let array = unsafe { value.cast_unchecked::<PyArray1<i64>>() };
                    return readable(array, argument).map(|array| Self::ArrayI64(array.clone()));
                }
                _ => {}
            }
        }
        if let Some(buffer) = buffer(value).filter(is_integers) {
            return match check(&buffer) {
                Ok(()) if buffer.item_size() == size_of::<i32>() => Ok(Self::I32(buffer)),
                Ok(()) => Ok(Self::I64(buffer)),
                Err(reason) => refuse(value.py(), argument, reason),
            };
        }
        // An empty `array` may have no memory at all.
        let code = value.getattr("typecode").and_then(|code| code.extract::<char>());
        if value.len().is_ok_and(|length| length == 0) && code.is_ok_and(|code| "ilq".contains(code)) {
            return Ok(Self::Empty);
        }
        refuse(value.py(), argument, what_is_wrong(value)?)
    }

    pub fn view(&self) -> Tokens<'_> {
        match self {
            // SAFETY: `readable` saw that it is. Nobody else runs during the call, see above.
            #[allow(unsafe_code)]
            Self::ArrayI32(array) => Tokens::I32(unsafe { array.as_slice() }.unwrap_or_default()),
            // SAFETY: the same.
            #[allow(unsafe_code)]
            Self::ArrayI64(array) => Tokens::I64(unsafe { array.as_slice() }.unwrap_or_default()),
            // SAFETY: `get` saw signed integers of 4 bytes, and that they are readable.
            #[allow(unsafe_code)]
            Self::I32(buffer) => Tokens::I32(unsafe { slice(buffer) }),
            // SAFETY: the same, of 8 bytes.
            #[allow(unsafe_code)]
            Self::I64(buffer) => Tokens::I64(unsafe { slice(buffer) }),
            Self::Empty => Tokens::EMPTY,
        }
    }
}

/// Whether a value is exactly NumPy's array. Who has one has loaded NumPy: it is never loaded to find out.
fn is_array(value: &Bound<'_, PyAny>) -> bool {
    static ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = value.py();
    let array = ARRAY.get_or_try_init(py, || -> PyResult<Py<PyAny>> {
        let loaded = py.import("sys")?.getattr("modules")?.get_item("numpy")?;
        Ok(loaded.getattr("ndarray")?.unbind())
    });
    array.is_ok_and(|array| value.get_type().is(array))
}

/// Bytes of each of an array's signed integers, if it is a row of such in the machine's order. Looks at what it says of
/// itself, which costs less than asking NumPy whether two dtypes are the same.
fn integers(array: &Bound<'_, PyAny>) -> Option<usize> {
    // SAFETY: `is_array` saw that it is one.
    #[allow(unsafe_code)]
    let array = unsafe { array.cast_unchecked::<PyUntypedArray>() };
    let dtype = array.dtype();
    let is_row = array.ndim() == 1 && dtype.kind() == b'i' && dtype.is_native_byteorder() == Some(true);
    is_row.then(|| dtype.itemsize())
}

fn refuse<T>(py: Python<'_>, argument: &'static str, reason: String) -> PyResult<T> {
    Err(Error::Argument { argument, reason }).or_raise(py)
}

/// What a value has in memory. Some (those of `ctypes`) tell their shape only through a memory view.
fn buffer(value: &Bound<'_, PyAny>) -> Option<PyUntypedBuffer> {
    PyUntypedBuffer::get(value).or_else(|_| PyUntypedBuffer::get(PyMemoryView::from(value)?.as_any())).ok()
}

/// What there is instead of a row of integers: a single one, or something else by its dtype or class.
fn what_is_wrong(value: &Bound<'_, PyAny>) -> PyResult<String> {
    if value.getattr("ndim").and_then(|ndim| ndim.extract::<usize>()).is_ok_and(|ndim| ndim == 0) {
        return Ok("need one dimension, got 0".to_owned());
    }
    let kind = match value.getattr("dtype") {
        Ok(dtype) => dtype.str()?.to_string(),
        Err(_) => value.get_type().name()?.to_string(),
    };
    // A view's class says nothing of what it views.
    let code = value.getattr("format").or_else(|_| value.getattr("typecode"));
    let code = code.map_or(String::new(), |code| format!(" of {code:?}"));
    Ok(format!("need int32 or int64, got {kind}{code}"))
}

fn readable<'a, 'py, T>(
    array: &'a Bound<'py, PyArray1<T>>,
    argument: &'static str,
) -> PyResult<&'a Bound<'py, PyArray1<T>>> {
    let reason = if !array.is_c_contiguous() {
        GAPS.to_owned()
    } else if array.is_empty() || array.data().is_aligned() {
        return Ok(array);
    } else {
        unaligned(size_of::<T>())
    };
    refuse(array.py(), argument, reason)
}

const GAPS: &str = "need a contiguous buffer";

fn unaligned(bytes: usize) -> String {
    format!("need memory that is aligned to {bytes} bytes")
}

/// Signed integers of 4 or 8 bytes. The code's own size isn't asked for: after an order, which `ctypes` puts in
/// front of it, that is not the machine's.
fn is_integers(buffer: &PyUntypedBuffer) -> bool {
    let code = buffer.format().to_bytes();
    let code = match code {
        [b'@' | b'=' | b'<' | b'>' | b'!', code @ ..] | code => code,
    };
    matches!(code, b"i" | b"l" | b"q") && matches!(buffer.item_size(), 4 | 8)
}

/// Whether integers can be read in place; if not, why.
fn check(buffer: &PyUntypedBuffer) -> Result<(), String> {
    if buffer.dimensions() != 1 {
        return Err(format!("need one dimension, got {}", buffer.dimensions()));
    }
    if !buffer.is_c_contiguous() {
        return Err(GAPS.to_owned());
    }
    let foreign: &[u8] = if cfg!(target_endian = "little") { b">!" } else { b"<" };
    if buffer.format().to_bytes().first().is_some_and(|order| foreign.contains(order)) {
        return Err("need the machine's byte order".to_owned());
    }
    if buffer.item_count() > 0 && !buffer.buf_ptr().addr().is_multiple_of(buffer.item_size()) {
        return Err(unaligned(buffer.item_size()));
    }
    Ok(())
}

/// # Safety
/// The buffer's items are `T`s, and `check` found nothing wrong.
#[allow(unsafe_code)]
unsafe fn slice<T>(buffer: &PyUntypedBuffer) -> &[T] {
    if buffer.item_count() == 0 {
        return &[];
    }
    // SAFETY: contiguous and aligned items, as the caller promises, which CPython keeps exported while
    // `buffer` lives. That nobody writes to it during the call is the caller's part, as documented.
    unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.item_count()) }
}

/// Slots from an int32/int64 buffer: read in place where they are int32.
pub enum SlotBuffer<'py> {
    InPlace(TokenBuffer<'py>),
    Copied(Vec<Slot>),
}

impl SlotBuffer<'_> {
    /// A negative int32 is a slot that no pool has, so that the core refuses it: nobody looks for one before.
    pub fn get(&self) -> &[Slot] {
        match self {
            Self::InPlace(buffer) => match buffer.view() {
                // SAFETY: a slot is a transparent u32.
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

/// What the core said of slots that it was given as the argument `slots`, in the caller's numbers.
pub fn explain<T>(given: Option<&SlotBuffer<'_>>, said: Result<T, Error>) -> Result<T, Error> {
    said.map_err(|error| {
        let refused = matches!(error, Error::Argument { argument: "slots", .. });
        let Some(given @ SlotBuffer::InPlace(_)) = given.filter(|_| refused) else { return error };
        let negative = given.get().iter().map(|slot| slot.0.cast_signed()).find(|&number| number < 0);
        negative.map_or(error, |number| no_slot("slots", i64::from(number)))
    })
}

pub fn slots<'py>(value: &Bound<'py, PyAny>, argument: &'static str) -> PyResult<SlotBuffer<'py>> {
    let buffer = TokenBuffer::get(value, argument)?;
    let numbers = buffer.view();
    if let Tokens::I32(_) = numbers {
        return Ok(SlotBuffer::InPlace(buffer));
    }
    // Narrow, as tokens are; a negative number is as wide as can be.
    if let Some(slots) = numbers.narrow() {
        return Ok(SlotBuffer::Copied(slots.into_iter().map(Slot).collect()));
    }
    let mut wrong = None;
    numbers.for_each(|slot| wrong = wrong.or((slot >> 32 != 0).then_some(slot.cast_signed())));
    Err(no_slot(argument, wrong.unwrap_or_default())).or_raise(value.py())
}

/// Slots where -1 stands for none.
pub fn holes(value: &Bound<'_, PyAny>, argument: &'static str) -> PyResult<Vec<Option<Slot>>> {
    let buffer = TokenBuffer::get(value, argument)?;
    let (mut slots, mut wrong) = (Vec::new(), None);
    buffer.view().for_each(|number| {
        // A negative number is as wide as can be.
        let slot = u32::try_from(number).ok().map(Slot);
        let hole = number.cast_signed() == -1;
        wrong = wrong.or((slot.is_none() && !hole).then_some(number.cast_signed()));
        slots.push(slot);
    });
    match wrong {
        None => Ok(slots),
        Some(number) => refuse(value.py(), argument, format!("{number} is no slot, and -1 stands for none")),
    }
}

fn no_slot(argument: &'static str, number: i64) -> Error {
    Error::Argument { argument, reason: format!("{number} is no slot") }
}
