//! `Load`: waiting for the layers of one load. Does not hold the cache, nor the GIL while it waits.

use crate::errors::OrRaise;
use hicache_core::Error;
use hicache_core::transfer::{Progress, WaitOnStream};
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Duration;

#[pyclass(module = "hicache._hicache", frozen)]
pub struct Load {
    ticket: u64,
    progress: Arc<Progress>,
    on_stream: Option<WaitOnStream>,
}

impl Load {
    pub const fn new(ticket: u64, progress: Arc<Progress>, on_stream: Option<WaitOnStream>) -> Self {
        Self { ticket, progress, on_stream }
    }
}

/// The longest wait: a year. More would overflow the clock, and nobody waits that long.
const LONGEST: f64 = 365.0 * 24.0 * 3600.0;

/// A timeout, which may be infinite.
pub fn seconds(py: Python<'_>, timeout: f64) -> PyResult<Duration> {
    let reason = format!("must be a number of seconds that is not negative, got {timeout}");
    let most = Duration::try_from_secs_f64(timeout.min(LONGEST));
    let wrong = timeout.is_nan() || most.is_err();
    let refused = Err(Error::Argument { argument: "timeout", reason });
    if wrong { refused } else { Ok(most.unwrap_or_default()) }.or_raise(py)
}

#[pymethods]
impl Load {
    /// Waits until layers before `layers` are there; `u32::MAX` waits for the whole job.
    fn wait(&self, py: Python<'_>, layers: u32, timeout: f64) -> PyResult<()> {
        let most = seconds(py, timeout)?;
        // The common case costs no release of the GIL.
        if self.progress.wait(self.ticket, layers, Duration::ZERO) {
            return Ok(());
        }
        let arrived = py.detach(|| self.progress.wait(self.ticket, layers, most));
        let missed = match self.progress.fault() {
            Some(fault) => Error::Device(fault.to_string()),
            None => Error::Deadline { what: "the load", seconds: timeout },
        };
        if arrived { Ok(()) } else { Err(missed) }.or_raise(py)
    }

    /// Lets a stream of the device wait for one layer; the CPU goes on. Without a GPU there is no stream.
    fn order(&self, py: Python<'_>, layer: u32, stream: u64) -> PyResult<()> {
        let missing = || Err(Error::Device("there is no GPU, and so no stream to order".to_owned()));
        self.on_stream.as_ref().map_or_else(missing, |wait| wait(self.ticket, layer, stream)).or_raise(py)
    }

    #[getter]
    fn finished(&self) -> bool {
        self.progress.finished() >= self.ticket
    }
}
