//! Files that transfers go to, and what the file system they are on can do.
//!
//! Direct I/O moves bytes between the disk and the caller's memory; not every file system has it, and it needs
//! addresses, lengths and offsets that are multiples of what the disk says. Refuses to know what is in a file.
//! On error: the system's.

use super::{Direct, PAGE, Run};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// What transfers must be multiples of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    direct: bool,
    /// Writing over what was written changes nothing but bytes.
    in_place: bool,
    /// Addresses.
    memory: usize,
    /// Lengths and offsets.
    step: usize,
}

const BUFFERED: Needs = Needs { direct: false, in_place: false, memory: 1, step: 1 };

/// A file for transfers.
#[derive(Debug)]
pub struct DataFile {
    file: File,
    needs: Needs,
}

impl DataFile {
    /// The file itself, for what isn't a transfer. With direct I/O, its own reads and writes need alignment.
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Whether transfers go past the page cache.
    pub const fn direct(&self) -> bool {
        self.needs.direct
    }

    /// Whether a write over what was written before is as durable as a flush of the disk's own cache makes it.
    pub const fn in_place(&self) -> bool {
        self.needs.in_place
    }

    /// Has all written bytes, and where they are, outlive a loss of power.
    ///
    /// # Errors
    /// The disk's.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// What lengths are multiples of.
    pub(super) const fn step(&self) -> usize {
        self.needs.step
    }

    pub(super) const fn takes(&self, offset: u64) -> bool {
        offset.is_multiple_of(self.needs.step as u64)
    }

    pub(super) fn fits(&self, run: &Run) -> bool {
        run.at.addr().is_multiple_of(self.needs.memory) && run.bytes.is_multiple_of(self.needs.step)
    }
}

impl Needs {
    /// What transfers to files in `dir` need, and why they don't go directly if they don't.
    ///
    /// # Errors
    /// When nothing can be written there, or direct I/O is wanted and can't be had.
    pub fn of(dir: &Path, wanted: Direct) -> io::Result<(Self, Option<String>)> {
        // Two disks of one process may be opened in one directory.
        static PROBES: AtomicU64 = AtomicU64::new(0);
        let probe = PROBES.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("probe-{}-{probe}", std::process::id()));
        // One may be left of a killed process that had our number.
        let plain = File::create(&path)?;
        let direct = match wanted {
            Direct::No => Ok(BUFFERED),
            Direct::Auto | Direct::Yes => probed(&path),
        };
        let removed = std::fs::remove_file(&path);
        drop(plain);
        match (direct, wanted) {
            (Err(error), Direct::Yes) => Err(io::Error::new(error.kind(), format!("direct I/O: {error}"))),
            (Err(error), _) => removed.map(|()| (BUFFERED, Some(error.to_string()))),
            (Ok(needs), _) => removed.map(|()| (needs, None)),
        }
    }

    pub const fn direct(self) -> bool {
        self.direct
    }

    pub fn open(self, path: &Path, new: bool) -> io::Result<DataFile> {
        let mut options = File::options();
        options.read(true).write(true).create_new(new);
        let file = if self.direct { direct(&mut options) } else { &options }.open(path)?;
        Ok(DataFile { file, needs: self })
    }
}

/// Writes and reads back the first bytes of a file.
fn probed(path: &Path) -> io::Result<Needs> {
    let file = direct(File::options().read(true).write(true)).open(path)?;
    let (memory, step) = told(&file).unwrap_or((PAGE, PAGE));
    if step.max(memory) > PAGE {
        return Err(io::Error::other(format!("needs multiples of {} bytes", step.max(memory))));
    }
    let mut page = memmap2::MmapMut::map_anon(PAGE)?;
    page.fill(0xA5);
    match file.write_all_at(&page, 0) {
        // A store on a full disk still serves what it has.
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
        Err(error) => return Err(error),
        Ok(()) => {
            page.fill(0);
            file.read_exact_at(&mut page, 0)?;
            if page.iter().any(|&byte| byte != 0xA5) {
                return Err(io::Error::other("what was written isn't what is read"));
            }
        }
    }
    Ok(Needs { direct: true, in_place: in_place(&file), memory, step })
}

/// Whether the file system is known to write in place. Others may put what is written over elsewhere (Btrfs, ZFS, F2FS),
/// and only a flush makes that known to the disk.
#[cfg(target_os = "linux")]
fn in_place(file: &File) -> bool {
    const EXT4: u64 = 0xEF53;
    const XFS: u64 = 0x5846_5342;
    let kind = rustix::fs::fstatfs(file).ok().and_then(|about| u64::try_from(about.f_type).ok());
    matches!(kind, Some(EXT4 | XFS))
}

#[cfg(not(target_os = "linux"))]
const fn in_place(_: &File) -> bool {
    false
}

#[cfg(target_os = "linux")]
fn direct(options: &mut OpenOptions) -> &OpenOptions {
    options.custom_flags(libc::O_DIRECT)
}

/// Opening fails: no such system is known here to do it.
#[cfg(not(target_os = "linux"))]
fn direct(options: &mut OpenOptions) -> &OpenOptions {
    options.read(false).write(false)
}

/// What the kernel says that direct I/O needs, where it says so (Linux 6.1).
#[cfg(target_os = "linux")]
fn told(file: &File) -> Option<(usize, usize)> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let about = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let known = about.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && about.stx_dio_offset_align > 0;
    let (memory, step) = (about.stx_dio_mem_align as usize, about.stx_dio_offset_align as usize);
    known.then_some((memory.max(1), step))
}

#[cfg(not(target_os = "linux"))]
fn told(_: &File) -> Option<(usize, usize)> {
    None
}
