//! A router that knows of a cache what its events say, and nothing else; and refuses what no sound stream of events says.

use hicache_core::events::{Event, Medium, Stored};
use hicache_core::hash::{Digest, chain};
use hicache_core::page::{PageSize, Tokens};
use std::collections::HashSet;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Router {
    /// By medium.
    pub there: [HashSet<Digest>; 3],
    /// Pages in storage that weren't in memory at some time since they were announced: the cache forgot that it knew of them.
    forgotten: HashSet<Digest>,
    /// Announcements of pages that were told, and that were lost.
    pub told: u64,
    pub lost: u64,
}

impl Router {
    pub fn apply(&mut self, events: Vec<Event>, page: PageSize) {
        for event in events {
            match event {
                Event::Stored(stored) => self.come(&stored, page),
                Event::Removed { medium, pages } => {
                    assert!(medium != Medium::Storage, "what left storage isn't known");
                    for page in pages {
                        assert!(self.there[medium as usize].remove(&page), "{page:?} left {medium:?} twice");
                        self.told += 1;
                        self.leave_memory(page);
                    }
                }
                Event::Cleared { medium } => {
                    let gone: Vec<Digest> = self.there[medium as usize].drain().collect();
                    gone.into_iter().for_each(|page| self.leave_memory(page));
                    if medium == Medium::Storage {
                        self.forgotten.clear();
                    }
                }
                Event::Lost { pages } => self.lost += pages,
            }
        }
    }

    fn come(&mut self, stored: &Stored, size: PageSize) {
        let Stored { medium, whose, parent, pages, tokens } = stored;
        let all: Vec<i64> = tokens.iter().map(|&token| i64::try_from(token).unwrap()).collect();
        assert_eq!(&chain(parent.or(whose.seed), Tokens::I64(&all), size), pages, "what the pages are");
        if let Some(parent) = parent.filter(|_| *medium != Medium::Storage) {
            assert!(self.there[*medium as usize].contains(&parent), "parents come first");
        }
        for &page in pages {
            self.told += 1;
            let new = self.there[*medium as usize].insert(page);
            let forgotten = *medium == Medium::Storage && self.forgotten.remove(&page);
            assert!(new || forgotten, "{page:?} came to {medium:?} twice");
        }
    }

    fn leave_memory(&mut self, page: Digest) {
        let [device, host, storage] = &self.there;
        if storage.contains(&page) && !device.contains(&page) && !host.contains(&page) {
            self.forgotten.insert(page);
        }
    }

    pub fn of(&self, medium: Medium) -> &HashSet<Digest> {
        &self.there[medium as usize]
    }

    /// Pages that are in memory, of whichever tier.
    pub fn in_memory(&self) -> HashSet<Digest> {
        self.there[0].union(&self.there[1]).copied().collect()
    }
}
