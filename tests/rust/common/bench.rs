//! A tree and its naive model, given the same operations and compared after each.

use super::naive::{DEVICE, HOST, Held, Key, Naive};
use hicache_core::hash::Namespace;
use hicache_core::ids::{Cursor, Slot, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::tree::{Hold, PinId, Place, Saving, Tree};

#[derive(Clone, Debug)]
pub enum Op {
    /// Device pages for a path, then host copies of some.
    Insert {
        path: Path,
        mirror: usize,
    },
    /// Host pages below what is on the host.
    Graft(Path),
    /// Device pages for what is on the host.
    Raise {
        path: Path,
        most: usize,
    },
    Match(Path),
    Evict {
        tier: usize,
        pages: usize,
    },
    Pin {
        path: Path,
        hold: Hold,
    },
    Unpin(usize),
    Cursor(Path),
}

#[derive(Clone, Debug)]
pub struct Path {
    pub namespace: u32,
    pub tokens: Vec<i32>,
}

const TIERS: [Tier; 2] = [Tier::Device, Tier::Host];

pub struct Bench {
    tree: Tree,
    naive: Naive,
    pins: Vec<(PinId, Key, Held)>,
    cursors: Vec<(Cursor, Key, Seen)>,
    /// Where the order of leaving is known. A host below a device follows the device's order instead.
    exact: Option<usize>,
}

/// What may become of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Whole,
    /// Inside an edge: a split and the eviction of what follows may take its name.
    Inside,
    Gone,
}

impl Bench {
    pub fn new(size: u32, exact: Option<usize>) -> Self {
        let tree = Tree::new(PageSize::new(size).unwrap(), true);
        Self { tree, naive: Naive::new(size as usize), pins: Vec::new(), cursors: Vec::new(), exact }
    }

    /// A host whose copies give way.
    pub fn giving_way(size: u32, saving: Saving) -> Self {
        let mut bench = Self::new(size, None);
        bench.tree.save(saving);
        bench.naive.gives_way = true;
        bench
    }

    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Evict { tier, pages } => self.evict(*tier, *pages),
            Op::Unpin(which) => self.unpin(*which),
            Op::Insert { path, .. }
            | Op::Raise { path, .. }
            | Op::Pin { path, .. }
            | Op::Graft(path)
            | Op::Match(path)
            | Op::Cursor(path) => self.on_path(path, op),
        }
        self.compare();
    }

    /// Whatever begins at a namespace's root holds it meanwhile, as the verbs do.
    fn on_path(&mut self, path: &Path, op: &Op) {
        let salt = (path.namespace > 0).then(|| path.namespace.to_string());
        let root = self.tree.root(&Namespace { salt, ..Namespace::default() });
        let held = self.tree.pin(root, Hold::Soft);
        let key = self.naive.key(path.namespace, &path.tokens);
        let place = self.walk(root, path, &key);
        match op {
            Op::Insert { mirror, .. } => self.insert(root, place, path, &key, *mirror),
            Op::Graft(_) => self.graft(place, path, &key),
            Op::Raise { most, .. } => self.raise(place, &key, *most),
            Op::Match(_) => self.touch(place, &key),
            Op::Pin { hold, .. } => self.pin(place, &key, *hold),
            Op::Cursor(_) => self.cursor(place, &key),
            Op::Evict { .. } | Op::Unpin(_) => unreachable!("they have no path"),
        }
        self.tree.unpin(held);
    }

    fn walk(&self, root: Place, path: &Path, key: &Key) -> Place {
        let found = self.tree.walk(root, Tokens::I32(&path.tokens));
        assert_eq!(found.usable as usize, self.naive.known(key));
        assert_eq!(found.device as usize, self.naive.resident(key, DEVICE));
        assert_eq!(found.place.depth, found.usable);
        found.place
    }

    fn insert(&mut self, root: Place, place: Place, path: &Path, key: &Key, mirror: usize) {
        // From the root, or (a request that continues) from where its device pages end.
        let from = if mirror.is_multiple_of(2) { 0 } else { self.naive.resident(key, DEVICE) };
        let at = if from == 0 { root } else { self.tree.ancestor(place, pages(from)) };
        let end = self.extend(at, path, key, from, DEVICE);
        let missing = self.naive.depth(key) - self.naive.resident(key, HOST);
        let slots = self.naive.fresh(HOST, mirror.min(missing));
        let mirrored = self.tree.mirror(end, &to_slots(&slots));
        assert_eq!(mirrored.depth as usize, self.naive.settle(key, HOST, &slots));
    }

    fn graft(&mut self, place: Place, path: &Path, key: &Key) {
        let from = self.naive.resident(key, HOST);
        assert_eq!(self.tree.resident_depth(place, Tier::Host) as usize, from);
        self.extend(self.tree.ancestor(place, pages(from)), path, key, from, HOST);
    }

    fn extend(&mut self, at: Place, path: &Path, key: &Key, from: usize, tier: usize) -> Place {
        let pages = self.naive.depth(key) - from;
        let given = self.naive.fresh(tier, pages);
        let size = self.tree.page_size().tokens();
        let rest = Tokens::I32(&path.tokens[from * size..]);
        let got = self.tree.extend(at, rest, TIERS[tier], &to_slots(&given));
        let want = self.naive.extend(key, from, tier, &given);
        assert_eq!(got.slots, to_slots(&want.slots));
        assert_eq!(got.duplicates(&to_slots(&given)), to_slots(&want.duplicates));
        assert_eq!(got.new_pages, want.new_pages);
        assert_eq!(got.place.depth as usize, from + pages);
        got.place
    }

    fn raise(&mut self, place: Place, key: &Key, most: usize) {
        let known = self.naive.known(key);
        let missing = known - self.naive.resident(key, DEVICE);
        let slots = self.naive.fresh(DEVICE, most.min(missing));
        let end = self.tree.raise(place, &to_slots(&slots));
        let depth = self.naive.settle(self.naive.prefix(key, known).to_vec().as_slice(), DEVICE, &slots);
        assert_eq!(end.depth as usize, depth);
        self.touch(end, key);
    }

    fn touch(&mut self, place: Place, key: &Key) {
        self.tree.touch_matched(place);
        let key = self.naive.prefix(key, place.depth as usize).to_vec();
        self.naive.touch_matched(&key);
    }

    fn pin(&mut self, place: Place, key: &Key, hold: Hold) {
        let depth = match hold {
            Hold::Soft | Hold::Name => place.depth,
            Hold::Device => self.tree.resident_depth(place, Tier::Device),
            Hold::Host => self.tree.resident_depth(place, Tier::Host),
        };
        let kind = match hold {
            Hold::Soft => Held::Soft,
            Hold::Device => Held::Hard(DEVICE),
            Hold::Host => Held::Hard(HOST),
            Hold::Name => Held::Nothing,
        };
        let receipt = self.tree.pin(self.tree.ancestor(place, depth), hold);
        self.pins.push((receipt, self.naive.prefix(key, depth as usize).to_vec(), kind));
    }

    fn unpin(&mut self, which: usize) {
        if !self.pins.is_empty() {
            let (receipt, ..) = self.pins.swap_remove(which % self.pins.len());
            self.tree.unpin(receipt);
        }
    }

    fn cursor(&mut self, place: Place, key: &Key) {
        let key = self.naive.prefix(key, place.depth as usize).to_vec();
        let seen = if self.naive.at_edge_end(&key) { Seen::Whole } else { Seen::Inside };
        self.cursors.push((self.tree.cursor(place), key, seen));
    }

    fn evict(&mut self, tier: usize, pages: usize) {
        let held: Vec<(Key, Held)> = self.pins.iter().map(|(_, key, held)| (key.clone(), *held)).collect();
        let may_go = self.naive.evictable(tier, &held);
        assert_eq!(self.tree.evictable(TIERS[tier]), may_go);
        // From either side: what the first answer finds out decides the others.
        let mut amounts: Vec<usize> = (0..=self.naive.total(tier) + 1).collect();
        if pages.is_multiple_of(2) {
            amounts.reverse();
        }
        for amount in amounts {
            assert_eq!(self.tree.can_evict(TIERS[tier], amount), amount <= may_go, "{amount} of {may_go}");
        }
        let out = self.tree.evict(TIERS[tier], pages);
        assert_eq!(out.slots.len(), pages.min(may_go), "exactly as many as asked and possible");
        let mut dropped = 0;
        for Slot(slot) in out.slots {
            let tails = self.naive.tails(tier, &held);
            let mut it = tails.iter().filter(|key| self.naive.pages[*key].slot[tier] == Some(slot));
            let victim = it.next().expect("only a tail that nothing holds may go").clone();
            if self.exact == Some(tier) {
                assert_eq!(self.naive.oldest(tier, &tails).as_ref(), Some(&victim), "least recently used");
            } else {
                self.naive.copies_go_first(tier, &victim, &tails, &held);
                self.spares_the_waiting(tier, &victim, &tails);
            }
            dropped += usize::from(self.naive.take(&victim, tier));
            self.follow();
        }
        assert_eq!(out.dropped, dropped);
    }

    /// Softly pinned pages go last of all in the tiers that the pin's own page is in. (The tree may spare
    /// more: it knows edges, and where one is partly in a tier, what is left of it is held too.)
    fn spares_the_waiting(&self, tier: usize, victim: &Key, tails: &[Key]) {
        let soft = |key: &Key, must: bool| {
            let mut pins =
                self.pins.iter().filter(|(_, pin, held)| *held == Held::Soft && pin.starts_with(key));
            pins.any(|(_, pin, _)| !must || self.naive.resident(pin, tier) == self.naive.depth(pin))
        };
        let other = tails.iter().find(|tail| !soft(tail, false));
        assert!(!soft(victim, true) || other.is_none(), "{victim:?} waits, {other:?} does not");
    }

    /// Pins that aren't hard move up with what is left; a cursor's place may be gone.
    fn follow(&mut self) {
        let soft = |held| matches!(held, Held::Soft | Held::Nothing);
        for (_, key, _) in self.pins.iter_mut().filter(|(.., held)| soft(*held)) {
            let left = self.naive.known(key);
            *key = self.naive.prefix(key, left).to_vec();
        }
        for (_, key, seen) in &mut self.cursors {
            if self.naive.known(key) < self.naive.depth(key) {
                *seen = Seen::Gone;
            }
        }
    }

    /// Everything is let go, and nothing may be left.
    pub fn close(mut self) {
        while !self.pins.is_empty() {
            self.unpin(0);
            self.compare();
        }
        for tier in [DEVICE, HOST] {
            self.apply(&Op::Evict { tier, pages: usize::MAX });
            assert_eq!(self.tree.resident(TIERS[tier]), 0);
        }
        assert_eq!(self.tree.nodes(), 0);
    }

    fn compare(&self) {
        self.tree.check().unwrap();
        for tier in [DEVICE, HOST] {
            assert_eq!(self.tree.resident(TIERS[tier]), self.naive.total(tier));
        }
        for (receipt, key, _) in &self.pins {
            self.same_place(self.tree.pinned(receipt), key);
        }
        for (cursor, key, seen) in &self.cursors {
            match (self.tree.resolve(*cursor), seen) {
                (Some(place), Seen::Whole | Seen::Inside) => self.same_place(place, key),
                (None, Seen::Inside | Seen::Gone) => {}
                _ if self.naive.depth(key) == 0 => {}
                (found, seen) => panic!("cursor at {key:?}: {found:?}, but it is {seen:?}"),
            }
        }
    }

    /// The tree's place must be the model's: same depth, same slots on the way in both tiers.
    fn same_place(&self, place: Place, key: &Key) {
        assert_eq!(place.depth as usize, self.naive.depth(key));
        for tier in [DEVICE, HOST] {
            let depth = self.naive.resident(key, tier);
            assert_eq!(self.tree.resident_depth(place, TIERS[tier]) as usize, depth);
            let got = self.tree.slots(place, 0..pages(depth), TIERS[tier]);
            assert_eq!(got, to_slots(&self.naive.slots(key, 0..depth, tier)));
        }
    }
}

fn pages(count: usize) -> u32 {
    u32::try_from(count).unwrap()
}

fn to_slots(slots: &[u32]) -> Vec<Slot> {
    slots.iter().copied().map(Slot).collect()
}
