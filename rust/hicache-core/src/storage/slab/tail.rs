//! The end of the log: the segment that is written now, and the one after it.
//!
//! Segments are filled with zeros before they are used, so that a flush changes nothing but bytes; the old one is
//! flushed before a new one begins, so that only the last can have lost its end.
//! On error: the system's. What became of the segment's end nobody knows: its owner drops it.

use super::media::Media;
use super::record::{RECORD, Record};
use super::segment::{GROUP, HEADER, Header, MOST};
use crate::identity::Fingerprint;
use std::fs::File;
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
    /// Whether the next segment's file is prepared.
    pub spare: bool,
}

impl Writer {
    /// Writes records; adds to `bytes` what new segments take.
    ///
    /// # Errors
    /// The system's.
    pub fn write(
        &self,
        tail: &mut Tail,
        records: &[u8],
        identities: &[Option<Fingerprint>],
        bytes: &mut u64,
    ) -> io::Result<()> {
        let mut rest = records;
        let size = self.size(identities);
        while !rest.is_empty() {
            let Some((file, header, at)) = &mut tail.segment else {
                self.begin(tail, identities)?;
                *bytes += size as u64;
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
    fn begin(&self, tail: &mut Tail, identities: &[Option<Fingerprint>]) -> io::Result<()> {
        let spare = self.spare();
        let file = if std::mem::take(&mut tail.spare) {
            File::options().read(true).write(true).open(&spare)?
        } else {
            self.media.create(&spare, self.size(identities))?
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
        self.media.publish(&spare, &self.path(number))?;
        (tail.number, tail.sequence) = (number, tail.sequence + groups);
        tail.segment = Some((file, header, head.len()));
        Ok(())
    }

    /// Prepares the next segment, if the one in use is half full.
    ///
    /// # Errors
    /// The system's.
    pub fn prepare(&self, tail: &mut Tail) -> io::Result<()> {
        let full = tail.segment.as_ref().is_none_or(|(.., at)| *at > self.options.segment / 2);
        if full && !tail.spare {
            self.media.create(&self.spare(), self.options.segment)?;
            tail.spare = true;
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
    fn size(&self, identities: &[Option<Fingerprint>]) -> usize {
        let head = HEADER + identities.len() * (RECORD + 1) + GROUP;
        self.options.segment.max(2 * head)
    }

    /// The name of a segment.
    pub fn path(&self, number: u64) -> PathBuf {
        path(&self.dir, number)
    }

    fn spare(&self) -> PathBuf {
        self.dir.join("log-spare")
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
