//! What a hit looks like from outside. A hit is its number.

use crate::cache::Cache;
use crate::errors::OrRaise;
use crate::tokens::slot_bytes;
use hicache_core::ids::HitId;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

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

    fn hit_slots<'py>(&self, py: Python<'py>, hit: u64) -> PyResult<Bound<'py, PyByteArray>> {
        Ok(slot_bytes(py, &self.core.hit_slots(HitId(hit)).or_raise(py)?))
    }

    /// Of each part, in order, the device slots of a loaded hit's path.
    fn hit_parts<'py>(&self, py: Python<'py>, hit: u64) -> PyResult<Vec<Bound<'py, PyByteArray>>> {
        let parts = self.core.hit_parts(HitId(hit)).or_raise(py)?;
        Ok(parts.iter().map(|slots| slot_bytes(py, slots)).collect())
    }
}
