//! The only place that touches copier and store: carries commands out, in order, and hands back what ended.
//!
//! Which workers do the storage work is `staff`'s.
//! Knows slots, addresses and keys; refuses to know the tree and requests.
//! On error: a write that finds the bounded queue full waits here for its turn.

mod staff;

use crate::command::Command;
use crate::hash::Digest;
use crate::identity::Fingerprint;
use crate::ids::{HostSlot, Slot};
use crate::measured::{self, Kind};
use crate::policy::fetching::Request;
use crate::restart::Kept;
use crate::storage::{About, Batch, Completion, Store, Work, Workers};
use crate::transfer::{Copier, CopyJob, Direction, Progress, Relocate, SpacePages, WaitOnStream};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use crate::slabs::{HostMemory, HostPool};

/// Carries out commands.
pub struct Executor {
    /// None while the device memory is detached.
    copier: Option<Box<dyn Copier>>,
    /// Of the copier, where pages move inside device memory.
    relocate: Option<Relocate>,
    /// Of the copier, or of the last one.
    progress: [Arc<Progress>; 2],
    workers: Option<Workers>,
    memory: Arc<HostMemory>,
    /// Whose pages go to storage.
    identity: Fingerprint,
    page_tokens: u64,
    /// Of memory that outlives the process: what is in it.
    kept: Option<Arc<Kept>>,
    /// Writes that found the queue full. Bounded by what the host has room for: each holds its slots.
    waiting: VecDeque<Batch>,
    /// Workers of stores that were detached, until nothing is inside of them any more.
    former: Vec<Workers>,
    /// What ended without a worker.
    ended: VecDeque<Completion>,
    /// What copies and storage took, by those that carried them out.
    work: measured::Work,
}

impl Executor {
    /// Over one copier and, with storage, its workers and the identity under which pages are stored.
    pub fn new(copier: Box<dyn Copier>, storage: Option<(Workers, Fingerprint)>, memory: HostMemory) -> Self {
        let mut executor = Self::detached(memory);
        executor.attach(copier);
        if let Some((workers, identity)) = storage {
            executor.employ(workers, identity);
        }
        executor
    }

    /// Without a copier and workers: there is no device memory yet, and no storage.
    pub fn detached(memory: HostMemory) -> Self {
        let memory = Arc::new(memory);
        Self {
            copier: None,
            relocate: None,
            progress: Default::default(),
            workers: None,
            memory,
            identity: Fingerprint([0; 32]),
            page_tokens: 1,
            kept: None,
            waiting: VecDeque::new(),
            former: Vec::new(),
            ended: VecDeque::new(),
            work: measured::Work::default(),
        }
    }

    /// Tokens that a page has.
    pub const fn page_tokens(&mut self, tokens: u64) {
        self.page_tokens = tokens;
    }

    /// For how long the oldest read of each waiting request has been under way, in microseconds.
    pub fn under_way(&self) -> Vec<(u64, u64)> {
        self.workers.as_ref().map(Workers::under_way).unwrap_or_default()
    }

    /// Pages are stored and asked for under another identity from now on.
    pub const fn identify(&mut self, identity: Fingerprint) {
        self.identity = identity;
    }

    /// The store, where there is one.
    pub fn store(&self) -> Option<&dyn Store> {
        self.workers.as_ref()?.store()
    }

    /// What the store said of itself last, where there is one; also after `close`.
    pub fn about_store(&self) -> Option<Arc<About>> {
        Some(self.workers.as_ref()?.about())
    }

    /// The host's memory outlives the process, and this knows what is in it.
    pub fn keep(&mut self, kept: Kept) -> Arc<Kept> {
        Arc::clone(self.kept.insert(Arc::new(kept)))
    }

    /// Others may take memory over that outlives the process: no copy is under way, and the workers have been closed.
    pub fn leave(&self) {
        self.kept.iter().for_each(|kept| kept.leave());
    }

    /// What is in memory that outlives the process.
    pub const fn kept(&self) -> Option<&Arc<Kept>> {
        self.kept.as_ref()
    }

    /// Copies go to this copier from now on.
    pub fn attach(&mut self, copier: Box<dyn Copier>) {
        self.progress = [Direction::In, Direction::Out].map(|way| Arc::clone(copier.progress(way)));
        let kinds = [Kind::Load, Kind::Backup].into_iter().zip(&self.progress);
        kinds.for_each(|(kind, progress)| self.work.follow(kind, progress.times()));
        self.relocate = copier.relocate();
        self.copier = Some(copier);
    }

    /// Ends the copier; its jobs must have landed.
    pub fn detach(&mut self) {
        self.relocate = None;
        self.copier = None;
    }

    /// Whether there is a copier.
    pub const fn attached(&self) -> bool {
        self.copier.is_some()
    }

    /// Whether pages can move inside device memory.
    pub const fn relocates(&self) -> bool {
        self.relocate.is_some()
    }

    /// The host side of all pools.
    pub const fn memory(&self) -> &Arc<HostMemory> {
        &self.memory
    }

    /// Carries out all commands of a list, in order.
    pub fn drain(&mut self, commands: &mut Vec<Command>) {
        for command in commands.drain(..) {
            match command {
                Command::Backup { ticket, pages } => {
                    self.clear(&pages);
                    self.copy(ticket, Direction::Out, pages);
                }
                Command::Load { ticket, pages } => self.copy(ticket, Direction::In, pages),
                Command::Move { space, frames } => self.move_pages(space, &frames),
                Command::Exists { id, waiter, keys, cancel } => {
                    self.work(id, Some(waiter), keys, Work::Exists, cancel);
                }
                Command::Cancel { waiter } => self.workers.iter().for_each(|workers| workers.cancel(waiter)),
                Command::Step(step) => self.workers.iter().for_each(|workers| workers.step(step)),
                Command::Read { id, waiter, keys, slots, cancel } => {
                    if let Some(kept) = &self.kept {
                        slots.iter().zip(&keys).for_each(|(&slot, key)| kept.clear(slot, Some(key)));
                    }
                    let pages = slots.into_iter().map(|slot| self.memory.page(slot)).collect();
                    self.work(id, Some(waiter), keys, Work::Get(pages), cancel);
                }
                Command::Store { id, keys, parents, slots } => {
                    let pages = slots.into_iter().map(|slot| self.memory.page(slot)).collect();
                    self.work(id, None, keys, Work::Put(pages, parents), Arc::default());
                }
                Command::Clear { id } => self.work(id, None, Vec::new(), Work::Clear, Arc::default()),
            }
        }
    }

    /// How far a direction's copies are.
    pub fn progress(&self, direction: Direction) -> &Arc<Progress> {
        &self.progress[direction as usize]
    }

    /// Copies submitted from now on come after what this stream of the device has then.
    pub fn follow(&self, stream: u64) {
        if let Some(copier) = &self.copier {
            copier.follow(stream);
        }
    }

    /// What ended all copies, if something did.
    pub fn fault(&self) -> Option<String> {
        self.copier.as_ref()?.fault()
    }

    /// Waiting for layers on the device, where that is possible.
    pub fn wait_on_stream(&self) -> Option<WaitOnStream> {
        self.copier.as_ref()?.wait_on_stream()
    }

    /// The next storage work that ended, in order of ending.
    pub fn completed(&mut self) -> Option<Completion> {
        self.submit_waiting();
        let ended = self.ended.pop_front().or_else(|| self.completed_late());
        ended.or_else(|| self.workers.as_ref()?.completed())
    }

    /// The same, of stores that were detached.
    fn completed_late(&mut self) -> Option<Completion> {
        let mut done = None;
        self.former.retain(|workers| {
            // Asked in this order: what is over completes nothing more.
            let over = workers.is_over();
            done = done.take().or_else(|| workers.completed());
            !over || done.is_some()
        });
        done
    }

    /// Ends the storage threads, waiting at most so long.
    pub fn close(&mut self, most: Duration) {
        self.waiting.clear();
        if let Some(workers) = &mut self.workers {
            workers.close(most);
        }
    }

    /// What is in these host slots will be overwritten.
    fn clear(&self, pages: &SpacePages) {
        let Some(kept) = &self.kept else { return };
        for (space, pages) in (0u8..).zip(pages) {
            pages.iter().for_each(|&(_, slot)| kept.clear(HostSlot { space, slot }, None));
        }
    }

    fn copy(&mut self, ticket: u64, direction: Direction, pages: SpacePages) {
        debug_assert!(self.copier.is_some(), "a copy without device memory");
        if let Some(copier) = &mut self.copier {
            copier.submit(CopyJob::of(ticket, direction, pages));
        }
    }

    fn move_pages(&self, space: u32, frames: &[(Slot, Slot)]) {
        debug_assert!(self.relocate.is_some(), "a move without a buffer");
        if let Some(relocate) = &self.relocate {
            relocate(space, frames);
        }
    }

    fn work(
        &mut self,
        id: u64,
        waiter: Option<Request>,
        keys: Vec<Digest>,
        work: Work,
        cancel: Arc<AtomicBool>,
    ) {
        let memory: Arc<HostMemory> = Arc::clone(&self.memory);
        let mut batch = Batch::new(id, self.identity, keys, work, cancel, memory);
        batch.waiter = waiter.map(|waiter| (waiter, self.page_tokens));
        if let Some(workers) = &self.workers {
            workers.enlist(&mut batch);
        }
        match &self.workers {
            // Writes go in their order: nobody overtakes those that wait.
            Some(workers) if self.waiting.is_empty() => self.waiting.extend(workers.submit(batch)),
            Some(_) if matches!(batch.work, Work::Put(..)) => self.waiting.push_back(batch),
            Some(workers) => drop(workers.submit(batch)),
            None => {}
        }
    }

    /// Hands writes that found the queue full to it, as far as there is room now.
    fn submit_waiting(&mut self) {
        let Some(workers) = &self.workers else { return };
        while let Some(batch) = self.waiting.pop_front() {
            if let Some(batch) = workers.submit(batch) {
                self.waiting.push_front(batch);
                break;
            }
        }
    }
}
