//! Host memory that outlives the process, for people.

use crate::cache::Cache;
use pyo3::prelude::*;

#[pymethods]
impl Cache {
    /// Where it is, and what was taken over.
    fn host_restart(&self) -> Option<String> {
        self.core.host_restart()
    }
}
