//! The binding: the core's verbs as Python sees them. No decisions are made here.
//!
//! | file | what |
//! |---|---|
//! | `tokens` | int32/int64 buffers, read in place |
//! | `cache` | the verbs, in path order |
//! | `hit` | what a hit looks like |
//! | `parts` | the verbs of windows and states |
//! | `pools` | declarations, the memory behind them, and where a layout puts their bytes |
//! | `fetching` | prefetch, decide, stepped, load |
//! | `lifecycle` | stores that come and go, clears, prefixes that are brought up |
//! | `load` | waiting for layers, without the cache and without the GIL |
//! | `cuda` | whether there is a GPU; its copies, for tests |
//! | `slots` | slots on their way to Python, without a copy |
//! | `stats` | counters as a dictionary, and histograms |
//! | `events` | what came to a tier and what left it |
//! | `place` | where a released hit ended |
//! | `process` | on which side of a fork we are |
//! | `opened`, `buffers` | any store, over buffers |
//! | `relay`, `lent` | stores that are written in Python: who answers their calls, with which memory |
//! | `errors` | one match from the core's errors to exceptions |
//! | `reader` | what would hit, from any thread |
//! | `replay` | traces through the real tree |
#![allow(missing_docs, reason = "Python's documentation is in the stub, python/hicache/_hicache.pyi")]

mod asking;
mod buffers;
mod cache;
mod cuda;
mod epoch;
mod errors;
mod events;
mod explain;
mod fetching;
mod hit;
mod landing;
mod lent;
mod lifecycle;
mod load;
mod opened;
mod parts;
mod place;
mod pools;
mod process;
mod reader;
mod relay;
mod replay;
mod restart;
mod slots;
mod stats;
mod store;
mod tokens;

use pyo3::prelude::*;

/// The export list.
#[pymodule]
fn _hicache(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<cache::Cache>()?;
    module.add_class::<place::Place>()?;
    module.add_class::<slots::Slots>()?;
    module.add_class::<pools::Layout>()?;
    module.add_function(wrap_pyfunction!(pools::memory_available, module)?)?;
    module.add_function(wrap_pyfunction!(pools::processors, module)?)?;
    module.add_class::<load::Load>()?;
    module.add_class::<opened::Store>()?;
    module.add_class::<relay::Desk>()?;
    module.add_class::<relay::Call>()?;
    module.add_class::<reader::Reader>()?;
    module.add_class::<replay::Replay>()?;
    #[cfg(feature = "cuda")]
    module.add_class::<cuda::Gpu>()?;
    module.add_function(wrap_pyfunction!(cuda::cuda_status, module)?)
}
