//! Where calls of a relayed store lie until the other side takes them, and what is counted of them.
//!
//! Whoever waits here sleeps: without work there is no wake-up, and so nothing that takes an interpreter's lock.
//! On error: a full or closed desk is a reply.

use super::call::{Call, Reply};
use super::outcome::{Outcome, Statistics};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often it is looked whether memory that could not be taken back has been let go of.
const AGAIN: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<Arc<Call>>,
    late: VecDeque<Arc<Call>>,
    /// Late ones whose memory somebody still has.
    kept: VecDeque<(Arc<Call>, Instant)>,
    taken: Vec<Arc<Call>>,
    closed: bool,
    /// What the store said last of what it holds.
    holds: Statistics,
}

/// Between those who ask and those who answer.
#[derive(Debug)]
pub struct Desk {
    inner: Mutex<Inner>,
    /// Most calls that wait.
    most: usize,
    work: Condvar,
    room: Condvar,
    watch: Condvar,
    /// What happened so far.
    pub counts: Counts,
}

/// Numbers that only go up.
#[derive(Debug, Default)]
pub struct Counts {
    wakeups: AtomicU64,
    calls: AtomicU64,
    timed_out: AtomicU64,
    nonsense: AtomicU64,
    kept: AtomicU64,
    pages: [AtomicU64; 9],
}

impl Desk {
    /// With room for so many waiting calls.
    pub fn new(most: usize) -> Self {
        Self {
            inner: Mutex::default(),
            most,
            work: Condvar::new(),
            room: Condvar::new(),
            watch: Condvar::new(),
            counts: Counts::default(),
        }
    }

    /// Puts a call down, once there is room; or what became of it.
    pub(super) fn put(&self, call: &Arc<Call>, deadline: Option<Instant>) -> Result<(), Reply> {
        let mut inner = self.inner();
        while !inner.closed && inner.waiting.len() >= self.most {
            let left = deadline.map_or(AGAIN, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                self.counts.timed_out.fetch_add(1, Ordering::Relaxed);
                return Err(Reply::TimedOut);
            }
            inner = self.room.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        if inner.closed {
            return Err(Reply::Failed("it is closed".to_owned()));
        }
        inner.waiting.push_back(Arc::clone(call));
        self.work.notify_one();
        Ok(())
    }

    /// The next call, waited for; None once the desk is closed.
    pub fn take(&self) -> Option<Arc<Call>> {
        let mut inner = self.inner();
        loop {
            while let Some(call) = inner.waiting.pop_front() {
                self.room.notify_one();
                if call.take() {
                    inner.taken.retain(|call| call.is_open());
                    inner.taken.push(Arc::clone(&call));
                    self.counts.calls.fetch_add(1, Ordering::Relaxed);
                    self.counts.wakeups.fetch_add(1, Ordering::Relaxed);
                    return Some(call);
                }
            }
            if inner.closed {
                return None;
            }
            inner = self.work.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next call that wasn't answered in time, waited for; None once the desk is closed and nobody waits for any.
    pub fn late(&self) -> Option<Arc<Call>> {
        let mut inner = self.inner();
        loop {
            inner.kept.retain(|(call, _)| call.is_open());
            let now = Instant::now();
            let next = inner.kept.front().map(|&(_, at)| at);
            let due = next.is_some_and(|at| at <= now).then(|| inner.kept.pop_front()).flatten();
            if let Some(call) = inner.late.pop_front().or_else(|| Some(due?.0)) {
                self.counts.wakeups.fetch_add(1, Ordering::Relaxed);
                return Some(call);
            }
            if inner.closed && inner.kept.is_empty() {
                return None;
            }
            inner = match next {
                None => self.watch.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let left = at.saturating_duration_since(now);
                    self.watch.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// The memory of a late call could not be taken back: `late` hands it out again after a while.
    pub fn keep(&self, call: Arc<Call>, first: bool) {
        if first {
            self.counts.kept.fetch_add(1, Ordering::Relaxed);
        }
        self.inner().kept.push_back((call, Instant::now() + AGAIN));
        self.watch.notify_one();
    }

    pub(super) fn is_late(&self, call: &Arc<Call>) {
        self.counts.timed_out.fetch_add(1, Ordering::Relaxed);
        let mut inner = self.inner();
        // Closing has handed out those that were taken.
        if !inner.closed {
            inner.late.push_back(Arc::clone(call));
            self.watch.notify_one();
        }
    }

    /// No more calls: those that wait fail, those that are taken are late now.
    pub fn close(&self) {
        let mut inner = self.inner();
        inner.closed = true;
        for call in inner.waiting.drain(..) {
            call.answer(Reply::Failed("it was closed".to_owned()));
        }
        let taken = std::mem::take(&mut inner.taken);
        inner.late.extend(taken.into_iter().filter(|call| call.is_open()));
        self.work.notify_all();
        self.room.notify_all();
        self.watch.notify_all();
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.inner().closed
    }

    /// What the store says of what it holds: pages, bytes, capacity, and what it gave up.
    pub fn holds(&self, holds: Statistics) {
        self.inner().holds = holds;
    }

    pub(super) fn statistics(&self) -> Statistics {
        let holds = self.inner().holds;
        let [read_pages, read_bytes, written_pages, written_bytes, absent, short, corrupt, failed, declined] =
            self.counts.pages.each_ref().map(|count| count.load(Ordering::Relaxed));
        Statistics {
            read_pages,
            read_bytes,
            written_pages,
            written_bytes,
            absent_pages: absent,
            short_pages: short,
            corrupt_pages: corrupt,
            failed_pages: failed,
            declined_pages: declined,
            ..holds
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// Names and numbers: wake-ups of those who take calls and watch, calls taken, calls not answered in time, answers that
    /// nobody can believe, and calls whose memory could not be taken back at once.
    pub fn named(&self) -> [(&'static str, u64); 5] {
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            ("wakeups", now(&self.wakeups)),
            ("calls", now(&self.calls)),
            ("timed_out", now(&self.timed_out)),
            ("nonsense", now(&self.nonsense)),
            ("kept", now(&self.kept)),
        ]
    }

    /// So many more answers that nobody can believe.
    pub fn nonsense(&self, more: u64) {
        self.nonsense.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn read(&self, outcomes: &[Outcome], sizes: &[usize]) {
        for (outcome, &bytes) in outcomes.iter().zip(sizes) {
            match outcome {
                Outcome::Hit => {
                    self.page(0, 1);
                    self.page(1, bytes as u64);
                }
                Outcome::Absent => self.page(4, 1),
                Outcome::Short => self.page(5, 1),
                Outcome::Corrupt => self.page(6, 1),
                _ => self.page(7, 1),
            }
        }
    }

    pub(super) fn written(&self, outcomes: &[Outcome], sizes: &[usize]) {
        for (outcome, &bytes) in outcomes.iter().zip(sizes) {
            match outcome {
                Outcome::Hit => {
                    self.page(2, 1);
                    self.page(3, bytes as u64);
                }
                Outcome::Declined => self.page(8, 1),
                _ => self.page(7, 1),
            }
        }
    }

    fn page(&self, at: usize, more: u64) {
        self.pages[at].fetch_add(more, Ordering::Relaxed);
    }
}
