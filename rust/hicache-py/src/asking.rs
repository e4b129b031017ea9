//! What an engine's own policy decided, as values. The policy is asked by the Python layer: nothing here calls Python.
//!
//! On error: nothing was changed.

use crate::cache::Cache;
use crate::errors::OrRaise;
use hicache_core::Error;
use hicache_core::ids::HitId;
use hicache_core::policy::fetching::{Verdict, Waiting};
use hicache_core::policy::{Wish, Write};
use pyo3::prelude::*;

/// Tokens: prompt, requested, missing, reading; microseconds: waited, of the oldest read; asking; others; overtaken.
type Told = (u64, u64, u64, u64, u64, Option<u64>, bool, u64, u64);

#[pymethods]
impl Cache {
    fn ask(&mut self, py: Python<'_>, name: String, writes: bool) -> PyResult<()> {
        self.core(py)?.ask_outside(name, writes);
        Ok(())
    }

    fn prompt(&self, py: Python<'_>, hit: u64) -> PyResult<u64> {
        self.core.prompt(HitId(hit)).or_raise(py)
    }

    fn undecided(&mut self, py: Python<'_>, hit: u64, others: usize) -> PyResult<Option<Told>> {
        let told = |waiting: Waiting| {
            let Waiting { request, requested, missing, reading, waited, reading_for, .. } = waiting;
            let Waiting { asking, others, overtaken, .. } = waiting;
            (request.prompt, requested, missing, reading, waited, reading_for, asking, others, overtaken)
        };
        Ok(self.core(py)?.undecided(HitId(hit), others).or_raise(py)?.map(told))
    }

    fn decided(&mut self, py: Python<'_>, hit: u64, word: &str) -> PyResult<()> {
        let verdict = match word {
            "compute" => Ok(Verdict::Compute),
            "wait" => Ok(Verdict::Wait),
            "skip" => Ok(Verdict::Skip),
            _ => Err(Error::Argument { argument: "word", reason: format!("unknown decision {word:?}") }),
        };
        let verdict = verdict.or_raise(py)?;
        self.core(py)?.decided(HitId(hit), verdict).or_raise(py)
    }

    #[pyo3(signature = (hit, host, storage))]
    fn wish(&mut self, py: Python<'_>, hit: u64, host: Option<&str>, storage: Option<&str>) -> PyResult<()> {
        let host = host.map(|name| Write::named("host", name)).transpose().or_raise(py)?;
        let storage = storage.map(|name| Write::named("storage", name)).transpose().or_raise(py)?;
        self.core(py)?.wish(HitId(hit), Wish { host, storage }).or_raise(py)
    }

    fn at_most(&mut self, py: Python<'_>, hit: u64, tokens: usize) -> PyResult<()> {
        self.core(py)?.at_most(HitId(hit), tokens).or_raise(py)
    }

    fn policy_failed(&mut self, py: Python<'_>) -> PyResult<()> {
        self.core(py)?.policy_failed();
        Ok(())
    }
}
