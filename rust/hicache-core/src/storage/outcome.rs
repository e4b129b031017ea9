//! What became of one key, and what a store counts.
//!
//! On error: nothing here fails.

/// What became of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Read and verified, written whole, present, or removed.
    Hit,
    /// Not there.
    Absent,
    /// There, but with fewer bytes than a page has. It was taken out of the way.
    Short,
    /// There, but not what was written: too long, or of another identity, key or checksum. It was taken out of the way.
    Corrupt,
    /// The store could not do it.
    Failed,
    /// The store did not do it in time.
    TimedOut,
    /// Given up before it was tried, or removed meanwhile.
    Cancelled,
    /// Not taken: there is no room for it, or the store's rules don't want it. No fault.
    Declined,
}

impl Outcome {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Hit,
        Self::Absent,
        Self::Short,
        Self::Corrupt,
        Self::Failed,
        Self::TimedOut,
        Self::Cancelled,
        Self::Declined,
    ];

    /// Its name, as Python and people read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Absent => "absent",
            Self::Short => "short",
            Self::Corrupt => "corrupt",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Declined => "declined",
        }
    }

    /// Whether trying again may help.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Failed | Self::TimedOut)
    }
}

/// What a store holds now (0 or none where it can't know), and what it did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Pages that are there, of all identities.
    pub pages: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Most bytes that it may take.
    pub capacity: Option<u64>,
    /// Pages read whole.
    pub read_pages: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Pages written; not those that were there already.
    pub written_pages: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Reads of what wasn't there.
    pub absent_pages: u64,
    /// Reads that found fewer bytes than a page has.
    pub short_pages: u64,
    /// Reads that found other bytes than were written.
    pub corrupt_pages: u64,
    /// Reads and writes that could not be done.
    pub failed_pages: u64,
    /// Writes that weren't taken.
    pub declined_pages: u64,
    /// Pages given up to make room.
    pub evicted_pages: u64,
    /// Pages given up for their age.
    pub expired_pages: u64,
    /// Questions and reads that missed while the store had pages of the same model under another identity, and none of
    /// this one's: `describe` says in which fields they differ.
    pub mismatched_pages: u64,
    /// Pages read that carry nothing by which they could be verified.
    pub unverified_pages: u64,
}
