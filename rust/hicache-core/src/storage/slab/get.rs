//! Getting pages: found, read, and verified while others are read.
//!
//! Nothing of a payload is looked at before its checksum is known to be right. A slot that is being read isn't given
//! to another page. What fails verification, or can't be read, is given up: its next put mends it.
//! On error: outcomes per key.

use super::index::{Key, State};
use super::put::checksum;
use super::store::Slab;
use crate::storage::disk::{DataFile, Op};
use crate::storage::{Keys, Outcome, PageMut};
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// A page that is to be read.
struct Job {
    /// Which of the batch.
    key: usize,
    /// Its number in the index.
    page: u32,
    file: Arc<DataFile>,
    offset: u64,
    checksum: u64,
}

/// Keys that are looked up at a time, so that others get their turn.
const TURN: usize = 4096;

impl Slab {
    /// See `Store::exists`.
    pub fn exists(&self, keys: Keys<'_>) -> Vec<Outcome> {
        let now = self.clock.now();
        let mut outcomes = Vec::with_capacity(keys.len());
        for digests in keys.digests.chunks(TURN) {
            let book = self.book();
            let Some(&identity) = book.identities.get(keys.identity) else {
                return vec![Outcome::Absent; keys.len()];
            };
            outcomes.extend(digests.iter().map(|&digest| match book.index.find(&Key { identity, digest }) {
                Some((_, time)) if !self.expired(time, now) => Outcome::Hit,
                _ => Outcome::Absent,
            }));
        }
        outcomes
    }

    /// See `Store::get`.
    pub fn get(&self, keys: Keys<'_>, pages: &mut [PageMut<'_>]) -> Vec<Outcome> {
        if pages.len() != keys.len() {
            return vec![Outcome::Failed; keys.len()];
        }
        let mut outcomes = vec![Outcome::Absent; keys.len()];
        let jobs = self.find(keys, pages, &mut outcomes);
        let lost = if jobs.is_empty() { Vec::new() } else { self.read(keys, pages, &jobs, &mut outcomes) };
        self.finish_reads(&jobs, &lost, &outcomes);
        self.count(pages, &outcomes);
        outcomes
    }

    fn find(&self, keys: Keys<'_>, pages: &[PageMut<'_>], outcomes: &mut [Outcome]) -> Vec<Job> {
        let now = self.clock.now();
        let mut jobs = Vec::new();
        let mut book = self.book();
        let Some(&identity) = book.identities.get(keys.identity) else { return jobs };
        for (key, &digest) in keys.digests.iter().enumerate() {
            let name = Key { identity, digest };
            if !self.present(&mut book, &name, now) {
                continue;
            }
            let Some((page, _)) = book.index.find(&name) else { continue };
            let written = book.index.page(page).written;
            let (has, needs) = (u64::from(written.bytes), pages[key].bytes() as u64);
            if has != needs {
                outcomes[key] = if has < needs { Outcome::Short } else { Outcome::Corrupt };
                self.drop_page(&mut book, page);
            } else if let Some(place) = self.extents.place(written.at.extent.into(), written.at.slot) {
                book.index.open(page);
                let checksum = written.checksum;
                jobs.push(Job { key, page, file: place.file, offset: place.offset, checksum });
            } else {
                outcomes[key] = Outcome::Failed;
                self.drop_page(&mut book, page);
            }
        }
        jobs
    }

    fn read(
        &self,
        keys: Keys<'_>,
        pages: &mut [PageMut<'_>],
        jobs: &[Job],
        outcomes: &mut [Outcome],
    ) -> Vec<u32> {
        let answers = RefCell::new(vec![Outcome::Failed; jobs.len()]);
        let lost = RefCell::new(Vec::new());
        let mut waiting = jobs.iter().enumerate();
        let mut views = pages.iter_mut().enumerate();
        let next = || {
            let (tag, job) = waiting.next()?;
            // Jobs are in the order of their pages.
            let (_, view) = views.find(|(key, _)| *key == job.key)?;
            let runs = view.runs().iter_mut().map(|run| &mut **run);
            Some(Op::read(tag, Arc::clone(&job.file), job.offset, runs))
        };
        let done = |op: Op<'_>, result: io::Result<()>| {
            let job = &jobs[op.tag];
            let digest = &keys.digests[job.key];
            answers.borrow_mut()[op.tag] = match result {
                Ok(()) if checksum(keys.identity, digest, op.slices()) == job.checksum => Outcome::Hit,
                Ok(()) => Outcome::Corrupt,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => Outcome::Short,
                // The disk can't read it, and won't: as good as damaged.
                Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                    lost.borrow_mut().push(job.page);
                    Outcome::Failed
                }
                Err(_) => Outcome::Failed,
            };
        };
        self.disk.run(self.options.disk.depth, next, done);
        jobs.iter().zip(answers.into_inner()).for_each(|(job, answer)| outcomes[job.key] = answer);
        lost.into_inner()
    }

    /// Lets go of what was read, and gives up what was not right.
    fn finish_reads(&self, jobs: &[Job], lost: &[u32], outcomes: &[Outcome]) {
        let mut book = self.book();
        for job in jobs {
            let damaged = matches!(outcomes[job.key], Outcome::Short | Outcome::Corrupt);
            let here = book.index.page(job.page).state == State::Here;
            if here && (damaged || lost.contains(&job.page)) {
                self.drop_page(&mut book, job.page);
            }
            if let Some(at) = book.index.close(job.page) {
                self.free(at, true);
            }
        }
    }

    fn count(&self, pages: &[PageMut<'_>], outcomes: &[Outcome]) {
        let counts = &mut self.book().counts;
        for (outcome, page) in outcomes.iter().zip(pages) {
            match outcome {
                Outcome::Hit => {
                    counts.read_pages += 1;
                    counts.read_bytes += page.bytes() as u64;
                }
                Outcome::Absent => counts.absent_pages += 1,
                Outcome::Short => counts.short_pages += 1,
                Outcome::Corrupt => counts.corrupt_pages += 1,
                _ => counts.failed_pages += 1,
            }
        }
    }
}
