//! Copies between a GPU and pinned host memory (`cuda/`), under the cargo feature `cuda`.
//!
//! | file | what |
//! |---|---|
//! | `ffi` | the C header |
//! | `answer` | whether there is a GPU; errors as types |
//! | `engine` | streams, events, staging of one device |
//! | `pin` | host memory in pieces that the system accepts |
//! | `parts` | what one job copies, in which order |
//! | `copier` | jobs, layer by layer; who waits for what |
//!
//! Compiled, and emulated on the CPU; not yet run on a GPU. On error: typed; "no driver" is one of them.

mod answer;
mod copier;
mod engine;
mod ffi;
mod parts;
mod pin;

pub use answer::{CudaError, CudaResult, Machine, probe};
pub use copier::{CudaCopier, Layers};
pub use engine::{Engine, LAYER_SETS, Route, Settings, Stream};
pub use ffi::Page;
pub use pin::Pinned;
