//! An engine around another one that lets requests fall short, fail, be late or be told twice.
#![allow(unsafe_code, reason = "stands between the disk and an engine")]
#![allow(dead_code, reason = "each test uses what it needs of it")]

use hicache_core::storage::disk::engine::{Engine, Lane, Request};
use hicache_core::storage::disk::{DataFile, Run};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    Pass,
    /// Is told to have moved so many bytes at most; a few more are, as direct I/O can.
    Short(usize),
    /// Is told to have moved so many, whatever it did.
    Told(usize),
    /// Doesn't start.
    Fail(i32),
    /// Is told after all others that are under way.
    Late,
    /// Is told twice.
    Twice,
}

/// Decides by the number of the request and what it is.
pub type Judge = Box<dyn Fn(usize, &Request<'_>) -> Fate + Send + Sync>;

pub struct Hostile {
    pub engine: Arc<dyn Engine>,
    pub judge: Judge,
    pub limits: (usize, usize),
    /// Requests so far.
    pub requests: AtomicUsize,
    /// Under way, now and at most.
    pub flying: AtomicUsize,
    pub most: AtomicUsize,
    /// Lanes are refused.
    pub closed: bool,
}

impl Hostile {
    pub fn new(
        engine: Arc<dyn Engine>,
        judge: impl Fn(usize, &Request<'_>) -> Fate + Send + Sync + 'static,
    ) -> Self {
        let limits = engine.limits();
        let zero = || AtomicUsize::new(0);
        let judge = Box::new(judge);
        Self { engine, judge, limits, requests: zero(), flying: zero(), most: zero(), closed: false }
    }
}

impl Engine for Hostile {
    fn describe(&self) -> String {
        format!("hostile {}", self.engine.describe())
    }

    fn limits(&self) -> (usize, usize) {
        self.limits
    }

    fn lane(&self, depth: usize) -> io::Result<Box<dyn Lane + '_>> {
        if self.closed {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let lane = self.engine.lane(depth)?;
        Ok(Box::new(HostileLane { engine: self, lane, fates: HashMap::new(), told: VecDeque::new() }))
    }
}

struct HostileLane<'e> {
    engine: &'e Hostile,
    lane: Box<dyn Lane + 'e>,
    /// Of requests under way; and the runs of those cut short, which must stay.
    fates: HashMap<u64, (Fate, Vec<Run>, Arc<DataFile>)>,
    told: VecDeque<(u64, io::Result<usize>)>,
}

impl Lane for HostileLane<'_> {
    unsafe fn start(&mut self, request: Request<'_>) {
        let number = self.engine.requests.fetch_add(1, Ordering::SeqCst);
        let flying = self.engine.flying.fetch_add(1, Ordering::SeqCst) + 1;
        self.engine.most.fetch_max(flying, Ordering::SeqCst);
        let fate = (self.engine.judge)(number, &request);
        let runs = match fate {
            Fate::Fail(error) => {
                self.told.push_back((request.id, Err(io::Error::from_raw_os_error(error))));
                return;
            }
            Fate::Short(most) => shortened(request.runs, most.next_multiple_of(4096)),
            _ => request.runs.to_vec(),
        };
        if runs.is_empty() {
            self.told.push_back((request.id, Ok(0)));
            return;
        }
        self.fates.insert(request.id, (fate, runs, Arc::clone(request.file)));
        let request = Request { runs: &self.fates[&request.id].1, ..request };
        // SAFETY: the runs' list is kept until it is told; the rest is promised to us.
        unsafe { self.lane.start(request) };
    }

    fn finished(&mut self) -> Option<(u64, io::Result<usize>)> {
        loop {
            if let Some(told) = self.told.pop_front() {
                // What was told twice is no longer under way at the second time.
                let _ =
                    self.engine.flying.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
                return Some(told);
            }
            let mut late = Vec::new();
            while let Some((id, moved)) = self.lane.finished() {
                match self.fates.remove(&id).map(|(fate, ..)| fate) {
                    Some(Fate::Late) => {
                        late.push((id, moved));
                        continue;
                    }
                    Some(Fate::Twice) => {
                        let again = moved.as_ref().map(|n| *n).map_err(|e| io::Error::from(e.kind()));
                        self.told.push_back((id, again));
                        self.engine.flying.fetch_add(1, Ordering::SeqCst);
                        self.told.push_back((id, moved));
                    }
                    Some(Fate::Short(most)) => self.told.push_back((id, moved.map(|moved| moved.min(most)))),
                    Some(Fate::Told(bytes)) => self.told.push_back((id, Ok(bytes))),
                    _ => self.told.push_back((id, moved)),
                }
                if late.is_empty() {
                    break;
                }
            }
            self.told.extend(late);
            if self.told.is_empty() {
                return None;
            }
        }
    }
}

fn shortened(runs: &[Run], mut most: usize) -> Vec<Run> {
    let mut kept = Vec::new();
    for run in runs {
        let bytes = run.bytes.min(most);
        most -= bytes;
        if bytes > 0 {
            kept.push(Run { at: run.at, bytes });
        }
    }
    kept
}
