//! How far a stream of copies is: whole jobs, and layers of the current one. On error: a fault is kept, and told to
//! everyone who waits.

use crate::measured::{Begun, Times};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Finished jobs (a ticket), and finished layers of the job after that; and what ended all later ones.
#[derive(Clone, Debug, Default)]
struct Mark {
    jobs: u64,
    layers: u32,
    fault: Option<Arc<str>>,
}

/// Progress of one direction. Jobs finish in order of ticket; ticket 0 is finished from the start.
#[derive(Debug, Default)]
pub struct Progress {
    mark: Mutex<Mark>,
    moved: Condvar,
    times: Arc<Times>,
}

impl Progress {
    /// Tickets up to this one count as finished: for a copier that takes over from another one.
    pub fn starting_at(ticket: u64) -> Self {
        Self { mark: Mutex::new(Mark { jobs: ticket, ..Mark::default() }), ..Self::default() }
    }

    /// The last ticket that is finished.
    pub fn finished(&self) -> u64 {
        self.read().jobs
    }

    /// A copier tells that a layer of the job after the finished ones is copied.
    pub fn layer_done(&self, layers: u32) {
        self.write(|mark| mark.layers = layers);
    }

    /// A copier tells that a job is finished.
    pub fn job_done(&self, ticket: u64) {
        self.write(|mark| (mark.jobs, mark.layers) = (ticket, 0));
    }

    /// The same, and that it began then: copiers that measure tell it so.
    pub fn job_took(&self, ticket: u64, begun: Begun) {
        begun.end(&self.times);
        self.job_done(ticket);
    }

    /// How long jobs took, from being handed over to their last byte, and for how many pages they were.
    pub const fn times(&self) -> &Arc<Times> {
        &self.times
    }

    /// A copier tells that nothing more finishes: the waits for it end at once.
    pub fn break_off(&self, why: &str) {
        self.write(|mark| {
            mark.fault.get_or_insert_with(|| why.into());
        });
    }

    /// What ended all jobs that are not finished, if something did.
    pub fn fault(&self) -> Option<Arc<str>> {
        self.read().fault
    }

    /// Waits until `layers` layers of a job are copied; whole jobs before it are implied.
    /// False if the deadline passes first, or a fault ended the job before.
    pub fn wait(&self, ticket: u64, layers: u32, most: Duration) -> bool {
        let deadline = Instant::now() + most;
        let mut mark = self.mark.lock().unwrap_or_else(PoisonError::into_inner);
        while mark.jobs < ticket && !(mark.jobs + 1 == ticket && mark.layers >= layers) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || mark.fault.is_some() {
                return false;
            }
            mark = self.moved.wait_timeout(mark, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn read(&self) -> Mark {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn write(&self, change: impl FnOnce(&mut Mark)) {
        change(&mut self.mark.lock().unwrap_or_else(PoisonError::into_inner));
        self.moved.notify_all();
    }
}
