//! A unified buffer with real bytes behind it, next to the naive model: every page is stamped, moves land late, and
//! what an open gate could see must not change under it.

use super::Seeded;
use super::frames::{Frames, Is, Kind};
use hicache_core::ids::Slot;
use hicache_core::unified::{End, Frame, Gate, GateId, Geometry, Moves, Relief, Unified};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What an open gate may look at, and what it saw there.
struct Seen {
    bytes: Vec<(Range<usize>, u64)>,
    moves: Option<Moves>,
}

pub struct Buffer {
    pub unified: Unified,
    pub naive: Frames,
    /// One stamp for each byte.
    bytes: Vec<u64>,
    /// Stamps of the pages in use.
    pub pages: BTreeMap<(End, Slot), u64>,
    seen: BTreeMap<GateId, Seen>,
    random: Seeded,
    stamps: u64,
}

impl Buffer {
    pub fn new(geometry: &Geometry, seed: u64) -> Self {
        Self {
            unified: Unified::new(geometry.clone()),
            naive: Frames::new(geometry.clone()),
            bytes: vec![0; usize::try_from(geometry.bytes()).unwrap()],
            pages: BTreeMap::new(),
            seen: BTreeMap::new(),
            random: Seeded(seed),
            stamps: 0,
        }
    }

    fn address(&self, end: End, frame: Frame) -> Range<usize> {
        let bytes = self.unified.geometry().address(end, frame);
        usize::try_from(bytes.start).unwrap()..usize::try_from(bytes.end).unwrap()
    }

    fn at_of(&self, end: End, distance: usize) -> Range<usize> {
        self.address(end, self.naive.frame(end, distance))
    }

    fn at(&self, end: End, slot: Slot) -> Range<usize> {
        self.address(end, self.unified.frame(end, slot).expect("in use"))
    }

    pub fn take(&mut self, end: End, count: usize) -> Option<Vec<Slot>> {
        let possible = self.naive.available(end) >= count;
        let slots = self.unified.take(end, count);
        assert_eq!(slots.is_some(), possible);
        for &slot in slots.iter().flatten() {
            let distance = self.naive.next(end).expect("available");
            let frame = self.naive.frame(end, distance);
            assert_eq!(self.unified.frame(end, slot), Some(frame), "the hole nearest to the end comes first");
            let rests = self.naive.sides[end as usize]
                .iter()
                .any(|is| matches!(is, Is::Parked(_, Some(s)) if *s == slot));
            assert!(!rests, "slot {} of {end:?} is handed out while a gate may still use it", slot.0);
            self.naive.sides[end as usize][distance] = Is::Live(slot);
            self.stamps += 1;
            let at = self.address(end, frame);
            self.bytes[at].fill(self.stamps);
            assert_eq!(self.pages.insert((end, slot), self.stamps), None, "in use already");
        }
        slots
    }

    pub fn give_back(&mut self, end: End, slots: &[Slot]) {
        self.unified.give_back(end, slots).unwrap();
        for &slot in slots {
            let distance = self.naive.distance(end, slot);
            // Nobody gives back what a forward reads: it is one that none of them does, unless it named it.
            let (at, named) = (self.at_of(end, distance), self.naive.named.get(&(end, distance)));
            for (id, seen) in &mut self.seen {
                if self.naive.gates[id] == Kind::Forward && !named.is_some_and(|named| named.contains(id)) {
                    seen.bytes.retain(|(bytes, _)| *bytes != at);
                }
            }
            self.naive.leave(end, distance, Some(slot), None);
            self.pages.remove(&(end, slot)).expect("in use");
        }
    }

    pub fn open(&mut self, kind: Kind, named: Vec<(End, Slot)>) -> GateId {
        let at: Vec<_> = named.iter().map(|&(end, slot)| (end, self.naive.distance(end, slot))).collect();
        let all = if kind.sees_all() { self.pages.keys().copied().collect() } else { named.clone() };
        // Bytes that have not landed are nobody's to look at.
        let landing = |end, slot| {
            let moves = self.seen.values().filter_map(|seen| seen.moves.as_ref());
            moves.filter(|moves| moves.end == end).flat_map(|moves| &moves.list).any(|one| one.slot == slot)
        };
        let settled = all.into_iter().filter(|&(end, slot)| !landing(end, slot));
        let bytes = settled.map(|(end, slot)| (self.at(end, slot), self.pages[&(end, slot)])).collect();
        let id = self.unified.open(match kind {
            Kind::Transfer | Kind::Moves => Gate::Transfer(named),
            Kind::Forward => Gate::Forward { writes: named },
            Kind::Still => Gate::Still,
        });
        let id = id.unwrap();
        self.naive.open(id, kind, &at);
        self.seen.insert(id, Seen { bytes, moves: None });
        id
    }

    /// Moves land when their gate closes, not before.
    pub fn close(&mut self, id: GateId) {
        let seen = self.seen.remove(&id).expect("open");
        if let Some(moves) = seen.moves {
            for one in &moves.list {
                let (from, to) = (self.address(moves.end, one.from), self.address(moves.end, one.to));
                self.bytes.copy_within(from, to.start);
            }
        }
        self.unified.close(id).unwrap();
        self.naive.close(id);
    }

    pub fn accept(&mut self, moves: Moves) -> GateId {
        let (id, end) = (moves.gate, moves.end);
        assert!(!self.naive.gates.values().any(|&kind| kind == Kind::Still), "nothing may move");
        let still = |frame| self.address(end, frame);
        let bytes =
            moves.list.iter().map(|one| (still(one.from), self.bytes[still(one.from).start])).collect();
        let mut to = Vec::new();
        for one in &moves.list {
            let at = self.naive.distance(end, one.slot);
            assert!(
                self.naive.named.get(&(end, at)).is_none_or(BTreeSet::is_empty),
                "a gate has its address"
            );
            let side = &self.naive.sides[end as usize];
            let hole =
                (0..at).find(|&hole| self.naive.frame(end, hole) == one.to).expect("further from the gap");
            assert_eq!((&side[hole], self.naive.frame(end, at)), (&Is::Hole, one.from));
            self.naive.sides[end as usize][hole] = Is::Live(one.slot);
            self.naive.leave(end, at, None, Some(id));
            to.push((end, hole));
        }
        self.naive.open(id, Kind::Moves, &to);
        self.seen.insert(id, Seen { bytes, moves: Some(moves) });
        id
    }

    /// Climbs the ladder; returns whether there is room now, and how many pages moved.
    pub fn relieve(&mut self, end: End, pages: usize) -> (bool, usize) {
        let mut count = 0;
        for _ in 0..10_000 {
            match self.unified.relieve(end, pages) {
                Relief::Ready => return (true, count),
                Relief::Short => return (false, count),
                Relief::Moves(moves) => {
                    count += moves.list.len();
                    let id = self.accept(moves);
                    self.close(id);
                }
                Relief::Wait(gates) => {
                    let one = gates[self.random.below(gates.len())];
                    assert!(!self.naive.gates[&one].long());
                    self.close(one);
                }
            }
            self.check();
        }
        panic!("the ladder has no end");
    }

    pub fn gates(&self) -> Vec<GateId> {
        self.naive.gates.keys().copied().collect()
    }

    pub fn some(&mut self, most: usize) -> Vec<(End, Slot)> {
        let all: Vec<_> = self.pages.keys().copied().collect();
        let wanted = self.random.below(most + 1).min(all.len());
        (0..wanted).map(|_| all[self.random.below(all.len())]).collect()
    }

    /// Everything that can be compared.
    pub fn check(&mut self) {
        self.unified.check().unwrap();
        for end in End::BOTH {
            assert_eq!(self.unified.span(end), self.naive.span(end));
            assert_eq!(self.unified.available(end), self.naive.available(end), "{end:?}");
            if self.naive.gates.values().all(|&kind| kind != Kind::Still) {
                assert_eq!(self.unified.schedulable(end), self.naive.schedulable(end), "{end:?}");
            }
        }
        for (id, seen) in &self.seen {
            for (bytes, stamp) in &seen.bytes {
                assert!(self.bytes[bytes.clone()].iter().all(|byte| byte == stamp), "changed under {id:?}");
            }
        }
        let landing: Vec<(End, Slot)> = (self.seen.values().filter_map(|seen| seen.moves.as_ref()))
            .flat_map(|moves| moves.list.iter().map(|one| (moves.end, one.slot)))
            .collect();
        for (&(end, slot), &stamp) in &self.pages {
            let at = self.at(end, slot);
            let whole = self.bytes[at].iter().all(|&byte| byte == stamp);
            assert!(whole || landing.contains(&(end, slot)), "slot {} of {end:?} lost its bytes", slot.0);
            assert_eq!(self.unified.slot_in(end, self.unified.frame(end, slot).unwrap()), Some(slot));
        }
    }
}
