//! How far a stream of copies is: whole jobs, and layers of the current one.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Finished jobs (a ticket), and finished layers of the job after that.
type Mark = (u64, u32);

/// Progress of one direction. Jobs finish in order of ticket; ticket 0 is finished from the start.
#[derive(Debug, Default)]
pub struct Progress {
    mark: Mutex<Mark>,
    moved: Condvar,
}

impl Progress {
    /// Tickets up to this one count as finished: for a copier that takes over from another one.
    pub fn starting_at(ticket: u64) -> Self {
        Self { mark: Mutex::new((ticket, 0)), moved: Condvar::new() }
    }

    /// The last ticket that is finished.
    pub fn finished(&self) -> u64 {
        self.read().0
    }

    /// A copier tells that a layer of the job after the finished ones is copied.
    pub fn layer_done(&self, layers: u32) {
        self.write(|mark| mark.1 = layers);
    }

    /// A copier tells that a job is finished.
    pub fn job_done(&self, ticket: u64) {
        self.write(|mark| *mark = (ticket, 0));
    }

    /// Waits until `layers` layers of a job are copied; whole jobs before it are implied.
    /// False if the deadline passes first.
    pub fn wait(&self, ticket: u64, layers: u32, most: Duration) -> bool {
        let deadline = Instant::now() + most;
        let mut mark = self.mark.lock().unwrap_or_else(PoisonError::into_inner);
        while mark.0 < ticket && !(mark.0 + 1 == ticket && mark.1 >= layers) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            mark = self.moved.wait_timeout(mark, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn read(&self) -> Mark {
        *self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, change: impl FnOnce(&mut Mark)) {
        change(&mut self.mark.lock().unwrap_or_else(PoisonError::into_inner));
        self.moved.notify_all();
    }
}
