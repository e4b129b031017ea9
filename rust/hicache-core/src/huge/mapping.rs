//! Memory that begins where a huge page can, so that the kernel can give it in huge pages.
//!
//! Anonymous memory is asked for in huge pages. Files in memory (memfd, `/dev/shm`) mostly have small ones, whatever is
//! asked: `shmem_enabled` and the mount say `never` by default. So what was touched is collapsed, which the kernel does
//! on demand whatever these say (Linux 6.1), if it has huge pages left.
//! On error: the system's.
#![allow(unsafe_code, reason = "maps memory, and has the kernel change what it lies in")]

use super::HUGE;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What threads take at a time to touch: whole huge pages.
const TOUCH: usize = 64 << 20;

/// Memory of this process, as long as it is there.
#[derive(Debug)]
pub struct Mapping {
    base: *mut u8,
    bytes: usize,
    /// Owns the memory at `base`.
    _whole: system::Whole,
}

// SAFETY: it hands out an address; who uses which of its bytes is the business of those who have them.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory that nobody has touched, in huge pages once it is, where the kernel has them.
    ///
    /// # Errors
    /// When the kernel refuses so much memory.
    pub fn anonymous(bytes: usize) -> io::Result<Self> {
        Self::of(bytes, None)
    }

    /// The memory of a file, which has so many bytes as long as this is there: the caller sees to that, and to who
    /// uses them.
    ///
    /// # Errors
    /// The system's.
    pub fn over(file: &File, bytes: usize) -> io::Result<Self> {
        Self::of(bytes, Some(file))
    }

    fn of(bytes: usize, file: Option<&File>) -> io::Result<Self> {
        let (base, whole) = system::map(bytes, file)?;
        let mapping = Self { base, bytes, _whole: whole };
        // Advice only: a kernel without huge pages serves small ones.
        let _ = mapping.advise(system::HUGE_PAGES, 0..bytes);
        Ok(mapping)
    }

    /// Where it begins: on the boundary of a huge page, if it is as large as one.
    pub const fn base(&self) -> *mut u8 {
        self.base
    }

    /// Its size.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Has the kernel give all of the memory now, in huge pages if it can, by several threads: zeroing is what takes
    /// long.
    ///
    /// # Errors
    /// When there isn't so much.
    pub fn touch(&self, threads: usize) -> io::Result<()> {
        let next = AtomicUsize::new(0);
        let work = || -> io::Result<()> {
            loop {
                let start = next.fetch_add(TOUCH, Ordering::Relaxed);
                if start >= self.bytes {
                    return Ok(());
                }
                let part = start..self.bytes.min(start + TOUCH);
                self.advise(system::POPULATE, part.clone())?;
                // Refused where huge pages have run out, or an older kernel leaves files' memory to their mount.
                let _ = self.advise(system::COLLAPSE, part);
            }
        };
        // A kernel older than 5.14 can't be asked; it gives the pages when they are used.
        let work = || {
            work().or_else(
                |error| {
                    if error.raw_os_error() == Some(libc::EINVAL) { Ok(()) } else { Err(error) }
                },
            )
        };
        let threads = threads.min(self.bytes.div_ceil(TOUCH));
        if threads == 1 {
            return work();
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let panicked = |_| Err(io::Error::other("a thread that touched it panicked"));
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(panicked))
        })
    }

    fn advise(&self, advice: i32, part: std::ops::Range<usize>) -> io::Result<()> {
        // SAFETY: inside the mapping; no such advice changes any byte.
        unsafe { system::advise(self.base.wrapping_add(part.start), part.len(), advice) }
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    //! Maps at a multiple of a huge page, of which only this kernel's own calls know.

    use super::HUGE;
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd as _;

    pub const HUGE_PAGES: i32 = libc::MADV_HUGEPAGE;
    pub const POPULATE: i32 = libc::MADV_POPULATE_WRITE;
    pub const COLLAPSE: i32 = libc::MADV_COLLAPSE;

    /// Addresses that are taken, memory or not.
    #[derive(Debug)]
    pub struct Whole(*mut libc::c_void, usize);

    impl Drop for Whole {
        fn drop(&mut self) {
            // SAFETY: it is ours, and nobody has an address in it any more.
            unsafe { libc::munmap(self.0, self.1) };
        }
    }

    pub fn map(bytes: usize, file: Option<&File>) -> io::Result<(*mut u8, Whole)> {
        let (private, writable) =
            (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
        let slack = if bytes < HUGE { 0 } else { HUGE };
        let whole = bytes.checked_add(slack).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: takes addresses that are nobody's, and no memory.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), whole, libc::PROT_NONE, private, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let whole = Whole(at, whole);
        let base = at.wrapping_byte_add(if slack > 0 { at.addr().wrapping_neg() % HUGE } else { 0 });
        let (fd, kind) = file.map_or((-1, private), |file| (file.as_raw_fd(), libc::MAP_SHARED));
        // SAFETY: these addresses were just taken for it.
        let mapped = unsafe { libc::mmap(base, bytes, writable, libc::MAP_FIXED | kind, fd, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok((base.cast(), whole))
    }

    /// # Safety
    /// The memory is the caller's.
    pub unsafe fn advise(at: *mut u8, bytes: usize, advice: i32) -> io::Result<()> {
        // SAFETY: as promised.
        let done = unsafe { libc::madvise(at.cast(), bytes, advice) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(any(not(target_os = "linux"), miri))]
mod system {
    use std::fs::File;
    use std::io;

    pub const HUGE_PAGES: i32 = 0;
    pub const POPULATE: i32 = 0;
    pub const COLLAPSE: i32 = 0;

    pub type Whole = memmap2::MmapMut;

    pub fn map(bytes: usize, file: Option<&File>) -> io::Result<(*mut u8, Whole)> {
        let mut whole = match file {
            // SAFETY: the caller sees to its size.
            Some(file) => unsafe { Whole::map_mut(file)? },
            None => Whole::map_anon(bytes)?,
        };
        Ok((whole.as_mut_ptr(), whole))
    }

    /// Nothing is to be had: memory is given when it is used.
    pub unsafe fn advise(_: *mut u8, _: usize, _: i32) -> io::Result<()> {
        Ok(())
    }
}
