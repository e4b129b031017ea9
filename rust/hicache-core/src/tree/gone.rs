//! What left for good, and why: a short memory that explains misses, and decides nothing.
//!
//! ```text
//!  an edge loses its tail   .....|#####|gone gone gone|      one note: the first page that is gone, how many, by what
//! ```
//! A note names its page by a fingerprint of the namespace, the depth and the page's tokens: it outlives nodes and
//! epochs, and two histories that have the same page at the same depth share it. Notes overwrite the oldest ones.
//! On error: a note that is gone, or another's, makes an explanation poorer or wrong; no bytes and no decision
//! depend on it.

use super::Tree;
use super::epoch::Rooted;
use super::walk::Place;
use crate::hash::Namespace;
use crate::ids::{NodeId, Tier};
use crate::page::Tokens;
use foldhash::fast::FixedState;
use std::hash::BuildHasher as _;

/// Notes that are kept: 24 bytes each.
const KEPT: usize = 1 << 14;

/// Namespaces that are looked through for tokens that are missing in one of them.
const OTHERS: usize = 256;

/// What makes pages leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Nobody said.
    #[default]
    Unknown,
    /// Room for pages to compute.
    Allocate,
    /// Room on the device for pages of the host.
    Load,
    /// Room on the host for pages of the device.
    Backup,
    /// Room on the host for pages of storage.
    Prefetch,
    /// The engine's own wish.
    Evict,
    /// The device memory went.
    Detach,
    /// A request of weights that are gone ended, or these went.
    NewWeights,
    /// Copies failed: the bytes never arrived.
    Fault,
    /// Everything was thrown away.
    Clear,
}

/// What left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// When, in ticks.
    pub tick: u64,
    /// Why.
    pub by: By,
    /// The tier that had it last.
    pub tier: Tier,
    /// So many pages: this one and those that followed it.
    pub pages: u32,
}

/// A namespace, once it may be gone.
#[derive(Clone, Copy, Debug)]
pub struct Realm {
    root: NodeId,
    seed: u64,
}

/// The notes, in a ring.
#[derive(Debug, Default)]
pub(super) struct Gone {
    prints: Vec<u64>,
    notes: Vec<Note>,
    /// Notes made so far.
    made: u64,
    now: (u64, By),
}

impl Gone {
    fn push(&mut self, print: u64, tier: Tier, pages: u32) {
        let (tick, by) = self.now;
        let note = Note { tick, by, tier, pages };
        if self.prints.len() < KEPT {
            self.prints.push(print);
            self.notes.push(note);
        } else {
            let at = index(self.made);
            (self.prints[at], self.notes[at]) = (print, note);
        }
        self.made += 1;
    }

    /// The last note of a page among the first `before`.
    fn find(&self, print: u64, before: u64) -> Option<Note> {
        let oldest = self.made - self.prints.len() as u64;
        let found = (oldest..before.min(self.made)).rev().find(|&number| self.prints[index(number)] == print);
        found.map(|number| self.notes[index(number)])
    }
}

#[expect(clippy::cast_possible_truncation, reason = "below KEPT")]
const fn index(number: u64) -> usize {
    (number % KEPT as u64) as usize
}

/// What fingerprints of a namespace begin with.
pub(super) fn seed(namespace: &Namespace) -> u64 {
    FixedState::default().hash_one(namespace)
}

fn print(seed: u64, depth: u32, page: Tokens<'_>) -> u64 {
    let seed = seed.wrapping_add(u64::from(depth).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    match page {
        Tokens::U32(_) => page.digest(seed),
        // What would fit into 32 bits has one print, whatever it is kept in.
        _ => page.to_owned().view().digest(seed),
    }
}

impl Tree {
    /// What leaves from now on leaves at this tick and for this reason.
    pub const fn leaves_by(&mut self, tick: u64, by: By) {
        self.gone.now = (tick, by);
    }

    /// How many notes there were so far: what [`Tree::gone`] is told.
    pub const fn gone_so_far(&self) -> u64 {
        self.gone.made
    }

    /// Pages of an edge from `from` on live nowhere any more.
    pub(super) fn note_gone(&mut self, node: u32, from: u32, tier: Tier) {
        let (edge, root) = (&self.arena[node], &self.arena[self.arena[node].root]);
        let Some(Rooted { print: seed, .. }) = root.rooted.as_deref() else { return };
        let strand = &self.strands[edge.strand];
        let page = self.page(strand.tokens.view(), (from - strand.start) as usize);
        let (print, pages) = (print(*seed, from, page), edge.end - from);
        self.gone.push(print, tier, pages);
    }

    /// The namespace of a place, by a name that outlives it.
    pub fn realm(&self, place: Place) -> Realm {
        let root = self.arena[place.node].root;
        let seed = self.arena[root].rooted.as_deref().map_or(0, |rooted| rooted.print);
        Realm { root: self.arena.id(root), seed }
    }

    /// Why the page that follows `depth` pages of a namespace isn't there, as far as it is remembered; only the first
    /// `before` notes count.
    pub fn gone(&self, realm: Realm, depth: u32, page: Tokens<'_>, before: u64) -> Option<Note> {
        self.gone.find(print(realm.seed, depth, page), before)
    }

    /// Most leading pages of `key` that another namespace of the same tenant (of the same salt) has; 0 if the
    /// namespace itself is gone.
    pub fn pages_elsewhere(&self, realm: Realm, key: Tokens<'_>) -> u32 {
        let root = self.arena.alive(realm.root).and_then(|root| self.arena[root].rooted.as_deref());
        let Some(Rooted { namespace: own, .. }) = root else { return 0 };
        let others = self.roots.iter().filter(|(other, _)| *other != own && other.salt == own.salt);
        let depths = others.take(OTHERS).map(|(_, &node)| self.follow(Place { node, depth: 0 }, key).depth);
        depths.max().unwrap_or(0)
    }
}
