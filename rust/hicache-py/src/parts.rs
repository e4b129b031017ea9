//! The verbs of parts: the windows and states of hybrid models, which have slots of their own; and what concerns a
//! buffer that FULL and a part share.
//!
//! A part is its number: what it is called, Python knows. Nothing is decided here.
//! On error: `ArgumentError` names the argument, before anything was changed.

use crate::cache::Cache;
use crate::errors::OrRaise;
use crate::slots::Given;
use crate::tokens::{TokenBuffer, explain, holes, slots};
use hicache_core::GivenPart;
use hicache_core::ids::{ForwardId, HitId, Slot, Tier};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The path's pages in all, slots of the inserted pages, how many of the given ones are duplicates, and what became of each part's slots.
type InsertedParts = (u32, Given, usize, Vec<Given>);

#[pymethods]
impl Cache {
    fn allocate_part(&mut self, py: Python<'_>, part: usize, count: usize) -> PyResult<Option<Given>> {
        let slots = self.core(py)?.allocate_part(part, count).or_raise(py)?;
        Ok(slots.map(Given::new))
    }

    fn free_part(&mut self, py: Python<'_>, part: usize, given: &Bound<'_, PyAny>) -> PyResult<()> {
        let given = slots(given, "slots")?;
        explain(Some(&given), self.core(py)?.free_part(part, given.get())).or_raise(py)
    }

    fn evict_part(&mut self, py: Python<'_>, part: usize, host: bool, count: usize) -> PyResult<Given> {
        let tier = if host { Tier::Host } else { Tier::Device };
        self.core(py)?.evict_part(part, tier, count).map(Given::new).or_raise(py)
    }

    #[allow(clippy::needless_pass_by_value, reason = "from a Python list")]
    fn insert_parts<'py>(
        &mut self,
        py: Python<'py>,
        hit: u64,
        tokens: &Bound<'py, PyAny>,
        given: &Bound<'py, PyAny>,
        parts: Vec<(usize, Bound<'py, PyAny>)>,
    ) -> PyResult<InsertedParts> {
        let buffer = TokenBuffer::get(tokens, "tokens")?;
        let given = slots(given, "slots")?;
        let of_part = |(part, slots): &(usize, Bound<'py, PyAny>)| Ok((*part, holes(slots, "parts")?));
        let parts = parts.iter().map(of_part).collect::<PyResult<Vec<GivenPart>>>()?;
        let done = self.core(py)?.insert_parts(HitId(hit), buffer.view(), given.get(), &parts);
        let done = explain(Some(&given), done).or_raise(py)?;
        let kept = done.parts.into_iter().map(Given::new).collect();
        Ok((done.depth, Given::new(done.slots), done.duplicates, kept))
    }

    /// Frames of a space's slots (0: the cache's own) in a unified buffer.
    fn frames(&mut self, py: Python<'_>, space: usize) -> PyResult<Given> {
        let frames = self.core(py)?.frames(space).or_raise(py)?;
        Ok(Given::new(frames.iter().map(|frame| Slot(frame.cast_unsigned())).collect()))
    }

    fn frames_version(&self) -> u64 {
        self.core.frames_version()
    }

    /// Begins a forward over a unified buffer: its number.
    fn begin_forward(&mut self, py: Python<'_>) -> PyResult<u64> {
        self.core(py)?.begin_forward().map(|forward| forward.0).or_raise(py)
    }

    fn end_forward(&mut self, py: Python<'_>, forward: u64) -> PyResult<()> {
        self.core(py)?.end_forward(ForwardId(forward)).or_raise(py)
    }

    /// Counters and gauges of one part.
    fn part_stats<'py>(&self, py: Python<'py>, part: usize) -> PyResult<Bound<'py, PyDict>> {
        crate::stats::part_to_dict(py, &self.core, part)
    }
}
