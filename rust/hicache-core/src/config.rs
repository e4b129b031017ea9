//! What a cache is made of, checked before anything is allocated.

use crate::error::{Result, argument};
use crate::host::{LayoutKind, SlabOptions};
use crate::identity::Fingerprint;
use crate::page::PageSize;
use crate::pool::{self, Needs, PoolSpec, SlotsOf};
use crate::transfer::cpu::CpuOptions;

/// More threads or waiting batches are a mistake in the unit; the queue's memory is taken at once.
const MAX_THREADS: usize = 1024;
const MAX_QUEUE: usize = 1 << 20;

/// Everything that is fixed when a cache is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Tokens per page.
    pub page_size: PageSize,
    /// Whether keys are pairs of neighbouring tokens: then a page holds `page_size` pairs.
    pub bigrams: bool,
    /// All pools; they use the same slots.
    pub pools: Vec<PoolSpec>,
    /// Device slots of every pool.
    pub device_slots: u32,
    /// Whether the engine allocates device slots itself.
    pub engine_owns_slots: bool,
    /// Host slots of every pool; 0: no host tier.
    pub host_slots: u32,
    /// Which pages a full tier gives up: a policy's name.
    pub eviction: String,
    /// Order of axes in host memory.
    pub layout: LayoutKind,
    /// Where the host tier's memory comes from.
    pub memory: SlabOptions,
    /// The GPU that device memory is on, by number; `None`: the CPU reaches it.
    pub gpu: Option<i32>,
    /// How device memory that the CPU reaches is copied.
    pub copies: CpuOptions,
    /// Who may read what this cache stores.
    pub identity: Fingerprint,
    /// Storage threads.
    pub io_threads: usize,
    /// Batches of writes that may wait.
    pub write_queue: usize,
    /// How long a request waits for its prefetch, in seconds.
    pub prefetch_deadline: f64,
    /// How long anything waits for a store's write, in seconds.
    pub store_deadline: f64,
    /// Tokens below which a prefetch isn't worth asking for: fewer in whole pages, and nothing is asked.
    pub prefetch_threshold: usize,
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

    /// # Errors
    /// Names the first field that can't be meant.
    pub fn check(&self) -> Result<()> {
        pool::check_all(&self.pools)?;
        self.words()?;
        if let Some(pool) = self.pools.iter().skip(1).find(|pool| pool.needs != Needs::All) {
            let reason = "windows and states are declared, but no verb moves them yet";
            return argument("pools", format!("pool {}: {reason}", pool.name));
        }
        if let Some(pool) = self.pools.iter().skip(1).find(|pool| pool.slots == SlotsOf::Own) {
            let reason = "has slots of its own, which no verb gives out yet";
            return argument("pools", format!("pool {}: {reason}", pool.name));
        }
        if self.device_slots == 0 {
            return argument("pools", "the device pool has no room for a single page");
        }
        if self.io_threads == 0 || self.io_threads > MAX_THREADS {
            return argument("io_threads", format!("must be 1 to {MAX_THREADS}, got {}", self.io_threads));
        }
        if self.write_queue == 0 || self.write_queue > MAX_QUEUE {
            return argument(
                "write_queue",
                format!("must be 1 to {MAX_QUEUE} batches, got {}", self.write_queue),
            );
        }
        crate::policy::by_name(&self.eviction)?;
        positive("prefetch_deadline", self.prefetch_deadline)?;
        positive("store_deadline", self.store_deadline)
    }
}

fn positive(name: &'static str, seconds: f64) -> Result<()> {
    if seconds.is_finite() && seconds > 0.0 {
        return Ok(());
    }
    argument(name, format!("must be a positive number of seconds, got {seconds}"))
}
