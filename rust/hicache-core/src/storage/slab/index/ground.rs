//! Which page has which slot of which extent, and the class of every extent.
//!
//! May assume that a slot is taken before it is given back. Refuses to know files and keys.
//! On error: a place that can't be is `false` or `None`.

use crate::storage::slab::record::At;
use hashbrown::HashMap;

/// No page.
pub const NONE: u32 = u32::MAX;

/// Classes are multiples of this many bytes.
pub const STEP: u32 = 4096;

/// The class of pages of so many bytes: the size of their slots. `None` if no class is so large.
pub fn class_of(bytes: u64) -> Option<u32> {
    u32::try_from(bytes.max(1).checked_next_multiple_of(STEP.into())?).ok()
}

/// The slots of an extent that has a class.
#[derive(Debug)]
pub struct Slots {
    /// Their size in bytes.
    pub class: u32,
    /// Whose each of them is.
    pub pages: Vec<u32>,
    /// How many are somebody's.
    pub used: u32,
}

/// All extents. Those without a class have no slots.
#[derive(Debug)]
pub struct Ground {
    bytes: u64,
    extents: Vec<Option<Slots>>,
    /// How many slots of each class are in use.
    used: HashMap<u32, u64>,
    /// All slots.
    slots: u64,
}

impl Ground {
    /// Of extents of so many bytes each.
    pub fn new(bytes: u64) -> Self {
        Self { bytes, extents: Vec::new(), used: HashMap::new(), slots: 0 }
    }

    /// How many slots there are.
    pub const fn all(&self) -> u64 {
        self.slots
    }

    /// How many slots of a class are somebody's.
    pub fn used(&self, class: u32) -> u64 {
        self.used.get(&class).copied().unwrap_or(0)
    }

    /// Slots of one extent of a class.
    pub fn slots(&self, class: u32) -> u32 {
        u32::try_from(self.bytes / u64::from(class.max(STEP))).unwrap_or(u32::MAX)
    }

    /// Gives an extent to a class: all of its slots are free.
    pub fn give(&mut self, extent: u16, class: u32) {
        self.release(extent);
        let slots = self.slots(class) as usize;
        self.slots += slots as u64;
        if self.extents.len() <= usize::from(extent) {
            self.extents.resize_with(usize::from(extent) + 1, || None);
        }
        self.extents[usize::from(extent)] = Some(Slots { class, pages: vec![NONE; slots], used: 0 });
    }

    /// Takes an extent from its class.
    pub fn release(&mut self, extent: u16) {
        if let Some(slots) = self.extents.get_mut(usize::from(extent)).and_then(Option::take) {
            debug_assert!(slots.used == 0, "it has pages");
            self.slots -= slots.pages.len() as u64;
        }
    }

    /// The slots of an extent.
    pub fn get(&self, extent: u16) -> Option<&Slots> {
        self.extents.get(usize::from(extent))?.as_ref()
    }

    /// All extents that have a class.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &Slots)> {
        let numbered = (0_u16..).zip(&self.extents);
        numbered.filter_map(|(number, slots)| Some((number, slots.as_ref()?)))
    }

    /// The page at a place.
    pub fn page(&self, at: At) -> Option<u32> {
        self.get(at.extent)?.pages.get(at.slot as usize).copied().filter(|&page| page != NONE)
    }

    /// Lets a page have a free slot; false if there is no such slot.
    #[must_use]
    pub fn take(&mut self, at: At, page: u32) -> bool {
        let Some(Some(slots)) = self.extents.get_mut(usize::from(at.extent)) else { return false };
        let Some(owner) = slots.pages.get_mut(at.slot as usize).filter(|owner| **owner == NONE) else {
            return false;
        };
        *owner = page;
        slots.used += 1;
        *self.used.entry(slots.class).or_default() += 1;
        true
    }

    /// Its page has the slot no more.
    pub fn free(&mut self, at: At) {
        if let Some(Some(slots)) = self.extents.get_mut(usize::from(at.extent))
            && let Some(owner) = slots.pages.get_mut(at.slot as usize).filter(|owner| **owner != NONE)
        {
            *owner = NONE;
            slots.used -= 1;
            *self.used.entry(slots.class).or_default() -= 1;
        }
    }
}
