//! What is saved one tier further down: what the verbs want there, what storage is believed to have, and which leaves
//! of an order are saved before they leave.
//!
//! A page is *saved* in a tier if the next one has it, or nobody wants it there. A strand knows up to where its pages
//! are wanted by a request, and up to where they are stored or on their way to storage: both are told by the verbs.
//! On error: nothing here fails.

use super::Tree;
use super::node::NIL;
use super::walk::Place;
use crate::ids::Tier;
use crate::policy::Order;
use std::ops::Range;

/// Which pages of a tier are wanted in the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// There is no next one.
    #[default]
    Nothing,
    /// What a second request used: what has the mark [`Mark::Host`], whichever tier it is.
    UsedAgain,
    /// What has the tier's mark: a request wants it there.
    Marked,
    /// All.
    All,
}

/// What a request may want of the pages of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// To be on the host, before they leave the device; where no request says what it wants: a second one used them.
    Host,
    /// To be in storage, before they leave the host.
    Storage,
    /// To be in storage as soon as they are on the host.
    Soon,
}

/// What the tree keeps in mind when something leaves.
#[derive(Clone, Debug, Default)]
pub struct Saving {
    /// Whether host copies of device pages leave before anything else does there.
    pub give_way: bool,
    /// Whether nothing stays on the host: what is next to the device is storage.
    pub straight: bool,
    /// By tier: what is wanted in the next one.
    pub wanted: [Wanted; 2],
    /// By order: so far an eviction looks for something that is saved before it takes what isn't. In pages or slots.
    pub reserve: Vec<usize>,
}

impl Saving {
    /// The tier whose pages are stored.
    pub const fn source(&self) -> Tier {
        if self.straight { Tier::Device } else { Tier::Host }
    }

    pub(super) fn reserve(&self, order: Order) -> usize {
        self.reserve.get(order.number()).copied().unwrap_or(0)
    }
}

impl Tree {
    /// What is wanted further down, and what gives way, from now on.
    pub fn save(&mut self, saving: Saving) {
        self.saving = saving;
    }

    /// What is wanted further down, and what gives way.
    pub const fn saving(&self) -> &Saving {
        &self.saving
    }

    /// The pages of the path to a place get a mark.
    pub fn mark(&mut self, place: Place, mark: Mark) {
        let mut at = place;
        while at.depth > 0 {
            let index = self.arena[at.node].strand;
            if self.strands.marked(index, mark) >= at.depth {
                break;
            }
            self.strands.mark(index, mark, at.depth);
            at = self.before(index);
        }
    }

    /// Pages from the root to a place that have a mark.
    pub fn marked_depth(&self, place: Place, mark: Mark) -> u32 {
        let mut at = place;
        while at.depth > 0 {
            let index = self.arena[at.node].strand;
            let marked = self.strands.marked(index, mark);
            if marked > self.strands[index].start {
                return marked.min(at.depth);
            }
            at = self.before(index);
        }
        0
    }

    /// Pages of the path to a place that storage isn't believed to have, nor to get: parents first.
    pub fn unstored(&self, place: Place) -> Vec<Range<u32>> {
        let (mut at, mut found) = (place, Vec::new());
        while at.depth > 0 {
            let index = self.arena[at.node].strand;
            let strand = &self.strands[index];
            found.extend(strand.stored.missing(strand.start..at.depth).into_iter().rev());
            at = self.before(index);
        }
        found.reverse();
        found
    }

    /// Storage has pages of the path to a place, or they are on their way there.
    pub fn store(&mut self, place: Place, pages: Range<u32>) {
        let mut at = place;
        while at.depth > pages.start {
            let index = self.arena[at.node].strand;
            let strand = &mut self.strands[index];
            strand.stored.add(pages.start.max(strand.start)..pages.end.min(at.depth));
            at = self.before(index);
        }
    }

    /// Storage hasn't got a page (counted from 0) of the path to a place after all.
    pub fn unstore(&mut self, place: Place, page: u32) {
        let at = self.ancestor(place, page + 1);
        let index = self.arena[at.node].strand;
        self.strands[index].stored.remove(page);
        self.strands.owe(index, true);
    }

    /// Something of the path to a place was to be stored, and nobody remembers that it was.
    pub fn owe(&mut self, place: Place) {
        self.debts(place, true);
    }

    /// Whatever of a path was there to be stored and wanted in storage is on its way.
    pub fn settle_debts(&mut self, place: Place) {
        if self.strands.owing() > 0 {
            self.debts(place, false);
        }
    }

    fn debts(&mut self, place: Place, owing: bool) {
        let mut at = place;
        while at.depth > 0 {
            let index = self.arena[at.node].strand;
            if owing {
                self.strands.owe(index, true);
            }
            self.settle_debt(index);
            at = self.before(index);
        }
    }

    /// Pages at the end of an edge are gone, and with them, perhaps, the name under which what they hung on was to be
    /// stored.
    pub(super) fn owe_rest(&mut self, strand: u32, parent: u32) {
        if self.saving.wanted[self.saving.source() as usize] != Wanted::All {
            return;
        }
        let rest = match self.strands[strand].last() {
            NIL if self.arena.holds(parent) => self.arena[parent].strand,
            NIL => NIL,
            _ => strand,
        };
        if rest != NIL {
            self.strands.owe(rest, true);
            self.settle_debt(rest);
        }
    }

    /// Strands of which something was to be stored, and wasn't.
    pub const fn in_debt(&self) -> usize {
        self.strands.owing()
    }

    /// Whether something of the path to a place was to be stored, and wasn't.
    pub fn owes(&self, place: Place) -> bool {
        let mut at = place;
        while at.depth > 0 && self.strands.owing() > 0 {
            let index = self.arena[at.node].strand;
            if self.strands[index].stored.owing() {
                return true;
            }
            at = self.before(index);
        }
        false
    }

    /// A strand owes nothing any more if storage has, or gets, all that it could get of it.
    pub(super) fn settle_debt(&mut self, index: u32) {
        let strand = &self.strands[index];
        let owes = strand.stored.owing()
            && (strand.stored.lacks(strand.start..strand.reach(self.saving.source())) > 0
                || strand
                    .edges()
                    .iter()
                    .any(|&(_, node)| self.arena[node].parts.iter().any(|part| part.owed)));
        if !owes {
            self.strands.owe(index, false);
        }
    }

    /// Whether what an order would give up of a leaf is saved.
    pub(super) fn is_saved(&self, order: Order, node: u32) -> bool {
        let tier = order.tier();
        let wanted = self.saving.wanted[tier as usize];
        if wanted == Wanted::Nothing || self.arena[node].is_root() {
            return true;
        }
        if let Some(component) = order.component() {
            let part = &self.arena[node].parts[component];
            return match tier {
                Tier::Device if self.saving.straight => {
                    !self.is_wanted(tier, node) || self.is_edge_stored(component, node)
                }
                Tier::Device => part.only(tier).next().is_none() || !self.is_wanted(tier, node),
                Tier::Host => !part.owed || !self.is_wanted(tier, node),
            };
        }
        let n = &self.arena[node];
        let strand = &self.strands[n.strand];
        let to = strand.reach(tier).min(n.end).min(self.wanted_to(tier, node));
        self.unsaved(tier, node, n.start..to) == 0
    }

    /// How many of some pages of an edge the next tier hasn't got.
    pub(super) fn unsaved(&self, tier: Tier, node: u32, pages: Range<u32>) -> usize {
        let strand = &self.strands[self.arena[node].strand];
        if tier == self.saving.source() {
            return strand.stored.lacks(pages);
        }
        match tier {
            Tier::Device => pages.end.saturating_sub(pages.start.max(strand.reach(Tier::Host))) as usize,
            // Nothing stays there.
            Tier::Host => 0,
        }
    }

    fn is_wanted(&self, tier: Tier, node: u32) -> bool {
        self.wanted_to(tier, node) >= self.arena[node].end
    }

    /// Up to where they are wanted there.
    pub(super) fn wanted_to(&self, tier: Tier, node: u32) -> u32 {
        let (n, wanted) = (&self.arena[node], self.saving.wanted[tier as usize]);
        match wanted {
            // Asked first: it is so wherever there is no tier below, and the rest looks far away.
            Wanted::Nothing => 0,
            _ if self.is_past(Place { node, depth: n.end }) => 0,
            Wanted::UsedAgain => self.strands[n.strand].used,
            Wanted::Marked => {
                let mark = if tier == self.saving.source() { Mark::Storage } else { Mark::Host };
                self.strands.marked(n.strand, mark)
            }
            Wanted::All => u32::MAX,
        }
    }

    /// Of the pages of an edge that live nowhere when those from `from` to `to` have left a tier: how many were
    /// wanted in the next one, and aren't there.
    pub(super) fn lost(&self, tier: Tier, node: u32, pages: Range<u32>) -> usize {
        if self.saving.wanted[tier as usize] == Wanted::Nothing {
            return 0;
        }
        self.unsaved(tier, node, pages.start..pages.end.min(self.wanted_to(tier, node)))
    }
}
