//! One match from the core's errors to the exceptions of `hicache.errors`.

use hicache_core::Error;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// The exception for an error.
pub fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let name = match error {
        Error::Argument { .. } => "ArgumentError",
        Error::Stale => "StaleCursor",
        Error::Hit(_) => "HitError",
        Error::Forked => "HiCacheError",
        Error::Device(_) => "DeviceError",
        Error::Detached => "DetachedError",
        Error::Closed => "ClosedError",
        Error::Deadline { .. } => "DeadlineError",
        Error::Invariant(_) => "InvariantError",
    };
    let text = error.to_string();
    let class = py.import("hicache.errors").and_then(|module| module.getattr(name));
    match class.and_then(|class| class.call1((&text,))) {
        Ok(exception) => PyErr::from_value(exception),
        Err(_) => PyRuntimeError::new_err(text),
    }
}

/// Shorthand: the core's result as Python's.
pub trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for hicache_core::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, &error))
    }
}
