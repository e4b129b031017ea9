//! The verbs, in the order of a request's life. The only place where tree, slots, copies and storage meet.
//!
//! ```text
//! match_prefix ─▶ prefetch ─▶ load ─▶ (compute) ─▶ insert ─▶ backup ─▶ evict
//!                     ▲                                │
//!                     └────────── poll ◀───────────────┘
//! ```
//! A verb checks its arguments before it changes anything, changes the tree, and appends commands.
//!
//! What a waiting request does is `decide`'s; what `prefetch` reads when is `filling`'s, what becomes of it `arrive`'s.
//! What windows and states add to a verb is beside it: `raise` to `load` (of which `decline` is what isn't copied), `give` to `insert`, `fetch` to `prefetch`,
//! `graft` to `poll`, `parts` to `evict` and `allocate`; `shared` is for a unified buffer, `forward` for what the engine
//! computes in it meanwhile, `leftovers` for host memory that outlives the process, and `rewind` for tokens that were
//! inserted and taken back. `write`, `reserve` and `store` say when what is copied further down; `ask` takes what an engine's
//! own policy decided. `events` is what routers are told. `warm` is a request without anybody behind it, `stores`, `clear`
//! and `write_out` come from any state of all these. Where the host is staging, `straight` writes past it, and `staged` is
//! what reads do.

mod arrive;
mod ask;
mod backup;
mod clear;
mod close;
mod decide;
mod decline;
mod detach;
mod epoch;
mod events;
mod evict;
mod explain;
mod fault;
mod fetch;
mod filling;
mod forward;
mod gather;
mod give;
mod graft;
mod insert;
mod leftovers;
mod load;
mod match_prefix;
mod parts;
mod poll;
mod prefetch;
mod raise;
mod release;
mod remembered;
mod reserve;
mod rewind;
mod shared;
mod staged;
mod store;
mod stores;
mod straight;
mod view;
mod warm;
mod write;
mod write_out;

pub(crate) use ask::Asking;
pub use clear::Cleared;
pub(crate) use forward::Forwards;
pub use insert::{GivenPart, Inserted};
pub use leftovers::Leftovers;
pub use load::Loaded;
pub(crate) use store::StoreQueue;
pub use stores::LeftBehind;
pub use view::HitView;
pub(crate) use warm::Warm;
pub use warm::{MOST_WARM, Warmed};
pub(crate) use write::ToWrite;
