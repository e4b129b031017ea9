//! The seam between a store that answers some time and an engine that could compute meanwhile: which read is next,
//! and what a waiting request does in a step.
//!
//! ```text
//!  the I/O threads ──▶ Order::read      a batch came back           the engine ──▶ step      a forward's tokens and time
//!                  ◀── Order::next      which batch is next         the verbs  ◀── Stop::decide   compute, wait or skip
//! ```
//! Two sides, since they know different things at different moments. Which batch is next is asked whenever an I/O
//! thread has nothing to do: a read completed, or something new may be read. What a request does is asked by the engine,
//! and an answer may depend only on what the verbs were told, so that ranks which are told the same decide alike; what
//! a batch of one rank took is none of that, unless the ranks agreed on it.
//!
//! Numbers in, decision out: a policy knows tokens and microseconds, no page, slot, key or clock. Times of the two sides
//! come from two clocks: only differences on one side mean anything.
//!
//! On error: nothing here fails. An `Order` that names what isn't there is taken for the first line, whole.

use std::fmt::Debug;

/// A batch that was read, stamped by the thread that read it. In microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadTime {
    /// When the store was asked.
    pub issued: u64,
    /// When it had answered.
    pub completed: u64,
    /// What it was asked for, whatever came.
    pub tokens: u64,
}

/// A step of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Prompt tokens that it computed.
    pub tokens: u64,
    /// How long it took.
    pub micros: u64,
    /// Prompt tokens of requests that could run and wait for their turn.
    pub ahead: u64,
}

/// A waiting request, as it is known where its reads are issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// In order of arrival.
    pub number: u64,
    /// When it arrived, on the engine's clock.
    pub arrived: u64,
    /// Tokens of its prompt.
    pub prompt: u64,
    /// Tokens that a store is believed to have and that there was no room for yet: no read of them may begin.
    pub later: u64,
}

/// The reads of a waiting request: at least one that may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Whose.
    pub request: Request,
    /// Tokens of reads that may begin.
    pub ready: u64,
    /// Tokens of the first of these batches, and of the last: no read goes beyond one.
    pub ends: [u64; 2],
    /// Tokens of its reads under way.
    pub reading: u64,
    /// When the oldest of these was issued.
    pub since: Option<u64>,
}

/// From which end of what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// What follows what is there already.
    Front,
    /// What the request needs last.
    Back,
}

/// What is read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Of which line, by its place in the list.
    pub line: usize,
    /// At most so many tokens, in whole pages: at least one of these is read.
    pub tokens: u64,
    /// From which end.
    pub end: End,
}

/// Which read is next.
pub trait Order: Debug + Send {
    /// A batch came back.
    fn read(&mut self, _read: ReadTime) {}

    /// The engine made a step.
    fn step(&mut self, _step: Step) {}

    /// What is read next, at `now`; `None`: nothing until something changes. Lines are in order of arrival. While nothing is
    /// under way, `None` leaves these requests to what [`Stop`] says.
    fn next(&mut self, lines: &[Line], now: u64) -> Option<Choice>;
}

/// Round about the lines in order of arrival, a batch each: what a large request reads keeps a small one waiting for
/// one batch at most.
#[derive(Debug, Default)]
pub struct Fair {
    /// Whose turn was last.
    last: u64,
}

impl Order for Fair {
    fn next(&mut self, lines: &[Line], _now: u64) -> Option<Choice> {
        let behind = lines.iter().position(|line| line.request.number > self.last).unwrap_or(0);
        let line = lines.get(behind)?;
        self.last = line.request.number;
        Some(Choice { line: behind, tokens: line.ends[0], end: End::Front })
    }
}

/// A waiting request, as the verbs know it: nothing of it depends on what hasn't entered through `poll`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Who.
    pub request: Request,
    /// Now, on the engine's clock.
    pub now: u64,
    /// How long ago it could have run for the first time: since the first question.
    pub waited: u64,
    /// Tokens that the store was asked for.
    pub requested: u64,
    /// Tokens of these that have not come, as far as they may still come.
    pub missing: u64,
    /// Tokens of these that are being read, or may be whenever it is their turn.
    pub reading: u64,
    /// How long its oldest read has been under way, where that is known.
    pub reading_for: Option<u64>,
    /// Whether the store still has to say which pages there are.
    pub asking: bool,
    /// Other requests that could run in this step.
    pub others: u64,
    /// Tokens that steps which skipped it gave to others.
    pub overtaken: u64,
}

/// What a request does in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It runs: what has come is used, what has not come isn't waited for.
    Compute,
    /// It computes so many tokens from the front, whole pages, while the rest is being read: for engines that can.
    ComputeSome(u64),
    /// Nobody else can run either: look again when something has come, or soon.
    Wait,
    /// Others run.
    Skip,
}

/// When a request stops to wait.
pub trait Stop: Debug + Send + Sync {
    /// Its name, for people.
    fn name(&self) -> &'static str;

    /// A batch came back. Told in order of submission, and only where ranks needn't agree on it or have.
    fn read(&mut self, _read: ReadTime) {}

    /// The engine made a step.
    fn step(&mut self, _step: Step) {}

    /// What a request does now of which not all has come.
    fn decide(&mut self, waiting: &Waiting) -> Verdict;
}
