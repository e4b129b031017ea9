//! What a hard pin holds of each component: the window before its place, and the checkpoint at it.
//!
//! A pin counts on whole edges, from its place up until the window is covered, and remembers how far: a
//! split copies counts, so that the same edges, however many they are by then, are let go (S5).

use super::Component;
use crate::ids::Tier;
use crate::tree::Tree;
use crate::tree::node::NIL;
use crate::tree::walk::Place;

/// Mark of a pin that holds nothing of a component.
pub(in crate::tree) const NOT_HELD: u32 = u32::MAX;

impl Tree {
    /// Counts a pin in; returns its marks, one per component.
    pub(in crate::tree) fn hold_parts(&mut self, place: Place, tier: Tier) -> Box<[u32]> {
        (0..self.components.len()).map(|component| self.hold_part(component, place, tier)).collect()
    }

    fn hold_part(&mut self, component: usize, place: Place, tier: Tier) -> u32 {
        if self.arena[place.node].is_root() {
            return NOT_HELD;
        }
        match self.components[component] {
            Component::Swa { window } => {
                let from = self.window_start(place, window);
                self.count_held(component, place.node, from, tier, 1);
                from
            }
            Component::State => {
                let node = &mut self.arena[place.node];
                if place.depth < node.end || !node.parts[component].any(tier) {
                    return NOT_HELD;
                }
                node.parts[component].held[tier as usize] += 1;
                place.depth
            }
        }
    }

    /// A checkpoint came to where a node ends: the pins there that found none hold it from now on, since their hits
    /// show it.
    pub(super) fn hold_new(&mut self, component: usize, tier: Tier, node: u32) {
        let end = self.arena[node].end;
        let pins = self
            .pins
            .on(&self.arena, node)
            .filter(|(_, pin)| pin.depth == end && pin.hold.tier() == Some(tier));
        let new: Vec<u32> =
            pins.map(|(id, _)| id).filter(|&id| self.pins.marks(id)[component] == NOT_HELD).collect();
        for id in new {
            self.pins.mark(id, component, end);
            self.arena[node].parts[component].held[tier as usize] += 1;
        }
    }

    /// Counts a pin out that is on `node` now.
    pub(in crate::tree) fn release_parts(&mut self, node: u32, tier: Tier, marks: &[u32]) {
        for (component, &from) in marks.iter().enumerate().filter(|(_, mark)| **mark != NOT_HELD) {
            match self.components[component] {
                Component::Swa { .. } => self.count_held(component, node, from, tier, -1),
                Component::State => {
                    self.arena[node].parts[component].held[tier as usize] -= 1;
                    self.list_part(component, tier, node);
                }
            }
        }
    }

    /// First page of the topmost edge that the window before a place reaches into.
    fn window_start(&self, place: Place, window: u32) -> u32 {
        let needed = place.depth.saturating_sub(window);
        let mut node = place.node;
        while self.arena[node].start > needed && !self.arena[self.arena[node].parent].is_root() {
            node = self.arena[node].parent;
        }
        self.arena[node].start
    }

    fn count_held(&mut self, component: usize, from_node: u32, from: u32, tier: Tier, by: i32) {
        let mut at = from_node;
        while at != NIL && !self.arena[at].is_root() && self.arena[at].start >= from {
            let held = &mut self.arena[at].parts[component].held[tier as usize];
            *held = held.saturating_add_signed(by);
            self.list_part(component, tier, at);
            at = self.arena[at].parent;
        }
    }
}
