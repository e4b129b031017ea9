//! Component state whose bytes never arrived leaves a tier: a copy failed.
//!
//! On error: nothing here fails.

use super::{ABSENT, Component};
use crate::ids::{Slot, Tier};
use crate::tree::Tree;
use crate::tree::walk::Place;

impl Tree {
    /// Takes these slots of a component out of a tier, wherever on the path to `end` they are and whoever holds
    /// them. Returns those that were there: others have left before, with their pages.
    pub fn lose_parts(&mut self, component: usize, tier: Tier, end: Place, slots: &[Slot]) -> Vec<Slot> {
        let mut lost = Vec::new();
        for node in self.path(end) {
            let part = &mut self.arena[node].parts[component];
            let mut gone = Vec::new();
            for slot in part.slots[tier as usize].iter_mut().filter(|slot| slots.contains(slot)) {
                gone.push(std::mem::replace(slot, ABSENT));
            }
            if gone.is_empty() {
                continue;
            }
            if matches!(self.components[component], Component::State) {
                part.slots[tier as usize].clear();
            }
            part.tidy(tier);
            self.settle_part(component, tier, node, &gone);
            lost.append(&mut gone);
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails is loud")]
    use crate::hash::Namespace;
    use crate::ids::{Slot, Tier};
    use crate::page::{PageSize, Tokens};
    use crate::tree::{Component, Hold, Tree};

    /// Four pages on both tiers with a window on the last two and a state at the end, all of it held on the host.
    #[test]
    fn what_is_lost_leaves_and_nothing_else() {
        let components = [Component::Swa { window: 2 }, Component::State];
        let mut tree = Tree::with_components(PageSize::new(1).unwrap(), false, &components);
        let root = tree.root(&Namespace::default());
        let slots: Vec<Slot> = (0..4).map(Slot).collect();
        let end = tree.extend(root, Tokens::I32(&[1, 2, 3, 4]), Tier::Device, &slots).place;
        let end = tree.mirror(end, &slots);
        for tier in Tier::ALL {
            assert_eq!(tree.attach(0, tier, end, &[2, 3], &slots[..2]), []);
            assert_eq!(tree.attach(1, tier, end, &[3], &slots[..1]), []);
        }
        let held = tree.pin(end, Hold::Host);
        let end = tree.pinned(&held);
        // Slots that left before are not there to be lost.
        assert_eq!(tree.lose_parts(0, Tier::Host, end, &[Slot(1), Slot(7)]), [Slot(1)]);
        assert_eq!(tree.lose_parts(1, Tier::Host, end, &[Slot(0)]), [Slot(0)]);
        tree.check().unwrap();
        let there = |tree: &Tree, part, tier, depth| tree.part_slot(part, tier, tree.ancestor(end, depth));
        assert_eq!(there(&tree, 0, Tier::Host, 3), Some(Slot(0)));
        assert_eq!((there(&tree, 0, Tier::Host, 4), there(&tree, 1, Tier::Host, 4)), (None, None));
        assert_eq!(
            (there(&tree, 0, Tier::Device, 4), there(&tree, 1, Tier::Device, 4)),
            (Some(Slot(1)), Some(Slot(0)))
        );
        tree.unpin(held);
        tree.check().unwrap();
        // They can be brought again.
        assert_eq!(tree.attach(0, Tier::Host, end, &[3], &[Slot(2)]), []);
        assert_eq!(tree.attach(1, Tier::Host, end, &[3], &[Slot(3)]), []);
        tree.check().unwrap();
    }
}
