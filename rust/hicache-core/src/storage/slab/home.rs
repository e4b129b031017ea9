//! A rank's directory: who owns it, what it was made with, and what in it is nobody's.
//!
//! ```text
//! LOCK                 held as long as the store is open
//! STORE                the format, the store's number, the size of its extents
//! identities/          what people may read of its identities
//! data-00000 ...       extents
//! log-00000001 ...     the log's segments
//! ```
//! On error: names `storage`.

use super::media::Media;
use super::tail::path;
use crate::error::{Error, Result, argument};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

const FORMAT: &str = "hicache-slab 1";

/// A directory that is ours until it is dropped.
pub struct Home {
    /// Where.
    pub dir: PathBuf,
    /// The store's own number.
    pub store: u64,
    /// Bytes of an extent.
    pub extent: u64,
    owned: File,
}

impl Home {
    /// Opens or makes a directory. `extent`: the size that is asked for, and the one that is made if none is. `check`
    /// refuses a size of extents before anything is made.
    ///
    /// # Errors
    /// When it can't be used, somebody else has it open, or its extents have another size.
    pub fn open(
        dir: &Path,
        extent: (Option<u64>, u64),
        check: impl Fn(u64) -> Result<()>,
        media: &dyn Media,
    ) -> Result<Self> {
        extent.0.map_or(Ok(()), &check)?;
        let about = |error| refused(dir, &error);
        fs::create_dir_all(dir).map_err(about)?;
        let owned = own(dir).map_err(about)?;
        let Some(owned) = owned else {
            let other = fs::read_to_string(dir.join("LOCK")).unwrap_or_default();
            let reason = format!(
                "{} is in use by another process ({}): a slab store has one user; several can share the file store, \
                 file:///directory",
                dir.display(),
                other.trim()
            );
            return argument("storage", reason);
        };
        let (told, wished) = (told(dir), extent.0.unwrap_or(extent.1));
        check(told.map_or(wished, |(_, found)| found))?;
        let (store, found) = match told {
            Some(told) => told,
            None => made(dir, wished, media).map_err(about)?,
        };
        if let Some(asked) = extent.0
            && asked != found
        {
            let reason = format!("extent={asked}: {} was made with extents of {found}", dir.display());
            return argument("storage", reason);
        }
        Ok(Self { dir: dir.to_owned(), store, extent: found, owned })
    }

    /// Removes data files that don't have an extent's size: what damaged them took their pages. How many.
    ///
    /// # Errors
    /// When that can't be done.
    pub fn clear_damaged(&self) -> Result<u64> {
        let about = |error| refused(&self.dir, &error);
        let mut removed = 0;
        for entry in fs::read_dir(&self.dir).map_err(about)? {
            let entry = entry.map_err(about)?;
            let name = entry.file_name();
            let ours = name.to_str().and_then(|name| name.strip_prefix("data-")).is_some_and(|number| {
                number.len() >= 5 && number.bytes().all(|letter| letter.is_ascii_digit())
            });
            let about_it = entry.metadata().map_err(about)?;
            if ours && about_it.is_file() && about_it.len() != self.extent {
                fs::remove_file(entry.path()).map_err(about)?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Closing the file would not do: a child that was forked has it, too.
        let _ = flock(&self.owned, FlockOperation::Unlock);
    }
}

fn refused(dir: &Path, error: &io::Error) -> Error {
    Error::Argument { argument: "storage", reason: format!("{}: {error}", dir.display()) }
}

/// The lock, if it is free. The system lets go of it when its process ends, however that happens.
fn own(dir: &Path) -> io::Result<Option<File>> {
    let mut file =
        File::options().create(true).truncate(false).read(true).write(true).open(dir.join("LOCK"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        done => done?,
    }
    file.set_len(0)?;
    writeln!(file, "process {}", std::process::id())?;
    Ok(Some(file))
}

/// The number and the size that a store was made with, if it says so.
fn told(dir: &Path) -> Option<(u64, u64)> {
    let mut text = String::new();
    File::open(dir.join("STORE")).ok()?.take(4096).read_to_string(&mut text).ok()?;
    let mut lines = text.lines();
    let mut field = |name: &str| lines.next().and_then(|line| line.strip_prefix(name)).map(str::trim);
    field(FORMAT)?;
    let store = u64::from_str_radix(field("store ")?, 16).ok()?;
    let extent: u64 = field("extent ")?.parse().ok()?;
    (extent > 0 && extent.is_multiple_of(super::index::ground::STEP.into())).then_some((store, extent))
}

/// Makes a store of a new number. A log that is there already is another's.
fn made(dir: &Path, extent: u64, media: &dyn Media) -> io::Result<(u64, u64)> {
    let store = RandomState::new().hash_one(std::time::SystemTime::now());
    for number in super::replay::segments(dir)? {
        fs::remove_file(path(dir, number))?;
    }
    let text = format!("{FORMAT}\nstore {store:016x}\nextent {extent}\n");
    let new = dir.join("STORE.new");
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    media.sync(&file)?;
    media.publish(&new, &dir.join("STORE"))?;
    Ok((store, extent))
}
