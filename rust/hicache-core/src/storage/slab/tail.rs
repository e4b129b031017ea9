//! The end of the log: the segment that is written now, and the one after it.
//!
//! Segments are filled with zeros before they are used, so that a flush changes nothing but bytes; the old one is
//! flushed before a new one begins, so that only the last can have lost its end.
//! On error: the system's. What became of the segment's end nobody knows: its owner drops it.

use super::media::Media;
use super::record::{RECORD, Record};
use super::segment::{GROUP, HEADER, Header, MOST};
use crate::identity::Fingerprint;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a log is written.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// The store's own number.
    pub store: u64,
    /// Size of a segment in bytes.
    pub segment: usize,
    /// Whether a commit survives a loss of power.
    pub sync: bool,
}

/// What segments are written with, and where.
pub struct Writer {
    /// The file system.
    pub media: Arc<dyn Media>,
    /// The directory.
    pub dir: PathBuf,
    /// How.
    pub options: LogOptions,
}

/// A file, its header, and how many bytes of it are written.
pub type Segment = (File, Header, usize);

/// The end of the log.
pub struct Tail {
    /// The segment, its header, and how many bytes of it are written.
    pub segment: Option<Segment>,
    /// Its number, or the last one's.
    pub number: u64,
    /// The number of the next group.
    pub sequence: u64,
}

/// What new segments are made of, and how many bytes they may take.
#[derive(Debug)]
pub struct Growth {
    /// A file for the next one.
    pub spare: Option<File>,
    /// Bytes that all may take.
    pub most: u64,
    /// Bytes that all take.
    pub taken: u64,
    /// Bytes of those that were begun since.
    pub new: u64,
}

impl Writer {
    /// Writes records.
    ///
    /// # Errors
    /// The system's, or that the log may take no more.
    pub fn write(
        &self,
        tail: &mut Tail,
        records: &[u8],
        identities: &[Option<Fingerprint>],
        growth: &mut Growth,
    ) -> io::Result<()> {
        let mut rest = records;
        let size = self.size(identities);
        while !rest.is_empty() {
            let Some((file, header, at)) = &mut tail.segment else {
                self.begin(tail, identities, growth)?;
                continue;
            };
            let room = size.saturating_sub(*at + GROUP) / RECORD;
            if room == 0 {
                self.media.sync(file)?;
                tail.segment = None;
                continue;
            }
            let (now, later) = rest.split_at(rest.len().min(room.min(MOST) * RECORD));
            let group = header.group(tail.sequence, now);
            self.media.write(file, &group, *at as u64)?;
            *at += group.len();
            tail.sequence += 1;
            rest = later;
        }
        match &tail.segment {
            Some((file, ..)) if self.options.sync => self.media.sync(file),
            _ => Ok(()),
        }
    }

    /// Begins a segment, with all identities at its head: whatever happens to others, its records can be told.
    fn begin(
        &self,
        tail: &mut Tail,
        identities: &[Option<Fingerprint>],
        growth: &mut Growth,
    ) -> io::Result<()> {
        let size = self.size(identities);
        if growth.is_full(size) {
            let reason = format!("it has all of its {} bytes, and could not be replaced", growth.most);
            return Err(io::Error::new(io::ErrorKind::StorageFull, reason));
        }
        let (file, made) = match growth.spare.take() {
            Some(spare) => (spare, self.spare()),
            None => (self.create(&self.next(), size)?, self.next()),
        };
        let number = tail.number + 1;
        let header = Header { store: self.options.store, number, first: tail.sequence, after: None };
        let mut head = header.bytes().to_vec();
        let (known, mut groups) = (numbered(identities), 0);
        for records in known.chunks(MOST * RECORD) {
            head.extend(header.group(tail.sequence + groups, records));
            groups += 1;
        }
        self.media.write(&file, &head, 0)?;
        if self.options.sync {
            self.media.sync(&file)?;
        }
        self.media.publish(&made, &self.path(number))?;
        growth.new += size as u64;
        (tail.number, tail.sequence) = (number, tail.sequence + groups);
        tail.segment = Some((file, header, head.len()));
        Ok(())
    }

    /// Makes a file for the next segment, of so many bytes.
    ///
    /// # Errors
    /// The system's; nothing is left of it.
    pub fn prepare(&self, size: usize) -> io::Result<File> {
        self.create(&self.spare(), size)
    }

    fn create(&self, path: &Path, size: usize) -> io::Result<File> {
        self.media.create(path, size).inspect_err(|_| drop(fs::remove_file(path)))
    }

    /// Whether the segment that is written is half full, or none is.
    pub fn wants_spare(&self, tail: &Tail) -> bool {
        tail.segment.as_ref().is_none_or(|(.., at)| *at > self.options.segment / 2)
    }

    /// Removes what a process that was killed had begun to make.
    ///
    /// # Errors
    /// The system's.
    pub fn clear(&self) -> io::Result<()> {
        for unfinished in [self.spare(), self.next(), self.snapshot()] {
            match fs::remove_file(unfinished) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// The system's.
    pub fn flush(&self, tail: &Tail) -> io::Result<()> {
        tail.segment.as_ref().map_or(Ok(()), |(file, ..)| self.media.sync(file))
    }

    /// Bytes of a segment: those of the options, or what more identities than these are made for need at its head,
    /// and as much again.
    pub fn size(&self, identities: &[Option<Fingerprint>]) -> usize {
        let head = HEADER + identities.len() * (RECORD + 1) + GROUP;
        self.options.segment.max(2 * head)
    }

    /// The name of a segment.
    pub fn path(&self, number: u64) -> PathBuf {
        path(&self.dir, number)
    }

    /// Where the next segment is prepared, while the log goes on.
    fn spare(&self) -> PathBuf {
        self.dir.join("log-spare")
    }

    /// Where one is made that is needed at once.
    fn next(&self) -> PathBuf {
        self.dir.join("log-next")
    }

    /// Where a snapshot is written.
    pub fn snapshot(&self) -> PathBuf {
        self.dir.join("log-snapshot")
    }
}

impl Growth {
    /// Whether one more segment of this size is too much. A log without any may always begin one.
    pub const fn is_full(&self, size: usize) -> bool {
        let all = self.taken + self.new;
        all > 0 && all.saturating_add(size as u64) > self.most
    }
}

/// The name of a segment.
pub fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("log-{number:08}"))
}

/// Identities as records.
pub fn numbered(identities: &[Option<Fingerprint>]) -> Vec<u8> {
    let mut records = Vec::new();
    for (number, identity) in (0..=u16::MAX).zip(identities) {
        if let Some(identity) = identity {
            Record::Identity(number, *identity).write(&mut records);
        }
    }
    records
}
