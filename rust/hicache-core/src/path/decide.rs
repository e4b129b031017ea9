//! `decide`: whether a waiting request runs in this step, and `stepped`, what the step was.
//!
//! What is told to the policy of [`crate::policy::fetching`] is what the verbs know, and so are the answers: nothing that
//! hasn't entered through `poll` counts, so that ranks which are told the same decide alike.

use crate::cache::HiCache;
use crate::command::Command;
use crate::error::{Result, argument};
use crate::ids::HitId;
use crate::path::prefetch::micros;
use crate::policy::fetching::{Step, Verdict, Waiting};
use crate::policy::{Name, Stop};

impl HiCache {
    /// What a request does in this step, which could run it as far as the engine is concerned. `others`: how many other requests
    /// could run in it. Its waiting time counts from the first such question on. A hit without a prefetch that is
    /// undecided computes. To stop the wait, load the hit: what has come is used.
    ///
    /// # Errors
    /// When the hit was released.
    pub fn decide(&mut self, id: HitId, others: usize) -> Result<Verdict> {
        self.open()?;
        let Some(waiting) = self.undecided(id, others)? else { return Ok(Verdict::Compute) };
        let verdict = self.stop.decide(&waiting);
        let name = self.stop.name();
        self.say(id, waiting.waited, verdict, name.into())?;
        Ok(verdict)
    }

    /// The first half of `decide` for a policy outside of the core: what it is to be told. `None`: compute, there is
    /// nothing to decide.
    ///
    /// # Errors
    /// As [`HiCache::decide`].
    pub fn undecided(&mut self, id: HitId, others: usize) -> Result<Option<Waiting>> {
        self.open()?;
        let now = self.now;
        let first = *self.hit_mut(id)?.first_asked.get_or_insert(now);
        Ok(self.waiting(id, first, others))
    }

    /// The second half: what it said.
    ///
    /// # Errors
    /// As [`HiCache::decide`].
    pub fn decided(&mut self, id: HitId, verdict: Verdict) -> Result<()> {
        self.open()?;
        let first = self.hit(id)?.first_asked.unwrap_or(self.now);
        self.say(id, micros(self.now - first), verdict, self.asking.name.clone())
    }

    fn say(&mut self, id: HitId, waited: u64, verdict: Verdict, by: Name) -> Result<()> {
        let hit = self.hit_mut(id)?;
        hit.stop_said = (verdict == Verdict::Compute).then_some((waited, by));
        if let Some(fetch) = &mut hit.fetch {
            fetch.skipped = verdict == Verdict::Skip;
        }
        Ok(())
    }

    /// A step of the engine has ended: prompt tokens that it computed, the seconds that it took, and prompt tokens of
    /// requests that could run and wait for their turn.
    ///
    /// # Errors
    /// When the seconds can't be meant, or the cache is closed.
    pub fn stepped(&mut self, tokens: u64, seconds: f64, ahead: u64) -> Result<()> {
        self.open()?;
        if !(seconds.is_finite() && seconds >= 0.0) {
            return argument("seconds", format!("must be a number that is not negative, got {seconds}"));
        }
        let step = Step { tokens, micros: micros(seconds), ahead };
        self.stop.step(step);
        for id in self.fetches.values() {
            let fetch = self.hits.get_mut(id).and_then(|hit| hit.fetch.as_mut());
            if let Some(fetch) = fetch.filter(|fetch| fetch.skipped) {
                fetch.overtaken += tokens;
                fetch.skipped = false;
            }
        }
        self.commands.push(Command::Step(step));
        self.act();
        Ok(())
    }

    /// Other rules than the configured ones for when a request stops to wait.
    pub fn stop_by(&mut self, stop: Box<dyn Stop>) {
        self.stop = stop;
    }

    /// A request as the policy is told it; `None`: nothing is undecided, or nothing can come as things are.
    fn waiting(&self, id: HitId, first: f64, others: usize) -> Option<Waiting> {
        let fetch = self.hits.get(&id)?.fetch.as_ref()?;
        // Without room and without reads of its own it would wait for others, who may wait for it.
        // In staging the wait ends by itself then (`staged::read`).
        if fetch.no_room && fetch.open == 0 && !self.stages() {
            return None;
        }
        let (missing, reading) =
            if self.parts.is_empty() { fetch.missing() } else { fetch.missing_together() };
        let number = fetch.attempt;
        Some(Waiting {
            request: self.waiter(id),
            now: micros(self.now),
            waited: micros(self.now - first),
            requested: self.tokens(fetch.span as usize),
            missing: self.tokens(missing),
            reading: self.tokens(reading),
            reading_for: self.under_way.iter().find(|one| one.0 == number).map(|one| one.1),
            asking: !fetch.settled,
            others: others as u64,
            overtaken: fetch.overtaken,
        })
    }
}
