//! `HiCache`: owns the nouns. What it does is in `path/`, one file per verb.

use crate::command::Command;
use crate::config::Config;
use crate::doubts::Doubts;
use crate::error::{Error, Result, argument};
use crate::executor::Executor;
use crate::explain::Past;
use crate::flights::Flights;
use crate::hit::Hit;
use crate::host::SlotPool;
use crate::ids::{HitId, Tier};
use crate::measured::Requests;
use crate::parts::{DeviceSlots, PartPools};
use crate::path::{Asking, Cleared, Forwards, StoreQueue, ToWrite, Warm, Warmed};
use crate::policy::{self, Eviction, Stop};
use crate::reader::{self, Publisher, Reader};
use crate::staging::Staging;
use crate::stats::Stats;
use crate::storage::{About, Store};
use crate::transfer::{Direction, Progress, WaitOnStream};
use crate::tree::{By, Tree};
use crate::unified::Unified;
use hashbrown::HashMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Caches made in this process.
static CACHES: AtomicU32 = AtomicU32::new(0);

/// A hierarchical KV cache. One thread at a time calls it: the engine's.
pub struct HiCache {
    pub(crate) config: Config,
    pub(crate) storage: bool,
    pub(crate) tree: Tree,
    pub(crate) device: SlotPool,
    pub(crate) host: SlotPool,
    /// Slots of the parts, one for each component of the tree.
    pub(crate) parts: Vec<PartPools>,
    /// Where device slots of both spaces are names in one buffer: whose bytes are where.
    pub(crate) unified: Option<Unified>,
    pub(crate) frames_version: u64,
    pub(crate) hits: HashMap<HitId, Hit>,
    pub(crate) flights: Flights,
    /// Hits with a prefetch that is undecided, in order of asking; and whose turn to read was last.
    pub(crate) fetches: BTreeMap<u64, HitId>,
    pub(crate) turn: u64,
    /// Polls in which reads found no room on the host, and nothing was under way, since the last that did.
    pub(crate) without_room: u32,
    /// When a request stops to wait.
    pub(crate) stop: Box<dyn Stop>,
    /// What the engine's own policy decides.
    pub(crate) asking: Asking,
    pub(crate) doubts: Doubts,
    /// How the last clears of storage ended, the newest first.
    pub(crate) clears: VecDeque<(u64, Cleared)>,
    /// Prefixes that are brought up without a request, and how far the last ones came, the newest first.
    pub(crate) warming: Vec<Warm>,
    pub(crate) warmed: VecDeque<(u64, Warmed)>,
    /// Whether reads use free host slots only.
    pub(crate) sparing: bool,
    /// What ended the last epoch.
    pub(crate) ended_by: By,
    /// For how long the oldest read of each waiting request was under way when it was polled last, where ranks needn't agree.
    pub(crate) under_way: Vec<(u64, u64)>,
    pub(crate) forwards: Forwards,
    pub(crate) to_write: ToWrite,
    pub(crate) to_store: StoreQueue,
    pub(crate) staging: Staging,
    pub(crate) commands: Vec<Command>,
    pub(crate) executor: Executor,
    pub(crate) stats: Stats,
    /// What loaded requests got.
    pub(crate) requests: Requests,
    /// Seconds, as the engine last told them. Nothing here reads a clock.
    pub(crate) now: f64,
    /// Tells this cache's cursors and hits from those of others in the process.
    pub(crate) serial: u32,
    pub(crate) hits_made: u64,
    /// Of requests that are over, for explanations.
    pub(crate) past: Past,
    pub(crate) closed: bool,
    /// For readers on other threads, once there is one.
    pub(crate) publisher: Option<Publisher>,
}

impl HiCache {
    /// An empty cache over an executor. `storage` tells whether that has a store.
    ///
    /// # Errors
    /// Names the field of the configuration that can't be meant.
    pub fn new(config: Config, executor: Executor, storage: bool) -> Result<Self> {
        let policy = policy::by_name(&config.eviction)?;
        Self::with_policy(config, executor, storage, policy)
    }

    /// The same with a policy of one's own, whatever the configuration names.
    ///
    /// # Errors
    /// Names the field of the configuration that can't be meant.
    pub fn with_policy(
        config: Config,
        executor: Executor,
        storage: bool,
        policy: Box<dyn Eviction>,
    ) -> Result<Self> {
        config.check()?;
        if config.engine_owns_slots && !config.parts.is_empty() {
            return argument("slots", "slots of windows and states are the cache's: it must own all of them");
        }
        if storage && config.host_slots == 0 {
            return argument("host", "storage needs a host tier: pages pass through it");
        }
        let mut executor = executor;
        executor.page_tokens(config.page_size.tokens() as u64);
        Self::check_moves(&config, executor.relocates() || !executor.attached())?;
        let device = DeviceSlots::new(&config, &config.device_spaces())?;
        let hosts = config.parts.iter().map(|part| part.host);
        let parts = device.parts.into_iter().zip(hosts).map(|(device, host)| PartPools::new(device, host));
        let serial = CACHES.fetch_add(1, Ordering::Relaxed);
        let mut cache = Self {
            storage,
            tree: Tree::with_policy(config.words()?, storage, &config.components(), policy),
            device: device.full,
            host: SlotPool::new(config.host_slots),
            parts: parts.collect(),
            unified: device.unified,
            frames_version: 0,
            hits: HashMap::new(),
            flights: Flights::default(),
            fetches: BTreeMap::new(),
            turn: 0,
            without_room: 0,
            stop: config.prefetch.rule()?,
            asking: Asking::default(),
            doubts: Doubts::default(),
            clears: VecDeque::new(),
            warming: Vec::new(),
            warmed: VecDeque::new(),
            sparing: false,
            ended_by: By::NewWeights,
            under_way: Vec::new(),
            forwards: Forwards::default(),
            to_write: ToWrite::default(),
            to_store: StoreQueue::default(),
            staging: Staging::default(),
            commands: Vec::new(),
            executor,
            stats: Stats::default(),
            requests: Requests::default(),
            now: 0.0,
            serial,
            hits_made: 0,
            past: Past::default(),
            closed: false,
            publisher: None,
            config,
        };
        cache.tell_saving();
        Ok(cache)
    }

    /// What was counted so far.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The tree, to look at.
    pub const fn tree(&self) -> &Tree {
        &self.tree
    }

    /// A tier's slots, to look at.
    pub const fn slots(&self, tier: Tier) -> &SlotPool {
        match tier {
            Tier::Device => &self.device,
            Tier::Host => &self.host,
        }
    }

    /// Address, bytes and, of a shared slab, descriptor of each pool's host memory.
    pub fn host_memory(&self) -> Vec<(usize, usize, Option<i32>)> {
        self.executor.memory().pools.iter().map(|pool| pool.slab.place()).collect()
    }

    /// The store, to look at; until `close`.
    pub fn store(&self) -> Option<&dyn Store> {
        self.executor.store()
    }

    /// What the store said of itself after the last batch of storage work: what it is, what it holds and did. Waits for
    /// nobody; the last word stays after `close`. None without a store.
    pub fn about_store(&self) -> Option<Arc<About>> {
        self.executor.about_store()
    }

    /// Transfers under way.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// The same, and paths that wait to be stored: until it is 0 polls bring something about.
    pub fn pending(&self) -> usize {
        self.in_flight() + self.to_store.waiting()
    }

    /// Of these, copies between device and host: what keeps device memory in use.
    pub fn copying(&self) -> usize {
        self.flights.loads.len() + self.flights.backups.len()
    }

    /// How far the copies of a direction are.
    pub fn progress(&self, direction: Direction) -> &Arc<Progress> {
        self.executor.progress(direction)
    }

    /// Copies of later calls come after what this stream of the device has then (a `cudaStream_t`; on the CPU it
    /// means nothing).
    pub fn follow(&self, stream: u64) {
        self.executor.follow(stream);
    }

    /// Waiting for a load's layers on the device's streams, where copies have some.
    pub fn wait_on_stream(&self) -> Option<WaitOnStream> {
        self.executor.wait_on_stream()
    }

    pub(crate) fn hit(&self, id: HitId) -> Result<&Hit> {
        self.hits.get(&id).ok_or(Error::Hit("was released"))
    }

    pub(crate) fn hit_mut(&mut self, id: HitId) -> Result<&mut Hit> {
        self.hits.get_mut(&id).ok_or(Error::Hit("was released"))
    }

    pub(crate) const fn open(&self) -> Result<()> {
        if self.closed { Err(Error::Closed) } else { Ok(()) }
    }

    /// A view for other threads: how much would hit, and statistics. The first one costs a walk through
    /// the index. From then on every page that comes, moves or leaves is written to the readers' table too, of
    /// which a verb now and then makes a 256th part anew. Windows and states vote in it, too.
    pub fn reader(&mut self) -> Reader {
        let publisher = match self.publisher.take() {
            Some(publisher) => publisher,
            None => Publisher::new(&self.tree.start_publishing()),
        };
        publisher.epoch(self.tree.epoch());
        let reader = publisher.reader(self.config.page_size, self.config.bigrams, self.tree.components());
        self.publisher = Some(publisher);
        self.publish();
        reader
    }

    /// The end of a verb: commands are carried out, readers are told what changed.
    pub(crate) fn act(&mut self) {
        self.submit_backups();
        self.act_on_rest();
    }

    /// The same without the backups that were decided: those of the next verbs may join them.
    pub(crate) fn act_on_rest(&mut self) {
        self.stir();
        self.carry_out();
    }

    /// The end of `poll`, which is no reason to look again at what leaves next.
    pub(crate) fn carry_out(&mut self) {
        if !self.commands.is_empty() {
            self.executor.drain(&mut self.commands);
        }
        self.publish();
    }

    /// Readers are told what changed.
    pub(crate) fn publish(&mut self) {
        let Some(mut publisher) = self.publisher.take() else { return };
        publisher.apply(&self.tree.take_changes());
        publisher.stats(self.numbers());
        self.publisher = Some(publisher);
    }

    /// What readers see of statistics: `reader::NUMBERS` names them.
    fn numbers(&self) -> [u64; reader::NUMBERS.len()] {
        let pages = |pages: usize| pages as u64;
        [
            self.stats.requests,
            self.stats.matched_tokens,
            self.stats.hit_device_tokens,
            self.stats.hit_host_tokens,
            self.stats.hit_storage_tokens,
            pages(self.device.capacity()),
            pages(self.device_free(0)),
            pages(self.tree.resident(Tier::Device)),
            pages(self.host.capacity()),
            pages(self.host.free()),
            pages(self.tree.resident(Tier::Host)),
        ]
    }
}
