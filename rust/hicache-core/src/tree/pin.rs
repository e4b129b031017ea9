//! Pins: places that must stay (hard) or should stay (soft).
//!
//! A pin is a position, not a range: since the resident part of a history is a prefix, whatever leads
//! to the place stays with it. Pins follow splits and, where the pages of one that isn't hard go, move up to what is
//! left. The receipt is consumed by [`Tree::unpin`], so that a pin is undone exactly once.

use super::Tree;
use super::deepest::Links;
use super::walk::Place;
use crate::ids::Tier;
use crate::policy::Why;

/// What a pin holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Pages up to the place go last of all, in those tiers that the place itself is in. (A waiting hit
    /// has two: where its pages end, and where those of the other tier do.)
    Soft,
    /// Pages up to the place stay on the device.
    Device,
    /// Pages up to the place stay on the host.
    Host,
    /// Nothing: the place is only followed, up to what is left when its pages go.
    Name,
}

impl Hold {
    /// All kinds, by number.
    pub(super) const ALL: [Self; 4] = [Self::Soft, Self::Device, Self::Host, Self::Name];

    /// The kind that holds a tier hard.
    pub(super) const fn hard(tier: Tier) -> Self {
        match tier {
            Tier::Device => Self::Device,
            Tier::Host => Self::Host,
        }
    }

    /// The tier a hard pin holds.
    pub(super) const fn tier(self) -> Option<Tier> {
        match self {
            Self::Soft | Self::Name => None,
            Self::Device => Some(Tier::Device),
            Self::Host => Some(Tier::Host),
        }
    }
}

/// Receipt of one pin. Not `Clone`: giving it back is the only way to undo the pin.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a lost receipt pins its pages for ever"]
pub struct PinId(u32);

#[derive(Clone, Copy, Debug)]
pub(super) struct Pin {
    pub node: u32,
    /// Pages from the root to the place.
    pub depth: u32,
    pub hold: Hold,
    pub links: Links,
}

/// How many pages of a tier hard pins keep, as far as that is known without walking: pins share pages, so
/// that it is neither the deepest one's depth nor the sum of all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept {
    pub least: usize,
    pub most: usize,
    /// Depths of all hard pins, which never change while they are held.
    depths: usize,
}

impl Kept {
    const fn pinned(&mut self, depth: u32) {
        self.most += depth as usize;
        self.depths += depth as usize;
    }

    fn unpinned(&mut self, depth: u32) {
        self.least = self.least.saturating_sub(depth as usize);
        self.depths -= depth as usize;
        self.most = self.most.min(self.depths);
    }
}

#[derive(Debug, Default)]
pub(super) struct Pins {
    entries: Vec<Option<Pin>>,
    /// Of hard pins, per component: from which page on its edges hold it. Empty without components.
    marks: Vec<Box<[u32]>>,
    free: Vec<u32>,
    kept: [Kept; 2],
}

impl Pins {
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    #[expect(clippy::expect_used, reason = "receipts are unforgeable: C4")]
    pub fn get(&self, id: u32) -> Pin {
        self.entries[id as usize].expect("C4: receipt of a pin that is gone")
    }

    fn insert(&mut self, pin: Pin) -> u32 {
        if let Some(id) = self.free.pop() {
            self.entries[id as usize] = Some(pin);
            return id;
        }
        self.entries.push(Some(pin));
        self.marks.push(Box::default());
        #[expect(clippy::cast_possible_truncation, reason = "one pin per request and transfer")]
        let id = (self.entries.len() - 1) as u32;
        id
    }

    pub(super) fn set(&mut self, id: u32, change: impl FnOnce(&mut Pin)) {
        if let Some(pin) = &mut self.entries[id as usize] {
            change(pin);
        }
    }

    /// How many pages of a tier the hard ones keep, as far as that is known.
    pub const fn kept(&self, tier: Tier) -> Kept {
        self.kept[tier as usize]
    }

    /// Notes how many they are exactly, as of now.
    pub const fn settle_kept(&mut self, tier: Tier, exactly: usize) {
        let kept = &mut self.kept[tier as usize];
        (kept.least, kept.most) = (exactly, exactly);
    }

    /// What a pin holds of each component.
    pub fn marks(&self, id: u32) -> &[u32] {
        &self.marks[id as usize]
    }

    /// A hard pin holds a component from `from` on, of which it held nothing.
    pub fn mark(&mut self, id: u32, component: usize, from: u32) {
        self.marks[id as usize][component] = from;
    }

    /// Every pin.
    pub fn all(&self) -> impl Iterator<Item = &Pin> {
        self.entries.iter().flatten()
    }

    #[cfg(test)]
    pub fn corrupt(&mut self, id: u32, depth: u32) {
        self.set(id, |pin| pin.depth = depth);
    }
}

impl Tree {
    /// Pins a place. A hard pin needs every page up to the place to live in its tier.
    pub fn pin(&mut self, place: Place, hold: Hold) -> PinId {
        // Components are held by whole edges: what is behind the place must not be held with it.
        let exact = hold.tier().is_some() && !self.components.is_empty();
        let place = if exact { self.split(place) } else { place };
        let pin = Pin { node: place.node, depth: place.depth, hold, links: Links::NONE };
        let id = self.pins.insert(pin);
        self.pins.attach(&mut self.arena, id, place.node, place.depth);
        if let Some(tier) = hold.tier() {
            self.pins.kept[tier as usize].pinned(place.depth);
            if !self.components.is_empty() {
                self.pins.marks[id as usize] = self.hold_parts(place, tier);
            }
        }
        PinId(id)
    }

    /// Undoes one pin; the pages below it may leave again.
    #[expect(clippy::needless_pass_by_value, reason = "the receipt is consumed: a pin is undone once")]
    pub fn unpin(&mut self, receipt: PinId) {
        let pin = self.pins.get(receipt.0);
        self.pins.detach(&mut self.arena, receipt.0);
        self.pins.entries[receipt.0 as usize] = None;
        self.pins.free.push(receipt.0);
        if let Some(tier) = pin.hold.tier() {
            self.pins.kept[tier as usize].unpinned(pin.depth);
            let marks = std::mem::take(&mut self.pins.marks[receipt.0 as usize]);
            self.release_parts(pin.node, tier, &marks);
        }
        // What is only followed was never kept out of an order.
        for tier in Tier::ALL.into_iter().filter(|_| pin.hold != Hold::Name) {
            self.relist(tier, pin.node);
        }
        self.drop_root_if_unused(pin.node);
    }

    /// Where a pin is now.
    pub fn pinned(&self, receipt: &PinId) -> Place {
        let pin = self.pins.get(receipt.0);
        Place { node: pin.node, depth: pin.depth }
    }

    /// Moves a pin to another place, keeping its receipt.
    pub fn move_pin(&mut self, receipt: PinId, place: Place) -> PinId {
        let hold = self.pins.get(receipt.0).hold;
        // The new one first: pages that both cover never lose their protection, nor their root.
        let moved = self.pin(place, hold);
        self.unpin(receipt);
        moved
    }

    /// A node that may have become evictable comes back into the order, if it is not in it.
    pub(super) fn relist(&mut self, tier: Tier, node: u32) {
        if self.arena[node].is_root() || self.pages_in(node, tier) == 0 {
            return;
        }
        // What has something below it comes back when that leaves.
        if self.components.is_empty() && self.arena[node].resident_children[tier as usize] > 0 {
            return;
        }
        self.offer(tier, node, Why::Freed);
    }
}
