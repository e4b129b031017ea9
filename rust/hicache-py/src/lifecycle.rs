//! A cache's life beside requests: stores that come and go, clears, prefixes that are brought up.
//!
//! Nothing is decided here. On error: nothing was changed.

use crate::cache::Cache;
use crate::errors::OrRaise;
use crate::load::seconds;
use crate::slots::Given;
use crate::store::StorageArgument;
use crate::tokens::TokenBuffer;
use hicache_core::Cleared;
use hicache_core::hash::Namespace;
use hicache_core::storage::Client;
use pyo3::prelude::*;

#[pymethods]
impl Cache {
    #[allow(clippy::needless_pass_by_value, reason = "from Python")]
    fn attach_store(&mut self, py: Python<'_>, storage: StorageArgument) -> PyResult<()> {
        let (rank, world) = self.place.clone();
        let client = Client::new(&self.identity, rank, world).or_raise(py)?;
        let core = self.core(py)?;
        py.detach(|| core.attach_store(&|| storage.open(&client))).or_raise(py)
    }

    /// Pages whose write was given up, and batches that are still inside of a store.
    fn detach_store(&mut self, py: Python<'_>, timeout: f64) -> PyResult<(usize, usize)> {
        let most = seconds(py, timeout)?;
        let core = self.core(py)?;
        let left = py.detach(|| core.detach_store(most)).or_raise(py)?;
        Ok((left.unwritten_pages, left.inside))
    }

    fn has_store(&self) -> bool {
        self.core.has_store()
    }

    /// Pages of device and host that are still to be begun.
    fn write_out(&mut self, py: Python<'_>) -> PyResult<[usize; 2]> {
        self.core(py)?.write_out().or_raise(py)
    }

    fn unwritten(&self) -> [usize; 2] {
        self.core.unwritten()
    }

    /// Pages that left the device and the host.
    fn clear_memory(&mut self, py: Python<'_>) -> PyResult<(usize, usize)> {
        let [device, host] = self.core(py)?.clear_memory().or_raise(py)?;
        Ok((device, host))
    }

    /// Slots that are the engine's again.
    fn returned_slots(&mut self, py: Python<'_>) -> PyResult<Given> {
        self.core(py)?.returned_slots().map(Given::new).or_raise(py)
    }

    fn clear_storage(&mut self, py: Python<'_>) -> PyResult<u64> {
        self.core(py)?.clear_storage().or_raise(py)
    }

    /// What became of it, and the pages.
    fn cleared(&self, number: u64) -> (&'static str, u64) {
        match self.core.cleared(number) {
            Cleared::Waiting => ("waiting", 0),
            Cleared::Pages(pages) => ("cleared", pages),
            Cleared::Failed => ("failed", 0),
        }
    }

    #[pyo3(signature = (tokens, extra_key, salt, adapter, device, at))]
    #[allow(clippy::too_many_arguments, reason = "a namespace in parts")]
    fn warm(
        &mut self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        extra_key: Option<String>,
        salt: Option<String>,
        adapter: Option<String>,
        device: bool,
        at: f64,
    ) -> PyResult<Option<u64>> {
        let buffer = TokenBuffer::get(tokens, "tokens")?;
        let namespace = Namespace { extra_key, salt, adapter };
        self.core(py)?.warm(buffer.view(), &namespace, device, at).or_raise(py)
    }

    /// Whether more may come; pages on device or host, and on the device.
    fn warmed(&self, number: u64) -> Option<(bool, u32, u32)> {
        let warmed = self.core.warmed(number)?;
        Some((warmed.under_way, warmed.usable, warmed.device))
    }

    fn cool(&mut self, py: Python<'_>, number: u64) -> PyResult<()> {
        self.core(py)?.cool(number);
        Ok(())
    }
}
