//! Threads that carry out storage work.
//!
//! They get keys and places in memory and give back outcomes; they know no tree, no slots, no requests. What waits for
//! them and which of it is next is `queue`'s. Reads go before writes: a waiting request before a background copy; of three or more
//! threads one does nothing but read. The queue of writes is bounded: what doesn't fit is given back, never waited for. A write
//! that fails is tried once more. A removal wins over every write that was asked for before it (`removals`).
//!
//! A store that panics loses its batch (`Failed`), not its thread. A store that never returns keeps its
//! thread and the memory of its batch; [`Workers::close`] (`ending`) doesn't wait for it beyond its deadline.
#![allow(unsafe_code, reason = "makes slices of pages whose slots the work owns")]

use super::about::{About, Board};
use super::asked::Asked;
use super::batch::{Batch, Completion, Work};
use super::queue::{Job, Queue};
use super::removals::Removals;
use super::writes;
use super::{Keys, Outcome, PageMut, PageRef, Store};
use crate::error::{Result, argument};
use crate::hash::Digest;
use crate::identity::Fingerprint;
use crate::measured::{Kind, Times};
use crate::policy::fetching::{Fair, Order, Step};
use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// One page in memory: runs of bytes that together are its payload.
#[derive(Debug)]
pub struct Page(pub Vec<(*mut u8, usize)>);

impl Page {
    /// Size of the payload.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|run| run.1).sum()
    }
}

// SAFETY: the work that carries a page owns its slot until it completes; `memory` keeps it mapped.
unsafe impl Send for Page {}
// SAFETY: a shared page is never dereferenced: only the worker that owns its batch does that.
unsafe impl Sync for Page {}

/// The threads and what waits for them.
pub struct Workers {
    pub(super) queue: Arc<Queue>,
    removals: Arc<Removals>,
    board: Arc<Board>,
    /// What questions, reads and writes took.
    times: Arc<Asked>,
    /// Until `close`.
    pub(super) store: Option<Arc<dyn Store>>,
    /// The memory that it was told of: it stays as long as the store isn't closed.
    pub(super) memory: Option<Arc<dyn Any + Send + Sync>>,
    /// Those that may be inside it.
    pub(super) threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts `threads` threads; at most `queue` batches of writes wait. Requests take turns with their reads.
    ///
    /// # Errors
    /// When the system has no thread to give. Those that were started end by themselves.
    pub fn start(store: &Arc<dyn Store>, threads: usize, queue: usize) -> Result<Self> {
        Self::with_order(store, threads, queue, Box::<Fair>::default())
    }

    /// The same with an order of one's own.
    ///
    /// # Errors
    /// The same.
    pub fn with_order(
        store: &Arc<dyn Store>,
        threads: usize,
        queue: usize,
        order: Box<dyn Order>,
    ) -> Result<Self> {
        let queue = Arc::new(Queue::new(order, queue));
        let (removals, board) = (Arc::default(), Arc::new(Board::of(&**store)));
        let (own, threads_of) = (Some(Arc::clone(store)), Vec::new());
        let times = Arc::default();
        let mut workers =
            Self { queue, removals, board, times, store: own, memory: None, threads: threads_of };
        for n in 0..threads {
            let (store, queue) = (Arc::clone(store), Arc::clone(&workers.queue));
            let (removals, board) = (Arc::clone(&workers.removals), Arc::clone(&workers.board));
            let times = Arc::clone(&workers.times);
            // One thread never writes: writes that hang must not keep requests waiting.
            let writes = n > 0 || threads < 3;
            let work = move || carry_out(&*store, (&removals, &board, &times), &queue, writes);
            match std::thread::Builder::new().name(format!("hicache-io-{n}")).spawn(work) {
                Ok(thread) => workers.threads.push(thread),
                Err(error) => return argument("io_threads", format!("no thread to be had: {error}")),
            }
        }
        Ok(workers)
    }

    /// The store was told of this memory: what a close that takes too long leaves behind keeps it.
    pub fn hold(&mut self, memory: Arc<dyn Any + Send + Sync>) {
        self.memory = Some(memory);
    }

    /// A write or a removal is asked for now, whenever it is submitted: a removal wins over every write before it.
    pub fn enlist(&self, batch: &mut Batch) {
        match batch.work {
            Work::Put(..) => batch.attempt = batch.attempt.or_else(|| Some(self.removals.ask())),
            Work::Remove => {
                batch.attempt = batch.attempt.or_else(|| Some(self.removals.remove(batch.keys())));
            }
            Work::Clear => {
                batch.attempt = batch.attempt.or_else(|| Some(self.removals.clear(&batch.identity)));
            }
            Work::Exists | Work::Get(_) => {}
        }
    }

    /// The same for a batch that others were asked for before.
    pub fn enlist_anew(&self, batch: &mut Batch) {
        batch.attempt = None;
        self.enlist(batch);
    }

    /// Removes pages. When that has ended they are absent, whatever was asked for before: writes that wait are
    /// cancelled, and those under way end as if they had been.
    pub fn remove(&self, id: u64, identity: Fingerprint, keys: Vec<Digest>) {
        let batch = Batch::new(id, identity, keys, Work::Remove, Arc::default(), Arc::new(()));
        // Only writes are ever given back.
        drop(self.submit(batch));
    }

    /// Takes a batch; gives a write back if the queue is full. After `close` batches are dropped.
    pub fn submit(&self, mut batch: Batch) -> Option<Batch> {
        self.enlist(&mut batch);
        self.queue.put(batch)
    }

    /// Nobody waits for a request's questions and reads any more: those that haven't begun end now.
    pub fn cancel(&self, number: u64) {
        self.queue.cancel(number);
    }

    /// The engine made a step: which read is next may depend on that.
    pub fn step(&self, step: Step) {
        self.queue.step(step);
    }

    /// For how long the oldest read of each request has been under way, in microseconds.
    pub fn under_way(&self) -> Vec<(u64, u64)> {
        self.queue.under_way()
    }

    /// Batches that wait for a thread: questions and removals, reads, writes.
    pub fn waiting(&self) -> [usize; 3] {
        self.queue.waiting()
    }

    /// How often a thread without work was woken.
    pub fn wakeups(&self) -> u64 {
        self.queue.wakeups()
    }

    /// Whose threads they are, until `close`.
    pub fn store(&self) -> Option<&dyn Store> {
        self.store.as_deref()
    }

    /// What the store said of itself after the last batch that ended. Nobody waits for it here.
    pub fn about(&self) -> Arc<About> {
        self.board.read()
    }

    /// What questions, reads and writes take; it outlives the workers.
    pub fn times(&self) -> [(Kind, &Arc<Times>); 3] {
        self.times.all()
    }

    /// The next batch that ended, in order of ending.
    pub fn completed(&self) -> Option<Completion> {
        self.queue.completed()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn carry_out(
    store: &dyn Store,
    (removals, board, times): (&Removals, &Board, &Asked),
    queue: &Queue,
    writing: bool,
) {
    while let Some(job) = queue.next(writing) {
        match job {
            Job::Whole(batch) => {
                let begun = queue.now();
                let (outcomes, cleared) = match batch.work {
                    Work::Clear => clear(store, removals, &batch),
                    _ => (outcomes(store, removals, &batch), 0),
                };
                times.took(&batch.work, queue.now() - begun, &outcomes);
                board.ask(store);
                queue.ended(&batch, outcomes, cleared);
            }
            Job::Part(read, keys, issued) => {
                let outcomes = part(store, &read.batch, keys.clone());
                let completed = queue.now();
                times.took(&read.batch.work, completed - issued, &outcomes);
                board.ask(store);
                queue.read(&read, keys, (issued, completed), &outcomes);
            }
        }
    }
}

/// Reads some keys of a batch.
fn part(store: &dyn Store, batch: &Batch, keys: Range<usize>) -> Vec<Outcome> {
    let Work::Get(pages) = &batch.work else { return vec![Outcome::Failed; keys.len()] };
    if batch.cancel.load(Ordering::Relaxed) {
        return vec![Outcome::Cancelled; keys.len()];
    }
    let digests = &batch.keys[keys.clone()];
    trying(digests.len(), || get(store, Keys { digests, ..batch.keys() }, &pages[keys]))
}

/// Reads into pages.
fn get(store: &dyn Store, keys: Keys<'_>, pages: &[Page]) -> Vec<Outcome> {
    // SAFETY: the batch owns these slots; they are distinct, hence disjoint.
    let run = |&(at, length)| unsafe { std::slice::from_raw_parts_mut(at, length) };
    let mut views: Vec<PageMut<'_>> =
        pages.iter().map(|page| PageMut::new(page.0.iter().map(run).collect())).collect();
    store.get(keys, &mut views)
}

/// Outcomes of a batch.
fn outcomes(store: &dyn Store, removals: &Removals, batch: &Batch) -> Vec<Outcome> {
    let outcomes = match (&batch.work, batch.attempt) {
        _ if batch.cancel.load(Ordering::Relaxed) => vec![Outcome::Cancelled; batch.keys.len()],
        (Work::Put(pages, parents), Some(attempt)) => {
            let outcomes = writes::write(store, removals, attempt, batch.keys(), pages, parents);
            removals.end(attempt);
            return outcomes;
        }
        (work, _) => attempt(store, batch.keys(), work),
    };
    match (&batch.work, batch.attempt) {
        (Work::Remove, Some(number)) => removals.removed(number, batch.keys()),
        (Work::Put(..), Some(attempt)) => removals.end(attempt),
        _ => {}
    }
    outcomes
}

/// Removes all pages of an identity: what became of it, and how many they were.
fn clear(store: &dyn Store, removals: &Removals, batch: &Batch) -> (Vec<Outcome>, u64) {
    let cleared = catch_unwind(AssertUnwindSafe(|| store.clear(&batch.identity)));
    if let Some(number) = batch.attempt {
        removals.cleared(number, &batch.identity);
    }
    match cleared {
        Ok(Ok(pages)) => (vec![Outcome::Hit], pages),
        _ => (vec![Outcome::Failed], 0),
    }
}

/// One try.
pub(super) fn attempt(store: &dyn Store, keys: Keys<'_>, work: &Work) -> Vec<Outcome> {
    trying(keys.len(), || match work {
        Work::Exists => store.exists(keys),
        Work::Remove => store.remove(keys),
        // `part` and `clear` carry these out.
        Work::Get(_) | Work::Clear => Vec::new(),
        Work::Put(pages, parents) => {
            // SAFETY: the batch holds these slots; nobody writes to a host page that is being stored.
            let run = |&(at, length): &(*mut u8, usize)| unsafe { std::slice::from_raw_parts(at, length) };
            let view = |page: &Page| PageRef::new(page.0.iter().map(run).collect());
            store.put(keys, parents, &pages.iter().map(view).collect::<Vec<_>>())
        }
    })
}

/// What a store answers for so many keys.
fn trying(keys: usize, ask: impl FnOnce() -> Vec<Outcome>) -> Vec<Outcome> {
    match catch_unwind(AssertUnwindSafe(ask)) {
        Ok(outcomes) if outcomes.len() == keys => outcomes,
        // A panic, or an answer that misses keys: nothing of it can be believed.
        _ => vec![Outcome::Failed; keys],
    }
}
