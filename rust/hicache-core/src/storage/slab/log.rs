//! The log: decisions in their order, written in groups.
//!
//! ```text
//! append ─▶ pending ─▶ one of those that wait writes (and, with sync, flushes) for all of them ─▶ commit returns
//! ```
//! Records are appended under whatever keeps decisions in order, and are committed without it.
//! On error: `commit` fails for all that waited, and what was pending stays pending: the next one tries again, in a
//! new segment. Replaying a group twice leads where replaying it once leads.

use super::record::Record;
use super::segment::Header;
use super::tail::{Growth, Tail, Writer, numbered};
use crate::identity::Fingerprint;
use std::fs::File;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Where a log goes on.
#[derive(Clone, Debug, Default)]
pub struct Resume {
    /// The number of the last segment.
    pub number: u64,
    /// The number of the next group.
    pub sequence: u64,
    /// Bytes of all segments since the snapshot.
    pub bytes: u64,
    /// Identities by number.
    pub identities: Vec<Option<Fingerprint>>,
}

/// A log that is written.
pub struct Log {
    /// What it is written with.
    pub writer: Writer,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Records that aren't written, encoded.
    pending: Vec<u8>,
    /// Records ever appended.
    appended: u64,
    /// Of them, those that are written.
    written: u64,
    /// Commits that failed.
    failures: u64,
    /// Why the last one did.
    fault: Option<io::ErrorKind>,
    /// What the last one said.
    said: String,
    identities: Vec<Option<Fingerprint>>,
    /// Away while somebody writes.
    tail: Option<Tail>,
    /// A file for the next segment; away, too.
    spare: Option<File>,
    /// Somebody makes it, or has it.
    spare_is_away: bool,
    /// It will be needed before long.
    wants_spare: bool,
    /// Bytes of segments since the last snapshot.
    bytes: u64,
    /// Bytes that they may have.
    most: u64,
}

impl Log {
    /// Goes on where a replay ended. Nothing is written before the first commit.
    pub fn resume(writer: Writer, at: Resume) -> Self {
        let tail = Tail { segment: None, number: at.number, sequence: at.sequence };
        let state = State {
            pending: Vec::new(),
            appended: 0,
            written: 0,
            failures: 0,
            fault: None,
            said: String::new(),
            identities: at.identities,
            tail: Some(tail),
            spare: None,
            spare_is_away: false,
            wants_spare: true,
            bytes: at.bytes,
            most: u64::MAX,
        };
        Self { writer, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Appends a record; what to `commit` so that it is written.
    pub fn append(&self, record: &Record) -> u64 {
        let mut state = self.state();
        if let Record::Identity(number, fingerprint) = record {
            let number = usize::from(*number);
            let most = state.identities.len().max(number + 1);
            state.identities.resize(most, None);
            state.identities[number] = Some(*fingerprint);
        }
        record.write(&mut state.pending);
        state.appended += 1;
        state.appended
    }

    /// Everything that was appended so far.
    pub fn end(&self) -> u64 {
        self.state().appended
    }

    /// Waits until this and everything before it is written.
    ///
    /// # Errors
    /// When it could not be. It stays pending.
    pub fn commit(&self, end: u64) -> io::Result<()> {
        let mut state = self.state();
        let failures = state.failures;
        while state.written < end {
            if state.failures != failures {
                return Err(io::Error::new(state.fault.unwrap_or(io::ErrorKind::Other), state.said.clone()));
            }
            let Some(tail) = state.tail.take() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state = self.lead(state, tail);
        }
        Ok(())
    }

    /// Writes all that is pending.
    fn lead<'s>(&'s self, mut state: MutexGuard<'s, State>, mut tail: Tail) -> MutexGuard<'s, State> {
        let (records, appended) = (std::mem::take(&mut state.pending), state.appended);
        let (identities, sequence) = (state.identities.clone(), tail.sequence);
        let mut growth = Growth { spare: state.spare.take(), most: state.most, taken: state.bytes, new: 0 };
        let had_spare = growth.spare.is_some();
        state.spare_is_away |= had_spare;
        drop(state);
        let written = self.writer.write(&mut tail, &records, &identities, &mut growth);
        let mut state = self.state();
        state.bytes += growth.new;
        if had_spare {
            (state.spare, state.spare_is_away) = (growth.spare, false);
        }
        match written {
            Ok(()) => (state.written, state.fault) = (appended, None),
            Err(error) => {
                let later = std::mem::replace(&mut state.pending, records);
                state.pending.extend(later);
                (state.fault, state.said) = (Some(error.kind()), error.to_string());
                state.failures += 1;
                // What became of its end nobody knows: all of it is told again, under the same numbers.
                (tail.segment, tail.sequence) = (None, sequence);
            }
        }
        state.wants_spare = self.writer.wants_spare(&tail);
        state.tail = Some(tail);
        self.changed.notify_all();
        state
    }

    /// Makes a file for the next segment, if it will be needed before long; the log goes on meanwhile.
    ///
    /// # Errors
    /// The system's.
    pub fn prepare(&self) -> io::Result<()> {
        let mut state = self.state();
        if !state.wants_spare || state.spare_is_away || state.spare.is_some() {
            return Ok(());
        }
        state.spare_is_away = true;
        let size = self.writer.size(&state.identities);
        drop(state);
        let made = self.writer.prepare(size);
        let mut state = self.state();
        state.spare_is_away = false;
        state.spare = Some(made?);
        Ok(())
    }

    /// Ends the segment and leaves a number for a snapshot of what is known from now on: its header. All that was
    /// written before is in the snapshot.
    ///
    /// # Errors
    /// The system's; nothing has changed.
    pub fn rotate(&self) -> io::Result<Header> {
        let mut tail = self.tail();
        let flushed = self.writer.flush(&tail);
        let (number, after) = (tail.number + 1, Some(tail.sequence));
        if flushed.is_ok() {
            (tail.segment, tail.number) = (None, number);
        }
        self.put_back(tail);
        flushed.map(|()| Header { store: self.writer.options.store, number, first: 0, after })
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// The system's.
    pub fn flush(&self) -> io::Result<()> {
        let tail = self.tail();
        let flushed = self.writer.flush(&tail);
        self.put_back(tail);
        flushed
    }

    /// Bytes of segments since the last snapshot.
    pub fn bytes(&self) -> u64 {
        self.state().bytes
    }

    /// So many of them are in a snapshot now.
    pub fn forget(&self, bytes: u64) {
        let mut state = self.state();
        state.bytes = state.bytes.saturating_sub(bytes);
    }

    /// How many bytes they may have. One that has none yet may always have a segment.
    pub fn allow(&self, most: u64) {
        self.state().most = most;
    }

    /// Whether there may be no other segment until a snapshot takes the place of these.
    pub fn is_full(&self) -> bool {
        let state = self.state();
        let growth = Growth { spare: None, most: state.most, taken: state.bytes, new: 0 };
        growth.is_full(self.writer.size(&state.identities))
    }

    /// What keeps it from being written, if anything does.
    pub fn fault(&self) -> Option<String> {
        let state = self.state();
        state.fault.map(|_| state.said.clone())
    }

    /// The identity of a number.
    pub fn identity(&self, number: u16) -> Option<Fingerprint> {
        self.state().identities.get(usize::from(number)).copied().flatten()
    }

    /// A number's identity is not used any more.
    pub fn retire(&self, number: u16) {
        if let Some(identity) = self.state().identities.get_mut(usize::from(number)) {
            *identity = None;
        }
    }

    /// Its identities, as records.
    pub fn identities(&self) -> Vec<u8> {
        numbered(&self.state().identities)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end, once nobody writes.
    fn tail(&self) -> Tail {
        let mut state = self.state();
        loop {
            match state.tail.take() {
                Some(tail) => return tail,
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn put_back(&self, tail: Tail) {
        let mut state = self.state();
        state.wants_spare = self.writer.wants_spare(&tail);
        state.tail = Some(tail);
        drop(state);
        self.changed.notify_all();
    }
}
