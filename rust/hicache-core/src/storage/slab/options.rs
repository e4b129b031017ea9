//! What a slab store's URL says, and what follows from it.
//!
//! On error: names `storage` and the option.

use super::index::ground::STEP;
use super::record::RECORD;
use super::segment::{GROUP, HEADER, MOST};
use crate::error::{Result, argument};
use crate::storage::disk::{Direct, DiskOptions, Io};
use crate::storage::url::Share;
use crate::storage::{Client, Url};
use std::path::PathBuf;
use std::time::Duration;

const KNOWN: [&str; 13] = [
    "size",
    "extent",
    "free",
    "ttl",
    "write_rate",
    "admission",
    "sync",
    "io",
    "direct",
    "depth",
    "threads",
    "ranks",
    "shrink",
];
/// Extents that are neither asked for nor known have at most this many bytes.
const USUAL: u64 = 256 << 20;
const MIB: u64 = 1 << 20;

/// Everything that can be set.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory that all ranks share.
    pub root: PathBuf,
    /// This rank's directory in it.
    pub rank: String,
    /// Bytes that this rank may take.
    pub size: u64,
    /// Bytes of an extent; none: as it was made, or what suits the size.
    pub extent: Option<u64>,
    /// How much of the file system is left free.
    pub free: Share,
    /// How old pages may get.
    pub ttl: Option<Duration>,
    /// Bytes a second that may be written, averaged over an hour.
    pub write_rate: Option<u64>,
    /// Whether pages are taken when they come for the second time only.
    pub second: bool,
    /// Whether what is acknowledged survives a loss of power.
    pub sync: bool,
    /// Whether pages are given up when it is opened with less room than they take; else it isn't opened.
    pub shrink: bool,
    /// How the disk is used.
    pub disk: DiskOptions,
}

impl Options {
    /// All that isn't asked for as it usually is.
    pub fn new(root: PathBuf, size: u64) -> Self {
        Self {
            root,
            rank: String::from("all"),
            size,
            extent: None,
            free: Share::Fraction(0.05),
            ttl: None,
            write_rate: None,
            second: false,
            sync: false,
            shrink: true,
            disk: DiskOptions::default(),
        }
    }

    /// Of a URL: `slab:///directory?size=200GiB&...`.
    ///
    /// # Errors
    /// Names `storage` and the option.
    pub fn of(mut url: Url, client: &Client) -> Result<Self> {
        let root = url.directory()?;
        let Some(whole) = url.take_size("size")? else {
            return argument(
                "storage",
                "slab: size is missing: say how much it may take, such as size=200GiB",
            );
        };
        let ranks = url.take_number("ranks")?;
        if ranks == Some(0) {
            return argument("storage", "ranks=0: need 1 at least");
        }
        let mut options = Self::new(root, client.share(whole, ranks));
        options.rank = client.directory();
        options.extent = url.take_size("extent")?;
        options.free = url.take_share("free")?.unwrap_or(options.free);
        options.ttl = url.take_seconds("ttl")?;
        options.write_rate = url.take_size("write_rate")?;
        options.second = url.take_choice("admission", &["all", "second"])? == Some("second");
        options.sync = url.take_flag("sync")?.unwrap_or(false);
        options.shrink = url.take_flag("shrink")?.unwrap_or(true);
        options.disk = disk(&mut url)?;
        url.finish(&KNOWN)?;
        options.checked()
    }

    fn checked(self) -> Result<Self> {
        self.disk.checked()?;
        match self.extent {
            Some(extent) if !extent.is_multiple_of(STEP.into()) => {
                argument("storage", format!("extent={extent}: need a multiple of {STEP}"))
            }
            _ => Ok(self),
        }
    }

    /// The size of extents, where neither the URL nor the store that is there says one.
    pub fn usual_extent(&self) -> u64 {
        let extent = (self.size / 16).clamp(MIB, USUAL).max(self.size / u64::from(u16::MAX));
        extent.next_multiple_of(STEP.into())
    }

    /// How the size is divided between extents of so many bytes and their log.
    ///
    /// # Errors
    /// Names `storage` when it is too small, or the extents too many or too large.
    pub fn bounds(&self, extent: u64) -> Result<Bounds> {
        let segment = (self.size / 256).next_multiple_of(STEP.into()).clamp(64 << 10, 4 * MIB);
        let bounds = Bounds { size: self.size, extent, segment };
        let most = bounds.most_extents();
        if most == 0 {
            let least = bounds.taken(1, 1);
            let reason =
                format!("size={}: need {least} a rank, for one extent of {extent} and a log", self.size);
            return argument("storage", reason);
        }
        if most > u64::from(u16::MAX) || extent / u64::from(STEP) > 1 << 24 {
            let reason =
                format!("extent={extent}: need at most 65535 of them in {}, of at most 64 GiB", self.size);
            return argument("storage", reason);
        }
        Ok(bounds)
    }
}

/// How a size is divided.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// All of it.
    pub size: u64,
    /// Bytes of an extent.
    pub extent: u64,
    /// Bytes of a segment of the log.
    pub segment: u64,
}

impl Bounds {
    /// Bytes that extents with so many slots take at most, log included: a snapshot, as much again since, and the
    /// next snapshot while it is written; and segments that are begun or prepared.
    pub const fn taken(&self, extents: u64, slots: u64) -> u64 {
        extents * self.extent + slots * 3 * RECORD as u64 + 6 * self.segment
    }

    /// Most extents there can be, with one slot each.
    pub const fn most_extents(&self) -> u64 {
        let each = self.extent + 3 * RECORD as u64;
        self.size.saturating_sub(self.taken(0, 0)) / each
    }

    /// How many extents there may be with so many slots in all.
    pub fn files(&self, slots: u64) -> u32 {
        let files = self.size.saturating_sub(self.taken(0, slots)) / self.extent;
        u32::try_from(files).unwrap_or(u32::MAX)
    }

    /// How many identities have numbers at a time: all of them stand at every segment's head.
    pub const fn identities(&self) -> u64 {
        self.segment / RECORD as u64 / 4
    }

    /// Bytes of a snapshot of so many slots.
    const fn snapshot(&self, slots: u64) -> u64 {
        let records = slots + self.identities();
        HEADER as u64 + records * RECORD as u64 + records.div_ceil(MOST as u64) * GROUP as u64
    }

    /// Bytes of segments since a snapshot, at most: what the last snapshot, the next one and a segment that is prepared
    /// leave of what all of the log may take.
    pub const fn log(&self, slots: u64) -> u64 {
        self.taken(0, slots).saturating_sub(2 * self.snapshot(slots) + self.segment)
    }
}

fn disk(url: &mut Url) -> Result<DiskOptions> {
    let usual = DiskOptions::default();
    let count =
        |number: Option<u64>, usual| number.map_or(usual, |n| usize::try_from(n).unwrap_or(usize::MAX));
    Ok(DiskOptions {
        io: match url.take_choice("io", &["auto", "uring", "threads"])? {
            Some("uring") => Io::Uring,
            Some("threads") => Io::Threads,
            _ => Io::Auto,
        },
        direct: match url.take_choice("direct", &["auto", "yes", "no"])? {
            Some("yes") => Direct::Yes,
            Some("no") => Direct::No,
            _ => Direct::Auto,
        },
        depth: count(url.take_number("depth")?, usual.depth),
        threads: count(url.take_number("threads")?, usual.threads),
    })
}
