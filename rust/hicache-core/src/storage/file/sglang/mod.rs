//! A directory of `SGLang`'s file backend: its file names and its raw pages, for engines that change from one to the other
//! and caches that share a directory with it. Off unless a URL says so, since nothing in such a file says what it is.
//!
//! | file | what |
//! |---|---|
//! | `names` | what a page's file is called |
//! | `order` | where each byte of a payload is in a flat page of a declared layout |
//!
//! A file has the page's bytes and nothing else: only its length can be compared. Each page read so is counted as
//! unverified. Written is only with `write=yes`, and removed is nothing else than what has our names.
//! On error: opening names `storage` and the option; later faults are outcomes.

mod names;
mod order;

pub use names::suffix;
pub use order::Order;

use crate::error::{Result, argument};
use crate::hash::Digest;
use crate::identity::Fingerprint;
use crate::storage::attempts::Attempts;
use crate::storage::counters::Counters;
use crate::storage::{Client, Held, Keys, Outcome, PageMut, PageRef, Statistics, Store, Url};
use std::cmp::Ordering as Length;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const KNOWN: &[&str] = &["names", "layout", "heads", "model", "suffix", "write"];

/// The store over such a directory; it has pages of one identity.
#[derive(Debug)]
pub struct SglangStore {
    root: PathBuf,
    /// What follows the digest in its files' names.
    suffix: String,
    order: Order,
    writes: bool,
    ours: Fingerprint,
    attempts: Attempts<Digest>,
    counters: Counters,
    closed: AtomicBool,
}

impl SglangStore {
    /// Of `file:///directory?names=sglang&layout=page_first`, with `model=` (the served name; the identity's by
    /// default), `heads=` (of `layout=page_head`), `suffix=` (all that follows the digest, instead of what model and
    /// ranks make) and `write=yes`.
    ///
    /// # Errors
    /// For an option that can't be meant, a cache whose pages `SGLang` doesn't have, or a directory that can't be used.
    pub fn from_url(mut url: Url, client: &Client) -> Result<Self> {
        let root = url.directory()?;
        let layout = url.take_choice("layout", order::LAYOUTS)?;
        let (heads, model) = (url.take_number("heads")?, url.take("model"));
        let (suffix, writes) = (url.take("suffix"), url.take_flag("write")?.unwrap_or(false));
        url.finish(KNOWN)?;
        let Some(layout) = layout else {
            return argument("storage", format!("names=sglang needs layout={}", order::LAYOUTS.join(" or ")));
        };
        let order = Order::of(client, layout, heads)?;
        let suffix = match suffix {
            Some(suffix) => names::checked(suffix)?,
            None => names::suffix(client, model.as_deref(), order.is_latent())?,
        };
        if writes {
            fs::create_dir_all(&root)
                .or_else(|error| argument("storage", format!("can't make {}: {error}", root.display())))?;
        }
        if !root.is_dir() {
            return argument("storage", format!("{} is not a directory", root.display()));
        }
        Ok(Self {
            root,
            suffix,
            order,
            writes,
            ours: client.identity,
            attempts: Attempts::default(),
            counters: Counters::default(),
            closed: AtomicBool::new(false),
        })
    }

    fn path(&self, key: &Digest) -> PathBuf {
        self.root.join(names::file(key, &self.suffix))
    }

    fn each(&self, keys: Keys<'_>, mut act: impl FnMut(usize, &Digest) -> Outcome) -> Vec<Outcome> {
        let all = |outcome| vec![outcome; keys.len()];
        if self.closed.load(Ordering::Relaxed) {
            return all(Outcome::Failed);
        }
        if *keys.identity != self.ours {
            return all(Outcome::Absent);
        }
        keys.digests.iter().enumerate().map(|(at, key)| act(at, key)).collect()
    }

    fn read(&self, key: &Digest, page: &mut PageMut<'_>) -> io::Result<Outcome> {
        let mut file = super::pages::opened(&self.path(key))?;
        let data = file.metadata()?;
        let outcome = match data.len().cmp(&(page.bytes() as u64)) {
            _ if !data.is_file() || page.bytes() != self.order.bytes() => Outcome::Corrupt,
            Length::Less => Outcome::Short,
            Length::Greater => Outcome::Corrupt,
            Length::Equal => {
                let mut flat = vec![0; page.bytes()];
                file.read_exact(&mut flat)?;
                if page.fill_from(&self.order.payload(&flat)) { Outcome::Hit } else { Outcome::Corrupt }
            }
        };
        if self.writes && matches!(outcome, Outcome::Short | Outcome::Corrupt) {
            // It would be in the way of the page; in a directory that isn't ours to write it stays.
            let _ = fs::remove_file(self.path(key));
        }
        Ok(outcome)
    }

    /// Writes a page, unless it is there; and whether it was new.
    fn write(&self, key: &Digest, page: &PageRef<'_>) -> io::Result<(Outcome, bool)> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let path = self.path(key);
        if page.bytes() != self.order.bytes() {
            return Ok((Outcome::Declined, false));
        }
        if fs::metadata(&path).is_ok_and(|data| data.is_file() && data.len() == page.bytes() as u64) {
            return Ok((Outcome::Hit, false));
        }
        let attempt = self.attempts.begin(*key);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Its own are `.<uuid>.tmp`: what it doesn't count as a page, it doesn't count of ours.
        let tmp = self.root.join(format!(
            ".hicache-{}-{number}-{}.tmp",
            std::process::id(),
            hex::encode(&key.0[..8])
        ));
        let written = File::create_new(&tmp)
            .and_then(|mut file| file.write_all(&self.order.flat(&page.to_vec())))
            .and_then(|()| attempt.publish(|| fs::rename(&tmp, &path)).transpose());
        if !matches!(written, Ok(Some(()))) {
            let _ = fs::remove_file(&tmp);
        }
        Ok((written?.map_or(Outcome::Cancelled, |()| Outcome::Hit), true))
    }

    fn take_away(&self, key: &Digest, path: &Path) -> Outcome {
        match self.attempts.remove(key, || fs::remove_file(path)) {
            Ok(()) => Outcome::Hit,
            Err(error) if error.kind() == ErrorKind::NotFound => Outcome::Absent,
            Err(_) => Outcome::Failed,
        }
    }

    /// Pages with our names, and their files.
    fn pages(&self) -> impl Iterator<Item = (Digest, fs::DirEntry)> + '_ {
        let files = fs::read_dir(&self.root).into_iter().flatten().flatten();
        files.filter_map(|file| Some((names::digest(file.file_name().to_str()?, &self.suffix)?, file)))
    }
}

impl Store for SglangStore {
    fn exists(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.each(keys, |_, key| match fs::metadata(self.path(key)) {
            Ok(data) if data.is_file() && data.len() == self.order.bytes() as u64 => Outcome::Hit,
            Ok(_) => Outcome::Absent,
            Err(error) if error.kind() == ErrorKind::NotFound => Outcome::Absent,
            Err(_) => Outcome::Failed,
        })
    }

    fn get(&self, keys: Keys<'_>, pages: &mut [PageMut<'_>]) -> Vec<Outcome> {
        self.each(keys, |at, key| {
            let outcome = match self.read(key, &mut pages[at]) {
                Ok(outcome) => outcome,
                Err(error) if error.kind() == ErrorKind::NotFound => Outcome::Absent,
                Err(_) => Outcome::Failed,
            };
            if outcome == Outcome::Hit {
                self.counters.unverified();
            }
            self.counters.read(outcome, pages[at].bytes());
            outcome
        })
    }

    fn put(&self, keys: Keys<'_>, _parents: &[Option<Digest>], pages: &[PageRef<'_>]) -> Vec<Outcome> {
        self.each(keys, |at, key| {
            let (outcome, new) = if self.writes {
                self.write(key, &pages[at]).unwrap_or((Outcome::Failed, true))
            } else {
                (Outcome::Declined, false)
            };
            self.counters.written(outcome, pages[at].bytes(), new);
            outcome
        })
    }

    fn remove(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.each(
            keys,
            |_, key| if self.writes { self.take_away(key, &self.path(key)) } else { Outcome::Declined },
        )
    }

    fn clear(&self, identity: &Fingerprint) -> Result<u64> {
        if *identity != self.ours {
            return Ok(0);
        }
        if !self.writes {
            return argument("storage", format!("{} is only read", self.root.display()));
        }
        self.attempts.clear(|_| true);
        let outcomes: Vec<Outcome> =
            self.pages().map(|(key, file)| self.take_away(&key, &file.path())).collect();
        if outcomes.contains(&Outcome::Failed) {
            return argument("storage", format!("can't remove all pages below {}", self.root.display()));
        }
        Ok(outcomes.iter().filter(|&&outcome| outcome == Outcome::Hit).count() as u64)
    }

    fn statistics(&self) -> Statistics {
        self.counters.statistics()
    }

    fn describe(&self) -> String {
        let (root, suffix, layout) = (self.root.display(), &self.suffix, self.order.layout());
        let writes = if self.writes { "also written" } else { "only read" };
        format!(
            "unverified pages below {root}: SGLang's files <digest>{suffix}.bin, layout {layout}, {writes}"
        )
    }

    fn list(&self) -> Result<Vec<Held>> {
        let held = self.pages().filter_map(|(digest, file)| {
            let data = file.metadata().ok()?;
            let age = data.modified().ok().and_then(|at| at.elapsed().ok()).map_or(0, |age| age.as_secs());
            Some(Held { identity: self.ours, digest, bytes: data.len(), age })
        });
        Ok(held.collect())
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}
