//! Storage: pages by key, whole and verified, or not at all.
//!
//! | file | what |
//! |---|---|
//! | `outcome` | what became of one key |
//! | `view` | the bytes of a page as a store sees them: runs of memory |
//! | `url`, `client`, `open` | a store by its URL: what it is told, by whom, and which kinds there are |
//! | `identities` | whose pages a store holds, for people |
//! | `ledger` | what a store holds, and which of it goes next |
//! | `counters` | what a store did so far |
//! | `attempts` | writes under way, so that removals win |
//! | `file` | one verified file a page |
//! | `disk` | batches of transfers between memory and files, past the page cache |
//! | `slab` | pages in slots of a few large files |
//! | `memory`, `sim`, `null` | pages in memory; keys that only take time; nothing, also for `shm` |
//! | `line` | the reads of one request |
//! | `queue` | what waits for the threads, and which of it is next |
//! | `removals` | which writes of the workers a removal ended |
//! | `batch` | what the workers are given, and what they give back |
//! | `relay`, `desk`, `call` | a store whose calls other threads answer: those of another language |
//! | `verified`, `seal` | a store around one that isn't trusted with bytes |
//! | `workers` | threads that carry out batches; they own bytes, not meaning |
//! | `ending` | the end of these, in bounded time |
//! | `writes` | a batch of writes: once more what fails, undone what was removed meanwhile |
//! | `about` | what a store says of itself, for who must not wait for it |
//!
//! [`Store`] is the specification. Knows keys and bytes; refuses to know the tree, slots and requests.
//! On error: outcomes per key. No fault of a store reaches a request as an error or a hang.

pub mod about;
mod asked;
pub mod attempts;
pub mod batch;
pub mod call;
pub mod client;
pub mod counters;
pub mod desk;
#[cfg(unix)]
pub mod disk;
mod ending;
pub mod file;
pub mod identities;
pub mod ledger;
mod line;
pub mod memory;
pub mod null;
pub mod open;
pub mod outcome;
mod queue;
pub mod relay;
mod removals;
pub mod seal;
pub mod sim;
#[cfg(unix)]
pub mod slab;
pub mod url;
pub mod verified;
pub mod view;
pub mod workers;
mod writes;

pub use about::About;
pub use batch::{Batch, Completion, Work};
pub use client::Client;
pub use desk::Desk;
pub use open::open;
pub use outcome::{Outcome, Statistics};
pub use relay::Relay;
pub use url::Url;
pub use verified::Verified;
pub use view::{PageMut, PageRef};
pub use workers::{Page, Workers};

use crate::error::{Result, argument};
use crate::hash::Digest;
use crate::identity::Fingerprint;

/// Names of pages: digests under an identity. The same digest under two identities names two pages.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    /// Of the model whose pages these are.
    pub identity: &'a Fingerprint,
    /// One per page. A part of a page (a window's, a state's) has a digest of its own.
    pub digests: &'a [Digest],
}

impl Keys<'_> {
    /// How many.
    pub const fn len(&self) -> usize {
        self.digests.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }
}

/// Any place for pages outside of memory: this is the specification that every store is held to.
///
/// # What a store must do
/// 1. **One answer a key.** Every key of a batch is answered, in its order, whatever happens to the others. A call
///    that fails as a whole answers `Failed` for each. The six ways not to be a `Hit` are different ([`Outcome`]).
/// 2. **Whole or absent.** Only what is whole is published: after a crash at any moment, and to any other reader
///    while it is written, a page is there with its bytes, or absent.
/// 3. **The very bytes.** `get` answers `Hit` only with the bytes that were put under this digest *and* this
///    identity. What fails verification is `Short` or `Corrupt`, is taken out of the way, and a later `put` of the
///    key mends it.
/// 4. **Written once.** Putting a present key answers `Hit` and changes nothing.
/// 5. **Acknowledged.** A `put` that answered `Hit` survives the death of the process, in stores that outlive it;
///    a store's options may promise more. After a loss of power a page may be missing, never wrong.
/// 6. **Removal wins** over every put that began before it: when both have returned, the page is absent.
/// 7. **Bounded.** Room is made by giving up pages, of which a parent (see `put`) goes after its children; or the
///    page is `Declined`. Nothing is ever written beyond what the store was given.
/// 8. **Any thread, at once.** Calls come from several threads and may block; nobody but a worker waits for them.
///    A call never panics, and never keeps a reference to a page after it has returned.
/// 9. **Closed.** After `close`, which returns in bounded time, calls answer `Failed` and touch nothing.
pub trait Store: Send + Sync {
    /// Which keys are there. No bytes are read, so that a later `get` may still answer otherwise.
    fn exists(&self, keys: Keys<'_>) -> Vec<Outcome>;

    /// Reads pages, each as long as its view. A page whose outcome isn't `Hit` has undefined bytes.
    fn get(&self, keys: Keys<'_>, pages: &mut [PageMut<'_>]) -> Vec<Outcome>;

    /// Writes pages. `parents`: for each the page without which it is worth nothing (the one before it in its
    /// prompt; of a part, its page), or none.
    fn put(&self, keys: Keys<'_>, parents: &[Option<Digest>], pages: &[PageRef<'_>]) -> Vec<Outcome>;

    /// Removes keys: `Hit` for what was there and is gone, `Absent` for what was not.
    fn remove(&self, keys: Keys<'_>) -> Vec<Outcome>;

    /// Removes all pages of an identity, and nothing else; how many there were.
    ///
    /// # Errors
    /// When not all of them could be removed.
    fn clear(&self, identity: &Fingerprint) -> Result<u64>;

    /// What it did so far and what it holds now.
    fn statistics(&self) -> Statistics;

    /// Memory that pages will be read into and written from: all of it, whole slabs, in one call before the first
    /// page. It stays mapped until `close` has returned. A store may prepare it, as those who bring bytes through a
    /// device of their own must; none of this crate does, since the kernel gains nothing from it.
    fn register(&self, _memory: &[(*mut u8, usize)]) {}

    /// Whether it is of use only where other processes can map the host's memory.
    fn needs_shared_memory(&self) -> bool {
        false
    }

    /// What it is and how it works, for people: one line.
    fn describe(&self) -> String;

    /// All that it holds, for maintenance; may take long.
    ///
    /// # Errors
    /// When this kind of store can't tell, or could not this time.
    fn list(&self) -> Result<Vec<Held>> {
        argument("storage", format!("{} can't list its pages", self.describe()))
    }

    /// Gives back room that it takes for nothing, as far as it knows any; the bytes that were given back.
    ///
    /// # Errors
    /// When that failed; nothing is lost.
    fn compact(&self) -> Result<u64> {
        Ok(0)
    }

    /// Ends it: lets go of files, threads and memory.
    fn close(&self);
}

/// A page that a store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Whose.
    pub identity: Fingerprint,
    /// Its digest.
    pub digest: Digest,
    /// Size of its payload.
    pub bytes: u64,
    /// Seconds since it was written.
    pub age: u64,
}
