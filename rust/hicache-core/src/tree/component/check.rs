//! Invariants of components, recomputed from scratch.

use super::{ABSENT, Component, NOT_HELD};
use crate::error::Result;
use crate::ids::{Slot, Tier};
use crate::policy::Order;
use crate::tree::Tree;
use crate::tree::check::ensure;
use crate::tree::node::NIL;
use hashbrown::{HashMap, HashSet};

impl Tree {
    pub(in crate::tree) fn check_parts(&self) -> Result<()> {
        for component in 0..self.components.len() {
            for tier in Tier::ALL {
                self.check_shape(component, tier)?;
                self.check_owners(component, tier)?;
                self.check_order(component, tier)?;
                self.check_held(component, tier)?;
            }
        }
        Ok(())
    }

    /// S1: a window has a slot or a hole for each page (or no list), a checkpoint at most one slot.
    /// S2: what a component has in a tier, FULL has there too.
    fn check_shape(&self, component: usize, tier: Tier) -> Result<()> {
        for (index, node) in self.arena.iter() {
            ensure(node.parts.len() == self.components.len(), "S1", index, "it lacks a component")?;
            let part = &node.parts[component];
            let slots = &part.slots[tier as usize];
            let (resident, pages) = (self.pages_in(index, tier) as usize, node.pages() as usize);
            match self.components[component] {
                Component::Swa { .. } => {
                    let whole = slots.is_empty() || (slots.len() == pages && part.count(tier) > 0);
                    ensure(whole, "S1", index, "its window's slots are not its pages'")?;
                    let beyond = slots.iter().skip(resident).any(|&slot| slot != ABSENT);
                    ensure(!beyond, "S2", index, "it has a window where FULL is not")?;
                }
                Component::State => {
                    ensure(
                        slots.len() <= 1 && !slots.contains(&ABSENT),
                        "S1",
                        index,
                        "it has two checkpoints",
                    )?;
                    let there = slots.is_empty() || (resident == pages && !node.is_root());
                    ensure(there, "S2", index, "it has a checkpoint where FULL is not")?;
                }
            }
        }
        Ok(())
    }

    /// S3: a component's slot belongs to one page, and the number of them is right.
    fn check_owners(&self, component: usize, tier: Tier) -> Result<()> {
        let mut seen: HashSet<Slot> = HashSet::new();
        for (index, node) in self.arena.iter() {
            let slots = node.parts[component].slots[tier as usize].iter();
            for &slot in slots.filter(|&&slot| slot != ABSENT) {
                ensure(seen.insert(slot), "S3", index, "one of its slots belongs to another page too")?;
            }
        }
        let counted = self.part_resident[component][tier as usize];
        ensure(seen.len() == counted, "S3", NIL, "the number of a component's slots is wrong")
    }

    /// S4: the policy's books are whole, and what may leave a tier is known to it.
    fn check_order(&self, component: usize, tier: Tier) -> Result<()> {
        let mut known: HashSet<u32> = HashSet::new();
        for node in self.known_leaves(Order::of(component, tier), "S4")? {
            ensure(known.insert(node), "S4", node, "it is known twice")?;
            let there = self.arena.holds(node) && self.arena[node].parts[component].any(tier);
            ensure(there, "S4", node, "it is known for nothing")?;
        }
        for (index, _) in self.arena.iter() {
            let may_go = self.part_may_go(component, tier, index);
            ensure(!may_go || known.contains(&index), "S4", index, "nobody would evict it")?;
        }
        Ok(())
    }

    /// S5: what is held is what the hard pins hold, whatever was split since.
    fn check_held(&self, component: usize, tier: Tier) -> Result<()> {
        let mut held: HashMap<u32, u32> = HashMap::new();
        for (index, _) in self.arena.iter() {
            for (id, pin) in self.pins.on(&self.arena, index).filter(|(_, pin)| pin.hold.tier() == Some(tier))
            {
                let mark = self.pins.marks(id).get(component).copied().unwrap_or(NOT_HELD);
                let checkpoint = matches!(self.components[component], Component::State)
                    && self.arena[index].parts[component].any(tier);
                ensure(!checkpoint || mark != NOT_HELD, "S5", index, "a pin doesn't hold its checkpoint")?;
                let mut at = index;
                while mark != NOT_HELD && !self.arena[at].is_root() {
                    let window = matches!(self.components[component], Component::Swa { .. });
                    if window && self.arena[at].start < mark {
                        break;
                    }
                    *held.entry(at).or_default() += 1;
                    if !window {
                        ensure(pin.depth == self.arena[at].end, "S5", at, "a held checkpoint moved")?;
                        break;
                    }
                    at = self.arena[at].parent;
                }
            }
        }
        for (index, node) in self.arena.iter() {
            let count = held.get(&index).copied().unwrap_or(0);
            ensure(node.parts[component].held[tier as usize] == count, "S5", index, "it is held by nobody")?;
        }
        Ok(())
    }
}
