//! The region of CPU memory that holds one pool's host pages.
//!
//! Anonymous memory, a memfd that other processes can map too, or a file in memory that outlives the process; zeroed, in
//! huge pages where the kernel has them, touched beforehand by several threads. A slab hands out raw addresses; who may
//! use which is settled by slots: one owner at a time.
//! On error: names the bytes that can't be had, before anything is kept.
#![allow(unsafe_code, reason = "hands out addresses into its own mapping")]

use super::numa;
use crate::error::{Result, argument};
use crate::huge::Mapping;
use std::fs::File;
use std::ops::Range;

/// Where a slab's memory comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlabOptions {
    /// A memfd, which other processes can map; else anonymous memory.
    pub shared: bool,
    /// Threads that touch the memory beforehand; 0: it is had page by page when it is first used.
    pub prefault_threads: usize,
    /// The NUMA node that the memory is bound to, where the machine has several.
    pub node: Option<u32>,
}

/// One pool's host memory.
#[derive(Debug)]
pub struct Slab {
    base: *mut u8,
    bytes: usize,
    /// Of a shared slab.
    file: Option<File>,
    /// Owns the memory at `base`.
    _map: Option<Mapping>,
}

// SAFETY: the slab never reads or writes its memory itself; owners of slots do, each its own bytes.
unsafe impl Send for Slab {}
// SAFETY: as above; all methods take addresses only.
unsafe impl Sync for Slab {}

impl Slab {
    /// Anonymous memory that nobody has touched.
    ///
    /// # Errors
    /// When the kernel refuses so much memory.
    pub fn new(bytes: usize) -> Result<Self> {
        Self::with(bytes, SlabOptions::default())
    }

    /// # Errors
    /// When the kernel refuses so much memory, of this kind or on this node.
    pub fn with(bytes: usize, options: SlabOptions) -> Result<Self> {
        if bytes == 0 {
            let base = std::ptr::NonNull::dangling().as_ptr();
            return Ok(Self { base, bytes, file: None, _map: None });
        }
        let file = if options.shared { Some(memfd::create(bytes)?) } else { None };
        // A memfd's size is sealed.
        let map = file.as_ref().map_or_else(|| Mapping::anonymous(bytes), |file| Mapping::over(file, bytes));
        let map = Self::ready(map, bytes, options)?;
        Ok(Self { base: map.base(), bytes, file, _map: Some(map) })
    }

    /// The memory of a file that has all of it, with what is in it. It keeps its size as long as the slab is there:
    /// the caller sees to that.
    ///
    /// # Errors
    /// When the file has another size, or the kernel refuses.
    pub fn over(file: &File, bytes: usize, options: SlabOptions) -> Result<Self> {
        let length = file.metadata().map(|about| about.len());
        if length.as_ref().ok() != Some(&(bytes as u64)) {
            return argument("host", format!("need a file of {bytes} bytes, got {length:?}"));
        }
        if bytes == 0 {
            return Self::new(0);
        }
        let map = Self::ready(Mapping::over(file, bytes), bytes, options)?;
        Ok(Self { base: map.base(), bytes, file: None, _map: Some(map) })
    }

    /// Memory as the options want it.
    fn ready(map: std::io::Result<Mapping>, bytes: usize, options: SlabOptions) -> Result<Mapping> {
        let refused = |error: std::io::Error| format!("no memory for a slab of {bytes} bytes: {error}");
        let map = map.or_else(|error| argument("host", refused(error)))?;
        if let Some(node) = options.node {
            numa::bind(&map, node)?;
        }
        map.touch(options.prefault_threads).or_else(|error| argument("host", refused(error)))?;
        Ok(map)
    }

    /// The memory of another process's shared slab, by its descriptor (passed along, or opened as
    /// `/proc/PID/fd/N`).
    ///
    /// # Errors
    /// When it isn't a shared slab of this size.
    pub fn attach(file: File, bytes: usize) -> Result<Self> {
        memfd::check(&file, bytes)?;
        // Its size is sealed: the mapping can't end early. Who uses which bytes is the slots' business.
        let map = Mapping::over(&file, bytes);
        let map = map.or_else(|error| argument("host", format!("the slab can't be mapped: {error}")))?;
        Ok(Self { base: map.base(), bytes, file: Some(file), _map: Some(map) })
    }

    /// The descriptor by which other processes map it, if it is shared.
    pub const fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Address, bytes and, if it is shared, descriptor.
    pub fn place(&self) -> (usize, usize, Option<i32>) {
        #[cfg(unix)]
        let file = self.file.as_ref().map(std::os::fd::AsRawFd::as_raw_fd);
        #[cfg(not(unix))]
        let file = None;
        (self.base.expose_provenance(), self.bytes, file)
    }

    /// Size.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Address of a run of bytes; `None` if it isn't inside the slab.
    pub fn address(&self, run: Range<usize>) -> Option<*mut u8> {
        if run.start > run.end || run.end > self.bytes {
            return None;
        }
        // SAFETY: `run.start <= self.bytes`, checked above: inside the mapping or one past its end.
        Some(unsafe { self.base.add(run.start) })
    }
}

#[cfg(target_os = "linux")]
mod memfd {
    //! Memory that is a file without a name; its size can't be changed any more.

    use crate::error::{Error, Result, argument};
    use std::fs::File;
    use std::os::fd::{AsRawFd, FromRawFd};

    const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

    pub fn create(bytes: usize) -> Result<File> {
        let failed = |what: &str| {
            let error = std::io::Error::last_os_error();
            Error::Argument {
                argument: "host",
                reason: format!("{what} shared memory of {bytes} bytes: {error}"),
            }
        };
        // SAFETY: the name is a C string.
        let fd =
            unsafe { libc::memfd_create(c"hicache".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(failed("no"));
        }
        // SAFETY: just opened, and nobody else's.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(bytes as u64).map_err(|_| failed("no room for"))?;
        // SAFETY: an open descriptor.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } < 0 {
            return Err(failed("can't seal"));
        }
        Ok(file)
    }

    pub fn check(file: &File, bytes: usize) -> Result<()> {
        let length = file.metadata().map(|about| about.len());
        if length.as_ref().ok() != Some(&(bytes as u64)) {
            return argument("host", format!("need shared memory of {bytes} bytes, got {length:?}"));
        }
        // SAFETY: an open descriptor.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & SEALS != SEALS {
            return argument("host", "need the descriptor of a shared slab, whose size is sealed");
        }
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
mod memfd {
    use crate::error::{Result, argument};
    use std::fs::File;

    pub fn create(_: usize) -> Result<File> {
        argument("host", "shared memory needs Linux")
    }

    pub fn check(_: &File, _: usize) -> Result<()> {
        argument("host", "shared memory needs Linux")
    }
}
