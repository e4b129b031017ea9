//! `bump_epoch`: the weights are others from now on.
//!
//! Nothing is decided here. On error: nothing was changed.

use crate::cache::Cache;
use crate::errors::OrRaise;
use pyo3::prelude::*;

#[pymethods]
impl Cache {
    /// Pages that left the device and the host.
    fn bump_epoch(&mut self, py: Python<'_>) -> PyResult<(usize, usize)> {
        let next = self.identity.bumped();
        let [device, host] = self.core(py)?.bump_epoch(next.fingerprint()).or_raise(py)?;
        self.identity = next;
        Ok((device, host))
    }
}
