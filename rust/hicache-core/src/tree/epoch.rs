//! Epochs: when the weights change, no page of before is ever matched again, in any namespace.
//!
//! A namespace's root belongs to the epoch that it was made in. A new epoch forgets all roots: what hangs below them
//! is reached by those alone who hold it, until it leaves. On error: nothing here fails.

use super::Tree;
use super::evict::Evicted;
use super::node::NIL;
use super::walk::Place;
use crate::hash::Namespace;
use crate::ids::Tier;

/// What a root has beside a node.
#[derive(Debug)]
pub(super) struct Rooted {
    pub namespace: Namespace,
    /// In which it was made.
    pub epoch: u64,
    /// What fingerprints of it begin with, in every epoch.
    pub print: u64,
}

impl Tree {
    /// How many epochs ended so far.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Ends an epoch: every namespace begins anew, with nothing. Pages stay until they are evicted or given up.
    pub fn end_epoch(&mut self) {
        self.epoch += 1;
        self.roots.clear();
        self.plain_root = NIL;
        self.decisions.word(self.epoch);
        Tier::ALL.into_iter().for_each(|tier| self.tell_cleared(tier.into()));
        for root in self.unused_roots() {
            self.drop_root_if_unused(root);
        }
    }

    fn unused_roots(&self) -> Vec<u32> {
        let unused = self.arena.iter().filter(|(_, node)| node.is_root() && node.children == 0);
        unused.map(|(index, _)| index).collect()
    }

    /// Whether a place is of an epoch that has ended.
    pub fn is_past(&self, place: Place) -> bool {
        let root = &self.arena[self.arena[place.node].root];
        root.rooted.as_ref().is_some_and(|rooted| rooted.epoch != self.epoch)
    }

    /// Takes out of a tier what nobody holds of a path, from its end on, as far as nothing else hangs on it.
    pub fn give_up(&mut self, tier: Tier, end: Place) -> Evicted {
        let mut out = self.nothing_evicted();
        for node in self.path(end).into_iter().rev() {
            let (there, floor) = (self.pages_in(node, tier), self.floor(tier, node));
            if self.arena[node].resident_children[tier as usize] > 0 || there < floor {
                break;
            }
            if there > floor {
                self.take(tier, node, there - floor, &mut out);
            }
            if floor > 0 {
                break;
            }
        }
        out
    }
}
