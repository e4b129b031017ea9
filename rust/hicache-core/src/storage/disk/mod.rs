//! The disk: batches of transfers between memory and files, many under way at once.
//!
//! | file | what |
//! |---|---|
//! | `op` | one transfer, and who owns its memory |
//! | `flights` | a batch under way: short, cut, put off and copied transfers |
//! | `engine` | the seam to what carries requests out; faults come in there |
//! | `uring`, `threads` | the two engines |
//! | `aligned` | buffers for memory that direct I/O can't use, or not well |
//! | `file` | files, and what their file system can do |
//!
//! ```text
//! next ─▶ op ─▶ requests ─▶ engine ─▶ completions ─▶ (more requests) ─▶ done
//!   └ hashes a payload while others are written         verifies one while others are read ┘
//! ```
//! May assume that nobody else writes to its files. Refuses to know keys, slots and checksums.
//! On error: opening names `storage`; afterwards each operation has its own result. Nothing ends before the
//! kernel has let go of its memory.

mod aligned;
pub mod engine;
mod file;
mod flights;
mod op;
pub mod threads;
#[cfg(target_os = "linux")]
pub mod uring;

pub use engine::Engine;
pub use file::DataFile;
pub use op::{Op, Run};

use crate::error::{Result, argument};
use file::Needs;
use flights::Flights;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What offsets of operations are multiples of, in bytes.
pub const ALIGN: u64 = PAGE as u64;
const PAGE: usize = 4096;

/// Which engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// io_uring where the system has and allows it, else threads.
    #[default]
    Auto,
    /// io_uring or nothing.
    Uring,
    /// Threads.
    Threads,
}

/// Whether transfers go past the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Where the file system can.
    #[default]
    Auto,
    /// They do, or the disk isn't opened.
    Yes,
    /// They don't.
    No,
}

/// How a disk is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// Which engine.
    pub io: Io,
    /// Past the page cache or not.
    pub direct: Direct,
    /// Most operations of one batch under way, 1 to 4,096.
    pub depth: usize,
    /// Threads of the engine that has any, 1 to 1,024.
    pub threads: usize,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self { io: Io::Auto, direct: Direct::Auto, depth: 32, threads: 16 }
    }
}

impl DiskOptions {
    /// # Errors
    /// Names `storage` and the option that is out of range.
    pub fn checked(&self) -> Result<()> {
        if !(1..=4096).contains(&self.depth) {
            return argument("storage", format!("depth={}: need 1 to 4096", self.depth));
        }
        if !(1..=1024).contains(&self.threads) {
            return argument("storage", format!("threads={}: need 1 to 1024", self.threads));
        }
        Ok(())
    }
}

/// A directory's disk.
pub struct Disk {
    engine: Arc<dyn Engine>,
    needs: Needs,
    depth: usize,
    bounces: aligned::Bounces,
    about: String,
    /// Batches under way.
    running: AtomicUsize,
}

impl Disk {
    /// Finds out what the system and the file system of `dir` can do, and starts the engine.
    ///
    /// # Errors
    /// Names `storage`: an option out of range, a directory that can't be written to, or what was asked for
    /// and can't be had.
    pub fn open(dir: &Path, options: DiskOptions) -> Result<Self> {
        options.checked()?;
        let (engine, refused) = engine(options)?;
        let mut disk = Self::over(engine, dir, options)?;
        if let Some(error) = refused {
            disk.about = disk.about.replacen(',', &format!(" (io_uring: {error}),"), 1);
        }
        Ok(disk)
    }

    /// A disk over another engine: for tests, one that makes requests fail, fall short or take long.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn over(engine: Arc<dyn Engine>, dir: &Path, options: DiskOptions) -> Result<Self> {
        options.checked()?;
        let (needs, refused) = Needs::of(dir, options.direct)
            .or_else(|error| argument("storage", format!("{}: {error}", dir.display())))?;
        let how = match refused {
            None if needs.direct() => "direct I/O".into(),
            None => "buffered".into(),
            Some(error) => format!("buffered (direct I/O: {error})"),
        };
        let about = format!("{}, depth {}, {how}", engine.describe(), options.depth);
        let (bounces, running) = (aligned::Bounces::new(), AtomicUsize::new(0));
        Ok(Self { engine, needs, depth: options.depth, bounces, about, running })
    }

    /// Whether transfers go past the page cache.
    pub const fn direct(&self) -> bool {
        self.needs.direct()
    }

    /// For people: the engine, how deep, how directly, and why not better.
    pub fn describe(&self) -> String {
        if self.direct() {
            format!("{}, {}", self.about, self.bounces.describe())
        } else {
            self.about.clone()
        }
    }

    /// A file that isn't there yet.
    ///
    /// # Errors
    /// The system's.
    pub fn create(&self, path: &Path) -> io::Result<Arc<DataFile>> {
        self.needs.open(path, true).map(Arc::new)
    }

    /// A file that is there.
    ///
    /// # Errors
    /// The system's.
    pub fn file(&self, path: &Path) -> io::Result<Arc<DataFile>> {
        self.needs.open(path, false).map(Arc::new)
    }

    /// Carries a batch out on this thread, at most `depth` operations (and the disk's own depth) under way.
    ///
    /// `next` is asked whenever there is room for one more, until it says `None`; `done` gets every operation
    /// back, in the order of ending, with what became of it: all of its bytes moved, or an error. Written is
    /// what the disk has taken: a loss of power is another matter, see [`DataFile::sync`]. The two are never
    /// called at once. If one panics, what is under way is waited for.
    pub fn run<'m>(
        &self,
        depth: usize,
        next: impl FnMut() -> Option<Op<'m>>,
        done: impl FnMut(Op<'m>, io::Result<()>),
    ) {
        let _running = Running::of(&self.running);
        self.run_behind(depth, next, done);
    }

    /// Whether a batch is under way, but for those that run behind.
    pub fn busy(&self) -> bool {
        self.running.load(Ordering::Relaxed) > 0
    }

    /// As [`run`](Self::run), for work that gives way to others': it doesn't count as [`busy`](Self::busy).
    pub fn run_behind<'m>(
        &self,
        depth: usize,
        mut next: impl FnMut() -> Option<Op<'m>>,
        mut done: impl FnMut(Op<'m>, io::Result<()>),
    ) {
        let depth = depth.clamp(1, self.depth);
        match self.engine.lane(depth) {
            Ok(lane) => {
                let flights = Flights::new(lane, self.engine.limits(), &self.bounces, depth);
                carry_out(flights, &mut next, &mut done);
            }
            Err(error) => {
                while let Some(op) = next() {
                    done(op, Err(io::Error::new(error.kind(), error.to_string())));
                }
            }
        }
    }
}

/// A batch that counts as long as it runs, however it ends.
struct Running<'d>(&'d AtomicUsize);

impl<'d> Running<'d> {
    fn of(count: &'d AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn carry_out<'m>(
    mut flights: Flights<'_, 'm>,
    next: &mut dyn FnMut() -> Option<Op<'m>>,
    done: &mut dyn FnMut(Op<'m>, io::Result<()>),
) {
    let mut more = true;
    while more || !flights.empty() {
        while more && !flights.full() {
            match next() {
                Some(op) => flights.start(op).into_iter().for_each(|(op, result)| done(op, result)),
                None => more = false,
            }
        }
        if !flights.empty()
            && let Some((op, result)) = flights.finished()
        {
            done(op, result);
        }
    }
}

/// The engine, and why it isn't the better one.
fn engine(options: DiskOptions) -> Result<(Arc<dyn Engine>, Option<io::Error>)> {
    let refused = match options.io {
        Io::Threads => None,
        Io::Auto | Io::Uring => match uring(options.depth) {
            Ok(engine) => return Ok((engine, None)),
            Err(error) if options.io == Io::Uring => {
                return argument("storage", format!("io=uring: {error}"));
            }
            Err(error) => Some(error),
        },
    };
    match threads::Threads::new(options.threads) {
        Ok(engine) => Ok((Arc::new(engine), refused)),
        Err(error) => argument("storage", format!("threads={}: {error}", options.threads)),
    }
}

#[cfg(target_os = "linux")]
fn uring(depth: usize) -> io::Result<Arc<dyn Engine>> {
    uring::Uring::new(depth).map(|engine| Arc::new(engine) as _)
}

#[cfg(not(target_os = "linux"))]
fn uring(_: usize) -> io::Result<Arc<dyn Engine>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system has none"))
}
