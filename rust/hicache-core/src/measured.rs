//! What work took, and how much of it there was: histograms, one meaning each.
//!
//! Threads that carry work out measure it with their own clocks, in [`Times`]; what requests got is counted where it is
//! known. Nothing here is asked by a decision. On error: nothing here fails. What docs/metrics.md says of each is the
//! specification.

use crate::cache::HiCache;
use crate::histogram::{Histogram, Scale, Shared};
use std::sync::Arc;
use std::time::Instant;

/// What is done elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Device → host.
    Backup,
    /// Host → device.
    Load,
    /// Host → storage.
    Store,
    /// Storage → host.
    Read,
    /// What storage has.
    Exists,
}

/// How long pieces of work of one kind took, and how many pages each was for; told by the thread that did it.
#[derive(Debug)]
pub struct Times {
    micros: Shared,
    pages: Shared,
}

impl Default for Times {
    fn default() -> Self {
        Self { micros: Shared::new(Scale::Seconds), pages: Shared::new(Scale::Pages) }
    }
}

impl Times {
    /// One more, which has ended.
    pub fn took(&self, micros: u64, pages: u64) {
        self.micros.see(micros);
        self.pages.see(pages);
    }

    fn read(&self) -> [Histogram; 2] {
        [self.micros.read(), self.pages.read()]
    }
}

/// A piece of work that is under way.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    at: Instant,
    pages: u64,
}

impl Begun {
    /// Now, for so many pages.
    pub fn now(pages: usize) -> Self {
        Self { at: Instant::now(), pages: pages as u64 }
    }

    /// It has ended.
    pub fn end(self, times: &Times) {
        times.took(u64::try_from(self.at.elapsed().as_micros()).unwrap_or(u64::MAX), self.pages);
    }
}

/// Everything that threads have told, those that ended included: what was counted stays, whoever counted it.
#[derive(Debug)]
pub(crate) struct Work {
    past: [[Histogram; 2]; 5],
    live: Vec<(Kind, Arc<Times>)>,
}

impl Default for Work {
    fn default() -> Self {
        Self { past: [[Histogram::new(Scale::Seconds), Histogram::new(Scale::Pages)]; 5], live: Vec::new() }
    }
}

impl Work {
    /// Others tell from now on, too. What those told whom nobody has any more is kept.
    pub fn follow(&mut self, kind: Kind, times: &Arc<Times>) {
        let past = &mut self.past;
        self.live.retain_mut(|(kind, times)| {
            let over = Arc::get_mut(times).map(|times| times.read());
            over.iter().for_each(|seen| add(&mut past[*kind as usize], seen));
            over.is_none()
        });
        if !self.live.iter().any(|(_, known)| Arc::ptr_eq(known, times)) {
            self.live.push((kind, Arc::clone(times)));
        }
    }

    /// Seconds, and pages.
    pub fn of(&self, kind: Kind) -> [Histogram; 2] {
        let mut all = self.past[kind as usize];
        let live = self.live.iter().filter(|(of, _)| *of == kind);
        live.for_each(|(_, times)| add(&mut all, &times.read()));
        all
    }
}

fn add(all: &mut [Histogram; 2], more: &[Histogram; 2]) {
    all.iter_mut().zip(more).for_each(|(all, more)| all.add(more));
}

/// What loaded requests got.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests {
    /// From the first question whether it can run to its load, in microseconds on the engine's clock.
    pub waits: Histogram,
    /// Tokens of its prompt.
    pub prompts: Histogram,
    /// Tokens by where they were: device, host, storage.
    pub hits: [Histogram; 3],
}

impl Default for Requests {
    fn default() -> Self {
        let tokens = Histogram::new(Scale::Tokens);
        Self { waits: Histogram::new(Scale::Seconds), prompts: tokens, hits: [tokens; 3] }
    }
}

impl HiCache {
    /// Every histogram under its name. Those of work are of the threads that carry it out, and of all that did so before.
    pub fn histograms(&self) -> Vec<(&'static str, Histogram)> {
        named(self.executor.measured(), &self.requests)
    }
}

fn named(work: &Work, requests: &Requests) -> Vec<(&'static str, Histogram)> {
    let kinds = [
        (Kind::Backup, ["backup_seconds", "backup_pages"]),
        (Kind::Load, ["load_seconds", "load_pages"]),
        (Kind::Store, ["store_seconds", "store_pages"]),
        (Kind::Read, ["read_seconds", "read_pages"]),
        (Kind::Exists, ["exists_seconds", "exists_pages"]),
    ];
    let work = kinds.into_iter().flat_map(|(kind, names)| names.into_iter().zip(work.of(kind)));
    let [device, host, storage] = requests.hits;
    let requests = [
        ("request_wait_seconds", requests.waits),
        ("request_prompt_tokens", requests.prompts),
        ("request_device_tokens", device),
        ("request_host_tokens", host),
        ("request_storage_tokens", storage),
    ];
    work.chain(requests).collect()
}
