//! A log that can't be read just now is another matter than a damaged one.

use super::rig::{Rig, US, get};
use hicache_core::storage::Client;
use hicache_core::storage::Outcome::Hit;
use hicache_core::storage::slab::media::{Media, Plain};
use hicache_core::storage::slab::replay::segments;
use hicache_core::storage::slab::tail::path;
use hicache_core::storage::slab::{Seams, SlabStore};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Segments can't be opened, or be read from their second byte on, while it is told so.
#[derive(Default)]
struct Blind {
    open: AtomicI32,
    read: AtomicI32,
    /// Only the first time.
    once: AtomicBool,
}

impl Blind {
    fn said(&self, error: &AtomicI32) -> io::Result<()> {
        let once = self.once.load(Ordering::SeqCst);
        match if once { error.swap(0, Ordering::SeqCst) } else { error.load(Ordering::SeqCst) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

struct Half {
    blind: Arc<Blind>,
    file: Box<dyn Read>,
    begun: bool,
}

impl Read for Half {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if std::mem::replace(&mut self.begun, true) {
            self.blind.said(&self.blind.read)?;
            return self.file.read(bytes);
        }
        let most = bytes.len().min(1);
        self.file.read(&mut bytes[..most])
    }
}

struct Seen(Arc<Blind>);

impl Media for Seen {
    fn read(&self, path: &Path) -> io::Result<Box<dyn Read>> {
        self.0.said(&self.0.open)?;
        Ok(Box::new(Half { blind: Arc::clone(&self.0), file: Plain.read(path)?, begun: false }))
    }
}

/// A closed store of 20 pages in two segments.
fn closed() -> (Arc<Blind>, Rig) {
    let blind = Arc::new(Blind::default());
    let seams = Seams { media: Arc::new(Seen(Arc::clone(&blind))), ..Seams::default() };
    let mut rig = Rig::with(64, |_| {}, seams);
    rig.put_chain(&(0..10).collect::<Vec<_>>());
    rig.reopen();
    rig.put_chain(&(10..20).collect::<Vec<_>>());
    rig.close();
    (blind, rig)
}

fn all_are_there(rig: &mut Rig) {
    rig.reopen();
    let numbers: Vec<u32> = (0..20).collect();
    assert_eq!(get(rig.store(), US, &numbers, super::rig::PAGE), [Hit; 20], "{}", rig.about());
    assert!(!rig.about().contains("damaged"), "{}", rig.about());
    rig.close();
}

#[test]
fn what_cannot_be_read_now_keeps_a_store_shut_and_nothing_is_forgotten() {
    let (blind, mut rig) = closed();
    for (which, error) in [
        (&blind.open, libc::EMFILE),
        (&blind.open, libc::EACCES),
        (&blind.open, libc::ENOENT),
        (&blind.open, libc::EIO),
        (&blind.read, libc::ENOMEM),
        (&blind.read, libc::ESTALE),
    ] {
        which.store(error, Ordering::SeqCst);
        let opened = SlabStore::open(rig.options.clone(), &Client::alone(US), &rig.seams);
        let said = opened.err().expect("it was opened").to_string();
        assert!(said.starts_with("storage: ") && said.contains("log-0000000"), "{said}");
        which.store(0, Ordering::SeqCst);
        all_are_there(&mut rig);
    }
}

#[test]
fn an_interrupted_read_goes_on() {
    let (blind, mut rig) = closed();
    blind.once.store(true, Ordering::SeqCst);
    blind.read.store(libc::EINTR, Ordering::SeqCst);
    all_are_there(&mut rig);
    assert_eq!(blind.read.load(Ordering::SeqCst), 0, "nothing was read");
}

#[test]
fn what_the_disk_cannot_read_is_damage() {
    let (blind, mut rig) = closed();
    blind.read.store(libc::EIO, Ordering::SeqCst);
    rig.reopen();
    assert_eq!(rig.here(0..20), Vec::<u32>::new());
    assert!(rig.about().contains("2 damaged segments"), "{}", rig.about());
    blind.read.store(0, Ordering::SeqCst);
    assert_eq!(rig.put(1), Hit);
    rig.reopen();
    assert_eq!(rig.here(0..20), [1]);
}

#[test]
fn a_segment_that_is_far_too_long_is_read_as_far_as_it_says_anything() {
    let (_, mut rig) = closed();
    for number in segments(&rig.home()).unwrap() {
        let file = File::options().write(true).open(path(&rig.home(), number)).unwrap();
        // 8 TiB of nothing.
        file.set_len(8 << 40).unwrap();
    }
    all_are_there(&mut rig);
}
