//! The slab store's parts: pages in slots of a few large files.
//!
//! | file | what |
//! |---|---|
//! | `extents` | the data files, and which of their slots are free |
//! | `state` | what is known of all of them |
//! | `files` | making, finding and removing them |
//! | `supply` | free slots of one of them: written before, or not yet |
//! | `prewrite` | writes those that aren't, when the disk has nothing else to do |

pub mod extents;
mod files;
mod prewrite;
mod state;
mod supply;
