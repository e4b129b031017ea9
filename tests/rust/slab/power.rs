//! Losses of power: every file of the log is as it was when it was last flushed.

use super::rig::{Rig, THEM, US, get};
use hicache_core::storage::Outcome::{Failed, Hit};
use hicache_core::storage::slab::Seams;
use hicache_core::storage::slab::media::Media;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Remembers what was flushed.
#[derive(Default)]
struct Power {
    flushed: Mutex<HashMap<u64, Vec<u8>>>,
    /// Nothing is flushed any more.
    off: AtomicBool,
}

impl Media for Power {
    fn sync(&self, file: &File) -> io::Result<()> {
        if self.off.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let about = file.metadata()?;
        let mut bytes = vec![0; about.len() as usize];
        // What is opened for writing alone is no segment.
        if file.read_exact_at(&mut bytes, 0).is_ok() {
            self.flushed.lock().unwrap().insert(about.ino(), bytes);
        }
        Ok(())
    }
}

impl Power {
    fn durable() -> (Arc<Self>, Rig) {
        let power = Arc::new(Self::default());
        let seams = Seams { media: Arc::clone(&power) as _, ..Seams::default() };
        (power, Rig::with(64, |options| options.sync = true, seams))
    }

    fn is_lost(&self, dir: &Path) {
        for file in fs::read_dir(dir).unwrap().flatten() {
            if file.file_name().to_string_lossy().starts_with("log-") {
                let inode = file.metadata().unwrap().ino();
                let flushed = self.flushed.lock().unwrap().get(&inode).cloned();
                fs::write(file.path(), flushed.unwrap_or_default()).unwrap();
            }
        }
    }
}

#[test]
fn what_a_killed_process_left_is_durable_before_anything_goes_on() {
    let (power, mut rig) = Power::durable();
    assert_eq!(rig.put(1), Hit);
    // It is killed when it has written a group and not flushed it.
    power.off.store(true, Ordering::SeqCst);
    assert_eq!(rig.put(2), Failed);
    rig.close();
    power.off.store(false, Ordering::SeqCst);
    rig.reopen();
    assert_eq!(rig.put(2), Hit, "it is there already, and is acknowledged now");
    assert_eq!(rig.put(3), Hit);
    rig.close();
    power.is_lost(&rig.home());
    rig.reopen();
    assert_eq!(get(rig.store(), US, &[1, 2, 3], super::rig::PAGE), [Hit; 3], "{}", rig.about());
}

#[test]
fn a_flush_that_failed_leaves_no_gap() {
    let (power, mut rig) = Power::durable();
    assert_eq!(rig.put(1), Hit);
    power.off.store(true, Ordering::SeqCst);
    assert_eq!(rig.put(2), Failed);
    power.off.store(false, Ordering::SeqCst);
    assert_eq!(rig.put(3), Hit);
    rig.close();
    power.is_lost(&rig.home());
    rig.reopen();
    assert_eq!(get(rig.store(), US, &[1, 2, 3], super::rig::PAGE), [Hit; 3], "{}", rig.about());
    assert_eq!(super::rig::put(rig.store(), THEM, &[1], &[None], super::rig::PAGE), [Hit]);
}
