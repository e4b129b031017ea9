//! `Reader`: what would hit, and statistics, from any thread while the engine's thread mutates.

use crate::errors::OrRaise;
use crate::tokens::TokenBuffer;
use hicache_core::hash::Namespace;
use hicache_core::reader::Reader as Core;
use pyo3::prelude::*;
use pyo3::types::PyDict;

#[pyclass(module = "hicache._hicache", frozen)]
pub struct Reader(pub Core);

#[pymethods]
impl Reader {
    fn would_hit(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        extra_key: Option<String>,
        salt: Option<String>,
        adapter: Option<String>,
    ) -> PyResult<(usize, usize)> {
        let buffer = TokenBuffer::get(tokens, "tokens")?;
        let hit = self.0.would_hit(buffer.view(), &Namespace { extra_key, salt, adapter }).or_raise(py)?;
        Ok((hit.device, hit.usable))
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, number) in self.0.stats() {
            dict.set_item(name, number)?;
        }
        Ok(dict)
    }
}
