//! The verbs of parts: the windows and states of hybrid models, which have slots of their own.
//!
//! A part is its number: what it is called, Python knows. Nothing is decided here.
//! On error: `ArgumentError` names the argument, before anything was changed.

use crate::cache::Cache;
use crate::errors::OrRaise;
use crate::tokens::{TokenBuffer, holes, slot_bytes, slots};
use hicache_core::GivenPart;
use hicache_core::ids::{HitId, Tier};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict};

/// The path's pages in all, slots of the inserted pages, duplicates, and what became of each part's slots.
type InsertedParts<'py> =
    (u32, Bound<'py, PyByteArray>, Bound<'py, PyByteArray>, Vec<Bound<'py, PyByteArray>>);

#[pymethods]
impl Cache {
    fn allocate_part<'py>(
        &mut self,
        py: Python<'py>,
        part: usize,
        count: usize,
    ) -> PyResult<Option<Bound<'py, PyByteArray>>> {
        let slots = self.core(py)?.allocate_part(part, count).or_raise(py)?;
        Ok(slots.map(|slots| slot_bytes(py, &slots)))
    }

    fn free_part(&mut self, py: Python<'_>, part: usize, given: &Bound<'_, PyAny>) -> PyResult<()> {
        let given = slots(given, "slots")?;
        self.core(py)?.free_part(part, given.get()).or_raise(py)
    }

    fn evict_part<'py>(
        &mut self,
        py: Python<'py>,
        part: usize,
        host: bool,
        count: usize,
    ) -> PyResult<Bound<'py, PyByteArray>> {
        let tier = if host { Tier::Host } else { Tier::Device };
        let slots = self.core(py)?.evict_part(part, tier, count).or_raise(py)?;
        Ok(slot_bytes(py, &slots))
    }

    #[allow(clippy::needless_pass_by_value, reason = "from a Python list")]
    fn insert_parts<'py>(
        &mut self,
        py: Python<'py>,
        hit: u64,
        tokens: &Bound<'py, PyAny>,
        given: &Bound<'py, PyAny>,
        parts: Vec<(usize, Bound<'py, PyAny>)>,
    ) -> PyResult<InsertedParts<'py>> {
        let buffer = TokenBuffer::get(tokens, "tokens")?;
        let given = slots(given, "slots")?;
        let given = given.get();
        let of_part = |(part, slots): &(usize, Bound<'py, PyAny>)| Ok((*part, holes(slots, "parts")?));
        let parts = parts.iter().map(of_part).collect::<PyResult<Vec<GivenPart>>>()?;
        let done = self.core(py)?.insert_parts(HitId(hit), buffer.view(), given, &parts).or_raise(py)?;
        let kept = done.parts.iter().map(|slots| slot_bytes(py, slots)).collect();
        Ok((done.depth, slot_bytes(py, &done.slots), slot_bytes(py, &given[..done.duplicates]), kept))
    }

    /// Counters and gauges of one part.
    fn part_stats<'py>(&self, py: Python<'py>, part: usize) -> PyResult<Bound<'py, PyDict>> {
        crate::stats::part_to_dict(py, &self.core, part)
    }
}
