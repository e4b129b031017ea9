//! What waits for an I/O thread, and which of it is next.
//!
//! Questions and removals go first, in order; then reads, of which an [`Order`] says which, each time a thread has nothing
//! to do; then writes. The reads of one request stand in a *line*, by its number: batches that may begin, of which a part may
//! be read from either end. Whoever waits here sleeps, and is woken only when there is something new.
//!
//! Knows batches, numbers and times; refuses to know what is read into where. The mutex is held for moments, never during
//! a call of a store. On error: nothing here fails; a batch that is cancelled before it begins ends at once.

use super::Outcome;
use super::batch::{Batch, Completion, Work};
use super::line::{Line, Parts, Read};
use crate::policy::fetching::{Choice, End, Line as Seen, Order, ReadTime, Step};
use crossbeam_queue::SegQueue;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What a thread does next.
pub(super) enum Job {
    Whole(Batch),
    /// Some keys of a batch of reads.
    Part(Arc<Read>, Range<usize>, u64),
}

struct Books {
    first: VecDeque<Batch>,
    lines: BTreeMap<u64, Line>,
    writes: VecDeque<Batch>,
    order: Box<dyn Order>,
    /// Number, issue and tokens of parts under way.
    under_way: Vec<(u64, u64, u64)>,
    closed: bool,
}

/// What waits, and what has ended.
pub(super) struct Queue {
    books: Mutex<Books>,
    work: Condvar,
    done: SegQueue<Completion>,
    most_writes: usize,
    began: Instant,
    wakeups: AtomicU64,
}

impl Queue {
    pub fn new(order: Box<dyn Order>, most_writes: usize) -> Self {
        let (first, lines, writes) = (VecDeque::new(), BTreeMap::new(), VecDeque::new());
        let books = Books { first, lines, writes, order, under_way: Vec::new(), closed: false };
        let (work, done) = (Condvar::new(), SegQueue::new());
        let (began, wakeups) = (Instant::now(), AtomicU64::new(0));
        Self { books: Mutex::new(books), work, done, most_writes, began, wakeups }
    }

    /// Takes a batch; gives a write back if there is no room for it. After `close` batches are dropped.
    pub fn put(&self, batch: Batch) -> Option<Batch> {
        let mut books = self.books();
        if books.closed {
            return None;
        }
        match batch.work {
            Work::Exists | Work::Remove | Work::Clear => books.first.push_back(batch),
            Work::Put(..) if books.writes.len() >= self.most_writes => return Some(batch),
            Work::Put(..) => books.writes.push_back(batch),
            Work::Get(_) => books.stand(batch),
        }
        let all = !books.writes.is_empty();
        drop(books);
        // One thread may be of those that never write.
        if all {
            self.work.notify_all();
        } else {
            self.work.notify_one();
        }
        None
    }

    /// What to do next, waited for; `None` once it is closed and nothing is left.
    pub fn next(&self, writing: bool) -> Option<Job> {
        let mut books = self.books();
        loop {
            if let Some(batch) = books.first.pop_front() {
                return Some(Job::Whole(batch));
            }
            if let Some(job) = books.part(self.now()) {
                // There may be an answer for another thread, too.
                if !books.lines.is_empty() {
                    self.work.notify_one();
                }
                return Some(job);
            }
            if writing && let Some(batch) = books.writes.pop_front() {
                return Some(Job::Whole(batch));
            }
            if books.closed {
                return None;
            }
            books = self.work.wait(books).unwrap_or_else(PoisonError::into_inner);
            self.wakeups.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A part of a batch was read, or at least tried.
    pub fn read(
        &self,
        read: &Arc<Read>,
        keys: Range<usize>,
        (issued, completed): (u64, u64),
        outcomes: &[Outcome],
    ) {
        let mut books = self.books();
        let number = read.batch.request().number;
        let tokens = read.batch.tokens(keys.len());
        if let Some(at) = books.under_way.iter().position(|one| *one == (number, issued, tokens)) {
            books.under_way.swap_remove(at);
        }
        books.order.read(ReadTime { issued, completed, tokens });
        self.wake_for_reads(books);
        let mut parts = read.parts();
        parts.outcomes[keys].copy_from_slice(outcomes);
        parts.open -= 1;
        let first = parts.times.map_or(issued, |(first, _)| first.min(issued));
        parts.times = Some((first, completed));
        self.end(read, &mut parts);
    }

    /// Ends a batch of reads of which nothing is left and nothing under way.
    fn end(&self, read: &Read, parts: &mut Parts) {
        if parts.open == 0 && parts.left.is_empty() {
            let outcomes = std::mem::take(&mut parts.outcomes);
            let tokens = read.batch.tokens(outcomes.len());
            let time = parts.times.map(|(issued, completed)| ReadTime { issued, completed, tokens });
            self.done.push(Completion::of(&read.batch, outcomes, time));
        }
    }

    /// A batch ended; a clear, with so many pages removed.
    pub fn ended(&self, batch: &Batch, outcomes: Vec<Outcome>, cleared: u64) {
        self.done.push(Completion { cleared, ..Completion::of(batch, outcomes, None) });
    }

    /// Nobody wants anything of what waits any more: it ends now. What a thread has begun goes on.
    pub fn give_up(&self) {
        let mut books = self.books();
        let lines = std::mem::take(&mut books.lines);
        let mut whole = std::mem::take(&mut books.first);
        whole.append(&mut books.writes);
        drop(books);
        whole.iter().for_each(|batch| self.done.push(Completion::cancelled(batch)));
        lines.into_values().for_each(|line| self.leave(line));
    }

    /// Of these reads, what hasn't begun ends now.
    fn leave(&self, line: Line) {
        for read in line.reads {
            let mut parts = read.parts();
            parts.left = 0..0;
            self.end(&read, &mut parts);
        }
    }

    /// Nobody waits for this request any more: what hasn't begun ends now.
    pub fn cancel(&self, number: u64) {
        let mut books = self.books();
        let line = books.lines.remove(&number).unwrap_or_default();
        let asked = std::mem::take(&mut books.first);
        let (gone, left): (VecDeque<Batch>, VecDeque<Batch>) =
            asked.into_iter().partition(|batch| batch.is_question_of(number));
        books.first = left;
        self.wake_for_reads(books);
        gone.iter().for_each(|batch| self.done.push(Completion::cancelled(batch)));
        self.leave(line);
    }

    /// The next batch that ended, in order of ending.
    pub fn completed(&self) -> Option<Completion> {
        self.done.pop()
    }

    /// The engine made a step.
    pub fn step(&self, step: Step) {
        let mut books = self.books();
        books.order.step(step);
        self.wake_for_reads(books);
    }

    /// Something changed that an order may go by: if reads wait, it is asked again.
    fn wake_for_reads(&self, books: MutexGuard<'_, Books>) {
        let any = !books.lines.is_empty();
        drop(books);
        if any {
            self.work.notify_one();
        }
    }

    /// For how long the oldest read of each request has been under way, in microseconds.
    pub fn under_way(&self) -> Vec<(u64, u64)> {
        let now = self.now();
        let books = self.books();
        let mut oldest: Vec<(u64, u64)> = Vec::new();
        for &(number, issued, _) in &books.under_way {
            let age = now.saturating_sub(issued);
            match oldest.iter_mut().find(|one| one.0 == number) {
                Some(one) => one.1 = one.1.max(age),
                None => oldest.push((number, age)),
            }
        }
        oldest
    }

    /// Batches that wait: questions and removals, reads, writes.
    pub fn waiting(&self) -> [usize; 3] {
        let books = self.books();
        let reads = books.lines.values().map(|line| line.reads.len()).sum();
        [books.first.len(), reads, books.writes.len()]
    }

    /// How often a thread that waited here was woken.
    pub fn wakeups(&self) -> u64 {
        self.wakeups.load(Ordering::Relaxed)
    }

    /// No more work: threads end when nothing is left.
    pub fn close(&self) {
        self.books().closed = true;
        self.work.notify_all();
    }

    /// Microseconds since it was made.
    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // Nothing here panics between two changes that belong together.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    /// A batch of reads joins its line.
    fn stand(&mut self, batch: Batch) {
        let request = batch.request();
        let line = self.lines.entry(request.number).or_default();
        line.request = request;
        line.ready += batch.tokens(batch.keys.len());
        line.reads.push_back(Arc::new(Read::new(batch)));
    }

    /// The part that is read next, if any may.
    fn part(&mut self, now: u64) -> Option<Job> {
        if self.lines.is_empty() {
            return None;
        }
        let seen: Vec<Seen> = self.lines.values().map(|line| self.seen(line)).collect();
        let choice = match self.order.next(&seen, now) {
            // Nothing new comes any more.
            None if self.closed => Choice { line: 0, tokens: 0, end: End::Front },
            choice => choice?,
        };
        let number = seen.get(choice.line).or_else(|| seen.first())?.request.number;
        let line = self.lines.get_mut(&number)?;
        let (read, keys) = line.take(choice.tokens, choice.end)?;
        if line.reads.is_empty() {
            self.lines.remove(&number);
        }
        self.under_way.push((number, now, read.batch.tokens(keys.len())));
        Some(Job::Part(read, keys, now))
    }

    /// A line as the order sees it.
    fn seen(&self, line: &Line) -> Seen {
        let tokens = |read: &Arc<Read>| read.batch.tokens(read.left());
        let number = line.request.number;
        let own = || self.under_way.iter().filter(|one| one.0 == number);
        Seen {
            request: line.request,
            ready: line.ready,
            ends: [line.reads.front(), line.reads.back()].map(|read| read.map_or(0, tokens)),
            reading: own().map(|one| one.2).sum(),
            since: own().map(|one| one.1).min(),
        }
    }
}
