//! The verbs, in the order of a request's life. The only place where tree, slots, copies and storage meet.
//!
//! ```text
//! match_prefix ─▶ prefetch ─▶ load ─▶ (compute) ─▶ insert ─▶ backup ─▶ evict
//!                     ▲                                │
//!                     └────────── poll ◀───────────────┘
//! ```
//! A verb checks its arguments before it changes anything, changes the tree, and appends commands.
//!
//! What windows and states add to a verb is beside it: `raise` to `load`, `give` to `insert`, `fetch` to `prefetch`,
//! `graft` to `poll`, `parts` to `evict` and `allocate`; `shared` is for a unified buffer, `forward` for what the engine
//! computes in it meanwhile, and `leftovers` for host memory that outlives the process. `write`, `reserve` and `store` say
//! when what is copied further down.

mod backup;
mod detach;
mod epoch;
mod evict;
mod fault;
mod fetch;
mod forward;
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
mod reserve;
mod shared;
mod store;
mod view;
mod write;

pub(crate) use forward::Forwards;
pub use insert::{GivenPart, Inserted};
pub use leftovers::Leftovers;
pub use load::Loaded;
pub(crate) use store::StoreQueue;
pub use view::HitView;
pub(crate) use write::ToWrite;
