//! Host copies of device pages that give way: they leave the host before what lives there alone.
//!
//! What may is kept beside the policy, in lists of the tree's own per order of the host: edges whose last page (or any
//! state of a component) there is on the device too. Those used last go first, since the device keeps them longest. What is about
//! to leave the device is kept back until nothing else is left, and what a waiting request holds softly is last of all.
//! Membership is lazy as the policy's is: whatever may give way is known (T10), what is met and can't is forgotten until
//! it is offered again.
//!
//! On error: nothing here fails.

use super::Tree;
use super::check::ensure;
use super::evict::Evicted;
use super::node::NIL;
use super::walk::Place;
use crate::error::{Error, Result};
use crate::ids::Tier;
use crate::policy::lists::Lists;
use crate::policy::{Order, Why};
use hashbrown::HashSet;

/// Goes first.
pub(super) const SPARE: usize = 0;
/// Is about to leave the device.
pub(super) const RESERVE: usize = 1;
/// A waiting request holds it softly.
pub(super) const WAITING: usize = 2;

/// By number of the order; only those of the host are used.
#[derive(Debug, Default)]
pub(super) struct GiveWay {
    lists: Vec<Lists<3>>,
}

impl GiveWay {
    fn of(&mut self, order: Order) -> &mut Lists<3> {
        if order.number() >= self.lists.len() {
            self.lists.resize_with(order.number() + 1, Lists::default);
        }
        &mut self.lists[order.number()]
    }

    fn newest(&self, order: Order, list: usize) -> Option<u32> {
        self.lists.get(order.number())?.newest(list)
    }

    /// Nothing of a leaf is left in an order.
    pub fn forget(&mut self, order: Order, node: u32) {
        if let Some(lists) = self.lists.get_mut(order.number()) {
            lists.remove(node);
        }
    }

    /// A node's front is a node of its own, which stands for it from now on.
    pub fn pass_on(&mut self, order: Order, node: u32, head: u32) {
        if let Some(lists) = self.lists.get_mut(order.number()).filter(|lists| lists.holds(node)) {
            lists.push_behind(node, head);
        }
    }
}

/// The same order on the host.
const fn on_host(order: Order) -> Order {
    match order.component() {
        None => Order::full(Tier::Host),
        Some(component) => Order::of(component, Tier::Host),
    }
}

impl Tree {
    /// A leaf was used or may leave a tier: its copy on the host may give way, if it has one.
    pub(super) fn may_give_way(&mut self, order: Order, node: u32, why: Why) {
        let order = on_host(order);
        if self.resident[Tier::Host as usize] == 0 || !self.is_copy(order, node) {
            return;
        }
        let lists = self.copies.of(order);
        if why == Why::Used || lists.list_of(node) != Some(RESERVE) {
            lists.push_newest(SPARE, node);
        }
    }

    /// What is about to leave the device: its copies are kept back.
    pub fn keep_back(&mut self, order: Order, end: Place) {
        let (order, node) = (on_host(order), end.node);
        if self.is_copy(order, node) {
            self.copies.of(order).push_newest(RESERVE, node);
        }
    }

    /// Whether something that leaves an edge first in an order of the host is on the device, too.
    fn is_copy(&self, order: Order, node: u32) -> bool {
        if let Some(component) = order.component() {
            return self.arena[node].parts[component].doubled().next().is_some();
        }
        let n = &self.arena[node];
        let there = if n.is_root() { 0 } else { self.pages_in(node, Tier::Host) };
        there > 0
            && n.resident_children[Tier::Host as usize] == 0
            && self.pages_in(node, Tier::Device) >= there
    }

    /// Takes copies of one edge out of the host, at most so many pages, from one of the lists. False: there is none.
    pub(super) fn give_way(&mut self, list: usize, wanted: usize, out: &mut Evicted) -> bool {
        let order = Order::full(Tier::Host);
        while let Some(node) = self.copies.newest(order, list) {
            let (there, hard) = (self.pages_in(node, Tier::Host), self.hard_floor(Tier::Host, node));
            if !self.is_copy(order, node) || there <= hard {
                // Offered again when its last pin goes, or what hangs on it.
                self.copies.forget(order, node);
                continue;
            }
            let floor = if list == WAITING { hard } else { hard.max(self.soft_floor(node)) };
            if there <= floor {
                self.copies.of(order).push_newest(WAITING, node);
                continue;
            }
            let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
            self.take(Tier::Host, node, (there - floor).min(wanted), out);
            return true;
        }
        false
    }

    /// The same for slots of a component.
    pub(super) fn give_way_part(
        &mut self,
        component: usize,
        list: usize,
        wanted: usize,
        out: &mut Evicted,
    ) -> bool {
        let order = Order::of(component, Tier::Host);
        while let Some(node) = self.copies.newest(order, list) {
            if self.arena[node].parts[component].held[Tier::Host as usize] > 0 || !self.is_copy(order, node) {
                self.copies.forget(order, node);
                continue;
            }
            self.drop_doubled(component, node, wanted, out);
            return true;
        }
        false
    }

    /// T10: what may give way is known, and nothing that isn't there.
    pub(super) fn check_copies(&self) -> Result<()> {
        if !self.saving.give_way {
            return Ok(());
        }
        self.check_copies_of(Order::full(Tier::Host), |node| {
            self.pages_in(node, Tier::Host) > self.hard_floor(Tier::Host, node)
        })?;
        (0..self.components.len()).try_for_each(|component| {
            self.check_copies_of(Order::of(component, Tier::Host), |node| {
                self.arena[node].parts[component].held[Tier::Host as usize] == 0
            })
        })
    }

    fn check_copies_of(&self, order: Order, may_go: impl Fn(u32) -> bool) -> Result<()> {
        let known = self.copies.lists.get(order.number()).map_or_else(|| Ok(Vec::new()), Lists::check);
        let known = known.map_err(|what| Error::Invariant(format!("T10: copies: {what}")))?;
        for &node in known.as_slice() {
            let there = self.arena.holds(node)
                && match order.component() {
                    None => self.pages_in(node, Tier::Host) > 0,
                    Some(component) => self.arena[node].parts[component].any(Tier::Host),
                };
            ensure(there, "T10", node, "it is known where it has no copy")?;
        }
        let all: HashSet<u32> = known.iter().copied().collect();
        for (node, _) in self.arena.iter() {
            let missed = self.is_copy(order, node) && may_go(node) && !all.contains(&node);
            ensure(!missed, "T10", node, "nobody would make it give way")?;
        }
        ensure(all.len() == known.len(), "T10", NIL, "a copy is known twice")
    }
}
