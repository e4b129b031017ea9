//! Memory in huge pages, and whether memory is in them.
//!
//! | file | what |
//! |---|---|
//! | `mapping` | anonymous memory, or a file's, where huge pages can be |
//! | `sight` | what memory lies in |
//!
//! The disk and devices move memory piece by piece: 2 MiB in one huge page is one piece, in 4-KiB pages up to 512 of
//! them. Knows addresses; refuses to know what is there. On error: the system's; without huge pages memory is in small
//! ones, and `sight` says so.

mod mapping;
mod sight;

pub use mapping::Mapping;
pub use sight::Sight;

/// Size of a huge page, and what its address is a multiple of. Where they are larger (some arm64), memory counts as in
/// small ones unless it is in those.
pub const HUGE: usize = 2 << 20;
