//! Caches whose host memory outlives them, in a directory of the machine's memory.
#![allow(unsafe_code, reason = "a cache without device memory takes no addresses")]

use super::drip::{Drip, Spaces};
use super::mixed::{ALL, Mixed};
use super::models::{Shape, config};
use super::over::over_store;
use super::squall::Squall;
use hicache_core::{Config, HiCache, Leftovers, Result};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A directory in memory, and a store's on disk.
pub struct Place {
    pub memory: tempfile::TempDir,
    pub disk: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        let memory = tempfile::Builder::new().prefix("hicache-test-").tempdir_in("/dev/shm");
        Self { memory: memory.expect("these tests need /dev/shm"), disk: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> PathBuf {
        self.memory.path().join("host")
    }

    pub fn url(&self) -> String {
        format!("file://{}", self.disk.path().display())
    }

    pub fn config(&self, shape: &Shape) -> Config {
        Config { restart: Some(self.path()), ..config(shape) }
    }

    pub fn open(&self, shape: &Shape) -> Mixed {
        open(&self.config(shape), None).unwrap()
    }

    /// Flips a bit of a file.
    pub fn flip(&self, file: &str, at: u64) {
        let file = std::fs::File::options().read(true).write(true).open(self.path().join(file)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at / 8).unwrap();
        byte[0] ^= 1 << (at % 8);
        file.write_all_at(&byte, at / 8).unwrap();
    }

    /// What a kill at this moment would leave, in another place. Nobody writes to slabs meanwhile; the table is copied
    /// first, so that what it says is older than they are.
    pub fn as_if_killed(&self) -> Self {
        let other = Self::new();
        std::fs::create_dir(other.path()).unwrap();
        let names = std::fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.filter(|name| name != "lock").collect();
        names.sort_by_key(|name| name != "table");
        for name in names {
            std::fs::copy(self.path().join(&name), other.path().join(&name)).unwrap();
        }
        other
    }

    /// Bytes of a file.
    pub fn bytes(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.path().join(file)).unwrap()
    }
}

impl Mixed {
    /// Over a cache that has no device memory yet.
    pub fn of(mut cache: HiCache, config: &Config) -> Self {
        let mut made = None;
        let attached = cache.attach_copier(&config.device_spaces(), |config, host, finished| {
            let memory = Arc::new(Spaces::new(config, host));
            let drip = Drip::after(Arc::clone(&memory), finished);
            made = Some((memory, drip.clone()));
            Ok(Box::new(drip))
        });
        attached.unwrap();
        let ((memory, drip), components) = (made.unwrap(), config.components());
        Self { cache, memory, drip, components, size: config.page_size.tokens(), reader: None, finds: 0 }
    }
}

pub fn open(config: &Config, store: Option<&str>) -> Result<Mixed> {
    let cache = match store {
        // SAFETY: there is no device memory.
        Some(url) => unsafe { over_store(config.clone(), None, url) },
        // SAFETY: nor here.
        None => unsafe { HiCache::over_memory(config.clone(), None, None) },
    }?;
    Ok(Mixed::of(cache, config))
}

/// A storm over it.
pub fn squall(path: &Path, shape: &Shape, seed: u64) -> Squall {
    let config = Config { restart: Some(path.to_owned()), ..config(shape) };
    Squall::of(open(&config, None).unwrap(), None, seed)
}

/// Ends it as an engine does that has the time to.
pub fn end(mut rig: Mixed) {
    rig.settle();
    rig.cache.close(Duration::from_secs(10));
}

/// Tokens that no other number has.
pub fn prompt(number: i32, tokens: i32) -> Vec<i32> {
    (0..tokens).map(|at| 1000 * number + at).collect()
}

/// A prompt from match to release; what it found anywhere, in pages, which must be right.
pub fn ask(rig: &mut Mixed, tokens: &[i32]) -> u32 {
    let hit = rig.fetch(tokens);
    let found = rig.load(hit).device;
    rig.land();
    assert_eq!(rig.wrong(hit, tokens, true), None);
    assert!(rig.compute(hit, tokens, tokens.len() / rig.size(), ALL), "no room");
    rig.cache.release(hit, 0).unwrap();
    rig.settle();
    whole(rig);
    found
}

/// The same without anything computed.
pub fn look(rig: &mut Mixed, tokens: &[i32]) -> u32 {
    let hit = rig.fetch(tokens);
    let found = rig.load(hit).device;
    rig.land();
    assert_eq!(rig.wrong(hit, tokens, true), None);
    rig.cache.release(hit, 0).unwrap();
    rig.settle();
    whole(rig);
    found
}

/// Whatever was found is somewhere.
pub fn whole(rig: &Mixed) -> Leftovers {
    rig.books();
    let left = rig.cache.leftovers();
    assert_eq!(left.found, left.now + left.claimed + left.adopted + left.given_up, "{left:?}");
    left
}
