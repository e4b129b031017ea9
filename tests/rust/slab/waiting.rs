//! What the disk keeps waiting waits alone: nobody else does behind it.

use super::hostile::{Fate, Hostile};
use super::rig::{PAGE, Rig};
use hicache_core::storage::Outcome::{Absent, Hit};
use hicache_core::storage::disk::threads::Threads;
use hicache_core::storage::slab::Seams;
use hicache_core::storage::slab::media::{Media, Plain};
use hicache_core::storage::url::Share;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Who comes first, once it is armed, waits until it is opened.
struct Gate {
    armed: AtomicBool,
    arrived: Sender<()>,
    arrival: Mutex<Receiver<()>>,
    opened: Sender<()>,
    opening: Mutex<Receiver<()>>,
    /// Nobody opened it: those who should have were behind it.
    late: AtomicBool,
}

impl Gate {
    fn new() -> Arc<Self> {
        let ((arrived, arrival), (opened, opening)) = (channel(), channel());
        let (armed, late) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self {
            armed,
            arrived,
            arrival: Mutex::new(arrival),
            opened,
            opening: Mutex::new(opening),
            late,
        })
    }

    fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    fn pass(&self) {
        if self.armed.swap(false, Ordering::SeqCst) {
            self.arrived.send(()).unwrap();
            let opened = self.opening.lock().unwrap().recv_timeout(Duration::from_secs(30));
            self.late.store(opened.is_err(), Ordering::SeqCst);
        }
    }

    fn somebody_waits(&self) {
        self.arrival.lock().unwrap().recv().unwrap();
    }

    fn open(&self) {
        self.opened.send(()).unwrap();
    }
}

/// Where the gate is.
#[derive(Clone, Copy, PartialEq)]
enum At {
    DataFile,
    Removal,
    Segment,
}

struct Gated(At, Arc<Gate>);

impl Media for Gated {
    fn create(&self, path: &Path, bytes: usize) -> io::Result<File> {
        if self.0 == At::Segment {
            self.1.pass();
        }
        Plain.create(path, bytes)
    }

    fn reserve(&self, file: &File, bytes: u64) -> io::Result<()> {
        if self.0 == At::DataFile {
            self.1.pass();
        }
        Plain.reserve(file, bytes)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if self.0 == At::Removal {
            self.1.pass();
        }
        Plain.remove(path)
    }
}

fn gated(at: At) -> (Arc<Gate>, Seams) {
    let gate = Gate::new();
    let media = Arc::new(Gated(at, Arc::clone(&gate)));
    (gate, Seams { media, ..Seams::default() })
}

#[test]
fn a_data_file_that_is_being_made_keeps_nobody_waiting_who_needs_none() {
    let (gate, seams) = gated(At::DataFile);
    // As long as a page is read nothing is written in advance, so that it is a put that makes the file.
    let reading = Gate::new();
    let gates = Arc::clone(&reading);
    let hostile = Hostile::new(Arc::new(Threads::new(2).unwrap()), move |_, request| {
        if !request.write {
            gates.pass();
        }
        Fate::Pass
    });
    let rig = Rig::with(32, |_| {}, Seams { engine: Some(Arc::new(hostile)), ..seams });
    assert_eq!(rig.put_chain(&[1, 2, 3]), [Hit; 3]);
    let numbers: Vec<u32> = (10..39).collect();
    std::thread::scope(|scope| {
        reading.arm();
        let reader = scope.spawn(|| rig.get(1));
        reading.somebody_waits();
        gate.arm();
        let putting = scope.spawn(|| rig.put_all(&numbers, &[None; 29]));
        gate.somebody_waits();
        assert_eq!((rig.get(2), rig.get(99), rig.exists(3)), (Hit, Absent, true));
        assert_eq!((rig.put(3), rig.remove(3)), (Hit, Hit));
        gate.open();
        assert_eq!(putting.join().unwrap(), [Hit; 29]);
        reading.open();
        assert_eq!(reader.join().unwrap(), Hit);
    });
    assert!(!gate.late.load(Ordering::SeqCst), "all were behind a file that was being made");
}

#[test]
fn a_data_file_that_is_being_removed_keeps_nobody_waiting() {
    let (gate, seams) = gated(At::Removal);
    let mut rig = Rig::with(32, |_| {}, seams);
    let numbers: Vec<u32> = (0..32).collect();
    assert_eq!(rig.put_all(&numbers, &[None; 32]), [Hit; 32]);
    rig.close();
    gate.arm();
    rig.options.free = Share::Bytes(u64::MAX / 4);
    rig.reopen();
    std::thread::scope(|scope| {
        let keeping = scope.spawn(|| rig.store().slab().unwrap().keep());
        gate.somebody_waits();
        assert_eq!((rig.get(31), rig.get(99), rig.put(31), rig.remove(30)), (Hit, Absent, Hit, Hit));
        gate.open();
        keeping.join().unwrap();
    });
    assert!(!gate.late.load(Ordering::SeqCst), "all were behind a file that was being removed");
    assert!(rig.here(0..32).len() < 32);
}

#[test]
fn a_segment_that_is_prepared_keeps_no_put_waiting() {
    let (gate, seams) = gated(At::Segment);
    let mut rig = Rig::with(64, |_| {}, seams);
    assert_eq!(rig.put(1), Hit);
    rig.reopen();
    std::thread::scope(|scope| {
        gate.arm();
        let keeping = scope.spawn(|| rig.store().slab().unwrap().keep());
        gate.somebody_waits();
        // It makes one of its own.
        assert_eq!((rig.put(2), rig.remove(1), rig.get(2)), (Hit, Hit, Hit));
        gate.open();
        keeping.join().unwrap();
    });
    assert!(!gate.late.load(Ordering::SeqCst), "the log stood still while its next segment was prepared");
    // Both files are used, one after the other.
    for number in 0..2000 {
        assert_eq!((rig.put(100 + number), rig.remove(100 + number)), (Hit, Hit));
    }
    rig.reopen();
    assert_eq!(rig.here(0..3000), [2]);
    assert_eq!(super::rig::get(rig.store(), super::rig::US, &[2], PAGE), [Hit]);
}
