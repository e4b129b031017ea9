//! Pages in host memory as a store, before the store behind it, if there is one.
//!
//! `put` writes the records of pages that are in host slots; `get` verifies, where it is, a page that its slot has
//! already, and writes the records of those that it reads from behind. What is not of this identity goes past it.
//! On error: what is damaged is counted, its record cleared, and the store behind is asked; if that has it, it is a hit.

use super::Kept;
use super::table::Record;
use crate::error::{Result, argument};
use crate::hash::Digest;
use crate::identity::Fingerprint;
use crate::ids::HostSlot;
use crate::storage::{Held, Keys, Outcome, PageMut, PageRef, Statistics, Store};
use hashbrown::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use xxhash_rust::xxh3::Xxh3;

/// Host memory that outlives the process, and a store.
pub struct KeptStore {
    kept: Arc<Kept>,
    behind: Option<Arc<dyn Store>>,
    /// Others may come after it over the same memory.
    closed: AtomicBool,
}

impl KeptStore {
    /// Over host memory and what answers for what isn't there.
    pub const fn new(kept: Arc<Kept>, behind: Option<Arc<dyn Store>>) -> Self {
        Self { kept, behind, closed: AtomicBool::new(false) }
    }

    fn ours(&self, identity: &Fingerprint) -> bool {
        *identity == self.kept.identity
    }

    /// Where a page of this identity is, if it is in host memory.
    fn slot(&self, keys: Keys<'_>, page: &PageRef<'_>) -> Option<HostSlot> {
        let first = page.runs().first().filter(|_| self.ours(keys.identity))?;
        self.kept.places.get()?.slot(first.as_ptr().addr())
    }

    /// A whole page is in its slot: writes its record, unless anything was removed meanwhile.
    fn seal(&self, keys: Keys<'_>, digest: &Digest, page: &PageRef<'_>, removals: u64) {
        let Some(slot) = self.slot(keys, page) else { return };
        let checksum = checksum(keys.identity, digest, page);
        let now = self.kept.removals();
        if *now == removals {
            self.kept.table.clear(self.kept.number(slot));
            self.kept.table.write(self.kept.number(slot), digest, checksum);
        }
    }

    /// Whether a page is in the slot that it is to be read into; `Corrupt` if it should be, and isn't.
    fn in_place(&self, keys: Keys<'_>, digest: &Digest, page: &PageRef<'_>) -> Outcome {
        let Some(slot) = self.slot(keys, page) else { return Outcome::Absent };
        match self.kept.table.record(self.kept.number(slot)) {
            Record::Whole { digest: found, checksum: written, .. } if found == *digest => {
                if checksum(keys.identity, digest, page) == written {
                    return Outcome::Hit;
                }
                self.kept.table.clear(self.kept.number(slot));
                self.kept.corrupt.fetch_add(1, Ordering::Relaxed);
                Outcome::Corrupt
            }
            _ => Outcome::Absent,
        }
    }

    /// Asks the store behind for those keys that have no hit yet.
    fn ask_behind(
        &self,
        keys: Keys<'_>,
        outcomes: &mut [Outcome],
        ask: impl FnOnce(&dyn Store, Keys<'_>, &[usize]) -> Vec<Outcome>,
    ) {
        let missing: Vec<usize> = (0..keys.len()).filter(|&at| outcomes[at] != Outcome::Hit).collect();
        let Some(behind) = self.behind.as_ref().filter(|_| !missing.is_empty()) else { return };
        let digests: Vec<Digest> = missing.iter().map(|&at| keys.digests[at]).collect();
        let answers = ask(&**behind, Keys { identity: keys.identity, digests: &digests }, &missing);
        for (&at, answer) in missing.iter().zip(answers) {
            // Damaged here and absent there is damaged.
            if answer != Outcome::Absent {
                outcomes[at] = answer;
            }
        }
    }

    /// Clears the records of all pages that are named; how many there were.
    fn forget(&self, named: impl Fn(&Digest) -> bool) -> HashSet<Digest> {
        let mut removals = self.kept.removals();
        *removals += 1;
        let mut gone = HashSet::new();
        for slot in 0..self.kept.firsts.last().copied().unwrap_or(0) {
            if let Record::Whole { digest, .. } = self.kept.table.record(slot)
                && named(&digest)
            {
                self.kept.table.clear(slot);
                gone.insert(digest);
            }
        }
        gone
    }

    /// A call begins, unless it is closed.
    fn begin(&self) -> Option<Call<'_>> {
        let call = Call(&self.kept);
        self.kept.busy.fetch_add(1, Ordering::SeqCst);
        let closed = || self.closed.load(Ordering::SeqCst) || self.kept.closed.load(Ordering::SeqCst);
        (!closed()).then_some(call)
    }
}

/// A call under way.
struct Call<'a>(&'a Kept);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Store for KeptStore {
    fn exists(&self, keys: Keys<'_>) -> Vec<Outcome> {
        let Some(_call) = self.begin() else { return vec![Outcome::Failed; keys.len()] };
        let ours = self.ours(keys.identity);
        let there = |digest: &Digest| ours && self.kept.known(digest).is_some();
        let mut outcomes: Vec<Outcome> = keys
            .digests
            .iter()
            .map(|digest| if there(digest) { Outcome::Hit } else { Outcome::Absent })
            .collect();
        self.ask_behind(keys, &mut outcomes, |behind, keys, _| behind.exists(keys));
        outcomes
    }

    fn get(&self, keys: Keys<'_>, pages: &mut [PageMut<'_>]) -> Vec<Outcome> {
        let Some(_call) = self.begin() else { return vec![Outcome::Failed; keys.len()] };
        let removals = *self.kept.removals();
        let here = keys.digests.iter().zip(&*pages);
        let mut outcomes: Vec<Outcome> =
            here.map(|(digest, page)| self.in_place(keys, digest, &page.view())).collect();
        self.ask_behind(keys, &mut outcomes, |behind, keys, missing| {
            let (mut views, mut wanted) = (Vec::with_capacity(missing.len()), missing.iter().peekable());
            for (at, page) in pages.iter_mut().enumerate() {
                if wanted.next_if(|&&next| next == at).is_some() {
                    views.push(PageMut::new(page.runs().iter_mut().map(|run| &mut **run).collect()));
                }
            }
            let answers = behind.get(keys, &mut views);
            for ((digest, page), answer) in keys.digests.iter().zip(&views).zip(&answers) {
                if *answer == Outcome::Hit {
                    self.seal(keys, digest, &page.view(), removals);
                }
            }
            answers
        });
        outcomes
    }

    fn put(&self, keys: Keys<'_>, parents: &[Option<Digest>], pages: &[PageRef<'_>]) -> Vec<Outcome> {
        let Some(_call) = self.begin() else { return vec![Outcome::Failed; keys.len()] };
        let removals = *self.kept.removals();
        for (digest, page) in keys.digests.iter().zip(pages) {
            self.seal(keys, digest, page, removals);
        }
        match &self.behind {
            Some(behind) => behind.put(keys, parents, pages),
            None => vec![Outcome::Hit; keys.len()],
        }
    }

    fn remove(&self, keys: Keys<'_>) -> Vec<Outcome> {
        let Some(_call) = self.begin() else { return vec![Outcome::Failed; keys.len()] };
        let gone = if self.ours(keys.identity) {
            self.forget(|digest| keys.digests.contains(digest))
        } else {
            HashSet::new()
        };
        let behind = self.behind.as_ref().map(|behind| behind.remove(keys));
        let mut outcomes = behind.unwrap_or_else(|| vec![Outcome::Absent; keys.len()]);
        for (digest, outcome) in keys.digests.iter().zip(&mut outcomes) {
            if *outcome == Outcome::Absent && gone.contains(digest) {
                *outcome = Outcome::Hit;
            }
        }
        outcomes
    }

    fn clear(&self, identity: &Fingerprint) -> Result<u64> {
        let here = if self.ours(identity) { self.forget(|_| true).len() as u64 } else { 0 };
        match &self.behind {
            Some(behind) => Ok(behind.clear(identity)?.max(here)),
            None => Ok(here),
        }
    }

    fn statistics(&self) -> Statistics {
        self.behind.as_ref().map_or_else(Statistics::default, |behind| behind.statistics())
    }

    fn register(&self, memory: &[(*mut u8, usize)]) {
        if let Some(behind) = &self.behind {
            behind.register(memory);
        }
    }

    fn needs_shared_memory(&self) -> bool {
        self.behind.as_ref().is_some_and(|behind| behind.needs_shared_memory())
    }

    fn describe(&self) -> String {
        let kept = self.kept.describe();
        self.behind.as_ref().map_or_else(|| kept.clone(), |behind| format!("{kept}; {}", behind.describe()))
    }

    fn list(&self) -> Result<Vec<Held>> {
        match &self.behind {
            Some(behind) => behind.list(),
            None => argument("storage", "host memory can't list its pages"),
        }
    }

    fn compact(&self) -> Result<u64> {
        self.behind.as_ref().map_or(Ok(0), |behind| behind.compact())
    }

    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        if let Some(behind) = &self.behind {
            behind.close();
        }
    }
}

fn checksum(identity: &Fingerprint, digest: &Digest, page: &PageRef<'_>) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&identity.0);
    hasher.update(&digest.0);
    page.runs().iter().for_each(|run| hasher.update(run));
    hasher.digest()
}
