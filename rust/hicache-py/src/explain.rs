//! `explain`: a request token by token, as plain values and as one line.

use crate::cache::Cache;
use crate::errors::OrRaise;
use hicache_core::ids::HitId;
use pyo3::prelude::*;

/// Loaded; tokens in all, of the device, the host and storage; (tokens, code, text) of the rest; one line.
type Told = (bool, u64, u64, u64, u64, Vec<(u64, &'static str, String)>, String);

#[pymethods]
impl Cache {
    fn explain(&self, py: Python<'_>, hit: u64) -> PyResult<Told> {
        let told = self.core.explain(HitId(hit)).or_raise(py)?;
        let line = told.to_string();
        let reason = |(tokens, reason): (u64, hicache_core::explain::Reason)| {
            (tokens, reason.code(), reason.to_string())
        };
        let computed = told.computed.into_iter().map(reason).collect();
        Ok((told.loaded, told.tokens, told.device, told.host, told.storage, computed, line))
    }
}
