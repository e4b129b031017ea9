//! What the log, and the making of data files, need of a file system: a seam, so that faults can be tried.
//!
//! Log files are written through the page cache: what was written survives the death of the process.
//! On error: the system's.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Zeros are written in pieces of this size.
const PIECE: usize = 1 << 20;

/// A file system, as far as a log needs it, and what makes and removes data files.
pub trait Media: Send + Sync {
    /// A new file (or in the place of an old one) full of zeros, durably: later writes change nothing but bytes.
    ///
    /// # Errors
    /// The system's; the file may be there all the same.
    fn create(&self, path: &Path, bytes: usize) -> io::Result<File> {
        let file = File::options().create(true).truncate(true).read(true).write(true).open(path)?;
        let zeros = vec![0; bytes.min(PIECE)];
        for at in (0..bytes).step_by(PIECE) {
            self.write(&file, &zeros[..zeros.len().min(bytes - at)], at as u64)?;
        }
        self.sync(&file)?;
        Ok(file)
    }

    /// A file that is there, from its beginning.
    ///
    /// # Errors
    /// The system's; reading it may have its own.
    fn read(&self, path: &Path) -> io::Result<Box<dyn io::Read>> {
        Ok(Box::new(BufReader::with_capacity(PIECE / 4, File::open(path)?)))
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// The system's; any part may have been written.
    fn write(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        file.write_all_at(bytes, at)
    }

    /// Makes a file's bytes durable.
    ///
    /// # Errors
    /// The system's; nothing is known of what was written since the last one.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    /// Has room for all of a data file. Where the file system can't promise that, writes may find it full: they
    /// fail, as writes do.
    ///
    /// # Errors
    /// The system's.
    fn reserve(&self, file: &File, bytes: u64) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
            Err(rustix::io::Errno::OPNOTSUPP) => {}
            done => return Ok(done?),
        }
        file.set_len(bytes)
    }

    /// Removes a data file's name.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    /// Gives a file its name for good, durably.
    ///
    /// # Errors
    /// The system's.
    fn publish(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        to.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    }
}

/// The system's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Media for Plain {}
