//! An open slab store: its parts, and how they come together.
//!
//! One mutex, the book's, orders all decisions: what is decided is applied to the index and appended to the log under
//! it. Bytes move, and the log is written, without it.
//! On error: opening names `storage`; nothing stays open.

use super::admit::Admission;
use super::clock::{Clock, Moment};
use super::compact::Pause;
use super::extents::{ExtentOptions, ExtentStats, Extents};
use super::home::Home;
use super::index::{Index, State};
use super::log::Log;
use super::media::{Media, Plain};
use super::options::{Bounds, Options};
use super::record::Record;
use super::replay::Replay;
use super::tail::{LogOptions, Writer};
use crate::error::{Result, argument};
use crate::identity::Fingerprint;
use crate::storage::Statistics;
use crate::storage::disk::{Disk, Engine};
use hashbrown::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the store stands on, where tests put something else in its place.
#[derive(Clone)]
pub struct Seams {
    /// What carries requests to the disk; none: as the options say.
    pub engine: Option<Arc<dyn Engine>>,
    /// What the log is written with.
    pub media: Arc<dyn Media>,
    /// The machine's clocks.
    pub clock: fn() -> Moment,
}

impl Default for Seams {
    fn default() -> Self {
        Self { engine: None, media: Arc::new(Plain), clock: Moment::now }
    }
}

/// A store that is open.
pub struct Slab {
    /// How it was opened.
    pub options: Options,
    pub(super) bounds: Bounds,
    pub(super) disk: Arc<Disk>,
    pub(super) extents: Extents,
    pub(super) log: Log,
    pub(super) clock: Clock,
    book: Mutex<Book>,
    /// Held by whoever writes a snapshot.
    pub(super) compacting: Mutex<Pause>,
    /// What the log could not tell when it was opened.
    damaged: String,
    /// The last to go: nobody opens the directory before all else is closed.
    pub(super) home: Home,
}

/// Decisions, and what they go by.
pub(super) struct Book {
    pub index: Index,
    pub identities: HashMap<Fingerprint, u16>,
    pub admission: Admission,
    pub counts: Statistics,
    /// Evictions of a class since it last looked at others'.
    pub turns: HashMap<u32, u32>,
    /// Where the search for expired pages goes on.
    pub swept: u32,
    /// Most slots that the log, and the snapshot before it, have been told of.
    pub logged: u64,
    /// The same since the last snapshot was begun.
    pub since: u64,
}

impl Slab {
    /// Opens a store: makes its directory, or reads what is there.
    ///
    /// # Errors
    /// Names `storage` and what is wrong.
    pub fn open(options: Options, seams: &Seams) -> Result<Self> {
        let dir = options.root.join(&options.rank);
        let wished = (options.extent, options.usual_extent());
        let home = Home::open(&dir, wished, |extent| options.bounds(extent).map(|_| ()), &*seams.media)?;
        let bounds = options.bounds(home.extent)?;
        let lost = home.clear_damaged()?;
        let disk = Arc::new(match &seams.engine {
            Some(engine) => Disk::over(Arc::clone(engine), &dir, options.disk)?,
            None => Disk::open(&dir, options.disk)?,
        });
        let extents = Extents::open(
            Arc::clone(&disk),
            Arc::clone(&seams.media),
            &dir,
            extent_options(&options, bounds, &dir)?,
        )?;
        let (extent, secret) = (home.extent, RandomState::new().hash_one(0));
        let fresh = move || Index::new(extent, secret);
        let replay = Replay::new(&extents.found(), fresh).directory(&dir, home.store, &*seams.media)?;
        let damaged = told(&replay, lost);
        let Replay { index, resume, first, unreadable, newest, .. } = replay;
        for (extent, slots) in index.ground.iter() {
            let used = (0..).zip(&slots.pages).filter(|(_, page)| **page != super::index::ground::NONE);
            extents.adopt(extent.into(), slots.class, used.map(|(slot, _)| slot))?;
        }
        let numbered = (0..=u16::MAX).zip(&resume.identities);
        let identities = numbered.filter_map(|(number, identity)| Some(((*identity)?, number))).collect();
        let log = LogOptions { store: home.store, segment: segment(bounds), sync: options.sync };
        let log = Log::resume(Writer { media: Arc::clone(&seams.media), dir, options: log }, resume);
        let admission = Admission::new(options.second, options.write_rate, 0);
        let (counts, turns) = (Statistics::default(), HashMap::new());
        let book =
            Mutex::new(Book { index, identities, admission, counts, turns, swept: 0, logged: 0, since: 0 });
        let (clock, compacting) = (Clock::new(seams.clock, newest), Mutex::default());
        let slab = Self { options, bounds, disk, extents, log, clock, book, compacting, damaged, home };
        slab.shrink()?;
        // What a process left behind that was killed, or that never ran for long: nothing depends on it.
        let _ = slab.log.writer.clear().and_then(|()| slab.remove_before(first));
        if unreadable || slab.should_compact() {
            match slab.compact() {
                Err(error) if unreadable => {
                    let reason = format!("what the disk can't read of its log can't be replaced: {error}");
                    return argument("storage", reason);
                }
                _ => {}
            }
        }
        slab.extents.start()?;
        Ok(slab)
    }

    /// What is where, for who looks from outside.
    pub fn look<T>(&self, look: impl FnOnce(&Index) -> T) -> T {
        look(&self.book().index)
    }

    /// Room in its data files.
    pub fn space(&self) -> ExtentStats {
        self.extents.stats()
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a page that was written then is too old now.
    pub(super) fn expired(&self, time: u32, now: u32) -> bool {
        self.options.ttl.is_some_and(|most| u64::from(now.saturating_sub(time)) > most.as_secs())
    }

    /// The number of an identity, which gets one if it has none; `None` if there are too many.
    pub(super) fn number_of(&self, book: &mut Book, identity: &Fingerprint) -> Option<u16> {
        if let Some(number) = book.identities.get(identity) {
            return Some(*number);
        }
        let number = self.unused_number().or_else(|| {
            self.retire(book);
            self.unused_number()
        });
        let number = number.or_else(|| {
            self.forget_coldest(book);
            self.retire(book);
            self.unused_number()
        })?;
        book.identities.insert(*identity, number);
        self.log.append(&Record::Identity(number, *identity));
        Some(number)
    }

    /// How many numbers there are: all of them stand at every segment's head.
    fn most_numbers(&self) -> usize {
        usize::try_from(self.bounds.identities()).unwrap_or(usize::MAX)
    }

    fn unused_number(&self) -> Option<u16> {
        (0..=u16::MAX).take(self.most_numbers()).find(|&number| self.log.identity(number).is_none())
    }

    /// Identities that have pages.
    pub(super) fn held(&self) -> Vec<Fingerprint> {
        used(&self.book().index).into_iter().filter_map(|number| self.log.identity(number)).collect()
    }

    /// Takes numbers from identities that have no page.
    fn retire(&self, book: &mut Book) {
        let used = used(&book.index);
        book.identities.retain(|_, number| used.contains(number));
        (0..=u16::MAX).filter(|number| !used.contains(number)).for_each(|number| self.log.retire(number));
    }

    /// Gives up all pages of the identity of which none was used for longest: where every number has pages, nobody new
    /// could ever put one, and so nothing would be evicted either.
    fn forget_coldest(&self, book: &mut Book) {
        let mut last: HashMap<u16, u64> = HashMap::new();
        for page in (0..book.index.numbers()).map(|page| book.index.page(page)) {
            let used = match page.state {
                State::Free => continue,
                State::Here if page.readers == 0 => page.used,
                _ => u64::MAX,
            };
            let known = last.entry(page.written.identity).or_default();
            *known = used.max(*known);
        }
        let mut idle: Vec<(u64, u16)> = last.into_iter().map(|(number, used)| (used, number)).collect();
        idle.retain(|&(used, number)| used < u64::MAX && usize::from(number) < self.most_numbers());
        let Some(&(_, number)) = idle.iter().min() else { return };
        let (free, pages) = book.index.clear(number);
        self.log.append(&Record::Clear(number));
        free.into_iter().for_each(|at| self.free(at, true));
        book.counts.evicted_pages += pages;
    }

    /// What it is and how it works.
    pub fn describe(&self) -> String {
        let log = match self.log.fault() {
            Some(fault) => format!("; its log can't be written: {fault}"),
            None => String::new(),
        };
        let sync = if self.options.sync { ", durable" } else { "" };
        format!(
            "slab of {} below {}{sync}; {}{}{log}",
            gib(self.bounds.size),
            self.home.dir.display(),
            self.disk.describe(),
            self.damaged
        )
    }
}

/// Numbers of identities that have pages, here or under way.
fn used(index: &Index) -> HashSet<u16> {
    let pages = (0..index.numbers()).map(|page| index.page(page));
    pages.filter(|page| page.state != State::Free).map(|page| page.written.identity).collect()
}

fn extent_options(options: &Options, bounds: Bounds, dir: &std::path::Path) -> Result<ExtentOptions> {
    let whole = rustix::fs::statvfs(dir).map(|about| about.f_blocks.saturating_mul(about.f_frsize));
    let whole = whole.or_else(|error| argument("storage", format!("{}: {error}", dir.display())))?;
    let most = u32::try_from(bounds.most_extents()).unwrap_or(u32::MAX);
    Ok(ExtentOptions { bytes: bounds.extent, most, free: options.free.of(whole) })
}

fn segment(bounds: Bounds) -> usize {
    usize::try_from(bounds.segment).unwrap_or(usize::MAX)
}

fn told(replay: &Replay, lost: u64) -> String {
    match (replay.damaged, replay.forgotten, lost) {
        (0, 0, 0) => String::new(),
        (damaged, forgotten, lost) => format!(
            "; found {damaged} damaged segments of its log, forgot {forgotten} pages for that; {lost} damaged extents"
        ),
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn gib(bytes: u64) -> String {
    format!("{:.2} GiB", bytes as f64 / (1u64 << 30) as f64)
}
