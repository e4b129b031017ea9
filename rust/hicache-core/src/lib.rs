//! HiCache's core.

pub mod error;
pub mod hash;
pub mod ids;
pub mod page;
pub mod replay;
pub mod tree;
