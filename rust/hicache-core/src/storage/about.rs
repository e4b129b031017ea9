//! What a store says of itself, for who must not wait for it.
//!
//! An engine asks for it between two forwards, when a store may hang or be at work under its own mutex. So the workers
//! ask, after each batch and before they tell of it: whoever knows that a batch has ended finds it counted.
//! On error: a store that panics when it is asked has said what it said before.

use super::{Statistics, Store};
use arc_swap::ArcSwap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a store said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// What it is and how it works, for people: one line.
    pub description: String,
    /// What it did so far and what it holds.
    pub statistics: Statistics,
}

impl About {
    fn of(store: &dyn Store) -> Option<Self> {
        let ask = || Self { description: store.describe(), statistics: store.statistics() };
        catch_unwind(AssertUnwindSafe(ask)).ok()
    }
}

/// Where it can be read.
#[derive(Debug)]
pub struct Board {
    turns: AtomicU64,
    shown: ArcSwap<(u64, Arc<About>)>,
}

impl Board {
    /// Of a store that was just opened.
    pub fn of(store: &dyn Store) -> Self {
        let about = Arc::new(About::of(store).unwrap_or_default());
        Self { turns: AtomicU64::new(1), shown: ArcSwap::from_pointee((0, about)) }
    }

    /// Asks the store. Whoever took the later turn asked later, whatever the order in which they are answered.
    pub fn ask(&self, store: &dyn Store) {
        let turn = self.turns.fetch_add(1, Ordering::SeqCst);
        let Some(about) = About::of(store).map(Arc::new) else { return };
        self.shown.rcu(
            |shown| {
                if shown.0 < turn { Arc::new((turn, Arc::clone(&about))) } else { Arc::clone(shown) }
            },
        );
    }

    /// What it said last.
    pub fn read(&self) -> Arc<About> {
        Arc::clone(&self.shown.load().1)
    }
}
