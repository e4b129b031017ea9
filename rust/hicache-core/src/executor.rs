//! The only place that touches copier and store: carries commands out, in order, and hands back what ended.
//!
//! Knows slots, addresses and keys; refuses to know the tree and requests.
//! On error: a write that the bounded queue refuses completes at once as `Cancelled`.

use crate::command::Command;
use crate::hash::Digest;
use crate::host::{Layout, Slab};
use crate::ids::Slot;
use crate::storage::workers::Completion;
use crate::storage::{Outcome, Page, Work, Workers};
use crate::transfer::{Copier, CopyJob, Direction, Progress};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The host side of all pools.
#[derive(Debug, Default)]
pub struct HostMemory {
    /// In order of the pools.
    pub pools: Vec<(Layout, Arc<Slab>)>,
}

impl HostMemory {
    /// A page's payload: the runs of all pools, in order.
    fn page(&self, slot: Slot) -> Page {
        let runs = self.pools.iter().flat_map(|(layout, slab)| {
            layout.runs(slot.0).filter_map(|run| Some((slab.address(run.clone())?, run.len())))
        });
        Page(runs.collect())
    }
}

/// Carries out commands.
pub struct Executor {
    copier: Box<dyn Copier>,
    workers: Option<Workers>,
    memory: Arc<HostMemory>,
    refused: Vec<Completion>,
}

impl Executor {
    /// Over one copier and, with storage, its workers.
    pub fn new(copier: Box<dyn Copier>, workers: Option<Workers>, memory: HostMemory) -> Self {
        Self { copier, workers, memory: Arc::new(memory), refused: Vec::new() }
    }

    /// Carries out all commands of a list, in order.
    pub fn drain(&mut self, commands: &mut Vec<Command>) {
        for command in commands.drain(..) {
            match command {
                Command::Backup { ticket, pages } => self.copy(ticket, Direction::Out, pages),
                Command::Load { ticket, pages } => self.copy(ticket, Direction::In, pages),
                Command::Exists { id, keys, cancel } => self.work(id, keys, Work::Exists, cancel),
                Command::Read { id, keys, slots, cancel } => {
                    let pages = slots.into_iter().map(|slot| self.memory.page(slot)).collect();
                    self.work(id, keys, Work::Get(pages), cancel);
                }
                Command::Store { id, keys, slots } => {
                    let pages = slots.into_iter().map(|slot| self.memory.page(slot)).collect();
                    self.work(id, keys, Work::Put(pages), Arc::default());
                }
            }
        }
    }

    /// How far a direction's copies are.
    pub fn progress(&self, direction: Direction) -> &Arc<Progress> {
        self.copier.progress(direction)
    }

    /// The next storage work that ended, in order of ending.
    pub fn completed(&mut self) -> Option<Completion> {
        self.refused.pop().or_else(|| self.workers.as_ref()?.completed())
    }

    /// Ends the storage threads, waiting at most so long.
    pub fn close(&mut self, most: Duration) {
        if let Some(workers) = &mut self.workers {
            workers.close(most);
        }
    }

    fn copy(&mut self, ticket: u64, direction: Direction, pages: Vec<(Slot, Slot)>) {
        self.copier.submit(CopyJob { ticket, direction, pages });
    }

    fn work(&mut self, id: u64, keys: Vec<Digest>, work: Work, cancel: Arc<AtomicBool>) {
        let count = keys.len();
        let taken = self.workers.as_ref().is_some_and(|workers| {
            let memory = Arc::clone(&self.memory);
            workers.submit(id, keys, work, cancel, memory)
        });
        if !taken {
            self.refused.push(Completion { id, outcomes: vec![Outcome::Cancelled; count] });
        }
    }
}
