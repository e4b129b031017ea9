//! What a hit looks like from outside. A hit is its number.

use crate::cache::Cache;
use crate::errors::OrRaise;
use crate::slots::Given;
use hicache_core::ids::HitId;
use pyo3::prelude::*;

/// Pages on the device, usable, copied, stored; waiting; loaded; where a checkpoint would help.
type View = (u32, u32, u32, u32, bool, bool, Option<u32>);

#[pymethods]
impl Cache {
    fn view(&self, py: Python<'_>, hit: u64) -> PyResult<View> {
        let view = self.core.view(HitId(hit)).or_raise(py)?;
        Ok((
            view.device,
            view.usable,
            view.copied,
            view.stored,
            view.waiting,
            view.loaded,
            view.checkpoint_at,
        ))
    }

    fn hit_slots(&self, py: Python<'_>, hit: u64) -> PyResult<Given> {
        self.core.hit_slots(HitId(hit)).map(Given::new).or_raise(py)
    }

    /// The hit ends after so many pages of its path from now on.
    fn rewind(&mut self, py: Python<'_>, hit: u64, pages: u32) -> PyResult<()> {
        self.core(py)?.rewind(HitId(hit), pages).or_raise(py)
    }

    /// Of each part, in order, the device slots of a loaded hit's path.
    fn hit_parts(&self, py: Python<'_>, hit: u64) -> PyResult<Vec<Given>> {
        let parts = self.core.hit_parts(HitId(hit)).or_raise(py)?;
        Ok(parts.into_iter().map(Given::new).collect())
    }
}
