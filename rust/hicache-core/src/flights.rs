//! Transfers under way, one queue per kind, in order of submission.
//!
//! A transfer owns its pins and slots: whatever the tree does meanwhile (split, eviction, abort), they
//! come back when it lands. One that outlasts its deadline leaves its queue, so that nobody waits behind
//! it, and keeps what it owns until it lands after all.

use crate::hash::Digest;
use crate::ids::{HitId, HostSlot, Slot};
use crate::policy::fetching::ReadTime;
use crate::storage::{Completion, Outcome};
use crate::tree::PinId;
use crate::unified::GateId;
use std::collections::VecDeque;

/// A copy between device and host.
#[derive(Debug)]
pub(crate) struct Copy {
    pub ticket: u64,
    /// Holds the device's pages.
    pub device: PinId,
    /// Holds the host's pages; of what passes through staging only follows the place.
    pub host: PinId,
    /// Where the device is a unified buffer: keeps its pages where they are.
    pub gate: Option<GateId>,
    /// How many pages it copies.
    pub pages: u32,
    /// Of a backup: the host slots that it fills for each part.
    pub parts: Vec<Vec<Slot>>,
    /// Of a backup with storage: the host slots that it fills for parts, which storage hasn't got.
    pub store: Vec<HostSlot>,
    /// Of a backup into staging: pages that it copies, counted from 0 at the root, and parts' of pages, for storage. It
    /// owns their slots until it lands.
    pub writes: Vec<(u32, ToStore)>,
    /// Of a load from staging, the slots there that it reads: it owns them until it lands.
    pub staged: Vec<HostSlot>,
    /// Of a load from there: that its pages, which count as stored until it has landed, aren't: no copy of them is begun
    /// before they are there.
    pub unstored: bool,
}

/// A page, or what a part has of it, that goes on to storage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToStore {
    pub digest: Digest,
    /// The page without which it is worth nothing.
    pub parent: Option<Digest>,
    pub slot: HostSlot,
}

/// A page, or what a part has of it, that is being written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    /// Which of the batch's pins holds it.
    pub hold: u32,
    /// Counted from 0 at the root.
    pub page: u32,
    pub slot: HostSlot,
}

/// A batch of storage work.
#[derive(Debug)]
pub(crate) struct Batch {
    pub id: u64,
    pub deadline: f64,
    pub outcomes: Option<Vec<Outcome>>,
    /// Of reads: when they were, and what of them didn't come.
    pub time: Option<ReadTime>,
    pub failed: Vec<Digest>,
    /// Of a clear: how many pages were removed.
    pub cleared: u64,
    /// Its store was detached.
    pub left: bool,
    /// Of writes: storage was forgotten since they were asked for.
    pub forgotten: bool,
    pub what: What,
}

impl Batch {
    pub const fn new(id: u64, deadline: f64, what: What) -> Self {
        Self {
            id,
            deadline,
            outcomes: None,
            time: None,
            failed: Vec::new(),
            cleared: 0,
            left: false,
            forgotten: false,
            what,
        }
    }
}

#[derive(Debug)]
pub(crate) enum What {
    /// Pages being written; the pins hold them on the host, or name them where that is staging.
    Store { holds: Vec<PinId>, written: Vec<Written> },
    /// All pages of the identity leave the store.
    Clear,
    /// A question for a hit's prefetch, of what it asks for from place `from` on.
    Exists { hit: HitId, attempt: u64, from: usize },
    /// Pages being read into slots, from page `at` of the hit's path on.
    Read { hit: HitId, attempt: u64, at: u32, slots: Vec<Slot> },
    /// What parts have of pages (counted from 0 at the root) being read into slots.
    ReadParts { hit: HitId, attempt: u64, reads: Vec<(u32, HostSlot)> },
}

/// How many leading transfers of each kind have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Device → host.
    pub backups: usize,
    /// Host → device.
    pub loads: usize,
    /// Host → storage.
    pub stores: usize,
    /// Storage → host, questions included.
    pub prefetches: usize,
    /// Storage work of any kind that outlasted its deadline and has landed after all.
    pub strays: usize,
}

/// All transfers under way.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    pub backups: VecDeque<Copy>,
    pub loads: VecDeque<Copy>,
    pub stores: VecDeque<Batch>,
    pub prefetches: VecDeque<Batch>,
    /// Past their deadline, in order of passing it: they keep what they own until they land.
    pub strays: VecDeque<Batch>,
    /// Last ticket of each direction, and last batch.
    pub loads_submitted: u64,
    pub backups_submitted: u64,
    pub batches_submitted: u64,
}

impl Flights {
    pub fn next_batch(&mut self) -> u64 {
        self.batches_submitted += 1;
        self.batches_submitted
    }

    /// Notes a batch's outcomes. Nothing else changes: that is for `poll`, which ranks agree on.
    pub fn land(&mut self, done: Completion) {
        let id = done.id;
        let mut batches = self.stores.iter_mut().chain(&mut self.prefetches).chain(&mut self.strays);
        if let Some(batch) = batches.find(|batch| batch.id == id) {
            batch.outcomes = Some(done.outcomes);
            (batch.time, batch.failed, batch.cleared) = (done.time, done.failed, done.cleared);
        }
    }

    /// Moves batches whose deadline has passed out of the queues; returns how many. The deadline alone
    /// decides, not whether the batch has landed here: that may differ between ranks. Questions own nothing, and
    /// are forgotten: a store that never answers would have ranks, which take strays in their order, keep all of them.
    pub fn expire(&mut self, now: f64) -> usize {
        let mut passed = 0;
        for queue in [&mut self.stores, &mut self.prefetches] {
            if !queue.iter().any(|batch| now >= batch.deadline) {
                continue;
            }
            let (late, rest): (Vec<Batch>, Vec<Batch>) =
                std::mem::take(queue).into_iter().partition(|batch| now >= batch.deadline);
            queue.extend(rest);
            passed += late.len();
            self.strays.extend(late.into_iter().filter(|batch| !matches!(batch.what, What::Exists { .. })));
        }
        passed
    }

    /// Nobody waits for any storage work any more: it keeps what it owns until it lands, like what is late.
    pub fn leave_storage(&mut self) {
        self.strays.extend(self.stores.drain(..));
        self.strays.extend(self.prefetches.drain(..));
        self.strays.iter_mut().for_each(|batch| batch.left = true);
    }

    /// What is being written is of a storage that doesn't count any more.
    pub fn forget_writes(&mut self) {
        self.stores.iter_mut().chain(&mut self.strays).for_each(|batch| batch.forgotten = true);
    }

    /// Batches of storage work that nobody waits for: those that haven't landed, and pages of writes that were cancelled.
    pub fn left(&self) -> (usize, usize) {
        let inside = self.strays.iter().filter(|batch| batch.outcomes.is_none()).count();
        let writes = self.strays.iter().filter(|batch| matches!(batch.what, What::Store { .. }));
        let outcomes = writes.filter_map(|batch| batch.outcomes.as_ref()).flatten();
        (inside, outcomes.filter(|&&outcome| outcome == Outcome::Cancelled).count())
    }

    /// Takes the leading questions and reads out that have landed or, where nobody has to agree, all that have.
    pub fn landed(&mut self, leading: usize, all: bool) -> Vec<Batch> {
        let mut landed: Vec<Batch> = self.prefetches.drain(..leading).collect();
        if all && self.prefetches.iter().any(|batch| batch.outcomes.is_some()) {
            let (more, rest): (Vec<Batch>, Vec<Batch>) =
                self.prefetches.drain(..).partition(|batch| batch.outcomes.is_some());
            landed.extend(more);
            self.prefetches.extend(rest);
        }
        landed
    }

    /// Whether something is under way that ends by itself, and may leave room on the host.
    pub fn moving(&self) -> bool {
        self.len() > self.strays.len()
    }

    /// Transfers of every kind, strays included.
    pub fn len(&self) -> usize {
        self.backups.len() + self.loads.len() + self.stores.len() + self.prefetches.len() + self.strays.len()
    }

    /// Host slots of a space that reads own.
    pub fn reading(&self, space: u8) -> usize {
        let reads = self.prefetches.iter().chain(&self.strays);
        let slots = reads.map(|batch| match &batch.what {
            What::Read { slots, .. } if space == 0 => slots.len(),
            What::ReadParts { reads, .. } => reads.iter().filter(|(_, to)| to.space == space).count(),
            _ => 0,
        });
        slots.sum()
    }

    /// Gates that copies hold.
    pub fn gates(&self) -> usize {
        self.backups.iter().chain(&self.loads).filter(|copy| copy.gate.is_some()).count()
    }

    /// Pins that transfers hold.
    pub fn pins(&self) -> usize {
        let stores: usize = self.writes().map(|(_, holds, _)| holds.len()).sum();
        2 * (self.backups.len() + self.loads.len()) + stores
    }

    /// Batches that are being written, strays included, and their pages.
    pub fn storing(&self) -> (usize, usize) {
        let here = self.writes().filter(|(batch, ..)| !batch.left);
        here.fold((0, 0), |(batches, pages), (.., written)| (batches + 1, pages + written.len()))
    }

    /// Of a space, the slots that are being written, but for those that nobody waits for.
    pub fn storing_of(&self, space: u8) -> usize {
        let here = self.writes().filter(|(batch, ..)| !batch.left);
        here.map(|(.., written)| written.iter().filter(|page| page.slot.space == space).count()).sum()
    }

    pub fn writes(&self) -> impl Iterator<Item = (&Batch, &[PinId], &[Written])> {
        self.stores.iter().chain(&self.strays).filter_map(|batch| match &batch.what {
            What::Store { holds, written } => Some((batch, holds.as_slice(), written.as_slice())),
            _ => None,
        })
    }
}
