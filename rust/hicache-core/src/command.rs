//! What the verbs decided, as values. A verb changes the tree and appends commands; the executor
//! carries them out in order. Commands name slots, never addresses, so that another rank could follow; where the device
//! is one unified buffer, its slots' frames.

use crate::hash::Digest;
use crate::ids::{HostSlot, Slot};
use crate::policy::fetching::{Request, Step};
use crate::transfer::SpacePages;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// One decision.
#[derive(Debug)]
pub enum Command {
    /// Copy pages (device slot, host slot) from device to host.
    Backup {
        /// Number among the backups.
        ticket: u64,
        /// Pages as (device slot, host slot), a list for each space.
        pages: SpacePages,
    },
    /// Copy pages (device slot, host slot) from host to device.
    Load {
        /// Number among the loads.
        ticket: u64,
        /// Pages as (device slot, host slot), a list for each space.
        pages: SpacePages,
    },
    /// Move pages inside the device's buffer, before anything else of the list touches it.
    Move {
        /// Whose frames.
        space: u32,
        /// (from, to); no frame is in it twice.
        frames: Vec<(Slot, Slot)>,
    },
    /// Ask storage which keys it has.
    Exists {
        /// Names the completion.
        id: u64,
        /// Who waits.
        waiter: Request,
        /// In order of the path.
        keys: Vec<Digest>,
        /// Set when nobody waits any more.
        cancel: Arc<AtomicBool>,
    },
    /// Read keys from storage into host slots.
    Read {
        /// Names the completion.
        id: u64,
        /// Who waits.
        waiter: Request,
        /// In order of the path.
        keys: Vec<Digest>,
        /// One per key.
        slots: Vec<HostSlot>,
        /// Set when nobody waits any more.
        cancel: Arc<AtomicBool>,
    },
    /// Nobody waits for these questions and reads any more.
    Cancel {
        /// Number of who did.
        waiter: u64,
    },
    /// Remove all pages of the identity from storage, and end every write of them that was asked for before.
    Clear {
        /// Names the completion.
        id: u64,
    },
    /// The engine made a step.
    Step(Step),
    /// Write host slots to storage.
    Store {
        /// Names the completion.
        id: u64,
        /// In order of the path.
        keys: Vec<Digest>,
        /// For each, the page without which it is worth nothing.
        parents: Vec<Option<Digest>>,
        /// One per key.
        slots: Vec<HostSlot>,
    },
}
