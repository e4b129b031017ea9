//! Host memory: which slots are free, where a slot's bytes are, and the region that holds them.
//!
//! | file | what |
//! |---|---|
//! | `slots` | who owns a slot |
//! | `layout/` | the byte address of any element, in one place |
//! | `slab` | the memory itself |
//!
//! Knows neither tree nor storage. On error: a region that can't be had is an error naming its size.

pub mod layout;
pub mod slab;
pub mod slots;

pub use layout::{Layout, LayoutKind};
pub use slab::Slab;
pub use slots::SlotPool;
