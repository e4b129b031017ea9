//! HiCache's core: the index, the bytes and the path of a request. Knows tokens, pages, slots and bytes;
//! refuses to know Python, tensors and models.
//!
//! | stage | file |
//! |---|---|
//! | match, prefetch, load, insert, backup, evict, poll, release | `path/*.rs`, one each |
//! | slots of windows and states; whether the books are right | `parts`, `books` |
//! | what the verbs decided; who carries it out | `command`, `executor` |
//! | the index | `tree/` |
//! | which leaf of it goes next | `policy/` |
//! | host memory: slots, layout, region; what passes through it where it keeps nothing | `host/`, `staging` |
//! | one device buffer for two kinds of state; evicting what a waiting allocation needs of it | `unified/`, `room` |
//! | where a plane is in a page of it; whose slots and frames are under way | `entry`, `path/shared` |
//! | copies between device and host | `transfer/` |
//! | pages outside of memory | `storage/` |
//! | names of pages: digests, namespaces; who may read them | `hash`, `identity` |
//! | host memory that outlives the process | `restart/` |
//! | why a request got what it got | `explain` |
//! | what came to a tier and what left it, for routers | `events` |
//! | counters; how long work took and what requests got | `stats`, `histogram`, `measured` |
//! | readers on other threads | `reader/` |
//! | what looks at every token: comparisons, the chain's SHA-256 | `lanes`, `sha` |
//! | memory in huge pages, and whether memory is in them | `huge/` |
//! | how many processors this process may use | `processors` |
//! | what will be needed soon, so that the machine waits once | `soon` |
//! | traces without bytes | `replay` |

pub mod assemble;
mod books;
pub mod cache;
#[cfg(test)]
mod cache_tests;
pub mod command;
pub mod config;
mod doubts;
pub mod entry;
pub mod error;
pub mod events;
pub mod executor;
pub mod explain;
mod flights;
mod gpu;
pub mod hash;
pub mod histogram;
mod hit;
pub mod host;
pub mod huge;
pub mod identity;
pub mod ids;
mod key;
mod lanes;
pub mod measured;
pub mod page;
mod parts;
mod path;
pub mod policy;
pub mod pool;
pub mod processors;
pub mod reader;
pub mod replay;
pub mod restart;
pub mod room;
mod segments;
mod sha;
mod slabs;
mod soon;
mod staging;
pub mod stats;
pub mod storage;
pub mod transfer;
pub mod tree;
pub mod unified;

pub use cache::HiCache;
pub use config::{Config, HostMode, PartSlots};
pub use error::{Error, Result};
pub use flights::Ready;
pub use parts::PartStats;
pub use path::{Cleared, GivenPart, HitView, Inserted, LeftBehind, Leftovers, Loaded, MOST_WARM, Warmed};
#[cfg(debug_assertions)]
#[doc(hidden)]
pub use segments::looked_at;
