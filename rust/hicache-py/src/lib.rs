//! The binding: the core's verbs as Python sees them. No decisions are made here.
//!
//! | file | what |
//! |---|---|
//! | `tokens` | int32/int64 buffers, read in place |
//! | `replay` | traces through the real tree |
#![allow(missing_docs, reason = "Python's documentation is in the stub, python/hicache/_hicache.pyi")]

mod replay;
mod tokens;

use pyo3::prelude::*;

/// The export list.
#[pymodule]
fn _hicache(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<replay::Replay>()
}
