//! Between a match and a forward: `prefetch`, `decide`, `stepped` and `load`.
//!
//! Nothing is decided here. On error: nothing was changed.

use crate::cache::Cache;
use crate::errors::OrRaise;
use crate::load::Load;
use crate::slots::Given;
use crate::tokens::{SlotBuffer, explain, slots};
use hicache_core::ids::HitId;
use hicache_core::policy::StopOptions;
use hicache_core::policy::fetching::Verdict;
use hicache_core::transfer::Direction;
use pyo3::prelude::*;
use std::sync::Arc;

/// A policy's name, and two times in seconds.
pub type StopArgument = (String, f64, f64);

pub fn stop((policy, timeout_base, timeout_per_ki_token): StopArgument) -> StopOptions {
    StopOptions { policy, timeout_base, timeout_per_ki_token }
}

#[pymethods]
impl Cache {
    fn prefetch(&mut self, py: Python<'_>, hit: u64) -> PyResult<bool> {
        self.core(py)?.prefetch(HitId(hit)).or_raise(py)
    }

    /// A word, and tokens where it is "part".
    fn decide(&mut self, py: Python<'_>, hit: u64, others: usize) -> PyResult<(&'static str, u64)> {
        let verdict = self.core(py)?.decide(HitId(hit), others).or_raise(py)?;
        Ok(match verdict {
            Verdict::Compute => ("compute", 0),
            Verdict::ComputeSome(tokens) => ("part", tokens),
            Verdict::Wait => ("wait", 0),
            Verdict::Skip => ("skip", 0),
        })
    }

    fn stepped(&mut self, py: Python<'_>, tokens: u64, seconds: f64, ahead: u64) -> PyResult<()> {
        self.core(py)?.stepped(tokens, seconds, ahead).or_raise(py)
    }

    /// Whether `load` would be refused.
    #[pyo3(signature = (hits, given))]
    fn check_load(
        &mut self,
        py: Python<'_>,
        hits: Vec<u64>,
        given: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let given = given.map(|given| slots(given, "slots")).transpose()?;
        let hits: Vec<HitId> = hits.into_iter().map(HitId).collect();
        let checked = self.core(py)?.check_load(&hits, given.as_ref().map(SlotBuffer::get));
        explain(given.as_ref(), checked).or_raise(py)
    }

    #[pyo3(signature = (hits, given, budget))]
    fn load(
        &mut self,
        py: Python<'_>,
        hits: Vec<u64>,
        given: Option<&Bound<'_, PyAny>>,
        budget: Option<usize>,
    ) -> PyResult<(Load, Given)> {
        let given = given.map(|given| slots(given, "slots")).transpose()?;
        let hits: Vec<HitId> = hits.into_iter().map(HitId).collect();
        let core = self.core(py)?;
        let loaded = core.load_within(&hits, given.as_ref().map(SlotBuffer::get), budget);
        let loaded = explain(given.as_ref(), loaded).or_raise(py)?;
        let progress = Arc::clone(core.progress(Direction::In));
        let load = Load::new(loaded.ticket, progress, core.wait_on_stream());
        Ok((load, Given::new(loaded.unused)))
    }
}
