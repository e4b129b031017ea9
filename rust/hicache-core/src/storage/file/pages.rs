//! What is done to one page of the directory.
//!
//! On error: an outcome. What is damaged is removed, so that it isn't in the way of a page that is whole.

use super::FileStore;
use super::options::Step;
use super::page::{self, HEADER, Header};
use super::place::{self, Name};
use super::sweep::older;
use crate::hash::Digest;
use crate::identity::Fingerprint;
use crate::storage::{Outcome, PageMut, PageRef};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::collections::HashSet;
use std::fs::{self, File, FileTimes, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

/// A page's time of use is written down when it is older than this.
const NOTED: Duration = Duration::from_secs(10);

impl FileStore {
    /// What is in a page's place, if it is a page that hasn't expired, as far as can be told without reading it.
    pub(super) fn look(&self, path: &Path) -> io::Result<Option<Metadata>> {
        match fs::metadata(path) {
            Ok(data) if !data.is_file() => Ok(None),
            Ok(data) if self.limits.ttl.is_some_and(|ttl| older(&data, ttl)) => Ok(None),
            Ok(data) => Ok(Some(data)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a page; what is damaged is taken away.
    pub(super) fn read(&self, identity: &Fingerprint, key: &Digest, page: &mut PageMut<'_>) -> Outcome {
        let name = Name::of(identity, key);
        let path = name.path(&self.root);
        let outcome = match self.try_read(&path, identity, key, page) {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::NotFound => return Outcome::Absent,
            // A page that can't be read is in the way of one that can.
            Err(error) if unreadable(&error) => {
                let _ = self.take_away(&name, &path);
                return Outcome::Failed;
            }
            Err(_) => return Outcome::Failed,
        };
        match outcome {
            Outcome::Hit => self.usage.used(&name),
            Outcome::Absent => {}
            _ => drop(self.take_away(&name, &path)),
        }
        outcome
    }

    fn try_read(
        &self,
        path: &Path,
        identity: &Fingerprint,
        key: &Digest,
        page: &mut PageMut<'_>,
    ) -> io::Result<Outcome> {
        self.steps.before(Step::Open, path)?;
        let mut file = opened(path)?;
        let data = file.metadata()?;
        if !data.is_file() {
            return Ok(Outcome::Corrupt);
        }
        if self.limits.ttl.is_some_and(|ttl| older(&data, ttl)) {
            return Ok(Outcome::Absent);
        }
        self.steps.before(Step::Read, path)?;
        let outcome = page::read(&mut file, data.len(), identity, key, page)?;
        if outcome == Outcome::Hit && self.limits.bounded() {
            note_use(&file, &data);
        }
        Ok(outcome)
    }

    /// Writes a page, unless it is there; and whether it was new.
    pub(super) fn write(
        &self,
        identity: &Fingerprint,
        key: &Digest,
        parent: Option<Digest>,
        page: &PageRef<'_>,
        spared: &HashSet<Name>,
    ) -> (Outcome, bool) {
        let (name, bytes) = (Name::of(identity, key), (HEADER + page.bytes()) as u64);
        let path = name.path(&self.root);
        match self.look(&path) {
            Ok(Some(data)) if data.len() == bytes => {
                self.usage.used(&name);
                return (Outcome::Hit, false);
            }
            // Too old or damaged: in the way.
            Ok(_) if path.is_file() => drop(self.take_away(&name, &path)),
            _ => {}
        }
        let Some(mut room) = self.usage.reserve(name, bytes, &self.counters, |name| spared.contains(name))
        else {
            return (
                if self.closed.load(Ordering::Relaxed) { Outcome::Failed } else { Outcome::Declined },
                false,
            );
        };
        let attempt = self.attempts.begin(name);
        let header = Header::of(identity, key, parent, page);
        let mut twice = false;
        let published = self.write_aside(&path, &header, page).and_then(|tmp| {
            let published = attempt.publish(|| {
                // Others were writing it too, and were quicker: a page is written, and counted, once.
                // (What can't even be asked what it is is replaced.)
                twice = self.look(&path).is_ok_and(|data| data.is_some_and(|data| data.len() == bytes));
                if twice {
                    return Ok(Outcome::Hit);
                }
                self.steps.before(Step::Publish, &path)?;
                path.parent().map_or(Ok(()), |dir| place::made(dir, || fs::rename(&tmp, &path)))?;
                room.stored(parent.map(|parent| name.sibling(parent)));
                Ok(Outcome::Hit)
            });
            if twice || !matches!(published, Some(Ok(_))) {
                let _ = fs::remove_file(&tmp);
            }
            published.unwrap_or(Ok(Outcome::Cancelled))
        });
        (published.unwrap_or(Outcome::Failed), !twice)
    }

    /// Writes a page under a name of its own; on failure nothing stays.
    fn write_aside(&self, path: &Path, header: &Header, page: &PageRef<'_>) -> io::Result<PathBuf> {
        let tmp = place::temporary(&self.tmp);
        self.steps.before(Step::Create, path)?;
        let mut file = place::made(&self.tmp, || File::options().write(true).create_new(true).open(&tmp))?;
        // From here on the temporary file is ours to remove. The clock of files is coarse: pages written one after the
        // other would be of one age.
        let now = FileTimes::new().set_accessed(SystemTime::now()).set_modified(SystemTime::now());
        let written = self
            .steps
            .before(Step::Write, path)
            .and_then(|()| page::write(&mut file, header, page))
            .and_then(|()| file.set_times(now));
        if let Err(error) = written {
            let _ = fs::remove_file(&tmp);
            return Err(error);
        }
        Ok(tmp)
    }

    /// Removes a page, whoever is writing it.
    pub(super) fn take_away(&self, name: &Name, path: &Path) -> io::Result<()> {
        self.attempts.remove(name, || {
            self.steps.before(Step::Remove, path)?;
            let bytes = fs::symlink_metadata(path).map_or(0, |data| data.len());
            let removed = fs::remove_file(path);
            match &removed {
                Ok(()) => self.usage.gone(*name, Some(bytes)),
                Err(error) if error.kind() == ErrorKind::NotFound => self.usage.gone(*name, None),
                Err(_) => {}
            }
            removed
        })
    }
}

/// Opens a file without waiting for anybody, should it be a pipe.
pub(super) fn opened(path: &Path) -> io::Result<File> {
    open_as(path, OFlags::empty())
}

/// The same to look at a page that nobody uses thereby: its time of access says when it was used. Only the owner may
/// ask for that; for others it is set back.
pub(super) fn peeked(path: &Path) -> Option<Header> {
    #[cfg(target_os = "linux")]
    if let Ok(mut file) = open_as(path, OFlags::NOATIME) {
        return page::peek(&mut file);
    }
    let mut file = opened(path).ok()?;
    let used = file.metadata().ok()?.accessed().ok()?;
    let header = page::peek(&mut file);
    let _ = file.set_times(FileTimes::new().set_accessed(used));
    header
}

fn open_as(path: &Path, more: OFlags) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
    Ok(File::from(openat(CWD, path, flags, Mode::empty())?))
}

/// Whether a file that failed so will never be read: not for want of descriptors or memory.
fn unreadable(error: &io::Error) -> bool {
    let never = [rustix::io::Errno::IO, rustix::io::Errno::LOOP].map(|never| Some(never.raw_os_error()));
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::UnexpectedEof)
        || never.contains(&error.raw_os_error())
}

/// Other processes and later ones see by its time of access that a page was used. Where that can't be set, it leaves early.
fn note_use(file: &File, data: &Metadata) {
    let now = SystemTime::now();
    let noted = data.accessed().ok().and_then(|at| now.duration_since(at).ok());
    if noted.is_none_or(|ago| ago > NOTED) {
        let _ = file.set_times(FileTimes::new().set_accessed(now));
    }
}
