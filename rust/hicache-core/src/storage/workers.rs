//! Threads that carry out storage work.
//!
//! They get keys and places in memory and give back outcomes, over lock-free queues; they know no tree,
//! no slots, no requests. Reads go before writes: a waiting request before a background copy; of three or more threads one
//! does nothing but read. The queue
//! of writes is bounded: what doesn't fit is given back, never waited for. A write that fails is tried once more.
//!
//! A store that panics loses its batch (`Failed`), not its thread. A store that never returns keeps its
//! thread and the memory of its batch; [`Workers::close`] doesn't wait for it beyond its deadline.
#![allow(unsafe_code, reason = "makes slices of pages whose slots the work owns")]

use super::{Outcome, Store};
use crate::error::{Result, argument};
use crate::hash::Digest;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, select_biased, unbounded};
use crossbeam_queue::SegQueue;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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

/// What to do with a batch of keys.
pub enum Work {
    /// Which are there.
    Exists,
    /// Read into pages.
    Get(Vec<Page>),
    /// Write from pages.
    Put(Vec<Page>),
}

/// A batch of work.
pub struct Batch {
    /// Names the completion.
    pub id: u64,
    /// In order.
    pub keys: Vec<Digest>,
    /// What to do with them.
    pub work: Work,
    /// Set when nobody waits any more.
    pub cancel: Arc<AtomicBool>,
    /// Keeps the pages' memory mapped, should this batch outlive the cache.
    pub memory: Arc<dyn Any + Send + Sync>,
}

/// A batch that ended, with an outcome for each key.
#[derive(Debug)]
pub struct Completion {
    /// The number the batch was given.
    pub id: u64,
    /// One per key, in order.
    pub outcomes: Vec<Outcome>,
}

/// The threads and their queues.
pub struct Workers {
    reads: Option<Sender<Batch>>,
    writes: Option<Sender<Batch>>,
    done: Arc<SegQueue<Completion>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts `threads` threads; at most `queue` batches of writes wait.
    ///
    /// # Errors
    /// When the system has no thread to give. Those that were started end by themselves.
    pub fn start(store: &Arc<dyn Store>, threads: usize, queue: usize) -> Result<Self> {
        let (reads, read) = unbounded();
        let (writes, write) = bounded(queue);
        let done = Arc::new(SegQueue::new());
        let start = |n: usize| {
            let (store, read, write, done) =
                (Arc::clone(store), read.clone(), write.clone(), Arc::clone(&done));
            // One thread never writes: writes that hang must not keep requests waiting.
            let writes = n > 0 || threads < 3;
            let work = move || carry_out(&*store, &read, &write, writes, &done);
            let thread = std::thread::Builder::new().name(format!("hicache-io-{n}")).spawn(work);
            thread.or_else(|error| argument("io_threads", format!("no thread to be had: {error}")))
        };
        let threads = (0..threads).map(start).collect::<Result<Vec<_>>>()?;
        Ok(Self { reads: Some(reads), writes: Some(writes), done, threads })
    }

    /// Takes a batch; gives a write back if the queue is full. After `close` batches are dropped.
    pub fn submit(&self, batch: Batch) -> Option<Batch> {
        let queue = if matches!(batch.work, Work::Put(_)) { &self.writes } else { &self.reads };
        match queue.as_ref()?.try_send(batch) {
            Err(TrySendError::Full(batch)) => Some(batch),
            Ok(()) | Err(TrySendError::Disconnected(_)) => None,
        }
    }

    /// The next batch that ended, in order of ending.
    pub fn completed(&self) -> Option<Completion> {
        self.done.pop()
    }

    /// Ends the threads. Those still inside a store after `most` are left behind.
    pub fn close(&mut self, most: Duration) {
        (self.reads, self.writes) = (None, None);
        let deadline = Instant::now() + most;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}

fn carry_out(
    store: &dyn Store,
    reads: &Receiver<Batch>,
    writes: &Receiver<Batch>,
    mut writing: bool,
    done: &SegQueue<Completion>,
) {
    // Until its queues are closed and empty.
    let mut reading = true;
    let never = crossbeam_channel::never();
    while reading || writing {
        let (read, write) = (if reading { reads } else { &never }, if writing { writes } else { &never });
        let batch = select_biased! {
            recv(read) -> batch => batch.inspect_err(|_| reading = false),
            recv(write) -> batch => batch.inspect_err(|_| writing = false),
        };
        let Ok(batch) = batch else { continue };
        let id = batch.id;
        done.push(Completion { id, outcomes: outcomes(store, &batch) });
    }
}

/// Outcomes of a batch. What a write fails once is tried once more.
fn outcomes(store: &dyn Store, batch: &Batch) -> Vec<Outcome> {
    if batch.cancel.load(Ordering::Relaxed) {
        return vec![Outcome::Cancelled; batch.keys.len()];
    }
    let mut outcomes = attempt(store, &batch.keys, &batch.work);
    let Work::Put(pages) = &batch.work else { return outcomes };
    let failed: Vec<usize> = (0..outcomes.len()).filter(|&at| outcomes[at] == Outcome::Failed).collect();
    if !failed.is_empty() {
        let keys: Vec<Digest> = failed.iter().map(|&at| batch.keys[at]).collect();
        let again = Work::Put(failed.iter().map(|&at| Page(pages[at].0.clone())).collect());
        let again = attempt(store, &keys, &again);
        failed.into_iter().zip(again).for_each(|(at, outcome)| outcomes[at] = outcome);
    }
    outcomes
}

/// One try.
fn attempt(store: &dyn Store, keys: &[Digest], work: &Work) -> Vec<Outcome> {
    let run = AssertUnwindSafe(|| match work {
        Work::Exists => store.exists(keys),
        Work::Get(pages) => get(store, keys, pages),
        Work::Put(pages) => put(store, keys, pages),
    });
    match catch_unwind(run) {
        Ok(outcomes) if outcomes.len() == keys.len() => outcomes,
        // A panic, or an answer that misses keys: nothing of it can be believed.
        _ => vec![Outcome::Failed; keys.len()],
    }
}

fn get(store: &dyn Store, keys: &[Digest], pages: &[Page]) -> Vec<Outcome> {
    let mut staged: Vec<Vec<u8>> = Vec::new();
    let mut views: Vec<&mut [u8]> = Vec::with_capacity(pages.len());
    if pages.iter().all(|page| page.0.len() == 1) {
        let view = |page: &Page| {
            let (address, length) = page.0[0];
            // SAFETY: the batch owns these slots; they are distinct, hence disjoint.
            unsafe { std::slice::from_raw_parts_mut(address, length) }
        };
        views.extend(pages.iter().map(view));
        return store.get(keys, &mut views);
    }
    staged.extend(pages.iter().map(|page| vec![0; page.bytes()]));
    views.extend(staged.iter_mut().map(Vec::as_mut_slice));
    let outcomes = store.get(keys, &mut views);
    for (bytes, page) in staged.iter().zip(pages) {
        let mut at = 0;
        for &(address, length) in &page.0 {
            // SAFETY: the batch owns the slot that the run belongs to.
            unsafe { std::ptr::copy_nonoverlapping(bytes[at..at + length].as_ptr(), address, length) };
            at += length;
        }
    }
    outcomes
}

fn put(store: &dyn Store, keys: &[Digest], pages: &[Page]) -> Vec<Outcome> {
    // SAFETY: the batch holds these slots; nobody writes to a host page that is being stored.
    let view = |run: &(*mut u8, usize)| unsafe { std::slice::from_raw_parts(run.0.cast_const(), run.1) };
    let gather = |page: &Page| {
        let mut bytes = Vec::with_capacity(page.bytes());
        page.0.iter().for_each(|run| bytes.extend_from_slice(view(run)));
        bytes
    };
    let staged: Vec<Vec<u8>> = pages.iter().filter(|page| page.0.len() != 1).map(gather).collect();
    let mut gathered = staged.iter();
    let views: Vec<&[u8]> = pages
        .iter()
        .map(|page| match page.0.as_slice() {
            [run] => view(run),
            _ => gathered.next().map_or(&[][..], Vec::as_slice),
        })
        .collect();
    store.put(keys, &views)
}
