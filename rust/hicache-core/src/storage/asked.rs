//! What a store took for what it was asked: told by the threads that ask it, as they have its answer.
//!
//! Knows outcomes; refuses to know keys and pages. On error: what nobody carried out isn't counted.

use super::Outcome;
use super::batch::Work;
use crate::measured::{Kind, Times};
use std::sync::Arc;

/// Of one store's workers.
#[derive(Debug, Default)]
pub(super) struct Asked {
    exists: Arc<Times>,
    read: Arc<Times>,
    store: Arc<Times>,
}

impl Asked {
    /// Some work was carried out, as far as it wasn't cancelled. In microseconds.
    pub fn took(&self, work: &Work, micros: u64, outcomes: &[Outcome]) {
        let times = match work {
            Work::Exists => &self.exists,
            Work::Get(_) => &self.read,
            Work::Put(..) => &self.store,
            Work::Remove | Work::Clear => return,
        };
        let asked = outcomes.iter().filter(|&&outcome| outcome != Outcome::Cancelled).count();
        if asked > 0 {
            times.took(micros, asked as u64);
        }
    }

    /// All of them.
    pub fn all(&self) -> [(Kind, &Arc<Times>); 3] {
        [(Kind::Exists, &self.exists), (Kind::Read, &self.read), (Kind::Store, &self.store)]
    }
}
