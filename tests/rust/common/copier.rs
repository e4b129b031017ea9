//! A copier that holds jobs back until the test opens its gate. Bytes move when a job passes, not before.

use super::memory::Memory;
use hicache_core::transfer::{Copier, CopyJob, Direction, Progress};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// The test's side and the cache's side of the same gate.
#[derive(Clone)]
pub struct Gate(Arc<Shared>);

struct Shared {
    memory: Arc<Memory>,
    progress: [Arc<Progress>; 2],
    ways: Mutex<[Way; 2]>,
    /// What ended it.
    fault: Mutex<Option<String>>,
}

#[derive(Default)]
struct Way {
    shut: bool,
    held: VecDeque<CopyJob>,
}

impl Gate {
    /// Open both ways.
    pub fn new(memory: Arc<Memory>) -> Self {
        Self::after(memory, [0; 2])
    }

    /// The same when tickets up to these have passed, in and out.
    pub fn after(memory: Arc<Memory>, tickets: [u64; 2]) -> Self {
        let progress = tickets.map(|ticket| Arc::new(Progress::starting_at(ticket)));
        Self(Arc::new(Shared { memory, progress, ways: Mutex::default(), fault: Mutex::default() }))
    }

    /// The copier ends: what waits, and what comes, is never carried out.
    pub fn end(&self, why: &str) {
        let mut ways = self.0.ways.lock().unwrap();
        ways.iter_mut().for_each(|way| way.held.clear());
        *self.0.fault.lock().unwrap() = Some(why.to_owned());
        self.0.progress.iter().for_each(|progress| progress.break_off(why));
    }

    pub fn shut(&self, direction: Direction) {
        self.0.ways.lock().unwrap()[direction as usize].shut = true;
    }

    /// Lets all that wait pass, and all that come.
    pub fn open(&self, direction: Direction) {
        self.0.ways.lock().unwrap()[direction as usize].shut = false;
        self.pass(direction, usize::MAX);
    }

    /// Lets at most `jobs` of those that wait pass; returns how many did.
    pub fn pass(&self, direction: Direction, jobs: usize) -> usize {
        let mut ways = self.0.ways.lock().unwrap();
        let held = &mut ways[direction as usize].held;
        let jobs = jobs.min(held.len());
        held.drain(..jobs).for_each(|job| self.carry_out(&job));
        jobs
    }

    pub fn waiting(&self, direction: Direction) -> usize {
        self.0.ways.lock().unwrap()[direction as usize].held.len()
    }

    fn carry_out(&self, job: &CopyJob) {
        self.0.memory.carry_out(job);
        self.0.progress[job.direction as usize].job_took(job.ticket, job.begun);
    }
}

impl Copier for Gate {
    fn submit(&mut self, job: CopyJob) {
        let mut ways = self.0.ways.lock().unwrap();
        if self.fault().is_some() {
            return;
        }
        let way = &mut ways[job.direction as usize];
        if way.shut {
            way.held.push_back(job);
        } else {
            self.carry_out(&job);
        }
    }

    fn progress(&self, direction: Direction) -> &Arc<Progress> {
        &self.0.progress[direction as usize]
    }

    fn fault(&self) -> Option<String> {
        self.0.fault.lock().unwrap().clone()
    }
}
