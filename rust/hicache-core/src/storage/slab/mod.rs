//! The slab store: pages in slots of a few large files, and a log that says which page is where.
//!
//! | file | what |
//! |---|---|
//! | `options`, `home` | what the URL says; the directory, and who owns it |
//! | `store` | an open store's parts |
//! | `put`, `get`, `remove` | what it does when it is asked |
//! | `admit`, `room` | which pages are taken, and which go to make room |
//! | `clock` | the store's time |
//! | `keep`, `compact` | what it does beside; snapshots |
//! | `index` | which page is where |
//! | `record`, `segment` | what the log says, and its files' format |
//! | `log`, `tail`, `media` | groups of decisions; the last segment; what they are written with |
//! | `replay` | what the log tells when a store is opened |
//! | `extents` | the data files, and which of their slots are free |
//! | `lend` | asking for slots, without or with waiting |
//! | `state`, `files`, `supply` | what is known of extents; making and finding them; free slots of one |
//! | `prewrite` | writes what nobody has written, when the disk has nothing else to do |
//!
//! A page's checksum is in its record and covers its identity and digest: whatever is in its slot, it is that page or a
//! miss. So bytes and record may reach the disk in any order, and a put is acknowledged when both have been written.
//! On error: opening names `storage`; outcomes per key afterwards.

pub mod admit;
pub mod clock;
mod compact;
pub mod extents;
mod files;
mod get;
pub mod home;
pub mod index;
pub mod keep;
pub mod lend;
pub mod log;
pub mod media;
pub mod options;
mod prewrite;
mod put;
pub mod record;
mod remove;
pub mod replay;
mod room;
pub mod segment;
mod state;
pub mod store;
mod supply;
pub mod tail;

pub use clock::Moment;
pub use options::Options;
pub use store::{Seams, Slab};

use super::identities::{self, Unlike};
use super::{Client, Held, Keys, Outcome, PageMut, PageRef, Statistics, Store, Url};
use crate::error::{Result, argument};
use crate::hash::Digest;
use crate::identity::Fingerprint;
use arc_swap::ArcSwapOption;
use keep::Keeper;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long `close` waits for calls that are under way.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pages in slots of a few large files.
pub struct SlabStore {
    slab: ArcSwapOption<Slab>,
    keeper: Mutex<Keeper>,
    ours: Fingerprint,
    unlike: Unlike,
    about: String,
}

impl SlabStore {
    /// Of a URL: `slab:///directory?size=200GiB&...`; see `options`.
    ///
    /// # Errors
    /// Names `storage`, and the option where it is one.
    pub fn from_url(url: Url, client: &Client) -> Result<Self> {
        Self::open(Options::of(url, client)?, client, &Seams::default())
    }

    /// With options, over what is given.
    ///
    /// # Errors
    /// Names `storage` and what is wrong.
    pub fn open(options: Options, client: &Client, seams: &Seams) -> Result<Self> {
        let slab = Arc::new(Slab::open(options, seams)?);
        let held: Vec<String> = slab.held().iter().map(identities::name).collect();
        let dir = &slab.home.dir;
        identities::keep(dir, client);
        let has = |name: &str| held.iter().any(|held| held == name);
        let unlike = Unlike::look(client, &identities::kept(dir), has);
        let keeper = Mutex::new(Keeper::start(&slab)?);
        let about = slab.describe();
        Ok(Self { slab: ArcSwapOption::new(Some(slab)), keeper, ours: client.identity, unlike, about })
    }

    /// The open store; `None` once it is closed.
    pub fn slab(&self) -> Option<Arc<Slab>> {
        self.slab.load_full()
    }

    fn each(&self, keys: Keys<'_>, act: impl FnOnce(&Slab) -> Vec<Outcome>) -> Vec<Outcome> {
        let Some(slab) = self.slab() else { return vec![Outcome::Failed; keys.len()] };
        let outcomes = act(&slab);
        // Explaining misses ends with the first page that is there.
        if self.unlike.why().is_some() && *keys.identity == self.ours {
            if outcomes.contains(&Outcome::Hit) {
                self.unlike.found();
            }
            self.unlike.missed(outcomes.iter().filter(|outcome| **outcome == Outcome::Absent).count());
        }
        outcomes
    }
}

impl Store for SlabStore {
    fn exists(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.each(keys, |slab| slab.exists(keys))
    }

    fn get(&self, keys: Keys<'_>, pages: &mut [PageMut<'_>]) -> Vec<Outcome> {
        self.each(keys, |slab| slab.get(keys, pages))
    }

    fn put(&self, keys: Keys<'_>, parents: &[Option<Digest>], pages: &[PageRef<'_>]) -> Vec<Outcome> {
        self.each(keys, |slab| slab.put(keys, parents, pages))
    }

    fn remove(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.slab().map_or_else(|| vec![Outcome::Failed; keys.len()], |slab| slab.remove(keys))
    }

    fn clear(&self, identity: &Fingerprint) -> Result<u64> {
        self.slab().map_or_else(|| argument("storage", "it is closed"), |slab| slab.clear(identity))
    }

    fn statistics(&self) -> Statistics {
        let counts = self.slab().map_or_else(Statistics::default, |slab| slab.statistics());
        Statistics { mismatched_pages: self.unlike.pages(), ..counts }
    }

    fn describe(&self) -> String {
        let Some(slab) = self.slab() else { return format!("{}; closed", self.about) };
        self.unlike.why().map_or_else(|| slab.describe(), |why| format!("{}; {why}", slab.describe()))
    }

    fn list(&self) -> Result<Vec<Held>> {
        self.slab().map_or_else(|| argument("storage", "it is closed"), |slab| Ok(slab.list()))
    }

    fn compact(&self) -> Result<u64> {
        let Some(slab) = self.slab() else { return argument("storage", "it is closed") };
        slab.compact().or_else(|error| argument("storage", format!("its log could not be replaced: {error}")))
    }

    fn close(&self) {
        let Some(slab) = self.slab.swap(None) else { return };
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner).stop(PATIENCE);
        // Whoever is still in a call when patience ends keeps what it needs, and the directory, until it returns.
        let deadline = Instant::now() + PATIENCE;
        while Arc::strong_count(&slab) > 1 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        end(slab, PATIENCE);
    }
}

/// Writes what isn't written and lets go of all, as soon as the disk lets it; `close` doesn't wait for longer than that.
fn end(slab: Arc<Slab>, most: Duration) {
    let (done, ended) = std::sync::mpsc::channel();
    let rest = move || {
        slab.rest();
        drop(slab);
        let _ = done.send(());
    };
    // Without a thread to be had, uses of the last second are forgotten.
    if std::thread::Builder::new().name("hicache-slab-end".into()).spawn(rest).is_ok() {
        let _ = ended.recv_timeout(most);
    }
}

impl Drop for SlabStore {
    fn drop(&mut self) {
        self.close();
    }
}
