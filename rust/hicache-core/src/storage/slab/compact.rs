//! A snapshot of all that is known, in the place of the log so far.
//!
//! ```text
//! log 1 ... n │ snapshot n+1 │ log n+2 ...      then 1 ... n are removed
//! ```
//! The log goes on in a new segment before anything is looked at, and pages are looked at a few thousand at a time
//! while others come and go: whatever the snapshot has of them, what is logged after it puts right, since every record
//! says what is at its place from then on. It is whole before it has its name.
//! On error: the system's; the log is as it was.

use super::index::State;
use super::record::{RECORD, Record, Written};
use super::segment::MOST;
use super::store::Slab;
use std::fs::{self, File};
use std::io;
use std::sync::PoisonError;

/// Pages that are looked at a time.
const TURN: u32 = 4096;

impl Slab {
    /// Whether there is more log than it takes to say what is there.
    pub(super) fn should_compact(&self) -> bool {
        let here = self.book().index.holds().0;
        self.log.bytes() > here * RECORD as u64 + 3 * self.bounds.segment
    }

    /// Writes a snapshot and removes what it replaces; how many bytes that gave back.
    ///
    /// # Errors
    /// The system's.
    pub fn compact(&self) -> io::Result<u64> {
        let _only = self.compacting.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = self.log.bytes();
        let header = self.log.rotate()?;
        let mut pages = self.pages();
        pages.sort_unstable_by_key(|(used, _)| *used);
        let mut records = self.log.identities();
        pages.iter().for_each(|(_, written)| Record::Page(*written).write(&mut records));
        let mut snapshot = header.bytes().to_vec();
        for (sequence, records) in (0..).zip(records.chunks(MOST * RECORD)) {
            snapshot.extend(header.group(sequence, records));
        }
        let writer = &self.log.writer;
        let new = self.home.dir.join("log-snapshot");
        let file = File::create(&new)?;
        writer.media.write(&file, &snapshot, 0)?;
        writer.media.sync(&file)?;
        writer.media.publish(&new, &writer.path(header.number))?;
        self.log.forget(bytes);
        let removed = self.remove_before(header.number)?;
        Ok(removed.saturating_sub(snapshot.len() as u64))
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
