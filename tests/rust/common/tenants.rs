//! An engine without a model whose KV and states share one buffer: it makes room, takes slots, stamps what it
//! "computes", inserts it, and moves bytes when it is told to.

use super::Seeded;
use hicache_core::hash::Namespace;
use hicache_core::ids::{Slot, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::room::{Room, Wanted, make_room};
use hicache_core::tree::{Component, Evicted, Found, Hold, PinId, Place, Tree};
use hicache_core::unified::{End, Gate, GateId, Geometry, Relief, Unified};
use std::collections::BTreeMap;
use std::ops::Range;

pub struct Tenants {
    pub tree: Tree,
    pub buffer: Unified,
    bytes: Vec<u64>,
    stamps: BTreeMap<(End, Slot), u64>,
    stamped: u64,
    /// Pages and states that were moved.
    pub moved: usize,
    /// Transfers under way: their pins and their gates.
    pub transfers: Vec<(PinId, GateId)>,
    forward: Option<GateId>,
    /// For whoever counts.
    pub count: usize,
}

impl Tenants {
    /// Pages of one token.
    pub fn new(geometry: Geometry, component: Component) -> Self {
        let bytes = vec![0; usize::try_from(geometry.bytes()).unwrap()];
        Self {
            tree: Tree::with_components(PageSize::new(1).unwrap(), false, &[component]),
            buffer: Unified::new(geometry),
            bytes,
            stamps: BTreeMap::new(),
            stamped: 0,
            moved: 0,
            transfers: Vec::new(),
            forward: None,
            count: 0,
        }
    }

    pub fn find(&mut self, tokens: &[i32]) -> Found {
        let root = self.tree.root(&Namespace::default());
        let held = self.tree.pin(root, Hold::Soft);
        let found = self.tree.walk(root, Tokens::I32(tokens));
        self.tree.unpin(held);
        found
    }

    fn address(&self, end: End, slot: Slot) -> Range<usize> {
        let bytes = self.buffer.geometry().address(end, self.buffer.frame(end, slot).expect("in use"));
        usize::try_from(bytes.start).unwrap()..usize::try_from(bytes.end).unwrap()
    }

    pub fn room(&mut self, pages: usize, parts: usize) -> (Room, Evicted) {
        let answer = make_room(&mut self.tree, &mut self.buffer, 0, Wanted { pages, parts }).unwrap();
        self.forget(&answer.1);
        answer
    }

    fn forget(&mut self, gone: &Evicted) {
        gone.slots.iter().for_each(|&slot| assert!(self.stamps.remove(&(End::Down, slot)).is_some()));
        gone.parts[0].iter().for_each(|&slot| assert!(self.stamps.remove(&(End::Up, slot)).is_some()));
    }

    /// What the tree evicted by itself.
    pub fn receive(&mut self, gone: &Evicted) {
        self.buffer.give_back(End::Down, &gone.slots).unwrap();
        self.buffer.give_back(End::Up, &gone.parts[0]).unwrap();
        self.forget(gone);
    }

    /// The next forward begins; the one before it is through.
    pub fn forward(&mut self) {
        let next = self.buffer.open(Gate::Forward { writes: Vec::new() }).unwrap();
        self.forward.replace(next).into_iter().for_each(|last| self.buffer.close(last).unwrap());
    }

    /// The last forward is through.
    pub fn settle(&mut self) {
        self.forward.take().into_iter().for_each(|last| self.buffer.close(last).unwrap());
    }

    /// What is schedulable, by moves and waits.
    pub fn take(&mut self, end: End, count: usize) -> Vec<Slot> {
        loop {
            match self.buffer.relieve(end, count) {
                Relief::Ready => break,
                Relief::Moves(moves) => {
                    for one in &moves.list {
                        let of = |frame| self.buffer.geometry().address(end.other(), frame);
                        let from = of(one.from);
                        let from = usize::try_from(from.start).unwrap()..usize::try_from(from.end).unwrap();
                        self.bytes.copy_within(from, usize::try_from(of(one.to).start).unwrap());
                    }
                    self.moved += moves.list.len();
                    self.buffer.close(moves.gate).unwrap();
                }
                Relief::Wait(gates) => {
                    assert_eq!(
                        self.forward.into_iter().collect::<Vec<_>>(),
                        gates,
                        "only forwards are waited for"
                    );
                    self.settle();
                }
                Relief::Short => panic!("it was said to fit"),
            }
        }
        let slots = self.buffer.take(end, count).unwrap();
        for &slot in &slots {
            self.stamped += 1;
            let at = self.address(end, slot);
            self.bytes[at].fill(self.stamped);
            self.stamps.insert((end, slot), self.stamped);
        }
        slots
    }

    pub fn give_back(&mut self, end: End, slots: &[Slot]) {
        self.buffer.give_back(end, slots).unwrap();
        slots.iter().for_each(|&slot| assert!(self.stamps.remove(&(end, slot)).is_some()));
    }

    /// Computes all of a prompt and inserts it, with the component's state of its last `parts` pages.
    pub fn serve(&mut self, tokens: &[i32], parts: usize) -> Result<(Place, Evicted), Room> {
        let (answer, evicted) = self.room(tokens.len(), parts);
        if answer != Room::Made {
            return Err(answer);
        }
        let pages = self.take(End::Down, tokens.len());
        let states = self.take(End::Up, parts);
        let root = self.tree.root(&Namespace::default());
        let done = self.tree.extend(root, Tokens::I32(tokens), Tier::Device, &pages);
        self.give_back(End::Down, &done.duplicates(&pages));
        let last = u32::try_from(tokens.len() - parts).unwrap()..u32::try_from(tokens.len()).unwrap();
        let twice = self.tree.attach(0, Tier::Device, done.place, &last.collect::<Vec<_>>(), &states);
        self.give_back(End::Up, &twice);
        Ok((self.tree.ancestor(done.place, done.place.depth), evicted))
    }

    /// A transfer of everything that a hit needs: it pins it in the tree, and its gate names it.
    pub fn transfer(&mut self, end: Place) {
        let slots = self.tree.slots(end, 0..end.depth, Tier::Device);
        let mut pages: Vec<_> = slots.into_iter().map(|slot| (End::Down, slot)).collect();
        pages.extend(self.tree.part_slot(0, Tier::Device, end).map(|slot| (End::Up, slot)));
        let pin = self.tree.pin(end, Hold::Device);
        self.transfers.push((pin, self.buffer.open(Gate::Transfer(pages)).unwrap()));
    }

    pub fn land(&mut self, which: usize) {
        let (pin, gate) = self.transfers.swap_remove(which);
        self.tree.unpin(pin);
        self.buffer.close(gate).unwrap();
    }

    /// Whether what a prompt would hit on the device is all of it.
    pub fn keeps(&mut self, tokens: &[i32]) -> bool {
        self.find(tokens).usable as usize == tokens.len()
    }

    pub fn check(&self) {
        self.tree.check().unwrap();
        self.buffer.check().unwrap();
        assert_eq!(self.buffer.live(End::Down), self.tree.resident(Tier::Device));
        assert_eq!(self.buffer.live(End::Up), self.tree.part_resident(0, Tier::Device));
        assert_eq!(self.stamps.len(), self.buffer.live(End::Down) + self.buffer.live(End::Up));
        for (&(end, slot), &stamp) in &self.stamps {
            assert!(
                self.bytes[self.address(end, slot)].iter().all(|&byte| byte == stamp),
                "{end:?} {slot:?}"
            );
        }
    }
}

/// A prompt of `pages` pages that has nothing in common with others.
pub fn prompt(number: usize, pages: usize) -> Vec<i32> {
    (0..pages).map(|page| i32::try_from(number * 1000 + page).unwrap()).collect()
}

/// One that may have.
pub fn related(random: &mut Seeded) -> Vec<i32> {
    let pages = 1 + random.below(7);
    (0..pages).map(|_| i32::try_from(random.below(2)).unwrap()).collect()
}
