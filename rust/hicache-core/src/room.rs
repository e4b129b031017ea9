//! Room for a waiting allocation in a unified buffer: evicts what it needs, and looks again after every victim.
//!
//! One of the places where nouns meet: the tree says what may leave and in which order, the buffer what an eviction
//! would bring. FULL has the end that grows down, one component of the tree the other. Bytes pay for bytes: a
//! state can be paid for with FULL pages, pages with states. What compaction can bring is not evicted for.
//! Assumed: the device's slots in the tree are the buffer's, and what a transfer's gate names is pinned in the tree.
//! It refuses to know what the room is for.
//!
//! On error: an unknown component, or slots that are not the buffer's. No room is a value, told before anything left.

use crate::error::{Error, Result, argument};
use crate::ids::Tier;
use crate::tree::{Evicted, Tree};
use crate::unified::{End, Unified};

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It fits: [`Unified::relieve`] brings it without another eviction.
    Made,
    /// It can't be had, whatever is evicted. Nothing was.
    Impossible,
    /// Something that the tree counts as evictable didn't free its frame: a transfer's pages were not pinned.
    Short,
}

/// What is wanted at once, on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Pages of FULL.
    pub pages: usize,
    /// Slots of the component: states, or pages of windows.
    pub parts: usize,
}

/// Evicts page by page until `wanted` fits. What left is given back to the buffer already; slots of components
/// that are not in it are the caller's to take from the answer.
///
/// Order: the component's own where its slots are what is short, since no page pays for these; then FULL pages,
/// which take what is theirs of the component with them; then what is left of the component.
///
/// # Errors
/// When the tree has no such component, or names slots that the buffer has not in use.
pub fn make_room(
    tree: &mut Tree,
    buffer: &mut Unified,
    component: usize,
    wanted: Wanted,
) -> Result<(Room, Evicted)> {
    if component >= tree.components().len() {
        return argument("component", format!("{component}: the tree has {}", tree.components().len()));
    }
    let need = [wanted.parts, wanted.pages];
    let mut walk = Walk { evicted: tree.evict(Tier::Device, 0), tree, buffer, component, need };
    if walk.fits() {
        return Ok((Room::Made, walk.evicted));
    }
    if !walk.is_possible() {
        return Ok((Room::Impossible, walk.evicted));
    }
    walk.run(Victim::Part, Walk::short_of_parts)?;
    walk.run(Victim::Page, |walk| !walk.fits())?;
    walk.run(Victim::Part, |walk| !walk.fits())?;
    let room = if walk.fits() { Room::Made } else { Room::Short };
    Ok((room, walk.evicted))
}

/// What is asked of the tree next.
#[derive(Clone, Copy)]
enum Victim {
    Page,
    Part,
}

struct Walk<'a> {
    tree: &'a mut Tree,
    buffer: &'a mut Unified,
    component: usize,
    /// By [`End`].
    need: [usize; 2],
    evicted: Evicted,
}

impl Walk<'_> {
    fn fits(&self) -> bool {
        self.buffer.fits(self.need)
    }

    fn short_of_parts(&self) -> bool {
        self.buffer.short_of_slots(End::Up, self.need[End::Up as usize]) > 0
    }

    /// Whether it would fit with everything evicted that can be. Usually pages are enough, and these are known
    /// without going through all nodes.
    fn is_possible(&self) -> bool {
        let pages = self.tree.evictable(Tier::Device);
        self.buffer.would_fit(self.need, [0, pages]) || {
            let parts = self.tree.evictable_component(self.component, Tier::Device);
            self.buffer.would_fit(self.need, [parts, pages])
        }
    }

    /// One victim after the other while it is needed; what goes along with one may end the walk.
    fn run(&mut self, victim: Victim, needed: impl Fn(&Self) -> bool) -> Result<()> {
        while needed(self) {
            let one = match victim {
                Victim::Page => self.tree.evict(Tier::Device, 1),
                Victim::Part => self.tree.evict_component(self.component, Tier::Device, 1),
            };
            if one.slots.is_empty() && one.parts.iter().all(Vec::is_empty) {
                return Ok(());
            }
            self.give_back(one)?;
        }
        Ok(())
    }

    fn give_back(&mut self, one: Evicted) -> Result<()> {
        let parts = one.parts.get(self.component).map_or(&[][..], Vec::as_slice);
        let given = self.buffer.give_back(End::Down, &one.slots);
        let given = given.and_then(|()| self.buffer.give_back(End::Up, parts));
        given.map_err(|error| {
            Error::Invariant(format!("the tree's device slots are not the buffer's: {error}"))
        })?;
        self.evicted.dropped += one.dropped;
        self.evicted.slots.extend(one.slots);
        self.evicted.parts.iter_mut().zip(one.parts).for_each(|(all, more)| all.extend(more));
        Ok(())
    }
}
