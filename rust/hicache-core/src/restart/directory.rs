//! The directory on a memory file system: one process's at a time, and sized files in it.
//!
//! Assumes Linux's tmpfs. Knows no pages. On error: names `host restart` and what is wrong; no file was harmed.

use crate::error::{Result, argument};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

const LOCK: &str = "lock";
/// The table of records.
pub const TABLE: &str = "table";
const SLAB: &str = "slab-";

/// The directory, as long as it is ours.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    lock: File,
}

/// A pool's file.
pub fn slab(pool: usize) -> String {
    format!("{SLAB}{pool}")
}

impl Directory {
    /// Makes it, or takes it over from a process that has ended.
    ///
    /// # Errors
    /// When it is not on a memory file system, has files of others, or is another live process's.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.is_absolute() {
            return argument("host restart", format!("{}: need an absolute path", path.display()));
        }
        let failed = |error: std::io::Error| wrong(path, format!("can't be used: {error}"));
        let new = !path.exists();
        system::make_directory(path).map_err(failed)?;
        let fits = system::in_memory(path).map_err(failed).and_then(|in_memory| {
            if in_memory { Ok(()) } else { Err(wrong(path, "is not in memory: use one below /dev/shm")) }
        });
        let fits = fits.and_then(|()| Self::only_ours(path));
        if let Err(error) = fits {
            if new {
                let _ = fs::remove_dir(path);
            }
            return Err(error);
        }
        let mut lock = system::open(&path.join(LOCK)).map_err(failed)?;
        if !system::lock(&lock).map_err(failed)? {
            let whose = fs::read_to_string(path.join(LOCK)).unwrap_or_default();
            return Err(wrong(path, format!("is in use by process {}", whose.trim())));
        }
        let named = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
        named.map_err(failed)?;
        Ok(Self { path: path.to_owned(), lock })
    }

    fn only_ours(path: &Path) -> Result<()> {
        let entries = fs::read_dir(path).map_err(|error| wrong(path, format!("can't be read: {error}")))?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            if !(name == LOCK || is_content(&name)) {
                return Err(wrong(path, format!("has files of others ({})", name.display())));
            }
        }
        Ok(())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file that is there, if it has this size (any, if none is given).
    pub fn existing(&self, name: &str, bytes: Option<u64>) -> Option<File> {
        let file = system::open_existing(&self.path.join(name)).ok()?;
        let length = file.metadata().ok()?.len();
        bytes.is_none_or(|bytes| bytes == length).then_some(file)
    }

    /// A new file of zeros, whose memory is all there: nothing is left to run out of when it is written to.
    ///
    /// # Errors
    /// When the file system has no room for it.
    pub fn make(&self, name: &str, bytes: u64) -> Result<File> {
        let made = system::open(&self.path.join(name)).and_then(|file| {
            file.set_len(0)?;
            file.set_len(bytes)?;
            if bytes > 0 {
                system::allocate(&file, bytes)?;
            }
            Ok(file)
        });
        made.map_err(|error| {
            let _ = fs::remove_file(self.path.join(name));
            wrong(&self.path, format!("has no room for {bytes} bytes: {error}"))
        })
    }

    /// Removes all that it has.
    ///
    /// # Errors
    /// When something can't be removed.
    pub fn empty(&self) -> Result<()> {
        // First, so that what is left of the others is never taken for pages.
        let table = fs::remove_file(self.path.join(TABLE));
        let others = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let others = others.filter(|entry| is_content(&entry.file_name()) && entry.file_name() != TABLE);
        let failed = std::iter::once(table).chain(others.map(|entry| fs::remove_file(entry.path())));
        let missing = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        match failed.filter_map(std::result::Result::err).find(|error| !missing(error)) {
            Some(error) => Err(wrong(&self.path, format!("can't be emptied: {error}"))),
            None => Ok(()),
        }
    }

    /// Others may have it from now on: nobody writes to its memory any more.
    pub fn leave(&self) {
        // Should that fail, they may when this process has ended.
        let _ = system::unlock(&self.lock);
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // By itself it would be ours as long as a child that was forked meanwhile has the file open.
        self.leave();
    }
}

fn is_content(name: &OsStr) -> bool {
    let pool = name.to_str().and_then(|name| name.strip_prefix(SLAB));
    name == TABLE || pool.is_some_and(|pool| pool.parse::<usize>().is_ok())
}

fn wrong(path: &Path, why: impl std::fmt::Display) -> crate::Error {
    crate::Error::Argument { argument: "host restart", reason: format!("{} {why}", path.display()) }
}

#[cfg(target_os = "linux")]
mod system {
    //! What the standard library doesn't have.

    use rustix::fs::{FallocateFlags, FlockOperation};
    use std::fs::{DirBuilder, File, OpenOptions};
    use std::io::Result;
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
    use std::path::Path;

    const TMPFS: i64 = 0x0102_1994;

    /// What prompts became is nobody else's to read.
    pub fn make_directory(path: &Path) -> Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)
    }

    pub fn open(path: &Path) -> Result<File> {
        options().create(true).mode(0o600).open(path)
    }

    pub fn open_existing(path: &Path) -> Result<File> {
        options().open(path)
    }

    fn options() -> OpenOptions {
        let mut options = OpenOptions::new();
        let nofollow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        options.read(true).write(true).custom_flags(nofollow);
        options
    }

    pub fn in_memory(path: &Path) -> Result<bool> {
        #[allow(clippy::unnecessary_cast, clippy::useless_conversion, reason = "differs between machines")]
        Ok(rustix::fs::statfs(path)?.f_type as i64 == TMPFS)
    }

    pub fn lock(file: &File) -> Result<bool> {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub fn unlock(file: &File) -> Result<()> {
        Ok(rustix::fs::flock(file, FlockOperation::Unlock)?)
    }

    pub fn allocate(file: &File, bytes: u64) -> Result<()> {
        Ok(rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)?)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    //! Memory that outlives a process is Linux's.

    use std::fs::File;
    use std::io::{Error, ErrorKind, Result};
    use std::path::Path;

    fn missing<T>() -> Result<T> {
        Err(Error::new(ErrorKind::Unsupported, "this needs Linux"))
    }

    pub fn make_directory(_: &Path) -> Result<()> {
        missing()
    }

    pub fn open(_: &Path) -> Result<File> {
        missing()
    }

    pub fn open_existing(_: &Path) -> Result<File> {
        missing()
    }

    pub fn in_memory(_: &Path) -> Result<bool> {
        missing()
    }

    pub fn lock(_: &File) -> Result<bool> {
        missing()
    }

    pub fn unlock(_: &File) -> Result<()> {
        missing()
    }

    pub fn allocate(_: &File, _: u64) -> Result<()> {
        missing()
    }
}
