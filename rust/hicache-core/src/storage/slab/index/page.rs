//! What the index knows of a page.
//!
//! On error: nothing here fails.

use crate::hash::Digest;
use crate::storage::slab::record::{At, Written};

/// A page's name in this store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The number of its identity.
    pub identity: u16,
    /// Its digest.
    pub digest: Digest,
}

/// Where a page is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No page: the number is free.
    Free,
    /// Its bytes are under way to the disk.
    Writing,
    /// It can be read.
    Here,
    /// Given up; somebody still reads it.
    Going,
}

/// What is known of a page.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// What was written, and where.
    pub written: Written,
    /// Where it is in its life.
    pub state: State,
    /// Last use: greater is later.
    pub used: u64,
    /// Pages, here or under way, that are worth nothing without it.
    pub children: u32,
    /// Who reads it now.
    pub readers: u32,
    /// Whether it was removed while its bytes were under way.
    pub cancelled: bool,
    /// Whether its last use is not logged yet.
    pub unlogged: bool,
    /// The use as of which it stands in the order of leaves; 0: it doesn't.
    pub(super) queued: u64,
}

impl Page {
    /// A number without a page.
    pub(super) const FREE: Self = Self {
        written: Written {
            at: At { extent: 0, slot: 0 },
            identity: 0,
            digest: Digest([0; 32]),
            bytes: 0,
            time: 0,
            checksum: 0,
            parent: 0,
        },
        state: State::Free,
        used: 0,
        children: 0,
        readers: 0,
        cancelled: false,
        unlogged: false,
        queued: 0,
    };
}

/// The key under which a page was written.
pub const fn key_of(written: &Written) -> Key {
    Key { identity: written.identity, digest: written.digest }
}

/// The first 8 bytes of a digest.
pub fn name(digest: &Digest) -> u64 {
    let (words, _) = digest.0.as_chunks::<8>();
    u64::from_le_bytes(words[0])
}
