//! Jobs of one stream, cut into tasks that its threads share: what is left of each, and how far the stream is.
//!
//! Threads may work on several jobs at a time; progress is told in order. On error: nothing here fails.

use super::route::{Nest, Route};
use crate::ids::Slot;
use crate::transfer::{CopyJob, Direction, Progress};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// About as many bytes are one task: enough to make sharing cost nothing.
const TASK_BYTES: usize = 1 << 20;

/// Some pages of one nest, by their places in the list of its space.
#[derive(Clone, Debug)]
pub(super) struct Task {
    step: usize,
    nest: usize,
    pages: Range<usize>,
}

/// A job under way.
#[derive(Debug)]
pub(super) struct Running {
    route: Arc<Route>,
    job: CopyJob,
    tasks: Vec<Task>,
    /// The first task that nobody took.
    untaken: AtomicUsize,
    /// Unfinished tasks of each step.
    left: Vec<AtomicUsize>,
    /// Whether copies pass the caches by.
    pub past_caches: bool,
}

impl Running {
    pub fn new(route: Arc<Route>, job: CopyJob, past_caches_from: usize) -> Self {
        let mut all = 0_usize;
        let mut tasks = Vec::new();
        let mut left = Vec::with_capacity(route.steps.len());
        for (step, what) in route.steps.iter().enumerate() {
            let before = tasks.len();
            for (nest, what) in what.nests.iter().enumerate() {
                let pages = job.space(what.space).len();
                all = all.saturating_add(what.bytes.saturating_mul(pages));
                let some = (TASK_BYTES / what.bytes.max(1)).max(1);
                let starts = (0..pages).step_by(some);
                tasks.extend(starts.map(|at| Task { step, nest, pages: at..pages.min(at + some) }));
            }
            left.push(AtomicUsize::new(tasks.len() - before));
        }
        let past_caches = all >= past_caches_from;
        Self { route, job, tasks, untaken: AtomicUsize::new(0), left, past_caches }
    }

    pub const fn direction(&self) -> Direction {
        self.job.direction
    }

    /// A task that nobody else gets.
    pub fn next(&self) -> Option<&Task> {
        self.tasks.get(self.untaken.fetch_add(1, Ordering::Relaxed))
    }

    /// What a task copies.
    pub fn work(&self, task: &Task) -> (&Nest, &[(Slot, Slot)]) {
        let nest = &self.route.steps[task.step].nests[task.nest];
        (nest, &self.job.space(nest.space)[task.pages.clone()])
    }

    /// Notes that a task is done; true if it was the last one of its step.
    pub fn done(&self, task: &Task) -> bool {
        // Acquire and release: who tells the progress has seen every task's bytes.
        self.left[task.step].fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// The unfinished jobs of a stream, in order.
#[derive(Debug)]
pub(super) struct Jobs {
    progress: Arc<Progress>,
    /// Each with the steps of it that were told.
    unfinished: Mutex<VecDeque<(Arc<Running>, usize)>>,
}

impl Jobs {
    pub fn new(progress: Arc<Progress>) -> Self {
        Self { progress, unfinished: Mutex::default() }
    }

    pub const fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// A job begins.
    pub fn begin(&self, running: Arc<Running>) {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner).push_back((running, 0));
        // One without bytes is finished already.
        self.advance();
    }

    /// Tells what is done, in order.
    pub fn advance(&self) {
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((running, told)) = unfinished.front_mut() {
            let left = |step: usize| running.left[step].load(Ordering::Acquire);
            let before = *told;
            while *told < running.left.len() && left(*told) == 0 {
                *told += 1;
            }
            if *told < running.left.len() {
                if *told > before {
                    self.progress.layer_done(running.route.steps[*told - 1].layers);
                }
                return;
            }
            self.progress.job_took(running.job.ticket, running.job.begun);
            unfinished.pop_front();
        }
    }
}
