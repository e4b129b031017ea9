//! Whose threads do the storage work: workers come with a store and leave with it. On error: nothing here fails.

use super::{Executor, HostMemory};
use crate::identity::Fingerprint;
use crate::measured;
use crate::storage::{Completion, Workers};
use std::sync::Arc;
use std::time::Duration;

impl Executor {
    /// Storage work goes to these workers, under an identity. Those before them carry out what they have been given.
    pub fn employ(&mut self, mut workers: Workers, identity: Fingerprint) {
        let memory: Arc<HostMemory> = Arc::clone(&self.memory);
        workers.hold(memory);
        workers.times().into_iter().for_each(|(kind, times)| self.work.follow(kind, times));
        self.identity = identity;
        self.waiting.iter_mut().for_each(|batch| workers.enlist_anew(batch));
        if let Some(former) = self.workers.replace(workers) {
            former.finish();
            self.former.push(former);
        }
    }

    /// No workers from now on: what waits for them has ended, cancelled; what they have begun they have at most so long
    /// to end. What comes later is completed all the same.
    pub fn dismiss(&mut self, most: Duration) {
        self.ended.extend(self.waiting.drain(..).map(|batch| Completion::cancelled(&batch)));
        if let Some(mut workers) = self.workers.take() {
            workers.leave(most);
            self.former.push(workers);
        }
    }

    /// What work took, whoever carried it out.
    pub(crate) const fn measured(&self) -> &measured::Work {
        &self.work
    }
}
