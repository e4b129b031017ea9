//! Removing pages, by key and by identity, and telling what there is.
//!
//! A removal is logged before it is acknowledged, and puts that are under way find themselves cancelled.
//! On error: outcomes per key; clearing names `storage`.

use super::index::{Key, State};
use super::record::{Record, Touches};
use super::store::Slab;
use crate::error::{Result, argument};
use crate::identity::Fingerprint;
use crate::storage::{Held, Keys, Outcome, Statistics};

impl Slab {
    /// See `Store::remove`.
    pub fn remove(&self, keys: Keys<'_>) -> Vec<Outcome> {
        let now = self.clock.now();
        let mut outcomes = vec![Outcome::Absent; keys.len()];
        let mut book = self.book();
        let identity = book.identities.get(keys.identity).copied();
        for (outcome, &digest) in outcomes.iter_mut().zip(keys.digests) {
            let Some(identity) = identity else { break };
            let key = Key { identity, digest };
            book.index.cancel(&key);
            if let Some((page, time)) = book.index.find(&key) {
                self.drop_page(&mut book, page);
                *outcome = if self.expired(time, now) { Outcome::Absent } else { Outcome::Hit };
            }
        }
        let end = self.log.end();
        drop(book);
        if self.commit(end).is_err() {
            // What is absent, too, may be so by a removal that isn't written.
            outcomes.fill(Outcome::Failed);
        }
        outcomes
    }

    /// See `Store::clear`.
    ///
    /// # Errors
    /// When the log can't be written: they are gone, but may be back after a restart.
    pub fn clear(&self, identity: &Fingerprint) -> Result<u64> {
        let mut book = self.book();
        let Some(&number) = book.identities.get(identity) else { return Ok(0) };
        book.index.cancel_all(number);
        let (free, pages) = book.index.clear(number);
        let end = self.log.append(&Record::Clear(number));
        free.into_iter().for_each(|at| self.free(at, true));
        drop(book);
        match self.commit(end) {
            Ok(()) => Ok(pages),
            Err(error) => argument("storage", format!("{pages} pages may be back after a restart: {error}")),
        }
    }

    /// See `Store::list`.
    pub fn list(&self) -> Vec<Held> {
        let now = self.clock.now();
        let book = self.book();
        let pages = (0..book.index.numbers()).map(|page| book.index.page(page));
        let here = pages.filter(|page| page.state == State::Here && !self.expired(page.written.time, now));
        here.filter_map(|page| {
            let written = page.written;
            Some(Held {
                identity: self.log.identity(written.identity)?,
                digest: written.digest,
                bytes: written.bytes.into(),
                age: now.saturating_sub(written.time).into(),
            })
        })
        .collect()
    }

    /// See `Store::statistics`.
    pub fn statistics(&self) -> Statistics {
        let book = self.book();
        let (pages, bytes) = book.index.holds();
        Statistics { pages, bytes, capacity: Some(self.bounds.size), ..book.counts }
    }

    /// Gives up pages that are too old, among so many.
    pub(super) fn sweep(&self, most: u32) {
        if self.options.ttl.is_none() {
            return;
        }
        let now = self.clock.now();
        let mut book = self.book();
        let first = if book.swept < book.index.numbers() { book.swept } else { 0 };
        let last = first.saturating_add(most).min(book.index.numbers());
        for page in first..last {
            let found = book.index.page(page);
            if found.state == State::Here && self.expired(found.written.time, now) {
                book.counts.expired_pages += 1;
                self.drop_page(&mut book, page);
            }
        }
        book.swept = last;
    }

    /// Logs which pages were used since the last time. While the log can't be written they are kept as what they
    /// are, one of each page, rather than as records without end.
    pub(super) fn log_uses(&self) {
        if self.log.fault().is_some() {
            return;
        }
        let mut book = self.book();
        for places in book.index.take_touched().chunks(super::record::TOUCHES) {
            self.log.append(&Record::Touch(Touches::of(places)));
        }
    }
}
