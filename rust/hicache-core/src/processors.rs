//! How many processors this process may keep busy: of those that it is bound to, what its control groups allow it.
//!
//! Numbers of threads that copy or touch memory follow from this, never from what the machine has: in a container
//! with a quota, threads beyond it only use it up sooner, and all of them then stand still for the rest of a period.
//! On error: where nothing can be asked, one.

/// So many at once, at least one. A quota of one processor and a half is one.
pub fn allowed() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
