//! Forwards of a model that are under way while everything else goes on: they read and write at the frames that they
//! looked up when they began, as an engine's kernels do.

use super::squall::Squall;
use hicache_core::ids::{ForwardId, Slot};
use hicache_core::transfer::Direction;

/// A page where a forward has looked it up: its space, its slot and its frame.
type At = (u8, Slot, Slot);

pub struct Forward {
    /// None: it began without telling anybody, as it must not.
    id: Option<ForwardId>,
    reads: Vec<(At, Vec<u8>)>,
    writes: Vec<At>,
}

impl Forward {
    /// That it reads.
    pub fn pages(&self) -> usize {
        self.reads.len()
    }
}

impl Squall {
    /// A forward of all loaded requests, whose loads have landed; it writes what somebody else has for a while.
    pub fn begin(&mut self, told: bool) -> Forward {
        self.rig.drip.finish(Direction::In);
        let id = told.then(|| self.rig.cache.begin_forward().unwrap());
        let mut reads = Vec::new();
        for request in self.live.iter().filter(|request| request.loaded) {
            let pages = self.rig.cache.hit_slots(request.hit).unwrap();
            let part = self.rig.cache.hit_parts(request.hit).unwrap().swap_remove(0);
            let all = pages.into_iter().map(|slot| (0, slot)).chain(part.into_iter().map(|slot| (1, slot)));
            reads.extend(all.filter(|&(_, slot)| slot != hicache_core::ids::NO_SLOT).map(|at| self.at(at)));
        }
        let out = (0..2).flat_map(|space| self.out[space].iter().map(move |&slot| (space, slot)));
        let writes = out.map(|(space, slot)| self.at((u8::try_from(space).unwrap(), slot))).collect();
        let seen = |at: At| (at, self.rig.memory.device_page(at.0, at.2));
        Forward { id, reads: reads.into_iter().map(seen).collect(), writes }
    }

    fn at(&self, (space, slot): (u8, Slot)) -> At {
        (space, slot, self.rig.at(space, slot))
    }

    /// What it read has changed meanwhile.
    pub fn changed(&self, forward: &Forward) -> Option<String> {
        let page = |at: &At| self.rig.memory.device_page(at.0, at.2);
        let wrong = forward.reads.iter().find(|(at, bytes)| page(at) != *bytes);
        wrong.map(|((space, slot, frame), _)| format!("{slot:?} of space {space} in {frame:?}"))
    }

    /// What it reads is somewhere else now, and what it writes was given back: how many of them.
    pub fn left(&self, forward: &Forward) -> [usize; 2] {
        let ours = |&(space, slot, _): &At| self.out[usize::from(space)].contains(&slot);
        let elsewhere = |at: &At| self.rig.frame(at.0, at.1).is_some_and(|frame| frame != at.2);
        let reads = forward.reads.iter().filter(|(at, _)| elsewhere(at)).count();
        [reads, forward.writes.iter().filter(|at| !ours(at)).count()]
    }

    /// It writes to its frames, wherever their slots are by now, and is through.
    pub fn through(&mut self, forward: Forward) {
        assert_eq!(self.changed(&forward), None);
        for (space, slot, frame) in forward.writes {
            let page = vec![0xF0; self.rig.memory.page_bytes(space)];
            self.rig.memory.write_device(space, frame, &page);
            // Nobody else has got the slot meanwhile: if somebody has it, it is as it was.
            let ours = self.out[usize::from(space)].contains(&slot);
            assert!(!ours || self.rig.at(space, slot) == frame, "{slot:?} of space {space} moved");
        }
        if let Some(id) = forward.id {
            self.rig.cache.end_forward(id).unwrap();
        }
        self.rig.books();
    }
}
