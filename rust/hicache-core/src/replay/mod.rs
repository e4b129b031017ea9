//! Traces through the real tree, with pools that hold no bytes.
//!
//! A request looks its prompt up, then its whole path (prompt and what was generated) is inserted, and
//! then each tier is trimmed to its size: the running request's pages are the engine's, so that a path
//! longer than the tier loses its own tail. Write-through: what enters the device is backed up at once,
//! as far as the host has room or can make it; what is backed up is stored.
//!
//! Knows no bytes, no threads and no time. On error: refuses sizes that can't be meant.

use crate::error::Result;
use crate::hash::{self, Digest, Namespace};
use crate::ids::{Slot, Tier};
use crate::page::{PageSize, Tokens};
use crate::tree::{Hold, Place, Tree};
use hashbrown::HashSet;

/// Sizes of the tiers, in pages.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// `None`: unlimited.
    pub device: Option<usize>,
    /// `None`: unlimited. 0: there is no host tier.
    pub host: Option<usize>,
    /// Whether there is an unbounded storage tier behind the host.
    pub storage: bool,
}

/// What one request found, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Found on the device.
    pub device: usize,
    /// Beyond that, found on the host.
    pub host: usize,
    /// Beyond that, found in storage.
    pub storage: usize,
    /// What could have hit at most: whole pages that were seen before.
    pub ceiling: usize,
}

/// One run of a trace.
#[derive(Debug)]
pub struct Replay {
    page_size: PageSize,
    sizes: Sizes,
    tree: Tree,
    /// Everything ever seen, never evicted: the ceiling.
    seen: Tree,
    stored: HashSet<Digest>,
    /// Slots that hold no bytes: numbers, used again.
    free: [Vec<Slot>; 2],
    made: [u32; 2],
    evicted: [usize; 2],
}

impl Replay {
    /// An empty hierarchy.
    pub fn new(page_size: PageSize, sizes: Sizes) -> Self {
        Self {
            page_size,
            sizes,
            tree: Tree::new(page_size, sizes.storage),
            seen: Tree::new(page_size, false),
            stored: HashSet::new(),
            free: [Vec::new(), Vec::new()],
            made: [0; 2],
            evicted: [0; 2],
        }
    }

    /// Sends one request through: `path` is looked up as far as `prompt` tokens, then inserted whole.
    ///
    /// # Errors
    /// When a token is negative or the prompt is longer than the path.
    pub fn request(&mut self, path: Tokens<'_>, prompt: usize) -> Result<Hits> {
        let path = path.checked()?;
        if prompt > path.len() {
            let reason = format!("{prompt} tokens to look up in a path of {}", path.len());
            return crate::error::argument("prompt", reason);
        }
        let namespace = Namespace::default();
        let prompt = path.range(0..prompt);
        let start = self.tree.root(&namespace);
        // Holds the namespace's root while its last page may come and go.
        let pin = self.tree.pin(start, Hold::Soft);
        let found = self.tree.walk(start, prompt);
        let stored = self.count_stored(found.place, prompt);
        let ceiling = self.see(&namespace, path, prompt);

        let pages = self.page_size.pages(path.len());
        let known = self.page_size.pages(prompt.len()).min((found.usable + stored) as usize);
        let size = self.page_size.tokens();
        // What comes back from storage passes through the host.
        self.graft_on_host(path.range(0..known * size));
        let end = self.insert_on_device(path.range(0..pages * size));
        self.back_up(end);
        self.trim();
        self.tree.unpin(pin);
        Ok(Hits {
            device: found.device as usize * size,
            host: (found.usable - found.device) as usize * size,
            storage: stored as usize * size,
            ceiling: ceiling as usize * size,
        })
    }

    /// Pages evicted so far from device and host.
    pub const fn evicted(&self) -> (usize, usize) {
        (self.evicted[0], self.evicted[1])
    }

    /// Pages in device, host and storage.
    pub fn resident(&self) -> (usize, usize, usize) {
        (self.tree.resident(Tier::Device), self.tree.resident(Tier::Host), self.stored.len())
    }

    /// # Errors
    /// The first broken invariant of the tree.
    pub fn check(&self) -> Result<()> {
        self.tree.check()
    }

    #[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
    fn count_stored(&self, place: Place, prompt: Tokens<'_>) -> u32 {
        if !self.sizes.storage {
            return 0;
        }
        let rest = prompt.from(place.depth as usize * self.page_size.tokens());
        let digests = hash::chain(self.tree.last_digest(place), rest, self.page_size);
        digests.iter().take_while(|digest| self.stored.contains(*digest)).count() as u32
    }

    /// Adds the path to what was seen and returns how many pages of the prompt had been.
    fn see(&mut self, namespace: &Namespace, path: Tokens<'_>, prompt: Tokens<'_>) -> u32 {
        let pages = self.page_size.pages(path.len());
        if pages == 0 {
            return 0;
        }
        #[expect(clippy::cast_possible_truncation, reason = "a run sees fewer than 2^32 pages")]
        let first = self.seen.resident(Tier::Device) as u32;
        #[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
        let slots: Vec<Slot> = (first..first + pages as u32).map(Slot).collect();
        let start = self.seen.root(namespace);
        let known = self.seen.walk(start, prompt).usable;
        self.seen.extend(start, path, Tier::Device, &slots);
        known
    }

    fn graft_on_host(&mut self, path: Tokens<'_>) {
        let start = self.tree.root(&Namespace::default());
        let at = self.tree.walk(start, path).place;
        let on_host = self.tree.resident_depth(at, Tier::Host);
        let missing = self.page_size.pages(path.len()) - on_host as usize;
        if !self.sizes.storage || missing == 0 {
            return;
        }
        // The path to graft after must not go while room is made for it.
        let pin = self.tree.pin(self.tree.ancestor(at, on_host), Hold::Host);
        let room = self.host_room(missing);
        let at = self.tree.pinned(&pin);
        let size = self.page_size.tokens();
        let part = path.range(at.depth as usize * size..(at.depth as usize + room) * size);
        let slots = self.slots(Tier::Host, room);
        let done = self.tree.extend(at, part, Tier::Host, &slots);
        self.free[Tier::Host as usize].extend(done.duplicates(&slots));
        self.tree.unpin(pin);
    }

    fn insert_on_device(&mut self, path: Tokens<'_>) -> Place {
        let start = self.tree.root(&Namespace::default());
        let slots = self.slots(Tier::Device, self.page_size.pages(path.len()));
        let done = self.tree.extend(start, path, Tier::Device, &slots);
        self.free[Tier::Device as usize].extend(done.duplicates(&slots));
        done.place
    }

    /// Copies what the path has on the device alone to the host, and from there to storage.
    fn back_up(&mut self, end: Place) {
        let on_host = self.tree.resident_depth(end, Tier::Host);
        let room = self.host_room((end.depth - on_host) as usize);
        let slots = self.slots(Tier::Host, room);
        self.tree.mirror(end, &slots);
        if self.sizes.storage {
            #[expect(clippy::cast_possible_truncation, reason = "a path has fewer than 2^32 pages")]
            let pages = on_host..on_host + room as u32;
            self.stored.extend(self.tree.digests(end, pages));
        }
    }

    /// Makes room for so many pages on the host, or for as many as can be had.
    fn host_room(&mut self, pages: usize) -> usize {
        let Some(size) = self.sizes.host else { return pages };
        let over = (self.tree.resident(Tier::Host) + pages).saturating_sub(size);
        self.evict(Tier::Host, over);
        pages.min(size.saturating_sub(self.tree.resident(Tier::Host)))
    }

    fn trim(&mut self) {
        for (tier, size) in [(Tier::Device, self.sizes.device), (Tier::Host, self.sizes.host)] {
            if let Some(size) = size {
                self.evict(tier, self.tree.resident(tier).saturating_sub(size));
            }
        }
    }

    fn evict(&mut self, tier: Tier, pages: usize) {
        let out = self.tree.evict(tier, pages);
        self.evicted[tier as usize] += out.slots.len();
        self.free[tier as usize].extend(out.slots);
    }

    fn slots(&mut self, tier: Tier, pages: usize) -> Vec<Slot> {
        let free = &mut self.free[tier as usize];
        let mut slots = free.split_off(free.len() - pages.min(free.len()));
        #[expect(clippy::cast_possible_truncation, reason = "a run has fewer than 2^32 pages at a time")]
        let new = (pages - slots.len()) as u32;
        slots.extend((self.made[tier as usize]..self.made[tier as usize] + new).map(Slot));
        self.made[tier as usize] += new;
        slots
    }
}
