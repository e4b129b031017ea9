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

use super::{Outcome, Store};
use crate::error::{Result, argument};
use crate::hash::Digest;
use crate::identity::{FORMAT, Fingerprint};
use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::BuildHasher as _;
use std::io::{ErrorKind, IoSlice, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// A directory of pages of one identity.
#[derive(Debug)]
pub struct FileStore {
    pages: PathBuf,
    tmp: PathBuf,
    identity: Fingerprint,
}

impl FileStore {
    /// Opens or makes the directory. Remains of writes that nobody finished are removed.
    ///
    /// # Errors
    /// When `root` is a file, can't be made or can't be written to.
    pub fn open(root: &Path, identity: Fingerprint) -> Result<Self> {
        let pages = root.join(hex::encode(&identity.0[..16]));
        let tmp = root.join("tmp");
        if root.exists() && !root.is_dir() {
            return argument("storage", format!("{} is not a directory", root.display()));
        }
        for dir in [&pages, &tmp] {
            if let Err(error) = fs::create_dir_all(dir) {
                return argument("storage", format!("can't make {}: {error}", dir.display()));
            }
        }
        let store = Self { pages, tmp, identity };
        let probe = store.temporary();
        if let Err(error) = File::create_new(&probe).and_then(|_| fs::remove_file(&probe)) {
            return argument("storage", format!("can't write to {}: {error}", store.tmp.display()));
        }
        store.remove_remains();
        Ok(store)
    }

    fn path(&self, key: &Digest) -> PathBuf {
        let name = hex::encode(key.0);
        self.pages.join(&name[..2]).join(&name[2..])
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

    fn header(&self, key: &Digest, page: &[u8]) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        header[12..16].copy_from_slice(&CODEC_NONE.to_le_bytes());
        header[16..48].copy_from_slice(&self.identity.0);
        header[48..80].copy_from_slice(&key.0);
        header[80..88].copy_from_slice(&(page.len() as u64).to_le_bytes());
        header[88..104].copy_from_slice(&checksum(key, page).to_le_bytes());
        header
    }

    fn read(&self, key: &Digest, page: &mut [u8]) -> Outcome {
        let path = self.path(key);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Outcome::Absent,
            Err(_) => return Outcome::Failed,
        };
        match self.verified(&mut file, key, page) {
            Ok(true) => Outcome::Hit,
            Ok(false) => {
                let _ = fs::remove_file(&path);
                Outcome::Corrupt
            }
            Err(_) => Outcome::Failed,
        }
    }

    /// Reads a page and compares all that is known of it; its length first, its bytes last.
    fn verified(&self, file: &mut File, key: &Digest, page: &mut [u8]) -> std::io::Result<bool> {
        if file.metadata()?.len() != (HEADER + page.len()) as u64 {
            return Ok(false);
        }
        let mut header = [0; HEADER];
        file.read_exact(&mut header)?;
        file.read_exact(page)?;
        Ok(header == self.header(key, page))
    }

    fn write(&self, key: &Digest, page: &[u8]) -> std::io::Result<()> {
        let path = self.path(key);
        if path.is_file() {
            return Ok(());
        }
        let tmp = self.temporary();
        let header = self.header(key, page);
        let mut file = made(&self.tmp, || File::options().write(true).create_new(true).open(&tmp))?;
        // From here on the temporary file is ours to remove.
        let written = write_whole(&mut file, &header, page)
            .and_then(|()| path.parent().map_or(Ok(()), |dir| made(dir, || fs::rename(&tmp, &path))));
        if written.is_err() {
            let _ = fs::remove_file(&tmp);
        }
        written
    }
}

impl Store for FileStore {
    fn exists(&self, keys: &[Digest]) -> Vec<Outcome> {
        let exists = |key| match self.path(key).try_exists() {
            Ok(true) => Outcome::Hit,
            Ok(false) => Outcome::Absent,
            Err(_) => Outcome::Failed,
        };
        keys.iter().map(exists).collect()
    }

    fn get(&self, keys: &[Digest], pages: &mut [&mut [u8]]) -> Vec<Outcome> {
        keys.iter().zip(pages).map(|(key, page)| self.read(key, page)).collect()
    }

    fn put(&self, keys: &[Digest], pages: &[&[u8]]) -> Vec<Outcome> {
        let put = |(key, page): (&Digest, &&[u8])| match self.write(key, page) {
            Ok(()) => Outcome::Hit,
            Err(_) => Outcome::Failed,
        };
        keys.iter().zip(pages).map(put).collect()
    }

    fn remove(&self, keys: &[Digest]) {
        for key in keys {
            let _ = fs::remove_file(self.path(key));
        }
    }
}

fn checksum(key: &Digest, page: &[u8]) -> u128 {
    let mut hasher = Xxh3::new();
    hasher.update(&key.0);
    hasher.update(page);
    hasher.digest128()
}

fn write_whole(file: &mut File, header: &[u8], page: &[u8]) -> std::io::Result<()> {
    // One call for both where the kernel takes all of it, as it does for files.
    let sent = file.write_vectored(&[IoSlice::new(header), IoSlice::new(page)])?;
    file.write_all(&header[sent.min(header.len())..])?;
    file.write_all(&page[sent.saturating_sub(header.len())..])
}

/// Does something in a directory, which is made if it is not there: nobody made it yet, or it was removed
/// behind our back.
fn made<T>(dir: &Path, act: impl Fn() -> std::io::Result<T>) -> std::io::Result<T> {
    match act() {
        Err(error) if error.kind() == ErrorKind::NotFound => fs::create_dir_all(dir).and_then(|()| act()),
        done => done,
    }
}
