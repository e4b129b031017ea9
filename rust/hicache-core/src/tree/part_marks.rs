//! What storage has, or will have, of windows and states; and which pages routers were told it has (`announce`).
//!
//! Where they are stored from the host, an edge says whether something of it there is owed. Where they are stored from the device
//! (nothing stays on the host), it is known page by page, as long as the page lives. Knows strands by number; costs
//! nothing where nobody asks. On error: nothing here fails.

use super::Tree;
use super::component::{Component, Missing};
use super::marks::Marks;
use super::walk::Place;
use crate::ids::{Slot, Tier};
use std::ops::Range;

/// By strand, then by component; a strand without any has none.
#[derive(Debug, Default)]
pub(super) struct PartMarks(Vec<Vec<Marks>>);

impl PartMarks {
    pub fn of(&self, strand: u32, component: usize) -> Option<&Marks> {
        self.0.get(strand as usize)?.get(component)
    }

    pub fn of_mut(&mut self, strand: u32, start: u32, component: usize) -> &mut Marks {
        let at = strand as usize;
        if self.0.len() <= at {
            self.0.resize_with(at + 1, Vec::new);
        }
        let marks = &mut self.0[at];
        while marks.len() <= component {
            marks.push(Marks::new(start));
        }
        &mut marks[component]
    }

    /// Pages of a strand from `end` on live nowhere any more.
    pub fn cut(&mut self, strand: u32, end: u32) {
        self.0.get_mut(strand as usize).into_iter().flatten().for_each(|marks| marks.cut(end));
    }

    /// A strand is no more.
    pub fn forget(&mut self, strand: u32) {
        if let Some(marks) = self.0.get_mut(strand as usize) {
            *marks = Vec::new();
        }
    }

    /// Nothing is known to be stored.
    pub fn clear(&mut self) {
        self.0 = Vec::new();
    }
}

impl Tree {
    /// Storage has what a component has of a page (counted from 0) of the path to a place, or it is on its way there.
    pub fn store_part(&mut self, component: usize, place: Place, page: u32) {
        let (strand, start) = self.strand_of(place, page);
        self.strands.parts.of_mut(strand, start, component).add(page..page + 1);
    }

    /// Storage hasn't got it after all.
    pub fn unstore_part(&mut self, component: usize, place: Place, page: u32) {
        let (strand, start) = self.strand_of(place, page);
        self.strands.parts.of_mut(strand, start, component).remove(page);
    }

    fn strand_of(&self, place: Place, page: u32) -> (u32, u32) {
        let strand = self.arena[self.ancestor(place, page + 1).node].strand;
        (strand, self.strands[strand].start)
    }

    /// What a component has on the device of the path to `end` that storage isn't believed to have, nor to get: of the window
    /// before `end`; of states, all on the way there.
    pub fn unstored_part(&self, component: usize, end: Place) -> Missing {
        let mut missing = Missing::default();
        match self.components[component] {
            Component::Swa { .. } => {
                for page in self.needs_from(component, end.depth)..end.depth {
                    self.note_unstored(component, self.ancestor(end, page + 1), &mut missing);
                }
            }
            Component::State => {
                for node in self.path(end).into_iter().filter(|&node| self.arena[node].end <= end.depth) {
                    let at = Place { node, depth: self.arena[node].end };
                    self.note_unstored(component, at, &mut missing);
                }
            }
        }
        missing
    }

    /// Of the last page before a place.
    fn note_unstored(&self, component: usize, at: Place, missing: &mut Missing) {
        if at.depth > 0
            && let Some(slot) = self.part_slot(component, Tier::Device, at)
            && !self.is_part_stored(component, at.node, at.depth - 1)
        {
            missing.pages.push(at.depth - 1);
            missing.slots.push(slot);
        }
    }

    fn is_part_stored(&self, component: usize, node: u32, page: u32) -> bool {
        let marks = self.strands.parts.of(self.arena[node].strand, component);
        marks.is_some_and(|marks| marks.lacks(page..page + 1) == 0)
    }

    /// Whether all that an edge has of a component on the device is stored or on its way.
    pub(super) fn is_edge_stored(&self, component: usize, node: u32) -> bool {
        let n = &self.arena[node];
        let pages = |slots: &[Slot]| -> Range<u32> {
            if self.components[component] == Component::State {
                n.end - 1..n.end
            } else {
                n.start..n.start + lane(slots)
            }
        };
        let slots = &n.parts[component].slots[Tier::Device as usize];
        let mut there = pages(slots).zip(slots).filter(|(_, slot)| **slot != crate::ids::NO_SLOT);
        there.all(|(page, _)| self.is_part_stored(component, node, page))
    }

    /// Whether a component has something at the end of an edge that a match there needs and storage lacks.
    pub(super) fn lacks_parts(&self, node: u32) -> bool {
        let end = Place { node, depth: self.arena[node].end };
        (0..self.components.len()).any(|component| !self.unstored_part(component, end).pages.is_empty())
    }
}

#[expect(clippy::cast_possible_truncation, reason = "an edge has fewer than 2^32 pages")]
const fn lane(slots: &[Slot]) -> u32 {
    slots.len() as u32
}

impl Tree {
    /// Of a part that was copied: storage hasn't got it.
    pub fn owe_part(&mut self, component: usize, end: Place, slot: Slot) {
        let mut at = end.node;
        while !self.arena[at].is_root() {
            let part = &mut self.arena[at].parts[component];
            if part.slots[Tier::Host as usize].contains(&slot) {
                part.owed = true;
                return;
            }
            at = self.arena[at].parent;
        }
    }
}
