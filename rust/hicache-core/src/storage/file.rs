//! One file a page, below a directory of the identity: `root/<identity>/<2 hex>/<62 hex>`.
//!
//! A file is a header and the payload. It is written under a name of its own below `tmp` and renamed
//! when whole, so that a reader or a crash never sees half a page. A page that fails verification is
//! removed: its next put mends it.
//!
//! ```text
//! offset  0       8        12      16        48     80            88         104
//!         magic   version  codec   identity  key    payload size  checksum   payload ...
//! ```
//! The checksum is XXH3-128 over key and payload. Unbounded: keep its size from outside.
//! On error: opening names `storage` and what is wrong with the directory; later faults are outcomes.

use super::{Client, Keys, Outcome, PageMut, PageRef, Statistics, Store, Url};
use crate::error::{Result, argument};
use crate::hash::Digest;
use crate::identity::{FORMAT, Fingerprint};
use std::cmp::Ordering as CmpOrdering;
use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::BuildHasher as _;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use xxhash_rust::xxh3::Xxh3;

const MAGIC: &[u8; 8] = b"HICACHE\n";
const HEADER: usize = 104;
/// No codec yet; the field is there for the first one.
const CODEC_NONE: u32 = 0;

/// Writing a page takes milliseconds: a temporary file that is so old is nobody's.
const ABANDONED: Duration = Duration::from_secs(600);

/// What our temporary files' names begin with. A process number alone is no name: it comes back after a
/// restart of a container, and two containers that share the directory may have the same one. Nor is the
/// nonce: a forked child has its parent's.
fn ours() -> String {
    static NONCE: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::time::SystemTime::now()));
    format!("{}-{:016x}-", std::process::id(), *NONCE)
}

/// A directory of pages, each identity's below a directory of its own.
#[derive(Debug)]
pub struct FileStore {
    root: PathBuf,
    tmp: PathBuf,
    closed: AtomicBool,
}

impl FileStore {
    /// Of `file:///directory`.
    ///
    /// # Errors
    /// As [`Self::open`], and for an option that it doesn't have.
    pub fn from_url(url: Url, _client: &Client) -> Result<Self> {
        url.finish(&[])?;
        Self::open(&url.directory()?)
    }

    /// Opens or makes the directory. Remains of writes that nobody finished are removed.
    ///
    /// # Errors
    /// When `root` is a file, can't be made or can't be written to.
    pub fn open(root: &Path) -> Result<Self> {
        let tmp = root.join("tmp");
        if root.exists() && !root.is_dir() {
            return argument("storage", format!("{} is not a directory", root.display()));
        }
        for dir in [root, &tmp] {
            if let Err(error) = fs::create_dir_all(dir) {
                return argument("storage", format!("can't make {}: {error}", dir.display()));
            }
        }
        let store = Self { root: root.to_owned(), tmp, closed: AtomicBool::new(false) };
        let probe = store.temporary();
        if let Err(error) = File::create_new(&probe).and_then(|_| fs::remove_file(&probe)) {
            return argument("storage", format!("can't write to {}: {error}", store.tmp.display()));
        }
        store.remove_remains();
        Ok(store)
    }

    fn directory(&self, identity: &Fingerprint) -> PathBuf {
        self.root.join(hex::encode(&identity.0[..16]))
    }

    fn path(&self, identity: &Fingerprint, key: &Digest) -> PathBuf {
        let name = hex::encode(key.0);
        self.directory(identity).join(&name[..2]).join(&name[2..])
    }

    fn temporary(&self) -> PathBuf {
        // Two stores of one process may share the directory.
        static ATTEMPT: AtomicU64 = AtomicU64::new(0);
        let attempt = ATTEMPT.fetch_add(1, Ordering::Relaxed);
        self.tmp.join(format!("{}{attempt}", ours()))
    }

    /// Removes temporary files that nobody is writing any more. Processes of other machines and containers
    /// can't be asked, so that age decides.
    fn remove_remains(&self) {
        let Ok(entries) = fs::read_dir(&self.tmp) else { return };
        let prefix = ours();
        for entry in entries.flatten() {
            let ours = entry.file_name().to_string_lossy().starts_with(&prefix);
            let age = entry.metadata().and_then(|data| data.modified()).ok().and_then(|at| at.elapsed().ok());
            if !ours && age.is_some_and(|age| age > ABANDONED) {
                // Somebody else may have been quicker.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn read(&self, identity: &Fingerprint, key: &Digest, page: &mut PageMut<'_>) -> Outcome {
        let path = self.path(identity, key);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Outcome::Absent,
            Err(_) => return Outcome::Failed,
        };
        let outcome = verified(&mut file, identity, key, page).unwrap_or(Outcome::Failed);
        if matches!(outcome, Outcome::Corrupt | Outcome::Short) {
            let _ = fs::remove_file(&path);
        }
        outcome
    }

    fn write(&self, identity: &Fingerprint, key: &Digest, page: &PageRef<'_>) -> std::io::Result<()> {
        let path = self.path(identity, key);
        if path.is_file() {
            return Ok(());
        }
        let tmp = self.temporary();
        let mut file = made(&self.tmp, || File::options().write(true).create_new(true).open(&tmp))?;
        // From here on the temporary file is ours to remove.
        let written = file
            .write_all(&header(identity, key, page))
            .and_then(|()| page.runs().iter().try_for_each(|run| file.write_all(run)))
            .and_then(|()| path.parent().map_or(Ok(()), |dir| made(dir, || fs::rename(&tmp, &path))));
        if written.is_err() {
            let _ = fs::remove_file(&tmp);
        }
        written
    }

    fn each(&self, keys: Keys<'_>, mut act: impl FnMut(usize, &Digest) -> Outcome) -> Vec<Outcome> {
        if self.closed.load(Ordering::Relaxed) {
            return vec![Outcome::Failed; keys.len()];
        }
        keys.digests.iter().enumerate().map(|(at, key)| act(at, key)).collect()
    }
}

impl Store for FileStore {
    fn exists(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.each(keys, |_, key| match self.path(keys.identity, key).try_exists() {
            Ok(true) => Outcome::Hit,
            Ok(false) => Outcome::Absent,
            Err(_) => Outcome::Failed,
        })
    }

    fn get(&self, keys: Keys<'_>, pages: &mut [PageMut<'_>]) -> Vec<Outcome> {
        self.each(keys, |at, key| self.read(keys.identity, key, &mut pages[at]))
    }

    fn put(&self, keys: Keys<'_>, _parents: &[Option<Digest>], pages: &[PageRef<'_>]) -> Vec<Outcome> {
        self.each(keys, |at, key| match self.write(keys.identity, key, &pages[at]) {
            Ok(()) => Outcome::Hit,
            Err(_) => Outcome::Failed,
        })
    }

    fn remove(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.each(keys, |_, key| match fs::remove_file(self.path(keys.identity, key)) {
            Ok(()) => Outcome::Hit,
            Err(error) if error.kind() == ErrorKind::NotFound => Outcome::Absent,
            Err(_) => Outcome::Failed,
        })
    }

    fn clear(&self, identity: &Fingerprint) -> Result<u64> {
        let directory = self.directory(identity);
        let folders = fs::read_dir(&directory).into_iter().flatten().flatten();
        let files = folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten().flatten());
        let mut removed = 0;
        for file in files {
            if let Err(error) = fs::remove_file(file.path()) {
                return argument("storage", format!("can't remove {}: {error}", file.path().display()));
            }
            removed += 1;
        }
        Ok(removed)
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    fn describe(&self) -> String {
        format!("files below {}", self.root.display())
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

fn header(identity: &Fingerprint, key: &Digest, page: &PageRef<'_>) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[12..16].copy_from_slice(&CODEC_NONE.to_le_bytes());
    header[16..48].copy_from_slice(&identity.0);
    header[48..80].copy_from_slice(&key.0);
    header[80..88].copy_from_slice(&(page.bytes() as u64).to_le_bytes());
    header[88..104].copy_from_slice(&checksum(key, page).to_le_bytes());
    header
}

/// Reads a page and compares all that is known of it; its length first, its bytes last.
fn verified(
    file: &mut File,
    identity: &Fingerprint,
    key: &Digest,
    page: &mut PageMut<'_>,
) -> std::io::Result<Outcome> {
    match file.metadata()?.len().cmp(&((HEADER + page.bytes()) as u64)) {
        CmpOrdering::Less => return Ok(Outcome::Short),
        CmpOrdering::Greater => return Ok(Outcome::Corrupt),
        CmpOrdering::Equal => {}
    }
    let mut found = [0; HEADER];
    file.read_exact(&mut found)?;
    page.runs().iter_mut().try_for_each(|run| file.read_exact(run))?;
    let same = found == header(identity, key, &page.view());
    Ok(if same { Outcome::Hit } else { Outcome::Corrupt })
}

fn checksum(key: &Digest, page: &PageRef<'_>) -> u128 {
    let mut hasher = Xxh3::new();
    hasher.update(&key.0);
    page.runs().iter().for_each(|run| hasher.update(run));
    hasher.digest128()
}

/// Does something in a directory, which is made if it is not there: nobody made it yet, or it was removed
/// behind our back.
fn made<T>(dir: &Path, act: impl Fn() -> std::io::Result<T>) -> std::io::Result<T> {
    match act() {
        Err(error) if error.kind() == ErrorKind::NotFound => fs::create_dir_all(dir).and_then(|()| act()),
        done => done,
    }
}
