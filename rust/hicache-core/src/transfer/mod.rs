//! Copies between device and host, in two streams: in (load) and out (backup).
//!
//! | file | what |
//! |---|---|
//! | `strided` | the descriptor of a copy, in its normal form |
//! | `plan` | from planes on both sides to descriptors |
//! | `progress` | how far a stream is, and waiting for it |
//! | `cpu/` | the copier for memory that the CPU reaches |
//! | `cuda/` | the copier for a GPU, under the cargo feature `cuda` |
//!
//! Jobs of one direction are carried out in the order of their tickets, layer by layer in the order of the model's
//! layers, whichever space their slots are of. Slots of an unfinished job belong to it. On error: a copy within this process's memory can't fail; a wait that
//! outlasts its deadline says so, and so does one for a copier that has ended.

pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod plan;
pub mod progress;
pub mod strided;

pub use progress::Progress;

use crate::error::{Result, argument};
use crate::ids::Slot;
use crate::measured::Begun;
use std::sync::Arc;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Host → device: a load.
    In = 0,
    /// Device → host: a backup.
    Out = 1,
}

/// Pages as (device slot, host slot), a list for each space of slots in the order of spaces: 0 is the cache's own,
/// the others are its parts'. Spaces at the end that have none may be left out.
pub type SpacePages = Vec<Vec<(Slot, Slot)>>;

/// One job: pages to copy, each from and to a slot.
#[derive(Clone, Debug)]
pub struct CopyJob {
    /// Number in its direction, one more than the job before.
    pub ticket: u64,
    /// Which way.
    pub direction: Direction,
    /// Pages as (device slot, host slot), a list for each space.
    pub pages: SpacePages,
    /// When it was made, and for how many pages.
    pub begun: Begun,
}

impl CopyJob {
    /// Of a ticket and its pages. It begins now.
    pub fn of(ticket: u64, direction: Direction, pages: SpacePages) -> Self {
        let begun = Begun::now(pages.iter().map(Vec::len).sum());
        Self { ticket, direction, pages, begun }
    }

    /// A space's pages: none where the list was left out.
    pub fn space(&self, space: u32) -> &[(Slot, Slot)] {
        self.pages.get(space as usize).map_or(&[], Vec::as_slice)
    }
}

/// How a GPU copies. Pairs are by direction: in, out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuOptions {
    /// Runs of at least so many bytes go by the copy engine.
    pub engine_run: [u64; 2],
    /// Device memory for staging, in bytes; 0 never stages.
    pub staging: [u64; 2],
    /// Multiprocessors that a direct kernel may take.
    pub multiprocessors: [u32; 2],
}

impl Default for GpuOptions {
    /// By design, not yet by measurement: 64 KiB, staging inwards only, few multiprocessors.
    fn default() -> Self {
        Self { engine_run: [64 << 10; 2], staging: [64 << 20, 0], multiprocessors: [4, 2] }
    }
}

impl GpuOptions {
    /// # Errors
    /// Names the option that can't be meant.
    pub fn check(&self) -> Result<()> {
        if self.engine_run.contains(&0) {
            return argument("gpu_copies", "runs for the copy engine have at least one byte");
        }
        if self.multiprocessors.contains(&0) {
            return argument("gpu_copies", "a kernel needs at least one multiprocessor");
        }
        Ok(())
    }
}

/// Makes a device's stream wait for layer `.1` of load `.0` and of all loads before it; the stream as its copier
/// names them. Usable from any thread, and after the copier has ended.
pub type WaitOnStream = Arc<dyn Fn(u64, u32, u64) -> Result<()> + Send + Sync>;

/// Moves the bytes of pages (from, to) of a space inside the device's buffer, when it returns. Nobody else may touch
/// any of these places meanwhile.
pub type Relocate = Arc<dyn Fn(u32, &[(Slot, Slot)]) + Send + Sync>;

/// Carries out copies in the background.
///
/// Implementations: [`cpu::CpuCopier`], the one of `cuda/`, and doubles in tests that hold a job back at a gate.
pub trait Copier: Send + Sync {
    /// Takes a job; returns at once. Tickets of a direction are submitted in order, without gaps.
    fn submit(&mut self, job: CopyJob);

    /// How far a direction is.
    fn progress(&self, direction: Direction) -> &Arc<Progress>;

    /// The stream on which the engine computes: jobs submitted from now on come after what it has then. Means
    /// nothing where the CPU copies.
    fn follow(&self, _stream: u64) {}

    /// What ended all copies of this copier. From then on none is carried out or finishes, none touches memory, and
    /// both directions' progress tells the fault to those who wait.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Moving pages inside the device's memory, where that is one buffer that the CPU reaches.
    fn relocate(&self) -> Option<Relocate> {
        None
    }

    /// Waiting on the device instead of the CPU, where copies have streams.
    fn wait_on_stream(&self) -> Option<WaitOnStream> {
        None
    }
}
