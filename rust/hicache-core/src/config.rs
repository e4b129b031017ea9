//! What a cache is made of, checked before anything is allocated.

use crate::error::{Result, argument};
use crate::host::{LayoutKind, SlabOptions};
use crate::identity::Fingerprint;
use crate::page::PageSize;
use crate::policy::{StopOptions, Write, Writing};
use crate::pool::{self, Needs, PoolSpec};
use crate::transfer::GpuOptions;
use crate::transfer::cpu::CpuOptions;
use crate::tree::Component;
use std::path::PathBuf;

/// More threads or waiting batches are a mistake in the unit; the queue's memory is taken at once.
const MAX_THREADS: usize = 1024;
const MAX_QUEUE: usize = 1 << 20;

/// What host memory is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostMode {
    /// A tier: it keeps pages.
    #[default]
    Cache,
    /// Pages pass through it between device and storage, and none stays.
    BufferOnly,
}

impl HostMode {
    /// What a name means.
    ///
    /// # Errors
    /// When it means nothing.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "cache" => Ok(Self::Cache),
            "buffer_only" => Ok(Self::BufferOnly),
            _ => argument("host_mode", format!("unknown {name:?}: use cache or buffer_only")),
        }
    }
}

/// Slots of a part: of a pool that has slots of its own, and of those that follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartSlots {
    /// On the device.
    pub device: u32,
    /// On the host; 0: it is never there.
    pub host: u32,
}

/// Everything that is fixed when a cache is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Tokens per page.
    pub page_size: PageSize,
    /// Whether keys are pairs of neighbouring tokens: then a page holds `page_size` pairs.
    pub bigrams: bool,
    /// All pools.
    pub pools: Vec<PoolSpec>,
    /// Device slots of the pools that use the cache's.
    pub device_slots: u32,
    /// Whether the engine allocates device slots itself.
    pub engine_owns_slots: bool,
    /// Host slots of the pools that use the cache's; 0: no host tier.
    pub host_slots: u32,
    /// What they are for.
    pub host_mode: HostMode,
    /// Slots of the parts: the pools that have slots of their own, in order, with those that follow them.
    pub parts: Vec<PartSlots>,
    /// Bytes of the one device buffer that FULL and the part share, slots of neither fixed beforehand: those above are
    /// the most that may be in use then. None: each has memory of its own.
    pub unified: Option<u64>,
    /// Checkpoints that one path keeps on the device, per part of states; the shallowest go. 0: all.
    pub checkpoints_per_path: usize,
    /// Which pages a full tier gives up: a policy's name.
    pub eviction: String,
    /// When pages are copied to the next tier, and what becomes of the copies.
    pub writing: Writing,
    /// Order of axes in host memory.
    pub layout: LayoutKind,
    /// Where the host tier's memory comes from.
    pub memory: SlabOptions,
    /// The directory on a memory file system that the host tier's memory is in, so that it outlives the process.
    pub restart: Option<PathBuf>,
    /// The GPU that device memory is on, by number; `None`: the CPU reaches it.
    pub gpu: Option<i32>,
    /// How that GPU copies.
    pub gpu_copies: GpuOptions,
    /// How device memory that the CPU reaches is copied.
    pub copies: CpuOptions,
    /// Who may read what this cache stores.
    pub identity: Fingerprint,
    /// Storage threads.
    pub io_threads: usize,
    /// Batches of writes that may be on their way.
    pub write_queue: usize,
    /// When a request stops to wait for its prefetch.
    pub prefetch: StopOptions,
    /// How long a request waits for its prefetch at most, in seconds, whatever that says.
    pub prefetch_deadline: f64,
    /// How long anything waits for a store's write, in seconds.
    pub store_deadline: f64,
    /// Tokens below which a prefetch isn't worth it, rounded up to whole pages: if fewer are missing, nothing is asked; if the
    /// store has fewer, nothing is read.
    pub prefetch_threshold: usize,
    /// Tokens below which a load isn't worth it, rounded up to whole pages: fewer are computed.
    pub load_threshold: usize,
}

impl Config {
    /// Words of a page in the tree: its tokens, or two a pair.
    ///
    /// # Errors
    /// When a page of pairs is too large.
    pub fn words(&self) -> Result<PageSize> {
        let tokens = u32::try_from(self.page_size.tokens()).unwrap_or(u32::MAX);
        PageSize::new(if self.bigrams { tokens.saturating_mul(2) } else { tokens })
    }

    /// What the parts are to the tree, in order: part `p` is its component `p`, and space `p + 1` of slots.
    pub fn components(&self) -> Vec<Component> {
        let component = |pool: &PoolSpec| match pool.needs {
            Needs::Window { tokens } => Component::Swa {
                window: tokens.div_ceil(u32::try_from(self.page_size.tokens()).unwrap_or(u32::MAX)),
            },
            // `All` is refused by `check`.
            Needs::Last | Needs::All => Component::State,
        };
        pool::owners(&self.pools).map(component).collect()
    }

    /// The number of the part of this name: that of the pool whose slots it has.
    pub fn part(&self, name: &str) -> Option<usize> {
        pool::owners(&self.pools).position(|owner| owner.name == name)
    }

    /// The parts' names, in order.
    pub fn part_names(&self) -> Vec<&str> {
        pool::owners(&self.pools).map(|owner| owner.name.as_str()).collect()
    }

    /// Device slots of each space: the cache's, then the parts'.
    pub fn device_spaces(&self) -> Vec<u32> {
        std::iter::once(self.device_slots).chain(self.parts.iter().map(|part| part.device)).collect()
    }

    /// Host slots of each space.
    pub fn host_spaces(&self) -> Vec<u32> {
        std::iter::once(self.host_slots).chain(self.parts.iter().map(|part| part.host)).collect()
    }

    /// Other device slots of each space.
    pub(crate) fn resize(&mut self, slots: &[u32]) {
        let mut slots = slots.iter().copied();
        let own = std::iter::once(&mut self.device_slots);
        own.chain(self.parts.iter_mut().map(|part| &mut part.device))
            .zip(&mut slots)
            .for_each(|(to, new)| *to = new);
    }

    /// # Errors
    /// Names the first field that can't be meant.
    pub fn check(&self) -> Result<()> {
        pool::check_all(&self.pools)?;
        self.words()?;
        if let Some(pool) = pool::owners(&self.pools).find(|pool| pool.needs == Needs::All) {
            let reason = "has slots of its own, so that a hit can't need all of its pages";
            return argument("pools", format!("pool {}: {reason}", pool.name));
        }
        self.check_parts()?;
        crate::staging::check(self)?;
        self.geometry(&self.device_spaces())?;
        if self.io_threads == 0 || self.io_threads > MAX_THREADS {
            return argument("io_threads", format!("must be 1 to {MAX_THREADS}, got {}", self.io_threads));
        }
        if self.write_queue == 0 || self.write_queue > MAX_QUEUE {
            return argument(
                "write_queue",
                format!("must be 1 to {MAX_QUEUE} batches, got {}", self.write_queue),
            );
        }
        if self.host_slots == 0 && self.writing.host != Write::Through {
            return argument("host", "a write policy other than write_through needs a host tier to write to");
        }
        if self.restart.is_some() && (self.host_slots == 0 || self.memory.shared) {
            let why =
                if self.memory.shared { "its memory can't be shared, too" } else { "needs a host tier" };
            return argument("host restart", why);
        }
        crate::policy::by_name(&self.eviction)?;
        self.writing.check()?;
        self.prefetch.rule()?;
        self.gpu_copies.check()?;
        positive("prefetch_deadline", self.prefetch_deadline)?;
        positive("store_deadline", self.store_deadline)
    }

    fn check_parts(&self) -> Result<()> {
        check_device_slots(&self.pools, &self.device_spaces())?;
        match pool::owners(&self.pools)
            .zip(&self.parts)
            .find(|(_, part)| self.host_slots == 0 && part.host > 0)
        {
            Some((pool, _)) => {
                argument("host", format!("pool {}: has host slots without a host tier", pool.name))
            }
            None => Ok(()),
        }
    }
}

/// # Errors
/// When a space has no device slots, or there is another number of spaces.
pub(crate) fn check_device_slots(pools: &[PoolSpec], slots: &[u32]) -> Result<()> {
    let need = pool::owners(pools).count() + 1;
    if slots.len() != need {
        return argument("pools", format!("slots of {} spaces are given, of {need} needed", slots.len()));
    }
    let owners = pools.first().into_iter().chain(pool::owners(pools));
    match owners.zip(slots).find(|&(_, &slots)| slots == 0) {
        Some((pool, _)) => {
            argument("pools", format!("pool {}: there is no room on the device for a single page", pool.name))
        }
        None => Ok(()),
    }
}

fn positive(name: &'static str, seconds: f64) -> Result<()> {
    if seconds.is_finite() && seconds > 0.0 {
        return Ok(());
    }
    argument(name, format!("must be a positive number of seconds, got {seconds}"))
}
