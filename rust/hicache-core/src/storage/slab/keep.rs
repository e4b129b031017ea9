//! What a store does beside its calls: once a second it logs which pages were used, gives up some that are too old,
//! gives room back to a file system that has too little, replaces a long log, and prepares its next segment.
//!
//! On error: it tries again a second later. A log that can't be written is told by the store.

use super::store::Slab;
use crate::error::{Result, argument};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const REST: Duration = Duration::from_secs(1);
/// Pages whose age is looked at in a second.
const SWEEP: u32 = 1 << 16;

/// The thread that does it.
pub struct Keeper {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts it.
    ///
    /// # Errors
    /// Names `storage` when the system has no thread to give.
    pub fn start(slab: &Arc<Slab>) -> Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (slab, stopped) = (Arc::clone(slab), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("hicache-slab".into()).spawn(move || {
            while !rested(&stopped) {
                slab.keep();
            }
        });
        match thread {
            Ok(thread) => Ok(Self { stop, thread: Some(thread) }),
            Err(error) => argument("storage", format!("no thread to be had: {error}")),
        }
    }

    /// Ends it. After `most` it is left behind, to end when the disk lets it.
    pub fn stop(&mut self, most: Duration) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        let deadline = Instant::now() + most;
        if let Some(thread) = self.thread.take() {
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}

/// Waits a second; whether it is to stop.
fn rested(stop: &(Mutex<bool>, Condvar)) -> bool {
    let stopped = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
    *stop.1.wait_timeout_while(stopped, REST, |stop| !*stop).unwrap_or_else(PoisonError::into_inner).0
}

impl Slab {
    /// The last thing it does: what isn't written yet.
    pub(super) fn rest(&self) {
        self.log_uses();
        let _ = self.commit(self.log.end()).and_then(|()| self.log.flush());
    }

    /// A second's work.
    pub fn keep(&self) {
        self.log_uses();
        self.sweep(SWEEP);
        if self.extents.short_of_space() {
            let coldest = self.vacate_coldest(&mut self.book());
            coldest.map(|extent| self.extents.give_back(extent));
        }
        let _ = self.commit(self.log.end());
        self.pause().pass();
        self.compact_unless_paused(&|| self.should_compact());
        let _ = self.log.prepare();
    }
}
