//! One file a page, in a directory that several processes may share.
//!
//! | file | what |
//! |---|---|
//! | `place` | where pages are, and where they are written before |
//! | `pages` | what is done to one page |
//! | `page` | a page's file: header, payload, what is compared |
//! | `usage`, `sweep` | what the directory really holds; room in it |
//! | `options` | limits; the seam for faults |
//! | `sglang` | `SGLang`'s file names and raw pages, for a directory that both use |
//!
//! A file is written under a name of its own below `tmp` and renamed when whole, so that a reader or a crash never sees
//! half a page. A page that fails verification is removed: its next put mends it. With `size=` or `free=` the pages
//! used longest ago go to make room, none before its children; `ttl=` bounds their age. Without, nothing is ever given up.
//! On error: opening names `storage` and what is wrong with the directory; later faults are outcomes.

pub mod options;
pub mod page;
mod pages;
mod place;
pub mod sglang;
mod sweep;
mod usage;

use self::options::{KNOWN, Limits, Steps};
use self::pages::peeked;
use self::place::Name;
use self::sweep::Sweeper;
use self::usage::Usage;
use super::attempts::Attempts;
use super::counters::Counters;
use super::identities::{self, Unlike};
use super::{Client, Held, Keys, Outcome, PageMut, PageRef, Statistics, Store, Url};
use crate::error::{Result, argument};
use crate::hash::Digest;
use crate::identity::Fingerprint;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long opening waits for the first sweep: a small directory's totals are known at once.
const LOOK: Duration = Duration::from_secs(1);

/// A directory of pages, each identity's below a folder of its own.
#[derive(Debug)]
pub struct FileStore {
    root: PathBuf,
    tmp: PathBuf,
    limits: Limits,
    steps: Steps,
    attempts: Arc<Attempts<Name>>,
    usage: Arc<Usage>,
    counters: Arc<Counters>,
    ours: Fingerprint,
    unlike: Unlike,
    closed: AtomicBool,
}

impl FileStore {
    /// Of `file:///directory?size=&free=&ttl=`.
    ///
    /// # Errors
    /// As [`Self::open`], and for an option that it doesn't have.
    pub fn from_url(mut url: Url, client: &Client) -> Result<Self> {
        let limits = Limits::take(&mut url)?;
        url.finish(KNOWN)?;
        Self::open_with(&url.directory()?, limits, client, Steps::default())
    }

    /// Opens or makes the directory, without limits.
    ///
    /// # Errors
    /// When `root` is a file, can't be made or can't be written to.
    pub fn open(root: &Path) -> Result<Self> {
        Self::open_with(root, Limits::default(), &Client::alone(Fingerprint([0; 32])), Steps::default())
    }

    /// Opens or makes the directory. Remains of writes that nobody finished are removed, and a thread begins to look
    /// at what is there.
    ///
    /// # Errors
    /// When `root` is a file, can't be made or can't be written to, or there is no thread to be had.
    pub fn open_with(root: &Path, limits: Limits, client: &Client, steps: Steps) -> Result<Self> {
        let tmp = root.join("tmp");
        prepare(root, &tmp)?;
        identities::keep(root, client);
        let has =
            |name: &str| fs::read_dir(root.join(name)).is_ok_and(|mut folders| folders.next().is_some());
        let store = Self {
            root: root.to_owned(),
            tmp,
            limits,
            attempts: Arc::default(),
            usage: Arc::new(Usage::new(root.to_owned(), limits, steps.clone())),
            steps,
            counters: Arc::default(),
            ours: client.identity,
            unlike: Unlike::look(client, &identities::kept(root), has),
            closed: AtomicBool::new(false),
        };
        place::remove_remains(&store.tmp);
        let sweeper = Sweeper {
            usage: Arc::clone(&store.usage),
            attempts: Arc::clone(&store.attempts),
            counters: Arc::clone(&store.counters),
        };
        let thread = std::thread::Builder::new().name(String::from("hicache-sweep"));
        if let Err(error) = thread.spawn(move || sweeper.work()) {
            return argument("storage", format!("no thread to be had: {error}"));
        }
        drop(store.usage.wait_for_sweep(LOOK));
        Ok(store)
    }

    fn each(&self, keys: Keys<'_>, mut act: impl FnMut(usize, &Digest) -> Outcome) -> Vec<Outcome> {
        if self.closed.load(Ordering::Relaxed) {
            return vec![Outcome::Failed; keys.len()];
        }
        let outcomes: Vec<Outcome> = keys.digests.iter().enumerate().map(|(at, key)| act(at, key)).collect();
        if *keys.identity == self.ours {
            self.unlike.missed(outcomes.iter().filter(|&&outcome| outcome == Outcome::Absent).count());
            if outcomes.contains(&Outcome::Hit) {
                self.unlike.found();
            }
        }
        outcomes
    }
}

impl Store for FileStore {
    fn exists(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.each(keys, |_, key| match self.look(&Name::of(keys.identity, key).path(&self.root)) {
            Ok(Some(_)) => Outcome::Hit,
            Ok(None) => Outcome::Absent,
            Err(_) => Outcome::Failed,
        })
    }

    fn get(&self, keys: Keys<'_>, pages: &mut [PageMut<'_>]) -> Vec<Outcome> {
        self.each(keys, |at, key| {
            let outcome = self.read(keys.identity, key, &mut pages[at]);
            self.counters.read(outcome, pages[at].bytes());
            outcome
        })
    }

    fn put(&self, keys: Keys<'_>, parents: &[Option<Digest>], pages: &[PageRef<'_>]) -> Vec<Outcome> {
        // Room is not made by giving up what this batch continues.
        let names = keys.digests.iter().chain(parents.iter().flatten()).filter(|_| self.limits.bounded());
        let spared: HashSet<Name> = names.map(|key| Name::of(keys.identity, key)).collect();
        let mut declined = HashSet::new();
        self.each(keys, |at, key| {
            // What continues a page that isn't taken is worth nothing, and would take the place of something.
            let alone = parents[at].is_some_and(|parent| declined.contains(&parent));
            let (outcome, new) = if alone {
                (Outcome::Declined, false)
            } else {
                self.write(keys.identity, key, parents[at], &pages[at], &spared)
            };
            if outcome == Outcome::Declined {
                declined.insert(*key);
            }
            self.counters.written(outcome, pages[at].bytes(), new);
            outcome
        })
    }

    fn remove(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.each(keys, |_, key| {
            let name = Name::of(keys.identity, key);
            let path = name.path(&self.root);
            match self.take_away(&name, &path) {
                Ok(()) => Outcome::Hit,
                Err(error) if error.kind() == ErrorKind::NotFound => Outcome::Absent,
                Err(_) => Outcome::Failed,
            }
        })
    }

    fn clear(&self, identity: &Fingerprint) -> Result<u64> {
        let half = place::half(identity);
        self.attempts.clear(|name| name.identity == half);
        let (mut removed, mut left) = (0, None);
        for folder in place::folders(&self.root, Some(half)) {
            for (name, file) in folder.pages() {
                match self.take_away(&name, &file.path()) {
                    Ok(()) => removed += 1,
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => left = Some(format!("can't remove {}: {error}", file.path().display())),
                }
            }
            // Only if it is empty: others' files may be in it.
            let _ = fs::remove_dir(&folder.path);
        }
        left.map_or(Ok(removed), |left| argument("storage", left))
    }

    fn statistics(&self) -> Statistics {
        let (pages, bytes) = self.usage.totals();
        let mismatched_pages = self.unlike.pages();
        Statistics {
            pages,
            bytes,
            capacity: self.limits.size,
            mismatched_pages,
            ..self.counters.statistics()
        }
    }

    fn describe(&self) -> String {
        let Limits { size, free, ttl } = self.limits;
        let parts = [
            Some(format!("files below {}", self.root.display())),
            size.map(|size| format!("at most {size} bytes")),
            free.map(|free| format!("{free} of the file system stays free")),
            ttl.map(|ttl| format!("for {ttl:?}")),
            self.unlike.why().map(str::to_owned),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    fn list(&self) -> Result<Vec<Held>> {
        let mut held = Vec::new();
        for folder in place::folders(&self.root, None) {
            for (name, file) in folder.pages() {
                let Some(header) = peeked(&file.path()) else {
                    continue;
                };
                let age = file
                    .metadata()
                    .ok()
                    .and_then(|data| data.modified().ok())
                    .and_then(|at| at.elapsed().ok());
                // What lies in another page's place is found when that is read.
                if Name::of(&header.identity, &header.key) == name {
                    let age = age.map_or(0, |age| age.as_secs());
                    held.push(Held {
                        identity: header.identity,
                        digest: header.key,
                        bytes: header.bytes,
                        age,
                    });
                }
            }
        }
        Ok(held)
    }

    fn compact(&self) -> Result<u64> {
        Ok(place::remove_remains(&self.tmp))
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.usage.close();
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        self.close();
    }
}

/// A directory that can be used.
fn prepare(root: &Path, tmp: &Path) -> Result<()> {
    if root.exists() && !root.is_dir() {
        return argument("storage", format!("{} is not a directory", root.display()));
    }
    for dir in [root, tmp] {
        if let Err(error) = fs::create_dir_all(dir) {
            return argument("storage", format!("can't make {}: {error}", dir.display()));
        }
    }
    let probe = place::temporary(tmp);
    if let Err(error) = File::create_new(&probe).and_then(|_| fs::remove_file(&probe)) {
        return argument("storage", format!("can't write to {}: {error}", tmp.display()));
    }
    Ok(())
}
