//! Looking at components without changing anything: what is usable at a place, which slots there are, and what
//! could leave.

use super::{ABSENT, Component};
use crate::ids::{Slot, Tier};
use crate::policy::Order;
use crate::tree::Tree;

impl Tree {
    /// Every slot of a component in a tier, in no order that means anything.
    pub fn all_part_slots(&self, component: usize, tier: Tier) -> impl Iterator<Item = Slot> + '_ {
        let parts = self.arena.iter().map(move |(_, node)| &node.parts[component]);
        parts.flat_map(move |part| part.slots[tier as usize].iter().copied().filter(|&slot| slot != ABSENT))
    }

    /// First page that a match which ends at `depth` needs of a component: a window's, or the last one.
    pub fn needs_from(&self, component: usize, depth: u32) -> u32 {
        match self.components[component] {
            Component::Swa { window } => depth.saturating_sub(window),
            Component::State => depth.saturating_sub(1),
        }
    }

    /// Whether so many slots of a component can leave a tier. Looks at nodes only where pins may hold too many: first
    /// at what leaves next, and if that isn't enough at no more than it takes to find that many.
    pub fn can_evict_component(&mut self, component: usize, tier: Tier, wanted: usize) -> bool {
        let Some(spare) = self.part_resident(component, tier).checked_sub(wanted) else { return false };
        // What is held is on the path to a hard pin, a slot a page; a checkpoint is held by a pin at it.
        let held = match self.components[component] {
            Component::Swa { .. } => self.pins.kept(tier).most,
            Component::State => self.pins.kept(tier).most.min(self.pins.len()),
        };
        let mirrored = tier == Tier::Host && !self.saving.give_way;
        let mirrors = if mirrored { self.part_resident(component, Tier::Device) } else { 0 };
        let known = held + mirrors <= spare || wanted == 0 || self.next_gives(component, tier) >= wanted;
        known || self.evictable_up_to(component, tier, wanted) == wanted
    }

    /// Slots that the edge which leaves next has to give. What can't leave now is passed over, as by an eviction.
    fn next_gives(&mut self, component: usize, tier: Tier) -> usize {
        let order = Order::of(component, tier);
        while let Some((victim, _)) = self.leaving.next(order) {
            if self.part_may_go(component, tier, victim.leaf) {
                return self.arena[victim.leaf].parts[component].loose(tier).count();
            }
            self.leaving.withhold(order, victim.leaf);
        }
        0
    }

    /// Slots of a component that an eviction of everything would free in a tier: all but held ones and, on the host
    /// where copies don't give way, mirrors of the device's. Goes through all nodes.
    pub fn evictable_component(&self, component: usize, tier: Tier) -> usize {
        self.evictable_up_to(component, tier, usize::MAX)
    }

    /// The same, counted no further than to `most`.
    fn evictable_up_to(&self, component: usize, tier: Tier, most: usize) -> usize {
        let mut count = 0;
        for (_, node) in self.arena.iter() {
            let part = &node.parts[component];
            if part.held[tier as usize] == 0 {
                count += if self.saving.give_way { part.count(tier) } else { part.loose(tier).count() };
                if count >= most {
                    return most;
                }
            }
        }
        count
    }
}
