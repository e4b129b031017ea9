//! One request, brought to a state in which it stays: gates hold what is under way.

use super::rig::{Rig, Shape};
use super::store::{Fault, FaultStore, Verb};
use hicache_core::ids::{HitId, Tier};
use hicache_core::transfer::Direction;
use std::sync::Arc;
use std::time::Duration;

pub const TOKENS: [i32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
const MOMENT: Duration = Duration::from_millis(2);

pub struct Stage {
    pub rig: Rig,
    store: Arc<FaultStore>,
    hit: Option<HitId>,
}

impl Stage {
    /// 0: matched; 1: its prefetch waits for a thread; 2: the store is being asked; 3: it is being read; 4: read, and
    /// not applied; 5: loaded, copies under way; 6: inserted, its backup under way, an earlier one being stored.
    pub fn at(state: usize) -> Self {
        let store = Arc::new(FaultStore::default());
        let mut rig = Rig::new(Shape { threads: 1, ..Shape::default() }, Some(&store));
        rig.serve(&TOKENS);
        rig.settle();
        rig.evict(Tier::Device, 99);
        if (1..5).contains(&state) {
            rig.evict(Tier::Host, 99);
        }
        let gated = [
            None,
            Some(Verb::Put),
            Some(Verb::Exists),
            Some(Verb::Get),
            Some(Verb::Get),
            None,
            Some(Verb::Put),
        ][state];
        store.plan(move |verb, _| if Some(verb) == gated { Fault::Gated } else { Fault::None });
        if gated == Some(Verb::Put) {
            // The only thread writes.
            rig.serve(&[40, 41]);
            rig.until("the write", |_| store.waiting() == 1);
        }
        let hit = rig.find(&TOKENS);
        let mut made = Self { rig, store, hit: Some(hit) };
        made.bring(state, hit);
        made.rig.books();
        made
    }

    fn bring(&mut self, state: usize, hit: HitId) {
        let (rig, store) = (&mut self.rig, &self.store);
        match state {
            0 => {}
            1 | 2 => assert!(rig.cache.prefetch(hit).unwrap()),
            3 => {
                rig.cache.prefetch(hit).unwrap();
                rig.until("the read", |_| store.waiting() == 1);
            }
            4 => {
                rig.cache.prefetch(hit).unwrap();
                rig.until("the read", |_| store.waiting() == 1);
                assert!(store.pass(0));
                while rig.cache.ready().prefetches == 0 {
                    std::thread::sleep(MOMENT);
                }
            }
            5 => {
                rig.gate.shut(Direction::In);
                rig.cache.load(&[hit], None).unwrap();
                assert_eq!(rig.cache.copying(), 1);
            }
            _ => {
                rig.cache.load(&[hit], None).unwrap();
                rig.gate.shut(Direction::Out);
                assert!(rig.compute(hit, &[&TOKENS[..], &[13, 14]].concat()));
            }
        }
    }

    /// 0: released; 1: retracted, and matched again; 2: the device goes, if it can; 3: the store goes; 4: all is
    /// cleared; 5: memory is; 6: the same store goes and comes.
    pub fn end(&mut self, end: usize) {
        let cache = &mut self.rig.cache;
        match end {
            0 => self.release(),
            1 => {
                self.release();
                self.hit = Some(self.rig.find(&TOKENS));
            }
            2 => drop(cache.detach()),
            3 | 6 => drop(cache.detach_store(MOMENT).unwrap()),
            _ => {
                cache.clear_memory().unwrap();
                if end == 4 {
                    cache.clear_storage().unwrap();
                }
            }
        }
        if end == 6 {
            let store: Arc<dyn hicache_core::storage::Store> = Arc::<FaultStore>::clone(&self.store);
            self.rig.cache.attach_store(&|| Ok(Arc::clone(&store))).unwrap();
        }
        self.rig.books();
        let waiting = self.hit.is_some_and(|hit| self.rig.view(hit).waiting);
        assert!(!waiting || [1, 2].contains(&end), "nobody waits for what has gone");
    }

    fn release(&mut self) {
        if let Some(hit) = self.hit.take() {
            self.rig.cache.release(hit, 0).unwrap();
        }
    }

    /// Everything that is under way ends.
    pub fn settle(&mut self) {
        self.release();
        [Direction::In, Direction::Out].into_iter().for_each(|way| self.rig.gate.open(way));
        self.store.plan(|_, _| Fault::None);
        let store = Arc::clone(&self.store);
        self.rig.until("all transfers", |rig| {
            store.pass(0);
            rig.cache.in_flight() == 0
        });
    }
}
