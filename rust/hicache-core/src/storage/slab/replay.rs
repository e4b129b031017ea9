//! What the log tells when a store is opened.
//!
//! The last whole snapshot, then the segments after it, in the order of their numbers; what comes later wins.
//! Groups are numbered: where some are missing before others (a segment that is gone, is another's, or broke in the
//! middle), a removal may be among them, so that everything told before is forgotten. That costs hits, and no page
//! that was removed comes back. Where the end is missing there is nothing to be noticed: it was never told.
//! On error: a damaged segment, or one that the disk can't read (EIO), is as good as none, and counted. What can't be
//! read now (no memory, no file to be had) names `storage`, so that nothing is forgotten for it.

use super::index::Index;
use super::log::Resume;
use super::media::Media;
use super::record::{RECORD, Record};
use super::segment::{self, HEADER, Header};
use super::tail::path;
use crate::error::{Error, Result};
use crate::identity::Fingerprint;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Most pages for which room is made before they are read of.
const MANY: usize = 1 << 20;

/// A store as its log tells it.
pub struct Replay {
    /// Its pages.
    pub index: Index,
    /// Where the log goes on.
    pub resume: Resume,
    /// Segments that weren't whole, or weren't this store's.
    pub damaged: u64,
    /// Whether some of them could not be read by the disk: should it read them again one day, what they tell must not
    /// count, so that a snapshot is to take their place.
    pub unreadable: bool,
    /// Pages that were forgotten because what followed them is missing.
    pub forgotten: u64,
    /// When the last page was written that it tells of.
    pub newest: u32,
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
            unreadable: false,
            newest: 0,
            forgotten,
            first,
            usable,
            fresh: Box::new(fresh),
        }
    }

    /// Reads all segments of a directory. The last one is flushed: a killed process may have written what it hadn't
    /// flushed yet, and a gap in front of what is logged from here on would cost all that is told before it.
    ///
    /// # Errors
    /// Names `storage` when directory or segments can't be read now, or the last segment not be flushed.
    pub fn directory(mut self, dir: &Path, store: u64, media: &dyn Media) -> Result<Self> {
        let about = |error: io::Error| Error::Argument {
            argument: "storage",
            reason: format!("{}: {error}", dir.display()),
        };
        let numbers = segments(dir).map_err(about)?;
        let last = numbers.last().copied().unwrap_or(0);
        for &number in numbers.iter().rev() {
            let named = |error| about(named(number, &error));
            let mut from = media.read(&path(dir, number)).map_err(named)?;
            let header = header(&mut *from, store, number).map_err(named)?;
            if header.unwrap_or(None).is_some_and(|header| header.after.is_some()) {
                self.first = number;
                break;
            }
        }
        let first = self.first;
        for number in numbers.into_iter().filter(|&number| number >= first) {
            let named = |error| about(named(number, &error));
            let bytes = fs::metadata(path(dir, number)).map_err(named)?.len();
            let mut from = media.read(&path(dir, number)).map_err(named)?;
            self.segment(&mut *from, bytes, store, number).map_err(named)?;
        }
        if self.resume.number > 0 {
            let flushed = File::open(path(dir, self.resume.number)).and_then(|file| media.sync(&file));
            flushed.and_then(|()| File::open(dir)?.sync_all()).map_err(about)?;
        }
        self.resume.number = last;
        self.index.queue_leaves();
        Ok(self)
    }

    /// Reads the next segment, whose file has so many bytes.
    ///
    /// # Errors
    /// The system's: what could not be read now may be read later, so that nothing is known of it.
    pub fn segment(
        &mut self,
        from: &mut dyn io::Read,
        bytes: u64,
        store: u64,
        number: u64,
    ) -> io::Result<()> {
        let header = header(from, store, number)?;
        self.unreadable |= header.is_err();
        let Some(header) = header.unwrap_or(None) else {
            self.damaged += 1;
            self.resume.bytes += bytes;
            return Ok(());
        };
        if header.after.is_some() {
            self.restart();
        } else if header.first > self.resume.sequence {
            self.forgotten += self.index.holds().0;
            self.restart();
        }
        self.index.reserve(usize::try_from(bytes / RECORD as u64).unwrap_or(MANY).min(MANY));
        let read = segment::read(&header, from, |records| {
            // What doesn't depend on each other waits for memory at the same time.
            self.index.warm(records);
            records.iter().for_each(|record| self.apply(record));
        })?;
        self.damaged += u64::from(read.torn);
        self.unreadable |= read.unreadable;
        self.resume.number = number;
        if let Some(after) = header.after {
            (self.resume.sequence, self.resume.bytes) = (after, 0);
        } else {
            self.resume.sequence = self.resume.sequence.max(header.first + read.groups);
            self.resume.bytes += bytes;
        }
        Ok(())
    }

    fn restart(&mut self) {
        self.index = (self.fresh)();
        self.resume.identities.clear();
    }

    fn apply(&mut self, record: &Record) {
        match record {
            Record::Page(page) => {
                self.newest = self.newest.max(page.time);
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
                if self.known(*number) != Some(*fingerprint) {
                    self.name(*number, *fingerprint);
                }
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

    /// From here on the number stands for this identity, and no other number does.
    fn name(&mut self, number: u16, fingerprint: Fingerprint) {
        for (old, identity) in (0..=u16::MAX).zip(&mut self.resume.identities) {
            if identity.is_some() && (old == number || *identity == Some(fingerprint)) {
                *identity = None;
                self.index.clear(old);
            }
        }
        let number = usize::from(number);
        let most = self.resume.identities.len().max(number + 1);
        self.resume.identities.resize(most, None);
        self.resume.identities[number] = Some(fingerprint);
    }

    fn known(&self, number: u16) -> Option<Fingerprint> {
        self.resume.identities.get(usize::from(number)).copied().flatten()
    }
}

/// The header of a segment, if it is this store's and has its own number; `Err`: the disk can't read it.
type Found = std::result::Result<Option<Header>, ()>;

fn header(from: &mut dyn io::Read, store: u64, number: u64) -> io::Result<Found> {
    let mut bytes = Vec::with_capacity(HEADER);
    if !segment::fill(from, &mut bytes, HEADER)? {
        return Ok(Err(()));
    }
    Ok(Ok(Header::read(&bytes).filter(|header| header.store == store && header.number == number)))
}

fn named(number: u64, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("log-{number:08} can't be read now: {error}"))
}

/// Numbers of the segments in a directory, ascending.
///
/// # Errors
/// The system's.
pub fn segments(dir: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            continue;
        }
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("log-")).and_then(|n| n.parse().ok());
        // A name that we would spell otherwise is somebody else's.
        // Nor do we get so far.
        let number = number.filter(|&number: &u64| number < 1 << 62);
        numbers.extend(number.filter(|&number| path(dir, number).file_name() == Some(&name)));
    }
    numbers.sort_unstable();
    Ok(numbers)
}
