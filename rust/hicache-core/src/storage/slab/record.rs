//! What the log says: records of 64 bytes, each about one page, place or identity.
//!
//! ```text
//! offset  0     1         3      8      12    16        24      32
//!         kind  identity  place  bytes  time  checksum  parent  digest
//! ```
//! A page's class is its size rounded up, so that a record says all that a reader needs. Of the parent there are
//! 8 bytes: they steer eviction and decide nothing else. Knows bytes; refuses to know files.
//! On error: what is no record is `None`; nothing here panics, whatever the bytes.

use crate::hash::Digest;
use crate::identity::Fingerprint;

/// Size of a record.
pub const RECORD: usize = 64;
/// Places that one record of use has room for.
pub const TOUCHES: usize = 12;

/// A place for a page: a slot of an extent. Slots are counted by the class of the extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct At {
    /// Which data file.
    pub extent: u16,
    /// Which slot of it; below 2^24.
    pub slot: u32,
}

/// One decision, as it is logged. What comes later wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// This page lies there, whole.
    Page(Written),
    /// What lies there is no page any more: evicted, expired, removed or damaged.
    Gone(At),
    /// No page of this identity is left.
    Clear(u16),
    /// From here on the number stands for this identity.
    Identity(u16, Fingerprint),
    /// These were used, the last one most recently.
    Touch(Touches),
}

/// A page that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where.
    pub at: At,
    /// The number of its identity.
    pub identity: u16,
    /// Its digest.
    pub digest: Digest,
    /// Size of its payload.
    pub bytes: u32,
    /// When it was written, in seconds since 1970.
    pub time: u32,
    /// XXH3-64 over identity, digest and payload.
    pub checksum: u64,
    /// First 8 bytes of its parent's digest; 0: none.
    pub parent: u64,
}

/// Places that were used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touches {
    places: [At; TOUCHES],
    count: u16,
}

impl Touches {
    /// The first of `places`, as many as there is room for.
    pub fn of(places: &[At]) -> Self {
        let mut all = Self::default();
        for (to, place) in all.places.iter_mut().zip(places) {
            (*to, all.count) = (*place, all.count + 1);
        }
        all
    }

    /// The places, in order of use.
    pub fn places(&self) -> &[At] {
        &self.places[..usize::from(self.count).min(TOUCHES)]
    }
}

const PAGE: u8 = 1;
const GONE: u8 = 2;
const CLEAR: u8 = 3;
const IDENTITY: u8 = 4;
const TOUCH: u8 = 5;

impl Record {
    /// Appends its bytes.
    pub fn write(&self, log: &mut Vec<u8>) {
        let mut bytes = [0; RECORD];
        match self {
            Self::Page(page) => page.write(&mut bytes),
            Self::Gone(at) => {
                bytes[0] = GONE;
                at.write(&mut bytes[3..8]);
            }
            Self::Clear(identity) => {
                bytes[0] = CLEAR;
                bytes[1..3].copy_from_slice(&identity.to_le_bytes());
            }
            Self::Identity(number, fingerprint) => {
                bytes[0] = IDENTITY;
                bytes[1..3].copy_from_slice(&number.to_le_bytes());
                bytes[32..].copy_from_slice(&fingerprint.0);
            }
            Self::Touch(touches) => {
                bytes[0] = TOUCH;
                bytes[1..3].copy_from_slice(&touches.count.to_le_bytes());
                for (to, at) in bytes[3..].chunks_exact_mut(5).zip(touches.places()) {
                    at.write(to);
                }
            }
        }
        log.extend_from_slice(&bytes);
    }

    /// Of its bytes.
    pub fn read(bytes: &[u8; RECORD]) -> Option<Self> {
        let number = u16::from_le_bytes([bytes[1], bytes[2]]);
        Some(match bytes[0] {
            PAGE => Self::Page(Written::read(bytes, number)?),
            GONE => Self::Gone(At::read(&bytes[3..8])),
            CLEAR => Self::Clear(number),
            IDENTITY => Self::Identity(number, Fingerprint(bytes[32..].try_into().ok()?)),
            TOUCH if usize::from(number) <= TOUCHES => {
                let mut touches = Touches { count: number, ..Touches::default() };
                let places = touches.places.iter_mut().take(usize::from(number));
                places.zip(bytes[3..].chunks_exact(5)).for_each(|(at, bytes)| *at = At::read(bytes));
                Self::Touch(touches)
            }
            _ => return None,
        })
    }
}

impl Written {
    fn write(&self, bytes: &mut [u8; RECORD]) {
        bytes[0] = PAGE;
        bytes[1..3].copy_from_slice(&self.identity.to_le_bytes());
        self.at.write(&mut bytes[3..8]);
        bytes[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.time.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.parent.to_le_bytes());
        bytes[32..].copy_from_slice(&self.digest.0);
    }

    fn read(bytes: &[u8; RECORD], identity: u16) -> Option<Self> {
        Some(Self {
            at: At::read(&bytes[3..8]),
            identity,
            digest: Digest(bytes[32..].try_into().ok()?),
            bytes: u32::from_le_bytes(bytes[8..12].try_into().ok()?),
            time: u32::from_le_bytes(bytes[12..16].try_into().ok()?),
            checksum: u64::from_le_bytes(bytes[16..24].try_into().ok()?),
            parent: u64::from_le_bytes(bytes[24..32].try_into().ok()?),
        })
    }
}

impl At {
    fn write(self, bytes: &mut [u8]) {
        debug_assert!(self.slot < 1 << 24, "a slot has 24 bits");
        bytes[..2].copy_from_slice(&self.extent.to_le_bytes());
        bytes[2..5].copy_from_slice(&self.slot.to_le_bytes()[..3]);
    }

    fn read(bytes: &[u8]) -> Self {
        let extent = u16::from_le_bytes([bytes[0], bytes[1]]);
        Self { extent, slot: u32::from_le_bytes([bytes[2], bytes[3], bytes[4], 0]) }
    }
}
