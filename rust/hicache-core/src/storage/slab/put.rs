//! Putting pages: what is to be written, the writing, what came of it.
//!
//! ```text
//! plan (book) ─▶ log: evictions ─▶ disk: payloads, each hashed just before it goes ─▶ settle (book) ─▶ log: pages
//! ```
//! A page's record is appended after its bytes are on the disk, and is written before the put is acknowledged.
//! On error: outcomes per key; slots of what was not written are free again.

use super::extents::Place;
use super::index::ground::class_of;
use super::index::page::name;
use super::index::{Finished, Key};
use super::record::{At, Record, Written};
use super::room::{Patience, Room, Wait};
use super::store::{Book, Slab};
use crate::hash::Digest;
use crate::identity::Fingerprint;
use crate::storage::disk::Op;
use crate::storage::{Keys, Outcome, PageRef};
use std::cell::RefCell;
use std::io;
use xxhash_rust::xxh3::Xxh3;

/// A page that is to be written.
struct Job {
    /// Which of the batch.
    key: usize,
    /// Its number in the index.
    page: u32,
    place: Place,
    /// Its checksum, once it was written.
    done: io::Result<u64>,
}

/// How a page's put begins.
enum Start {
    /// With this number and slot.
    Begun(u32, Place),
    /// After this.
    Wait(Wait),
    /// It isn't taken.
    Declined,
}

impl Slab {
    /// See `Store::put`.
    pub fn put(&self, keys: Keys<'_>, parents: &[Option<Digest>], pages: &[PageRef<'_>]) -> Vec<Outcome> {
        let ready = self.log.fault().is_none() || self.commit(self.log.end()).is_ok();
        if !ready || parents.len() != keys.len() || pages.len() != keys.len() {
            self.book().counts.failed_pages += keys.len() as u64;
            return vec![Outcome::Failed; keys.len()];
        }
        let mut outcomes = vec![Outcome::Declined; keys.len()];
        let mut jobs = self.plan(keys, parents, pages, &mut outcomes);
        if !jobs.is_empty() {
            // Whose slots these were is known to be gone before they are written.
            match self.commit(self.log.end()) {
                Ok(()) => self.write(keys, pages, &mut jobs),
                Err(error) => jobs.iter_mut().for_each(|job| job.done = Err(error.kind().into())),
            }
        }
        let end = self.settle(jobs, &mut outcomes);
        if self.commit(end).is_err() {
            // What was decided stays pending; nothing of it is acknowledged.
            outcomes
                .iter_mut()
                .filter(|outcome| **outcome == Outcome::Hit)
                .for_each(|o| *o = Outcome::Failed);
        }
        let failed = outcomes.iter().filter(|outcome| **outcome == Outcome::Failed).count();
        let declined = outcomes.iter().filter(|outcome| **outcome == Outcome::Declined).count();
        let mut book = self.book();
        book.counts.failed_pages += failed as u64;
        book.counts.declined_pages += declined as u64;
        outcomes
    }

    /// Decides for each page; takes slots for those that are to be written. What room has to be made or waited for is
    /// so without the book.
    fn plan(
        &self,
        keys: Keys<'_>,
        parents: &[Option<Digest>],
        pages: &[PageRef<'_>],
        outcomes: &mut [Outcome],
    ) -> Vec<Job> {
        let now = self.clock.now();
        let (mut jobs, mut key, mut patience) = (Vec::new(), 0, Patience::ALL);
        while key < keys.len() {
            let mut book = self.book();
            // An identity without a page may have lost its number meanwhile.
            let Some(identity) = self.number_of(&mut book, keys.identity) else { return jobs };
            let wait = loop {
                let Some(digest) = keys.digests.get(key) else { break None };
                let parent = parents[key].as_ref().map_or(0, name);
                let bytes = pages[key].bytes() as u64;
                let wished = Key { identity, digest: *digest };
                if self.present(&mut book, &wished, now) {
                    outcomes[key] = Outcome::Hit;
                } else {
                    match self.start(&mut book, &wished, parent, bytes, now, patience) {
                        Start::Begun(page, place) => {
                            jobs.push(Job { key, page, place, done: Err(io::ErrorKind::Interrupted.into()) });
                        }
                        Start::Wait(wait) => break Some(wait),
                        Start::Declined => {}
                    }
                }
                (key, patience) = (key + 1, Patience::ALL);
            };
            drop(book);
            if let Some(wait) = wait {
                patience = self.wait(wait, patience);
            }
        }
        jobs
    }

    /// Whether a page is there; if so, that was a use. One that is too old goes.
    pub(super) fn present(&self, book: &mut Book, key: &Key, now: u32) -> bool {
        match book.index.find(key) {
            Some((page, time)) if self.expired(time, now) => {
                book.counts.expired_pages += 1;
                self.drop_page(book, page);
                false
            }
            Some((page, _)) => {
                book.index.touch(page);
                true
            }
            None => false,
        }
    }

    /// A slot for a page, if it is taken.
    fn start(
        &self,
        book: &mut Book,
        key: &Key,
        parent: u64,
        bytes: u64,
        now: u32,
        patience: Patience,
    ) -> Start {
        let Some(class) = class_of(bytes).filter(|&class| book.index.ground.slots(class) > 0) else {
            return Start::Declined;
        };
        let wanted = book.index.is_wanted(key);
        if !book.admission.admits(name(&key.digest), bytes, wanted, self.clock.passed()) {
            return Start::Declined;
        }
        // Whatever goes to make room, the page that this one needs does not.
        book.index.expect(key.identity, parent);
        let room = self.take(book, class, patience);
        book.index.expect_no_more(key.identity, parent);
        let started = match room {
            Room::Place(place) => begin(book, key, parent, bytes, now, place),
            Room::Wait(wait) => Start::Wait(wait),
            Room::Full => Start::Declined,
        };
        if !matches!(started, Start::Begun(..)) {
            book.admission.give_back(bytes);
        }
        started
    }

    /// Writes all payloads.
    fn write(&self, keys: Keys<'_>, pages: &[PageRef<'_>], jobs: &mut [Job]) {
        let results = RefCell::new(Vec::with_capacity(jobs.len()));
        results.borrow_mut().resize_with(jobs.len(), || Err(io::ErrorKind::Interrupted.into()));
        let mut waiting = jobs.iter().enumerate();
        let next = || {
            let (tag, job) = waiting.next()?;
            let runs = pages[job.key].runs();
            let sum = checksum(keys.identity, &keys.digests[job.key], runs.iter().copied());
            results.borrow_mut()[tag] = Ok(sum);
            let file = std::sync::Arc::clone(&job.place.file);
            Some(Op::write(tag, file, job.place.offset, runs.iter().copied()))
        };
        let done = |op: Op<'_>, result: io::Result<()>| {
            if let Err(error) = result {
                results.borrow_mut()[op.tag] = Err(error);
            }
        };
        self.disk.run(self.options.disk.depth, next, done);
        jobs.iter_mut().zip(results.into_inner()).for_each(|(job, result)| job.done = result);
        if self.options.sync {
            sync(jobs);
        }
    }

    /// Publishes what was written and frees what was not; what to commit.
    fn settle(&self, jobs: Vec<Job>, outcomes: &mut [Outcome]) -> u64 {
        let now = self.clock.now();
        let mut book = self.book();
        for job in jobs {
            let bytes = u64::from(book.index.page(job.page).written.bytes);
            let Ok(sum) = job.done else {
                let at = book.index.abandon(job.page);
                self.free(at, job.place.written);
                book.admission.give_back(bytes);
                outcomes[job.key] = Outcome::Failed;
                continue;
            };
            // With `sync` its file has been synced; without, nothing depends on it.
            let durable = job.place.written || self.options.sync;
            outcomes[job.key] = match book.index.finish(job.page, sum, now) {
                Finished::Here => {
                    self.log.append(&Record::Page(book.index.page(job.page).written));
                    book.counts.written_pages += 1;
                    book.counts.written_bytes += bytes;
                    Outcome::Hit
                }
                Finished::Twice(at) => {
                    self.free(at, durable);
                    Outcome::Hit
                }
                Finished::Cancelled(at) => {
                    self.free(at, durable);
                    Outcome::Cancelled
                }
            };
        }
        self.log.end()
    }
}

fn begin(book: &mut Book, key: &Key, parent: u64, bytes: u64, now: u32, place: Place) -> Start {
    let (Ok(extent), Ok(bytes)) = (u16::try_from(place.extent), u32::try_from(bytes)) else {
        return Start::Declined;
    };
    let at = At { extent, slot: place.slot };
    let Key { identity, digest } = *key;
    let written = Written { at, identity, digest, bytes, time: now, checksum: 0, parent };
    book.index.begin(written).map_or(Start::Declined, |page| Start::Begun(page, place))
}

/// Makes payloads durable whose files aren't merely overwritten: one flush a file.
fn sync(jobs: &mut [Job]) {
    let mut synced: Vec<(u32, bool)> = Vec::new();
    for job in jobs.iter_mut().filter(|job| !job.place.written || !job.place.file.in_place()) {
        let known = synced.iter().find(|(extent, _)| *extent == job.place.extent).map(|known| known.1);
        let durable = known.unwrap_or_else(|| {
            let durable = job.place.file.sync().is_ok();
            synced.push((job.place.extent, durable));
            durable
        });
        if !durable {
            job.done = Err(io::Error::other("its file could not be synced"));
        }
    }
}

/// Of a page: over identity, digest and payload, so that a page read under another name is another page.
pub(super) fn checksum<'p>(
    identity: &Fingerprint,
    digest: &Digest,
    payload: impl Iterator<Item = &'p [u8]>,
) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&identity.0);
    hasher.update(&digest.0);
    payload.for_each(|run| hasher.update(run));
    hasher.digest()
}
