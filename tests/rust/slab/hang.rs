//! A disk that hangs while a store is closed.

use super::rig::{Rig, US};
use hicache_core::storage::Outcome::{Failed, Hit};
use hicache_core::storage::slab::media::{Media, Plain};
use hicache_core::storage::slab::{Seams, SlabStore};
use hicache_core::storage::{Client, Store};
use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex};

/// Writes of the log don't return while it is stuck.
#[derive(Default)]
struct Stuck {
    stuck: Mutex<bool>,
    changed: Condvar,
}

impl Stuck {
    fn set(&self, stuck: bool) {
        *self.stuck.lock().unwrap() = stuck;
        self.changed.notify_all();
    }
}

impl Media for Stuck {
    fn write(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        drop(self.changed.wait_while(self.stuck.lock().unwrap(), |stuck| *stuck).unwrap());
        Plain.write(file, bytes, at)
    }
}

#[test]
fn closing_does_not_wait_for_ever_and_the_directory_is_kept_until_the_disk_lets_go() {
    let stuck = Arc::new(Stuck::default());
    let seams = Seams { media: Arc::clone(&stuck) as _, ..Seams::default() };
    let mut rig = Rig::with(64, |_| {}, seams);
    assert_eq!((rig.put(1), rig.get(1)), (Hit, Hit));
    stuck.set(true);
    rig.store().close();
    assert_eq!(rig.get(1), Failed);
    rig.close();
    let again = || SlabStore::open(rig.options.clone(), &Client::alone(US), &rig.seams);
    assert!(again().is_err(), "a write of its log is under way");
    stuck.set(false);
    while again().is_err() {
        std::thread::yield_now();
    }
    rig.reopen();
    assert_eq!(rig.get(1), Hit);
}
