//! What came to a tier and what left it, for routers that send requests to where their prefix is.
//!
//! A list that never grows beyond its bound: what doesn't fit is dropped with all before it, counted, and announced as lost, so
//! that whoever applies events knows to begin anew. Knows digests and tokens; refuses to know the tree and time.
//! On error: nothing here fails.

use crate::hash::Digest;
use std::sync::Arc;

/// Where pages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Medium {
    /// The engine's pool.
    Device,
    /// Our slab in CPU memory.
    Host,
    /// The store.
    Storage,
}

impl From<crate::ids::Tier> for Medium {
    fn from(tier: crate::ids::Tier) -> Self {
        match tier {
            crate::ids::Tier::Device => Self::Device,
            crate::ids::Tier::Host => Self::Host,
        }
    }
}

/// Whose pages they are, without the tenant's secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whose {
    /// What the first page's digest is continued from; `None` without any field.
    pub seed: Option<Digest>,
    /// As requests gave it.
    pub extra_key: Option<Arc<str>>,
    /// The same.
    pub adapter: Option<Arc<str>>,
}

/// Pages that came to a tier: each continues the one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Where.
    pub medium: Medium,
    /// Whose.
    pub whose: Whose,
    /// The page that the first one continues; `None`: it begins its namespace.
    pub parent: Option<Digest>,
    /// In order of the path.
    pub pages: Vec<Digest>,
    /// Of all of them; with pairs of tokens both of each.
    pub tokens: Vec<u64>,
}

/// What happened, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// These are there from now on.
    Stored(Stored),
    /// These aren't any more.
    Removed {
        /// Where.
        medium: Medium,
        /// In the order in which they left: those that continue others first.
        pages: Vec<Digest>,
    },
    /// Nothing is there any more.
    Cleared {
        /// Where.
        medium: Medium,
    },
    /// So many announcements of pages are missing here, of any kind.
    Lost {
        /// How many.
        pages: u64,
    },
}

impl Event {
    fn pages(&self) -> usize {
        match self {
            Self::Stored(Stored { pages, .. }) | Self::Removed { pages, .. } => pages.len(),
            Self::Cleared { .. } | Self::Lost { .. } => 1,
        }
    }
}

/// Events that nobody has taken yet.
#[derive(Debug)]
pub struct Events {
    list: Vec<Event>,
    /// Announcements in the list, and how many there may be.
    pages: usize,
    most: usize,
    /// Dropped since the last time that somebody took events, and ever.
    lost: u64,
    lost_ever: u64,
}

impl Events {
    /// None yet, and never more than so many announcements of pages.
    pub const fn new(most: usize) -> Self {
        Self { list: Vec::new(), pages: 0, most, lost: 0, lost_ever: 0 }
    }

    /// What happened since the last time.
    pub fn take(&mut self) -> Vec<Event> {
        let mut list = std::mem::take(&mut self.list);
        if self.lost > 0 {
            list.insert(0, Event::Lost { pages: self.lost });
        }
        (self.pages, self.lost) = (0, 0);
        list
    }

    /// Announcements that were dropped, ever.
    pub const fn lost_ever(&self) -> u64 {
        self.lost_ever
    }

    /// A run of pages came. `whose` is asked for what doesn't continue what came last.
    pub fn stored(
        &mut self,
        medium: Medium,
        parent: Option<Digest>,
        pages: &[Digest],
        tokens: impl FnOnce(&mut Vec<u64>),
        whose: impl FnOnce() -> Whose,
    ) {
        if !self.room(pages.len()) {
            return;
        }
        if let Some(Event::Stored(last)) = self.list.last_mut()
            && last.medium == medium
            && parent.is_some()
            && last.pages.last().copied() == parent
        {
            last.pages.extend_from_slice(pages);
            return tokens(&mut last.tokens);
        }
        let mut all = Vec::new();
        tokens(&mut all);
        let (whose, pages) = (whose(), pages.to_vec());
        self.list.push(Event::Stored(Stored { medium, whose, parent, pages, tokens: all }));
    }

    /// A run of pages left, the last one first.
    pub fn removed(&mut self, medium: Medium, pages: &[Digest]) {
        if !self.room(pages.len()) {
            return;
        }
        let backwards = pages.iter().rev().copied();
        match self.list.last_mut() {
            Some(Event::Removed { medium: of, pages }) if *of == medium => pages.extend(backwards),
            _ => self.list.push(Event::Removed { medium, pages: backwards.collect() }),
        }
    }

    /// Everything left.
    pub fn cleared(&mut self, medium: Medium) {
        if self.room(1) {
            self.list.push(Event::Cleared { medium });
        }
    }

    /// Whether so many more may be told of. All are dropped where that is too many: who missed one needs none of those before it.
    fn room(&mut self, pages: usize) -> bool {
        self.pages += pages;
        if self.pages <= self.most {
            return true;
        }
        debug_assert!(
            self.list.iter().map(Event::pages).sum::<usize>() + pages == self.pages,
            "pages are counted"
        );
        (self.lost, self.lost_ever) = (self.lost + self.pages as u64, self.lost_ever + self.pages as u64);
        self.list.clear();
        self.pages = 0;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: u8) -> Digest {
        Digest([number; 32])
    }

    fn come(events: &mut Events, medium: Medium, parent: Option<u8>, pages: &[u8]) {
        let pages: Vec<Digest> = pages.iter().map(|&page| digest(page)).collect();
        let tokens = |all: &mut Vec<u64>| all.extend(pages.iter().map(|page| u64::from(page.0[0])));
        events.stored(medium, parent.map(digest), &pages, tokens, Whose::default);
    }

    fn stored(medium: Medium, parent: Option<u8>, pages: &[u8]) -> Event {
        Event::Stored(Stored {
            medium,
            whose: Whose::default(),
            parent: parent.map(digest),
            pages: pages.iter().map(|&page| digest(page)).collect(),
            tokens: pages.iter().map(|&page| u64::from(page)).collect(),
        })
    }

    #[test]
    fn what_continues_the_last_event_joins_it() {
        let mut events = Events::new(100);
        come(&mut events, Medium::Device, None, &[1, 2]);
        come(&mut events, Medium::Device, Some(2), &[3]);
        come(&mut events, Medium::Device, Some(1), &[4]);
        come(&mut events, Medium::Host, Some(4), &[5]);
        // Two first pages continue nothing, and not each other.
        come(&mut events, Medium::Host, None, &[6]);
        events.removed(Medium::Host, &[digest(5), digest(6)]);
        events.removed(Medium::Host, &[digest(1)]);
        events.removed(Medium::Device, &[digest(1)]);
        let removed = |medium, pages: &[u8]| Event::Removed {
            medium,
            pages: pages.iter().map(|&page| digest(page)).collect(),
        };
        let told = [
            stored(Medium::Device, None, &[1, 2, 3]),
            stored(Medium::Device, Some(1), &[4]),
            stored(Medium::Host, Some(4), &[5]),
            stored(Medium::Host, None, &[6]),
            removed(Medium::Host, &[6, 5, 1]),
            removed(Medium::Device, &[1]),
        ];
        assert_eq!(events.take(), told);
        assert_eq!(events.take(), []);
    }

    #[test]
    fn what_is_too_much_is_dropped_counted_and_announced_once() {
        let mut events = Events::new(4);
        come(&mut events, Medium::Device, None, &[1, 2, 3]);
        events.cleared(Medium::Host);
        come(&mut events, Medium::Device, Some(3), &[4, 5]);
        assert_eq!(events.lost_ever(), 6);
        events.removed(Medium::Device, &[digest(5)]);
        let left = Event::Removed { medium: Medium::Device, pages: vec![digest(5)] };
        assert_eq!(events.take(), [Event::Lost { pages: 6 }, left], "it goes on behind what is lost");
        assert_eq!(events.take(), []);
        come(&mut events, Medium::Device, None, &[1, 2, 3, 4, 5]);
        assert_eq!(events.take(), [Event::Lost { pages: 5 }]);
        assert_eq!(events.lost_ever(), 11);
    }
}
