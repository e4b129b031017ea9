//! A store whose calls somebody else answers: threads of another language, whose interpreter no thread of ours may take.
//!
//! An I/O thread puts its call on the [`Desk`] and waits. Threads of the other side [`take`](Desk::take) calls, one
//! after another, and answer them. One more of them watches: it is handed what isn't answered in time ([`Desk::late`]), takes
//! the memory that such a call lent away from whoever still has it, and answers in their place.
//!
//! What is never answered, and whose memory can't be taken back, is never over either: that memory isn't used again. The
//! desk counts such calls. On error: outcomes; whole calls that fail say why to `Desk::take_trouble`.

use super::call::{Ask, Call, Reply};
use super::desk::Desk;
use super::workers::Page;
use super::{Held, Keys, Outcome, PageMut, PageRef, Statistics, Store};
use crate::error::{Result, argument};
use crate::hash::Digest;
use crate::identity::Fingerprint;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long `close` waits for the other side.
const CLOSING: Duration = Duration::from_secs(5);

/// The store's side of a desk.
#[derive(Debug)]
pub struct Relay {
    desk: Arc<Desk>,
    timeout: Duration,
    description: String,
}

impl Relay {
    /// Over a desk; a call that isn't answered within `timeout` is `TimedOut`.
    pub const fn new(desk: Arc<Desk>, timeout: Duration, description: String) -> Self {
        Self { desk, timeout, description }
    }

    fn ask(&self, ask: Ask, keys: Keys<'_>, most: Option<Duration>) -> Reply {
        let deadline = most.map(|most| Instant::now() + most);
        let call = Arc::new(Call::new(ask, keys));
        match self.desk.put(&call, deadline) {
            Ok(()) => {}
            Err(reply) => return reply,
        }
        let reply = call.wait(deadline);
        if matches!(reply, None | Some(Reply::TimedOut)) {
            self.desk.is_late(&call);
        }
        // It lends memory that somebody still has: there is no going on before they have let go.
        reply.or_else(|| call.wait(None)).unwrap_or(Reply::TimedOut)
    }

    fn outcomes(&self, ask: Ask, keys: Keys<'_>) -> Vec<Outcome> {
        if keys.is_empty() {
            return Vec::new();
        }
        let may_be = possible(&ask);
        let mut outcomes = match self.ask(ask, keys, Some(self.timeout)) {
            Reply::Outcomes(outcomes) if outcomes.len() == keys.len() => outcomes,
            Reply::TimedOut => vec![Outcome::TimedOut; keys.len()],
            // One answer a key, or none of them is believed.
            Reply::Outcomes(_) => {
                self.desk.counts.nonsense(1);
                vec![Outcome::Failed; keys.len()]
            }
            _ => vec![Outcome::Failed; keys.len()],
        };
        for outcome in outcomes.iter_mut().filter(|outcome| !may_be.contains(outcome)) {
            self.desk.counts.nonsense(1);
            *outcome = Outcome::Failed;
        }
        outcomes
    }

    fn number(&self, ask: Ask, identity: &Fingerprint) -> Result<u64> {
        match self.ask(ask, Keys { identity, digests: &[] }, None) {
            Reply::Number(number) => Ok(number),
            reply => argument("storage", format!("{}: {}", self.description, why(reply))),
        }
    }
}

/// What may become of a key, whatever a store says.
const fn possible(ask: &Ask) -> &'static [Outcome] {
    use Outcome::{Absent, Cancelled, Corrupt, Declined, Failed, Hit, Short, TimedOut};
    match ask {
        Ask::Get(_) => &[Hit, Absent, Short, Corrupt, Failed, TimedOut, Cancelled],
        Ask::Put(..) => &[Hit, Declined, Failed, TimedOut, Cancelled],
        _ => &[Hit, Absent, Failed, TimedOut, Cancelled],
    }
}

fn why(reply: Reply) -> String {
    match reply {
        Reply::Failed(why) => why,
        Reply::TimedOut => "did not answer in time".to_owned(),
        _ => "answered something else".to_owned(),
    }
}

impl Store for Relay {
    fn exists(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.outcomes(Ask::Exists, keys)
    }

    fn get(&self, keys: Keys<'_>, pages: &mut [PageMut<'_>]) -> Vec<Outcome> {
        let place = |page: &mut PageMut<'_>| {
            Page(page.runs().iter_mut().map(|run| (run.as_mut_ptr(), run.len())).collect())
        };
        let sizes: Vec<usize> = pages.iter().map(PageMut::bytes).collect();
        let outcomes = self.outcomes(Ask::Get(pages.iter_mut().map(place).collect()), keys);
        self.desk.counts.read(&outcomes, &sizes);
        outcomes
    }

    fn put(&self, keys: Keys<'_>, parents: &[Option<Digest>], pages: &[PageRef<'_>]) -> Vec<Outcome> {
        let place = |page: &PageRef<'_>| {
            Page(page.runs().iter().map(|run| (run.as_ptr().cast_mut(), run.len())).collect())
        };
        let sizes: Vec<usize> = pages.iter().map(PageRef::bytes).collect();
        let outcomes = self.outcomes(Ask::Put(pages.iter().map(place).collect(), parents.to_vec()), keys);
        self.desk.counts.written(&outcomes, &sizes);
        outcomes
    }

    fn remove(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.outcomes(Ask::Remove, keys)
    }

    fn clear(&self, identity: &Fingerprint) -> Result<u64> {
        self.number(Ask::Clear, identity)
    }

    /// What was counted here, and what the store said last of what it holds: nobody waits for it.
    fn statistics(&self) -> Statistics {
        self.desk.statistics()
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn list(&self) -> Result<Vec<Held>> {
        match self.ask(Ask::List, Keys { identity: &Fingerprint([0; 32]), digests: &[] }, None) {
            Reply::Held(held) => Ok(held),
            reply => argument("storage", format!("{}: {}", self.description, why(reply))),
        }
    }

    fn compact(&self) -> Result<u64> {
        self.number(Ask::Compact, &Fingerprint([0; 32]))
    }

    fn close(&self) {
        let most = CLOSING.min(self.timeout);
        self.ask(Ask::Close, Keys { identity: &Fingerprint([0; 32]), digests: &[] }, Some(most));
        self.desk.close();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.desk.close();
    }
}
