//! The index beside a naive map: every call on both, and a log that both are opened from.

use super::rig::key;
use hicache_core::identity::Fingerprint;
use hicache_core::storage::slab::index::{Finished, Index, Key, State};
use hicache_core::storage::slab::record::{At, Record, Touches, Written};
use hicache_core::storage::slab::replay::Replay;
use hicache_core::storage::slab::segment::Header;
use std::collections::BTreeMap;

const SLOTS: u32 = 4;
const EXTENTS: u16 = 3;
pub const KEYS: u32 = 24;
const STORE: u64 = 77;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Naive {
    parent: Option<u32>,
    used: u64,
    checksum: u64,
}

pub struct Twin {
    index: Index,
    naive: BTreeMap<(u16, u32), Naive>,
    /// The log as segments' records.
    log: Vec<Record>,
    snapshot: Option<Vec<Record>>,
    free: Vec<At>,
    uses: u64,
}

fn fresh() -> Index {
    Index::new(u64::from(SLOTS) * 4096, 12345)
}

fn all() -> Vec<At> {
    (0..EXTENTS).flat_map(|extent| (0..SLOTS).map(move |slot| At { extent, slot })).rev().collect()
}

fn identity(number: u16) -> Record {
    Record::Identity(number, Fingerprint([number as u8; 32]))
}

impl Twin {
    pub fn new() -> Self {
        let mut index = fresh();
        (0..EXTENTS).for_each(|extent| index.ground.give(extent, 4096));
        let log = (0..2).map(identity).collect();
        Self { index, naive: BTreeMap::new(), log, snapshot: None, free: all(), uses: 0 }
    }

    fn name(identity: u16, number: u32) -> Key {
        Key { identity, digest: key(number) }
    }

    fn use_now(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    fn children(&self, identity: u16, number: u32) -> usize {
        self.naive.iter().filter(|((i, _), page)| *i == identity && page.parent == Some(number)).count()
    }

    fn coldest(&self) -> Option<(u16, u32)> {
        let leaves =
            self.naive.iter().filter(|((identity, number), _)| self.children(*identity, *number) == 0);
        leaves.min_by_key(|(_, page)| page.used).map(|(key, _)| *key)
    }

    pub fn touch(&mut self, identity: u16, number: u32) {
        let Some((page, _)) = self.index.find(&Self::name(identity, number)) else { return };
        self.index.touch(page);
        let used = self.use_now();
        self.naive.get_mut(&(identity, number)).unwrap().used = used;
        let places = self.index.take_touched();
        places.chunks(12).for_each(|places| self.log.push(Record::Touch(Touches::of(places))));
    }

    pub fn take_out(&mut self, identity: u16, number: u32) {
        let known = self.naive.remove(&(identity, number));
        let found = self.index.find(&Self::name(identity, number));
        assert_eq!(known.is_some(), found.is_some());
        let Some((page, _)) = found else { return };
        let at = self.index.page(page).written.at;
        self.log.push(Record::Gone(at));
        assert_eq!(self.index.take_out(page), Some(at), "nobody reads it");
        self.free.push(at);
    }

    fn written(identity: u16, number: u32, parent: Option<u32>, at: At) -> Written {
        let parent = parent.map_or(0, |parent| hicache_core::storage::slab::index::page::name(&key(parent)));
        Written { at, identity, digest: key(number), bytes: 4096, time: 5, checksum: 0, parent }
    }

    /// A free slot; a leaf goes if there is none.
    fn slot(&mut self) -> Option<At> {
        if self.free.is_empty() {
            let (_, page) = self.index.coldest(4096)?;
            let (identity, number) = self.coldest().expect("a leaf");
            assert_eq!(
                self.index.find(&Self::name(identity, number)).map(|found| found.0),
                Some(page),
                "the coldest leaf"
            );
            self.take_out(identity, number);
        }
        self.free.pop()
    }

    pub fn put(&mut self, identity: u16, number: u32, parent: Option<u32>) {
        if self.naive.contains_key(&(identity, number)) {
            return self.touch(identity, number);
        }
        let Some(at) = self.slot() else { return };
        let page = self.index.begin(Self::written(identity, number, parent, at)).unwrap();
        let used = self.use_now();
        let checksum = used * 31;
        assert_eq!(self.index.finish(page, checksum, 5), Finished::Here);
        self.log.push(Record::Page(self.index.page(page).written));
        self.naive.insert((identity, number), Naive { parent, used, checksum });
    }

    pub fn race(&mut self, number: u32, removed: bool, fails: bool) {
        let Some(at) = self.slot() else { return };
        let page = self.index.begin(Self::written(0, number, None, at)).unwrap();
        self.use_now();
        if removed {
            self.index.cancel(&Self::name(0, number));
            self.take_out(0, number);
        }
        let there = self.naive.contains_key(&(0, number));
        if fails {
            assert_eq!(self.index.abandon(page), at);
            self.free.push(at);
            return;
        }
        match self.index.finish(page, 9, 5) {
            Finished::Here => {
                assert!(!removed && !there);
                self.log.push(Record::Page(self.index.page(page).written));
                self.naive.insert((0, number), Naive { parent: None, used: self.uses, checksum: 9 });
            }
            Finished::Cancelled(free) => {
                assert!(removed);
                self.free.push(free);
            }
            Finished::Twice(free) => {
                assert!(there);
                self.free.push(free);
                self.uses += 1;
                self.naive.get_mut(&(0, number)).unwrap().used = self.uses;
                let places = self.index.take_touched();
                self.log.push(Record::Touch(Touches::of(&places)));
            }
        }
    }

    pub fn held(&mut self, number: u32) {
        let Some((page, _)) = self.index.find(&Self::name(0, number)) else { return };
        let at = self.index.page(page).written.at;
        self.index.open(page);
        self.index.open(page);
        self.naive.remove(&(0, number));
        self.log.push(Record::Gone(at));
        assert_eq!(self.index.take_out(page), None, "it is read");
        assert_eq!(self.index.find(&Self::name(0, number)), None);
        assert_eq!(self.index.close(page), None);
        assert_eq!(self.index.close(page), Some(at));
        self.free.push(at);
    }

    pub fn clear(&mut self, identity: u16) {
        let before = self.naive.len();
        self.naive.retain(|(theirs, _), _| *theirs != identity);
        let (free, pages) = self.index.clear(identity);
        assert_eq!((pages as usize, free.len()), (before - self.naive.len(), before - self.naive.len()));
        self.log.push(Record::Clear(identity));
        self.free.extend(free);
    }

    /// What a snapshot would have.
    pub fn compact(&mut self) {
        let pages = (0..self.index.numbers())
            .map(|page| self.index.page(page))
            .filter(|page| page.state == State::Here);
        let mut pages: Vec<_> = pages.map(|page| (page.used, Record::Page(page.written))).collect();
        pages.sort_by_key(|(used, _)| *used);
        self.snapshot =
            Some((0..2).map(identity).chain(pages.into_iter().map(|(_, record)| record)).collect());
        self.log = vec![];
    }

    pub fn reopen(&mut self) {
        let found: Vec<u32> = (0..EXTENTS.into()).collect();
        let mut replay = Replay::new(&found, fresh);
        if let Some(snapshot) = &self.snapshot {
            replay.segment(&mut &bytes(snapshot, 1, 0, Some(7))[..], 0, STORE, 1).unwrap();
        }
        let first = if self.snapshot.is_some() { 7 } else { 0 };
        replay.segment(&mut &bytes(&self.log, 2, first, None)[..], 0, STORE, 2).unwrap();
        assert_eq!((replay.damaged, replay.forgotten), (0, 0));
        self.index = replay.index;
        self.index.queue_leaves();
        for extent in 0..EXTENTS {
            if self.index.ground.get(extent).is_none() {
                self.index.ground.give(extent, 4096);
            }
        }
        self.free = all().into_iter().filter(|at| self.index.ground.page(*at).is_none()).collect();
    }

    pub fn check(&mut self) {
        for identity in 0..2 {
            for number in 0..KEYS {
                let name = Self::name(identity, number);
                let known = self.naive.get(&(identity, number));
                let found = self.index.find(&name).map(|(page, _)| *self.index.page(page));
                assert_eq!(
                    found.map(|page| page.written.checksum),
                    known.map(|page| page.checksum),
                    "{name:?}"
                );
                let children = self.children(identity, number);
                match found {
                    Some(page) => assert_eq!(page.children as usize, children, "{name:?}"),
                    None => assert_eq!(self.index.is_wanted(&name), children > 0, "{name:?}"),
                }
            }
        }
        assert_eq!(self.index.holds(), (self.naive.len() as u64, self.naive.len() as u64 * 4096));
        assert_eq!(self.index.under_way(), 0);
        assert_eq!(self.free.len() + self.naive.len(), all().len(), "no slot is lost");
        let coldest = self.index.coldest(4096).map(|(_, page)| self.index.page(page).written.digest);
        assert_eq!(coldest, self.coldest().map(|(_, number)| key(number)));
    }
}

fn bytes(records: &[Record], number: u64, first: u64, after: Option<u64>) -> Vec<u8> {
    let first = if after.is_some() { 0 } else { first };
    let header = Header { store: STORE, number, first, after };
    let mut bytes = header.bytes().to_vec();
    for (sequence, records) in (first..).zip(records.chunks(5)) {
        let mut group = Vec::new();
        records.iter().for_each(|record| record.write(&mut group));
        bytes.extend(header.group(sequence, &group));
    }
    bytes.resize(bytes.len() + 300, 0);
    bytes
}
