//! A page's file: a header and the payload.
//!
//! ```text
//! offset  0       8        12      16        48     80            88         104     136
//!         magic   version  codec   identity  key    payload size  checksum   parent  payload ...
//! ```
//! The checksum is XXH3-128 over key, parent and payload; a page without a parent has zeros there. Nothing of a file is
//! believed before all of it was compared.
//! On error: the system's, as they are; what was read and isn't right is an outcome.

use crate::hash::Digest;
use crate::identity::{FORMAT, Fingerprint};
use crate::storage::{Outcome, PageMut, PageRef};
use std::cmp::Ordering;
use std::fs::File;
use std::io::{Read as _, Result, Write as _};
use xxhash_rust::xxh3::Xxh3;

const MAGIC: &[u8; 8] = b"HICACHE\n";
/// Bytes before the payload.
pub const HEADER: usize = 136;
/// No codec yet; the field is there for the first one.
const CODEC_NONE: u32 = 0;

/// What a header says. Whether it is true only the payload's checksum can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whose page it is.
    pub identity: Fingerprint,
    /// Its digest.
    pub key: Digest,
    /// The page without which it is worth nothing.
    pub parent: Option<Digest>,
    /// Size of the payload.
    pub bytes: u64,
    checksum: u128,
}

impl Header {
    /// Of a page.
    pub fn of(identity: &Fingerprint, key: &Digest, parent: Option<Digest>, page: &PageRef<'_>) -> Self {
        let mut hasher = Xxh3::new();
        hasher.update(&key.0);
        hasher.update(&parent.map_or([0; 32], |parent| parent.0));
        page.runs().iter().for_each(|run| hasher.update(run));
        let (identity, key, bytes) = (*identity, *key, page.bytes() as u64);
        Self { identity, key, parent, bytes, checksum: hasher.digest128() }
    }

    /// As it is written.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        header[12..16].copy_from_slice(&CODEC_NONE.to_le_bytes());
        header[16..48].copy_from_slice(&self.identity.0);
        header[48..80].copy_from_slice(&self.key.0);
        header[80..88].copy_from_slice(&self.bytes.to_le_bytes());
        header[88..104].copy_from_slice(&self.checksum.to_le_bytes());
        header[104..].copy_from_slice(&self.parent.map_or([0; 32], |parent| parent.0));
        header
    }

    /// Of bytes that begin as a header of this format does.
    pub fn decode(header: &[u8; HEADER]) -> Option<Self> {
        let digest = |at: usize| {
            let mut bytes = [0; 32];
            bytes.copy_from_slice(&header[at..at + 32]);
            bytes
        };
        let mut size = [0; 8];
        size.copy_from_slice(&header[80..88]);
        let mut checksum = [0; 16];
        checksum.copy_from_slice(&header[88..104]);
        let parent = digest(104);
        let decoded = Self {
            identity: Fingerprint(digest(16)),
            key: Digest(digest(48)),
            parent: (parent != [0; 32]).then_some(Digest(parent)),
            bytes: u64::from_le_bytes(size),
            checksum: u128::from_le_bytes(checksum),
        };
        (decoded.encode() == *header).then_some(decoded)
    }
}

/// Writes header and payload.
///
/// # Errors
/// The system's; what was written so far is no page.
pub fn write(file: &mut File, header: &Header, page: &PageRef<'_>) -> Result<()> {
    file.write_all(&header.encode())?;
    page.runs().iter().try_for_each(|run| file.write_all(run))
}

/// Reads a page and compares all that is known of it; its length first, its bytes last.
///
/// # Errors
/// The system's.
pub fn read(
    file: &mut File,
    length: u64,
    identity: &Fingerprint,
    key: &Digest,
    page: &mut PageMut<'_>,
) -> Result<Outcome> {
    match length.cmp(&((HEADER + page.bytes()) as u64)) {
        Ordering::Less => return Ok(Outcome::Short),
        Ordering::Greater => return Ok(Outcome::Corrupt),
        Ordering::Equal => {}
    }
    let mut found = [0; HEADER];
    file.read_exact(&mut found)?;
    let Some(found) = Header::decode(&found) else { return Ok(Outcome::Corrupt) };
    page.runs().iter_mut().try_for_each(|run| file.read_exact(run))?;
    let right = found == Header::of(identity, key, found.parent, &page.view());
    Ok(if right { Outcome::Hit } else { Outcome::Corrupt })
}

/// Reads what a file says of itself; None for what isn't one of our pages.
pub fn peek(file: &mut File) -> Option<Header> {
    let mut header = [0; HEADER];
    file.read_exact(&mut header).ok()?;
    Header::decode(&header)
}
