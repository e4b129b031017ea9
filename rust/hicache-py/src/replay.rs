//! `Replay`: traces through the real tree, see the core's module of that name.

use crate::tokens::TokenBuffer;
use hicache_core::page::PageSize;
use hicache_core::replay::{Replay as Core, Sizes};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

#[pyclass(module = "hicache._hicache")]
pub struct Replay {
    core: Core,
}

#[pymethods]
impl Replay {
    #[new]
    #[pyo3(signature = (*, page_size, device=None, host=None, storage=false))]
    fn new(page_size: u32, device: Option<usize>, host: Option<usize>, storage: bool) -> PyResult<Self> {
        let page_size = PageSize::new(page_size).map_err(|e| PyValueError::new_err(e.to_string()))?;
        Ok(Self { core: Core::new(page_size, Sizes { device, host, storage }) })
    }

    fn request(
        &mut self,
        tokens: &Bound<'_, PyAny>,
        prompt: usize,
    ) -> PyResult<(usize, usize, usize, usize)> {
        let buffer = TokenBuffer::get(tokens, "tokens")?;
        let hits = self.core.request(buffer.view(), prompt);
        let hits = hits.map_err(|e| PyValueError::new_err(e.to_string()))?;
        Ok((hits.device, hits.host, hits.storage, hits.ceiling))
    }

    fn evicted(&self) -> (usize, usize) {
        self.core.evicted()
    }

    fn resident(&self) -> (usize, usize, usize) {
        self.core.resident()
    }

    fn check(&self) -> PyResult<()> {
        self.core.check().map_err(|e| pyo3::exceptions::PyAssertionError::new_err(e.to_string()))
    }
}
