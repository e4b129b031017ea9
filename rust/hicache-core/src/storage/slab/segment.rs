//! Files of the log: a header, then groups of records that were committed together.
//!
//! ```text
//! header   magic 8 · format 4 · kind 4 · store 8 · number 8 · first 8 · after 8 · checksum 8 · nothing 8
//! group    checksum 8 · magic 4 · count 4 · number 8 · sequence 8 · records
//! ```
//! Groups are numbered through all segments, so that what is missing between two of them is noticed. A group's
//! checksum is seeded with its store and segment: a group of another one is none. A snapshot holds the state at
//! which the group `after` goes on; its own groups are numbered from 0.
//! Bytes in, records out. On error: reading ends at the first group that isn't whole.

use super::record::{RECORD, Record};
use std::io::{self, Read as _};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Size of a segment's header.
pub const HEADER: usize = 64;
/// Size of a group's own part.
pub const GROUP: usize = 32;
/// Most records of a group.
pub const MOST: usize = 4096;

/// Version of the log's format.
const FORMAT: u32 = 1;
const MAGIC: &[u8; 8] = b"HICSLAB\n";
const GROUP_MAGIC: u32 = 0x4853_6c67;
const LOG: u32 = 0;
const SNAPSHOT: u32 = 1;

/// What a segment's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The store it belongs to: a random number.
    pub store: u64,
    /// Its own number: that of its name.
    pub number: u64,
    /// The number of its first group.
    pub first: u64,
    /// Of a snapshot: the number of the first group that isn't in it.
    pub after: Option<u64>,
}

impl Header {
    /// Its bytes.
    pub fn bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[12..16].copy_from_slice(&if self.after.is_some() { SNAPSHOT } else { LOG }.to_le_bytes());
        let numbers = [self.store, self.number, self.first, self.after.unwrap_or(0)];
        for (to, number) in bytes[16..48].chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        let checksum = xxh3_64(&bytes[..48]);
        bytes[48..56].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Of a segment's bytes, if it is one.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..HEADER)?;
        let word = |at: usize| Some(u64::from_le_bytes(head[at..at + 8].try_into().ok()?));
        let half = |at: usize| Some(u32::from_le_bytes(head[at..at + 4].try_into().ok()?));
        let (kind, whole) = (half(12)?, word(48)? == xxh3_64(&head[..48]));
        if &head[..8] != MAGIC || half(8)? != FORMAT || kind > SNAPSHOT || !whole {
            return None;
        }
        let after = if kind == SNAPSHOT { Some(word(40)?) } else { None };
        Some(Self { store: word(16)?, number: word(24)?, first: word(32)?, after })
    }

    const fn seed(&self) -> u64 {
        self.store ^ self.number.rotate_left(32)
    }

    /// A group of encoded records, at most `MOST`.
    pub fn group(&self, sequence: u64, records: &[u8]) -> Vec<u8> {
        debug_assert!(records.len().is_multiple_of(RECORD) && records.len() <= MOST * RECORD);
        let mut group = Vec::with_capacity(GROUP + records.len());
        group.extend_from_slice(&[0; 8]);
        group.extend_from_slice(&GROUP_MAGIC.to_le_bytes());
        group.extend_from_slice(&u32::try_from(records.len() / RECORD).unwrap_or(0).to_le_bytes());
        group.extend_from_slice(&self.number.to_le_bytes());
        group.extend_from_slice(&sequence.to_le_bytes());
        group.extend_from_slice(records);
        let checksum = xxh3_64_with_seed(&group[8..], self.seed());
        group[..8].copy_from_slice(&checksum.to_le_bytes());
        group
    }

    /// The group that begins at the bytes' beginning, if it is whole and has this number: its records, encoded.
    pub fn records<'a>(&self, sequence: u64, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let head = bytes.get(..GROUP)?;
        let word = |at: usize| Some(u64::from_le_bytes(head[at..at + 8].try_into().ok()?));
        let half = |at: usize| Some(u32::from_le_bytes(head[at..at + 4].try_into().ok()?));
        let count = usize::try_from(half(12)?).ok()?;
        if half(8)? != GROUP_MAGIC || count > MOST || word(16)? != self.number || word(24)? != sequence {
            return None;
        }
        let group = bytes.get(8..GROUP + count * RECORD)?;
        (word(0)? == xxh3_64_with_seed(group, self.seed())).then(|| &group[GROUP - 8..])
    }
}

/// What a segment turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Groups that were whole, from the first on.
    pub groups: u64,
    /// Records in them.
    pub records: u64,
    /// Whether something follows that is neither a group nor nothing.
    pub torn: bool,
    /// Whether the disk can't read what follows.
    pub unreadable: bool,
}

/// Records that are read at a time.
const SOME: usize = 32;

/// Reads a segment's records in order, some at a time, up to the first group that isn't whole. `from` stands behind
/// the header. No more of it is in memory than a group, whatever its length.
///
/// # Errors
/// The system's, but for what the disk can't read: that is as good as damaged.
pub fn read(header: &Header, from: &mut dyn io::Read, mut some: impl FnMut(&[Record])) -> io::Result<Read> {
    let mut read = Vec::with_capacity(SOME);
    let mut bytes = Vec::new();
    let mut found = Read { groups: 0, records: 0, torn: false, unreadable: false };
    loop {
        if !group(from, &mut bytes)? {
            (found.torn, found.unreadable) = (true, true);
            return Ok(found);
        }
        let Some(records) = header.records(header.first.wrapping_add(found.groups), &bytes) else {
            found.torn = bytes.iter().take(GROUP).any(|&byte| byte != 0);
            return Ok(found);
        };
        found.groups += 1;
        found.records += (records.len() / RECORD) as u64;
        for records in records.as_chunks::<RECORD>().0.chunks(SOME) {
            read.clear();
            read.extend(records.iter().filter_map(Record::read));
            some(&read);
        }
    }
}

/// The bytes of the next group, if it is one: else some, and perhaps fewer. False: the disk can't read it.
fn group(from: &mut dyn io::Read, bytes: &mut Vec<u8>) -> io::Result<bool> {
    bytes.clear();
    if !fill(from, bytes, GROUP)? {
        return Ok(false);
    }
    let half = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let count =
        half(12).filter(|_| half(8) == Some(GROUP_MAGIC)).and_then(|count| usize::try_from(count).ok());
    match count.filter(|&count| count <= MOST) {
        Some(count) => fill(from, bytes, count * RECORD),
        None => Ok(true),
    }
}

/// Appends so many bytes, or as many as there are. False: the disk can't read them.
///
/// # Errors
/// The system's, all others.
pub fn fill(from: &mut dyn io::Read, bytes: &mut Vec<u8>, most: usize) -> io::Result<bool> {
    match from.take(most as u64).read_to_end(bytes) {
        Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(false),
        done => done.map(|_| true),
    }
}
