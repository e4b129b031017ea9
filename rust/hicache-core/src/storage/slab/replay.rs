//! What the log tells when a store is opened.
//!
//! The last whole snapshot, then the segments after it, in the order of their numbers; what comes later wins.
//! Groups are numbered: where some are missing before others (a segment that is gone, is another's, or broke in the
//! middle), a removal may be among them, so that everything told before is forgotten. That costs hits, and no page
//! that was removed comes back. Where the end is missing there is nothing to be noticed: it was never told.
//! On error: an unreadable segment is as good as none, and counted; reading the directory names `storage`.

use super::index::Index;
use super::log::Resume;
use super::record::{RECORD, Record};
use super::segment::{self, HEADER, Header};
use super::tail::path;
use crate::error::{Result, argument};
use crate::identity::Fingerprint;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

/// A store as its log tells it.
pub struct Replay {
    /// Its pages.
    pub index: Index,
    /// Where the log goes on.
    pub resume: Resume,
    /// Segments that weren't whole, or weren't this store's.
    pub damaged: u64,
    /// Pages that were forgotten because what followed them is missing.
    pub forgotten: u64,
    /// Segments before this one tell nothing any more.
    pub first: u64,
    usable: Vec<bool>,
    fresh: Box<dyn Fn() -> Index>,
}

impl Replay {
    /// Of nothing yet. `found`: extents whose files are there, which alone can hold pages. `fresh` makes an index.
    pub fn new(found: &[u32], fresh: impl Fn() -> Index + 'static) -> Self {
        let most = found.iter().max().map_or(0, |&most| most as usize + 1);
        let mut usable = vec![false; most];
        found.iter().for_each(|&extent| usable[extent as usize] = true);
        let (damaged, forgotten, first) = (0, 0, 0);
        Self {
            index: fresh(),
            resume: Resume::default(),
            damaged,
            forgotten,
            first,
            usable,
            fresh: Box::new(fresh),
        }
    }

    /// Reads all segments of a directory.
    ///
    /// # Errors
    /// Names `storage` when the directory can't be read.
    pub fn directory(mut self, dir: &Path, store: u64) -> Result<Self> {
        let numbers =
            segments(dir).or_else(|error| argument("storage", format!("{}: {error}", dir.display())))?;
        let last = numbers.last().copied().unwrap_or(0);
        let snapshot = numbers.iter().rev().find(|&&number| {
            let mut head = [0; HEADER];
            let read = File::open(path(dir, number)).and_then(|mut file| file.read_exact(&mut head));
            read.is_ok() && header(&head, store, number).is_some_and(|header| header.after.is_some())
        });
        let first = snapshot.copied().unwrap_or(0);
        self.first = first;
        for number in numbers.into_iter().filter(|&number| number >= first) {
            self.segment(&fs::read(path(dir, number)).unwrap_or_default(), store, number);
        }
        self.resume.number = last;
        self.index.queue_leaves();
        Ok(self)
    }

    /// Reads the next segment.
    pub fn segment(&mut self, bytes: &[u8], store: u64, number: u64) {
        let Some(header) = header(bytes, store, number) else {
            self.damaged += 1;
            self.resume.bytes += bytes.len() as u64;
            return;
        };
        if header.after.is_some() {
            self.restart();
        } else if header.first > self.resume.sequence {
            self.forgotten += self.index.holds().0;
            self.restart();
        }
        self.index.reserve(bytes.len() / RECORD);
        let read = segment::read(&header, bytes, |records| {
            // What doesn't depend on each other waits for memory at the same time.
            self.index.warm(records);
            records.iter().for_each(|record| self.apply(record));
        });
        self.damaged += u64::from(read.torn);
        self.resume.number = number;
        if let Some(after) = header.after {
            (self.resume.sequence, self.resume.bytes) = (after, 0);
        } else {
            self.resume.sequence = self.resume.sequence.max(header.first + read.groups);
            self.resume.bytes += bytes.len() as u64;
        }
    }

    fn restart(&mut self) {
        self.index = (self.fresh)();
        self.resume.identities.clear();
    }

    fn apply(&mut self, record: &Record) {
        match record {
            Record::Page(page) => {
                let known = self.known(page.identity).is_some();
                if known && self.usable.get(usize::from(page.at.extent)).is_some_and(|&usable| usable) {
                    self.index.restore(*page);
                } else {
                    // Whatever lay there, it was overwritten.
                    self.index.vacate(page.at);
                }
            }
            Record::Gone(at) => self.index.vacate(*at),
            Record::Clear(identity) => _ = self.index.clear(*identity),
            Record::Identity(number, fingerprint) => {
                if self.known(*number).is_some_and(|known| known != *fingerprint) {
                    self.index.clear(*number);
                }
                let number = usize::from(*number);
                let most = self.resume.identities.len().max(number + 1);
                self.resume.identities.resize(most, None);
                self.resume.identities[number] = Some(*fingerprint);
            }
            Record::Touch(touches) => {
                for at in touches.places() {
                    if let Some(page) = self.index.ground.page(*at) {
                        self.index.use_logged(page);
                    }
                }
            }
        }
    }

    fn known(&self, number: u16) -> Option<Fingerprint> {
        self.resume.identities.get(usize::from(number)).copied().flatten()
    }
}

/// The header of a segment that is this store's, under its own number.
fn header(bytes: &[u8], store: u64, number: u64) -> Option<Header> {
    Header::read(bytes).filter(|header| header.store == store && header.number == number)
}

/// Numbers of the segments in a directory, ascending.
///
/// # Errors
/// The system's.
pub fn segments(dir: &Path) -> std::io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            continue;
        }
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("log-")).and_then(|n| n.parse().ok());
        // A name that we would spell otherwise is somebody else's.
        numbers.extend(number.filter(|&number| path(dir, number).file_name() == Some(&name)));
    }
    numbers.sort_unstable();
    Ok(numbers)
}
