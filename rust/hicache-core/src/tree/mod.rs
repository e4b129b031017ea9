//! The radix tree: which pages exist, in which tiers, and in which order they leave.
//!
//! Pure and deterministic: no clock, no thread, no randomness, no I/O, no unsafe; equal calls give
//! equal trees. It knows tokens, pages and slots as numbers; it refuses to know bytes, pools, requests
//! and what a command is. Every page has at most one slot per tier, and the part of any history that
//! is resident in a tier is always a prefix of it.
//!
//! On error: wrong use by a verb is a bug and reported by [`Tree::check`]; bad input never gets here.
//!
//! | file | what |
//! |---|---|
//! | `node` | one edge of whole pages; the arena that owns all nodes |
//! | `strand` | what the edges of a history hold, in one piece of memory |
//! | `children` | the table of nodes by parent and first page |
//! | `tell` | what the policy is told of requests |
//! | `leaving` | what the policy is told and asked: which leaf goes next |
//! | `pin` | places that must or should stay, as positions that follow every change of shape |
//! | `deepest` | the pins on each edge, the deepest of each kind first |
//! | `walk` | from tokens to a place, and from a place to its slots |
//! | `edit` | extend, split, remove |
//! | `residency` | slots in another tier, and use |
//! | `decisions` | a digest of what was decided |
//! | `announce` | what came to a tier and what left it, for routers |
//! | `gone` | what left for good, and why: to explain misses |
//! | `late` | digests for pages that are older than the store |
//! | `unsaved` | all that is wanted further down and isn't there |
//! | `print` | fingerprints of prefixes, and what readers on other threads are told |
//! | `evict` | leaf first, in the policy's order, exactly as many pages as asked |
//! | `saving` | what is wanted further down, and what is believed stored |
//! | `marks`, `part_marks` | which pages of a strand are; which windows and states, where nothing stays on the host |
//! | `ahead` | what leaves next, and whether it is saved |
//! | `give_way` | host copies of device pages, which leave first |
//! | `component/` | what votes besides FULL: sliding windows, recurrent states |
//! | `check` | the numbered invariants |

mod ahead;
mod announce;
mod check;
#[cfg(test)]
mod check_tests;
mod children;
mod component;
mod decisions;
mod deepest;
mod edit;
mod epoch;
mod evict;
mod give_way;
mod gone;
mod late;
mod leaving;
mod lose;
mod marks;
mod node;
mod part_marks;
mod pin;
pub(crate) mod print;
mod residency;
mod saving;
mod strand;
mod tell;
mod unsaved;
mod walk;

pub use ahead::Leaving as LeavingNext;
pub(crate) use component::Ballot;
pub use component::{Component, Missing};
pub use edit::Extended;
pub use evict::{Evicted, Spared};
pub use gone::{By, Note, Realm};
pub use pin::{Hold, PinId};
pub use saving::{Mark, Saving, Wanted};
pub use walk::{Found, Place};

use crate::events::Events;
use crate::hash::Namespace;
use crate::page::PageSize;
use crate::policy::{Eviction, Lru};
use children::Children;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use leaving::Leaving;
use node::{Arena, NIL};
use pin::Pins;
use strand::Strands;

/// The index of all pages in device and host memory.
#[derive(Debug)]
pub struct Tree {
    page_size: PageSize,
    /// Whether new pages get digests (a store is attached).
    hashing: bool,
    arena: Arena,
    strands: Strands,
    /// Child nodes by (parent, first page).
    children: Children,
    roots: HashMap<Namespace, u32, FixedState>,
    /// The root of the namespace without any field, which most requests ask for.
    plain_root: u32,
    /// Epochs that ended so far.
    epoch: u64,
    leaving: Leaving,
    saving: Saving,
    /// Copies that may give way.
    copies: give_way::GiveWay,
    pins: Pins,
    /// Pages resident per tier.
    resident: [usize; 2],
    /// What votes besides FULL, and how many slots each has per tier.
    components: Vec<Component>,
    part_resident: Vec<[usize; 2]>,
    decisions: decisions::Decisions,
    gone: gone::Gone,
    /// Since the last time they were taken, once somebody reads.
    changes: Option<Vec<print::Change>>,
    /// What routers are told, once somebody asks for it.
    events: Option<Box<Events>>,
}

impl Tree {
    /// An empty tree whose leaves leave least recently used first. `hashing` gives every page its digest.
    pub fn new(page_size: PageSize, hashing: bool) -> Self {
        Self::with_components(page_size, hashing, &[])
    }

    /// A tree whose matches need more than FULL: each of `components` votes too.
    pub fn with_components(page_size: PageSize, hashing: bool, components: &[Component]) -> Self {
        Self::with_policy(page_size, hashing, components, Box::new(Lru::default()))
    }

    /// A tree whose leaves leave as a policy says.
    pub fn with_policy(
        page_size: PageSize,
        hashing: bool,
        components: &[Component],
        policy: Box<dyn Eviction>,
    ) -> Self {
        Self {
            page_size,
            hashing,
            arena: Arena::default(),
            strands: Strands::default(),
            children: Children::new(),
            roots: HashMap::with_hasher(FixedState::default()),
            plain_root: NIL,
            epoch: 0,
            leaving: Leaving::new(policy),
            saving: Saving::default(),
            copies: give_way::GiveWay::default(),
            pins: Pins::default(),
            resident: [0; 2],
            components: components.to_vec(),
            part_resident: vec![[0; 2]; components.len()],
            decisions: decisions::Decisions::default(),
            gone: gone::Gone::default(),
            changes: None,
            events: None,
        }
    }

    /// Tokens per page.
    pub const fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// Pages resident in a tier.
    pub const fn resident(&self, tier: crate::ids::Tier) -> usize {
        self.resident[tier as usize]
    }

    /// What votes besides FULL.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// A digest of all decisions so far: which pages got and lost which slots, and where edges were split.
    /// Equal on ranks that took the same decisions.
    pub const fn digest(&self) -> u64 {
        self.decisions.value()
    }

    /// Slots that a component has in a tier.
    pub fn part_resident(&self, component: usize, tier: crate::ids::Tier) -> usize {
        self.part_resident[component][tier as usize]
    }

    /// Nodes, roots included.
    pub fn nodes(&self) -> usize {
        self.arena.len()
    }

    /// Pins that are held.
    pub fn pins(&self) -> usize {
        self.pins.len()
    }

    /// Every slot that a page has in a tier, in no order that means anything.
    pub fn all_slots(&self, tier: crate::ids::Tier) -> impl Iterator<Item = crate::ids::Slot> + '_ {
        self.strands.iter().flat_map(move |(_, strand)| strand.slots(tier).iter().copied())
    }
}
