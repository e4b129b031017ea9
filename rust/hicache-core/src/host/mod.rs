//! Host memory: which slots are free, where a slot's bytes are, and the region that holds them.
//!
//! | file | what |
//! |---|---|
//! | `slots` | who owns a slot |
//! | `layout/` | the byte address of any element, in one place |
//! | `slab` | the memory itself |
//! | `room` | how much memory there is to be had |
//! | `numa` | memory near a device |
//! | `pieces` | a slab in pieces for pinning |
//!
//! Knows neither tree nor storage. On error: a region that can't be had is an error naming its size.

pub mod layout;
pub mod numa;
pub mod pieces;
pub mod room;
pub mod slab;
pub mod slots;

pub use layout::{Layout, LayoutKind};
pub use pieces::pieces;
pub use room::Room;
pub use slab::{Slab, SlabOptions};
pub use slots::SlotPool;
