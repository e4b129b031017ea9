//! The end of the workers: with the cache, or when a store is detached from one that goes on.
//!
//! On error: nothing here fails. What doesn't end in time is left behind, with the memory that it needs: a thread inside
//! of a store, and a store that doesn't close.

use super::workers::Workers;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a store gets for its end, if threads that hang took all the time there was.
const MOMENT: Duration = Duration::from_secs(1);

impl Workers {
    /// Ends the threads, then the store. Those still inside a store after `most` are left behind, and so is a store
    /// that doesn't end within what is left of that and a moment more.
    pub fn close(&mut self, most: Duration) {
        self.queue.close();
        let deadline = Instant::now() + most;
        self.threads.retain(|thread| !soon(thread, deadline));
        // Closed while some are still inside it, if need be: that is its last word to them.
        let Some(store) = self.store.take() else { return };
        let memory = self.memory.take();
        let close = move || {
            drop(catch_unwind(AssertUnwindSafe(|| store.close())));
            // In this order: it may have told a device of that memory.
            drop(store);
            drop(memory);
        };
        // Without a thread to be had, dropping it has to do.
        if let Ok(closing) = std::thread::Builder::new().name("hicache-io-close".into()).spawn(close) {
            soon(&closing, deadline.max(Instant::now() + MOMENT));
        }
    }

    /// The same, and what waits for a thread ends at once, as cancelled.
    pub fn leave(&mut self, most: Duration) {
        self.queue.give_up();
        self.close(most);
    }

    /// No more work: what waits is carried out, then the threads end.
    pub fn finish(&self) {
        self.queue.close();
    }

    /// Whether no thread is left: all that will be completed is.
    pub fn is_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }
}

/// Whether a thread ends before a deadline.
fn soon(thread: &JoinHandle<()>, deadline: Instant) -> bool {
    while !thread.is_finished() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    thread.is_finished()
}
