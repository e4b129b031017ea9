//! A snapshot of all that is known, in the place of the log so far.
//!
//! ```text
//! log 1 ... n │ snapshot n+1 │ log n+2 ...      then 1 ... n are removed
//! ```
//! The log goes on in a new segment before anything is looked at, and pages are looked at a few thousand at a time
//! while others come and go: whatever the snapshot has of them, what is logged after it puts right, since every record
//! says what is at its place from then on. It is whole before it has its name.
//! On error: the system's; the log is as it was, and the next try comes later each time. Meanwhile it grows up to its
//! bound, and then nothing is put until a snapshot has taken its place.

use super::index::State;
use super::record::{RECORD, Record, Written};
use super::segment::MOST;
use super::store::Slab;
use std::fs::{self, File};
use std::io;
use std::sync::{MutexGuard, PoisonError};

/// Pages that are looked at a time.
const TURN: u32 = 4096;

/// Most seconds until a snapshot that failed is tried again.
const LONGEST: u32 = 64;

/// When one that failed may be tried again.
#[derive(Debug, Default)]
pub(super) struct Pause {
    /// Seconds that are left.
    left: u32,
    /// Seconds of the next one: twice as many each time.
    next: u32,
}

impl Pause {
    /// A second has passed.
    pub(super) const fn pass(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    fn after(&mut self, failed: bool) {
        let next = if failed { (2 * self.next).clamp(1, LONGEST) } else { 0 };
        *self = Self { left: next, next };
    }
}

impl Slab {
    /// Whether there is more log than it takes to say what is there.
    pub(super) fn should_compact(&self) -> bool {
        let here = self.book().index.holds().0;
        self.log.bytes() > here * RECORD as u64 + 3 * self.bounds.segment || self.log.is_full()
    }

    /// Waits until this and everything before it is logged. A snapshot takes the place of a log that may have no more.
    ///
    /// # Errors
    /// When it could not be. It stays pending.
    pub(super) fn commit(&self, end: u64) -> io::Result<()> {
        match self.log.commit(end) {
            Err(error)
                if error.kind() == io::ErrorKind::StorageFull
                    && self.compact_unless_paused(&|| self.log.is_full()) =>
            {
                self.log.commit(end)
            }
            done => done,
        }
    }

    /// Writes a snapshot if one is needed, and none failed a short while ago; whether none is needed any more.
    pub(super) fn compact_unless_paused(&self, needed: &dyn Fn() -> bool) -> bool {
        let mut pause = self.pause();
        // Somebody else may have done it meanwhile.
        if !needed() {
            return true;
        }
        if pause.left > 0 {
            return false;
        }
        let done = self.replace_log();
        pause.after(done.is_err());
        done.is_ok()
    }

    /// Writes a snapshot and removes what it replaces; how many bytes that gave back.
    ///
    /// # Errors
    /// The system's.
    pub fn compact(&self) -> io::Result<u64> {
        let mut pause = self.pause();
        let done = self.replace_log();
        pause.after(done.is_err());
        done
    }

    /// Held by whoever writes a snapshot.
    pub(super) fn pause(&self) -> MutexGuard<'_, Pause> {
        self.compacting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace_log(&self) -> io::Result<u64> {
        let bytes = self.log.bytes();
        let header = self.log.rotate()?;
        {
            let mut book = self.book();
            book.since = book.index.ground.all();
        }
        let mut pages = self.pages();
        pages.sort_unstable_by_key(|(used, _)| *used);
        let mut records = self.log.identities();
        pages.iter().for_each(|(_, written)| Record::Page(*written).write(&mut records));
        let mut snapshot = header.bytes().to_vec();
        for (sequence, records) in (0..).zip(records.chunks(MOST * RECORD)) {
            snapshot.extend(header.group(sequence, records));
        }
        let writer = &self.log.writer;
        let new = writer.snapshot();
        let written = File::create(&new).and_then(|file| {
            writer.media.write(&file, &snapshot, 0)?;
            writer.media.sync(&file)?;
            writer.media.publish(&new, &writer.path(header.number))
        });
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written?;
        let removed = self.remove_before(header.number)?;
        self.log.forget(bytes);
        self.free_of_log();
        Ok(removed.saturating_sub(snapshot.len() as u64))
    }

    /// After classes with fewer slots came in the place of others, the log is as long as the others made it until a
    /// snapshot has replaced it: from then on there may be more extents.
    fn free_of_log(&self) {
        let mut book = self.book();
        let most = self.bounds.log(book.since);
        if self.log.bytes() <= most {
            book.logged = book.since;
            self.log.allow(most);
            self.extents.allow(self.bounds.files(book.logged));
        }
    }

    /// All pages that are here at some moment meanwhile, and when they were used.
    fn pages(&self) -> Vec<(u64, Written)> {
        let mut all = Vec::new();
        let mut first = 0;
        loop {
            let book = self.book();
            let last = book.index.numbers().min(first + TURN);
            if first == last {
                return all;
            }
            let pages = (first..last).map(|page| book.index.page(page));
            all.extend(pages.filter(|page| page.state == State::Here).map(|page| (page.used, page.written)));
            first = last;
        }
    }

    pub(super) fn remove_before(&self, number: u64) -> io::Result<u64> {
        let mut bytes = 0;
        for old in super::replay::segments(&self.home.dir)?.into_iter().filter(|&old| old < number) {
            let path = self.log.writer.path(old);
            bytes += fs::metadata(&path)?.len();
            fs::remove_file(path)?;
        }
        Ok(bytes)
    }
}
