//! `Place`: where a released hit ended, for the next turn.

use hicache_core::ids::Cursor;
use pyo3::prelude::*;

/// A released hit's place.
#[pyclass(module = "hicache._hicache", frozen)]
pub struct Place(pub Cursor);

#[pymethods]
impl Place {
    #[getter]
    const fn depth(&self) -> u32 {
        self.0.depth
    }
}
