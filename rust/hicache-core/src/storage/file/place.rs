//! Where pages are: `root/<32 hex of the identity>/<2 hex of the key>/<62 hex>`, so that no folder has more than a 256th
//! of an identity's pages; and `root/tmp`, where they are written before they are published.
//!
//! Names are digests: nothing that anybody calls a model, an adapter or a tenant is ever part of a path. Only what has
//! such a name is ours; everything else in the directory is left alone.
//! On error: the system's, as they are.

use crate::hash::Digest;
use crate::identity::Fingerprint;
use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher as _;
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Writing a page takes milliseconds: a temporary file that is so old is nobody's.
const ABANDONED: Duration = Duration::from_secs(600);

/// A page in a directory: half of its identity, its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// What the identity's folder is called.
    pub identity: [u8; 16],
    /// The page's.
    pub key: [u8; 32],
}

impl Name {
    /// Of a page.
    pub fn of(identity: &Fingerprint, key: &Digest) -> Self {
        Self { identity: half(identity), key: key.0 }
    }

    /// Of another page of the same identity.
    pub const fn sibling(self, key: Digest) -> Self {
        Self { identity: self.identity, key: key.0 }
    }

    /// Its file.
    pub fn path(&self, root: &Path) -> PathBuf {
        let name = hex::encode(self.key);
        root.join(hex::encode(self.identity)).join(&name[..2]).join(&name[2..])
    }
}

/// What an identity's folder is called.
pub fn half(identity: &Fingerprint) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&identity.0[..16]);
    half
}

/// A folder of pages.
#[derive(Clone, Debug)]
pub struct Folder {
    /// Whose.
    pub identity: [u8; 16],
    /// The first byte of their keys.
    pub first: u8,
    /// Where it is.
    pub path: PathBuf,
}

impl Folder {
    /// Names of its pages, with their files.
    pub fn pages(&self) -> impl Iterator<Item = (Name, fs::DirEntry)> + '_ {
        fs::read_dir(&self.path).into_iter().flatten().flatten().filter_map(|file| {
            let mut key = [self.first; 32];
            hex::decode_to_slice(file.file_name().to_str()?, &mut key[1..]).ok()?;
            Some((Name { identity: self.identity, key }, file))
        })
    }
}

/// The folders of an identity, or of all.
pub fn folders(root: &Path, identity: Option<[u8; 16]>) -> impl Iterator<Item = Folder> {
    let identities: Vec<[u8; 16]> = match identity {
        Some(identity) => vec![identity],
        None => fs::read_dir(root).into_iter().flatten().flatten().filter_map(|dir| parsed(&dir)).collect(),
    };
    let root = root.to_owned();
    identities.into_iter().flat_map(move |identity| {
        let dir = root.join(hex::encode(identity));
        fs::read_dir(dir).into_iter().flatten().flatten().filter_map(move |folder| {
            let [first] = parsed(&folder)?;
            Some(Folder { identity, first, path: folder.path() })
        })
    })
}

/// The bytes that an entry's name is the hex of, in lower case.
fn parsed<const BYTES: usize>(entry: &fs::DirEntry) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    let name = entry.file_name();
    hex::decode_to_slice(name.to_str()?, &mut bytes).ok()?;
    (name.to_str()? == hex::encode(bytes)).then_some(bytes)
}

/// What our temporary files' names begin with. A process number alone is no name: it comes back after a
/// restart of a container, and two containers that share the directory may have the same one. Nor is the
/// nonce: a forked child has its parent's.
fn ours() -> String {
    static NONCE: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::time::SystemTime::now()));
    format!("{}-{:016x}-", std::process::id(), *NONCE)
}

/// A name for a temporary file that nobody else has: two stores of one process may share the directory.
pub fn temporary(tmp: &Path) -> PathBuf {
    static ATTEMPT: AtomicU64 = AtomicU64::new(0);
    let attempt = ATTEMPT.fetch_add(1, Ordering::Relaxed);
    tmp.join(format!("{}{attempt}", ours()))
}

/// Removes temporary files that nobody is writing any more; their bytes. Processes of other machines and containers
/// can't be asked, so that age decides.
pub fn remove_remains(tmp: &Path) -> u64 {
    let prefix = ours();
    let mut removed = 0;
    for entry in fs::read_dir(tmp).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(&prefix);
        let Ok(data) = entry.metadata() else { continue };
        let age = data.modified().ok().and_then(|at| at.elapsed().ok());
        // Somebody else may have been quicker.
        if !ours && age.is_some_and(|age| age > ABANDONED) && fs::remove_file(entry.path()).is_ok() {
            removed += data.len();
        }
    }
    removed
}

/// Does something in a directory, which is made if it is not there: nobody made it yet, or it was removed
/// behind our back.
///
/// # Errors
/// The system's.
pub fn made<T>(dir: &Path, act: impl Fn() -> Result<T>) -> Result<T> {
    match act() {
        Err(error) if error.kind() == ErrorKind::NotFound => fs::create_dir_all(dir).and_then(|()| act()),
        done => done,
    }
}
