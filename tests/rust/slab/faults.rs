//! A disk that is full, that can't be read, a log that can't be written.

use super::hostile::{Fate, Hostile};
use super::rig::{PAGE, Rig, US, get};
use hicache_core::storage::Outcome::{Absent, Failed, Hit};
use hicache_core::storage::Store;
use hicache_core::storage::disk::threads::Threads;
use hicache_core::storage::slab::Seams;
use hicache_core::storage::slab::media::Media;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// A disk whose writes and reads of pages fail while they are told to.
#[derive(Default)]
struct Weak {
    /// Pages' writes that still succeed; below 0: all do.
    writes: AtomicI32,
    /// The error of reads.
    read: AtomicI32,
}

fn disk(weak: &Arc<Weak>) -> Seams {
    let weak = Arc::clone(weak);
    let hostile = Hostile::new(Arc::new(Threads::new(1).unwrap()), move |_, request| {
        let bytes: usize = request.runs.iter().map(|run| run.bytes).sum();
        if bytes != PAGE {
            // Zeros that are written beforehand come in other sizes.
            return Fate::Pass;
        }
        match request.write {
            true if weak.writes.load(Ordering::SeqCst) >= 0 => {
                match weak.writes.fetch_sub(1, Ordering::SeqCst) {
                    0 => Fate::Fail(libc::ENOSPC),
                    _ => Fate::Pass,
                }
            }
            false if weak.read.load(Ordering::SeqCst) != 0 => Fate::Fail(weak.read.load(Ordering::SeqCst)),
            _ => Fate::Pass,
        }
    });
    Seams { engine: Some(Arc::new(hostile)), ..Seams::default() }
}

#[test]
fn one_page_that_finds_the_disk_full_is_one_that_failed() {
    let weak = Arc::new(Weak { writes: AtomicI32::new(-1), ..Weak::default() });
    let mut rig = Rig::with(64, |_| {}, disk(&weak));
    weak.writes.store(2, Ordering::SeqCst);
    assert_eq!(rig.put_chain(&[1, 2, 3, 4, 5]), [Hit, Hit, Failed, Hit, Hit]);
    assert_eq!((rig.here(0..9), rig.store().statistics().failed_pages), (vec![1, 2, 4, 5], 1));
    assert_eq!(rig.put_chain(&[1, 2, 3, 4, 5]), [Hit; 5], "there is space again");
    rig.reopen();
    assert_eq!([1, 2, 3, 4, 5].map(|number| rig.get(number)), [Hit; 5]);
}

#[test]
fn what_cannot_be_read_is_given_up_and_what_could_not_now_is_not() {
    let weak = Arc::new(Weak { writes: AtomicI32::new(-1), ..Weak::default() });
    let rig = Rig::with(64, |_| {}, disk(&weak));
    rig.put_chain(&[1, 2]);
    weak.read.store(libc::ENOMEM, Ordering::SeqCst);
    assert_eq!((rig.get(1), rig.here(0..3)), (Failed, vec![1, 2]));
    weak.read.store(libc::EIO, Ordering::SeqCst);
    assert_eq!((rig.get(1), rig.get(1), rig.here(0..3)), (Failed, Absent, vec![2]));
    weak.read.store(0, Ordering::SeqCst);
    assert_eq!((rig.put(1), rig.get(1), rig.get(2)), (Hit, Hit, Hit));
    assert_eq!(rig.store().statistics().failed_pages, 2);
}

/// A file system on which the log can't be written, synced or begun while it is told to.
#[derive(Default)]
struct Full {
    writes: AtomicI32,
    syncs: AtomicI32,
    files: AtomicI32,
    failed: AtomicUsize,
}

impl Full {
    fn said(&self, error: &AtomicI32) -> io::Result<()> {
        match error.load(Ordering::SeqCst) {
            0 => Ok(()),
            error => {
                self.failed.fetch_add(1, Ordering::SeqCst);
                Err(io::Error::from_raw_os_error(error))
            }
        }
    }
}

impl Media for Full {
    fn create(&self, path: &std::path::Path, bytes: usize) -> io::Result<File> {
        self.said(&self.files)?;
        hicache_core::storage::slab::media::Plain.create(path, bytes)
    }

    fn write(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        if let Err(error) = self.said(&self.writes) {
            // Half of it is there.
            hicache_core::storage::slab::media::Plain.write(file, &bytes[..bytes.len() / 2], at)?;
            return Err(error);
        }
        hicache_core::storage::slab::media::Plain.write(file, bytes, at)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.said(&self.syncs)?;
        file.sync_data()
    }
}

#[test]
fn a_log_that_cannot_be_written_fails_puts_and_nothing_else() {
    for (which, sync) in [(0, false), (1, true), (2, false)] {
        let full = Arc::new(Full::default());
        let seams = Seams { media: Arc::clone(&full) as _, ..Seams::default() };
        let mut rig = Rig::with(64, |options| options.sync = sync, seams);
        assert_eq!(rig.put_chain(&[1, 2]), [Hit, Hit]);
        if which == 2 {
            // The next segment has to be made.
            rig.reopen();
        }
        let switch = [&full.writes, &full.syncs, &full.files][which];
        switch.store(libc::ENOSPC, Ordering::SeqCst);
        assert_eq!(rig.put_chain(&[2, 3]), [Failed, Failed]);
        assert_eq!((rig.put(4), rig.remove(9), rig.get(1)), (Failed, Failed, Hit));
        assert_eq!([1, 1].map(|number| rig.remove(number)), [Failed; 2], "it may be back after a restart");
        assert!(rig.store().describe().contains("log can't be written"), "{}", rig.store().describe());
        assert!(full.failed.load(Ordering::SeqCst) > 1);
        assert_eq!(rig.store().statistics().failed_pages, 3);
        switch.store(0, Ordering::SeqCst);
        assert_eq!(rig.put_chain(&[2, 3, 4]), [Hit; 3]);
        assert!(!rig.store().describe().contains("can't be written"));
        rig.reopen();
        assert_eq!(rig.here(0..9), [2, 3, 4], "fault {which}");
        assert_eq!(get(rig.store(), US, &[2, 3, 4], PAGE), [Hit; 3]);
    }
}

#[test]
fn a_log_that_fails_in_a_killed_process_leaves_what_was_acknowledged() {
    let full = Arc::new(Full::default());
    let seams = Seams { media: Arc::clone(&full) as _, ..Seams::default() };
    let mut rig = Rig::with(64, |_| {}, seams);
    rig.put_chain(&[1, 2]);
    full.writes.store(libc::EIO, Ordering::SeqCst);
    assert_eq!(rig.put(3), Failed);
    // It closes without a word of it.
    rig.close();
    full.writes.store(0, Ordering::SeqCst);
    rig.reopen();
    assert_eq!(rig.here(0..9), [1, 2]);
    assert_eq!(rig.put(3), Hit);
}

#[test]
fn a_snapshot_that_cannot_be_written_leaves_the_log() {
    let full = Arc::new(Full::default());
    let seams = Seams { media: Arc::clone(&full) as _, ..Seams::default() };
    let mut rig = Rig::with(64, |_| {}, seams);
    rig.put_chain(&[1, 2]);
    full.writes.store(libc::ENOSPC, Ordering::SeqCst);
    assert!(rig.store().compact().is_err());
    full.writes.store(0, Ordering::SeqCst);
    rig.put(3);
    rig.reopen();
    assert_eq!(rig.here(0..9), [1, 2, 3]);
    assert!(rig.store().compact().unwrap() > 0);
    rig.reopen();
    assert_eq!(rig.here(0..9), [1, 2, 3]);
}

/// Bytes of the log's files.
fn log(rig: &Rig) -> u64 {
    let files = std::fs::read_dir(rig.home()).unwrap().flatten();
    let logs = files.filter(|file| file.file_name().to_string_lossy().starts_with("log-"));
    logs.map(|file| file.metadata().unwrap().len()).sum()
}

#[test]
fn what_cannot_be_logged_for_long_is_not_all_kept() {
    let full = Arc::new(Full::default());
    let seams = Seams { media: Arc::clone(&full) as _, ..Seams::default() };
    let mut rig = Rig::with(64, |_| {}, seams);
    let numbers: Vec<u32> = (0..64).collect();
    assert_eq!(rig.put_all(&numbers, &[None; 64]), [Hit; 64]);
    let switches = [&full.writes, &full.files];
    switches.iter().for_each(|switch| switch.store(libc::ENOSPC, Ordering::SeqCst));
    assert_eq!(rig.remove(63), Failed);
    for _ in 0..1000 {
        assert_eq!(get(rig.store(), US, &numbers[..60], PAGE), [Hit; 60]);
        rig.store().slab().unwrap().keep();
    }
    switches.iter().for_each(|switch| switch.store(0, Ordering::SeqCst));
    rig.close();
    assert!(log(&rig) <= 3 * (64 << 10), "{} bytes of uses", log(&rig));
    rig.reopen();
    assert_eq!(rig.here(60..64), [60, 61, 62]);
}
