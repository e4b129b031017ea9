//! Data files: making one whole, finding those of a directory and what of them was written, removing.
//!
//! A file is made under another name, so that one of its own name has its size. What was written is asked of
//! the file system: it knows, of every part that it has allocated, whether anybody has written it.
//! On error: the system's, or what is odd about a file.

use super::extents::ExtentOptions;
use super::media::Media;
use crate::storage::disk::{DataFile, Disk};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that was found, and which parts of it were written.
pub(super) type Found = (u32, Arc<DataFile>, Vec<Range<u64>>);

fn path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("data-{number:05}"))
}

fn number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("data-")?;
    // As records count them; the last one is nobody's.
    let number = digits.parse().ok().filter(|&number: &u32| number < u16::MAX.into())?;
    // Only the very name that we would give: no sign, no other number of zeros.
    (format!("{number:05}") == digits).then_some(number)
}

/// All data files of a directory. Remains of one that was being made are removed.
pub(super) fn found(disk: &Disk, dir: &Path, bytes: u64) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.strip_suffix(".new").and_then(number).is_some() {
            fs::remove_file(entry.path())?;
        }
        let Some(number) = number(&name) else { continue };
        let about = |error: io::Error| io::Error::new(error.kind(), format!("{name}: {error}"));
        let file = disk.file(&entry.path()).map_err(about)?;
        let length = file.file().metadata()?.len();
        if length != bytes {
            let reason = format!("{name} has {length} bytes: need extents of {bytes}, as when it was made");
            return Err(io::Error::other(reason));
        }
        // What a killed process wrote may not have reached the disk, nor that it was written.
        file.sync().map_err(about)?;
        let written = written(file.file(), bytes).map_err(about)?;
        found.push((number, file, written));
    }
    Ok(found)
}

/// Makes one, if the file system has enough room.
pub(super) fn make(
    disk: &Disk,
    media: &dyn Media,
    dir: &Path,
    number: u32,
    options: ExtentOptions,
) -> io::Result<Arc<DataFile>> {
    let (free, needed) = (available(dir)?, options.free.saturating_add(options.bytes));
    if free < needed {
        let reason = format!("the file system has {free} bytes left, and is to keep {}", options.free);
        return Err(io::Error::new(ErrorKind::StorageFull, reason));
    }
    // One that is there is what is left of an extent that couldn't be removed: this one takes its place.
    let (path, new) = (path(dir, number), dir.join(format!("data-{number:05}.new")));
    let made = (|| {
        let file = disk.create(&new)?;
        media.reserve(file.file(), options.bytes)?;
        file.file().sync_all()?;
        fs::rename(&new, &path)?;
        File::open(dir)?.sync_all()?;
        Ok(file)
    })();
    if made.is_err() {
        let _ = fs::remove_file(&new);
    }
    made
}

/// Removes one's name; whoever has it open still reads it.
pub(super) fn remove(media: &dyn Media, dir: &Path, number: u32) -> io::Result<()> {
    match media.remove(&path(dir, number)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => File::open(dir)?.sync_all(),
    }
}

/// Bytes that the file system still has for us.
pub(super) fn available(dir: &Path) -> io::Result<u64> {
    let about = rustix::fs::statvfs(dir)?;
    Ok(about.f_bavail.saturating_mul(about.f_frsize))
}

/// Parts of a file that were written: those that aren't holes.
#[cfg(target_os = "linux")]
fn written(file: &File, bytes: u64) -> io::Result<Vec<Range<u64>>> {
    use rustix::fs::{SeekFrom, seek};
    use rustix::io::Errno;
    let mut parts = Vec::new();
    let mut at = 0;
    while at < bytes {
        let start = match seek(file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            start => start?,
        };
        at = seek(file, SeekFrom::Hole(start))?.min(bytes);
        parts.push(start..at);
    }
    Ok(parts)
}

/// Nothing is known to be written: it will be.
#[cfg(not(target_os = "linux"))]
fn written(_: &File, _: u64) -> io::Result<Vec<Range<u64>>> {
    Ok(Vec::new())
}
