//! Events for routers, as plain values. Nothing is decided here. On error: nothing was changed.

use crate::cache::Cache;
use crate::errors::OrRaise;
use hicache_core::events::{Event, Medium, Stored, Whose};
use hicache_core::hash::Digest;
use pyo3::prelude::*;

/// Digests go as bytes, 32 each.
type Bytes = std::borrow::Cow<'static, [u8]>;

/// The namespace's seed, extra key and adapter; the parent; the tokens.
type Came = (Option<Bytes>, Option<String>, Option<String>, Option<Bytes>, Vec<u64>);

/// What ("stored", "removed", "cleared" or "lost"), where, which pages, of those that came the rest, and of those that were
/// lost how many.
type Told = (&'static str, &'static str, Vec<Bytes>, Option<Came>, u64);

#[pymethods]
impl Cache {
    fn keep_events(&mut self, py: Python<'_>, most: usize) -> PyResult<()> {
        self.core(py)?.keep_events(most).or_raise(py)
    }

    fn take_events(&mut self, py: Python<'_>) -> PyResult<Vec<Told>> {
        Ok(self.core(py)?.take_events().into_iter().map(told).collect())
    }

    fn events_from_scratch(&mut self, py: Python<'_>) -> PyResult<Vec<Told>> {
        Ok(self.core(py)?.events_from_scratch().into_iter().map(told).collect())
    }
}

fn told(event: Event) -> Told {
    match event {
        Event::Stored(Stored { medium, whose, parent, pages, tokens }) => {
            let Whose { seed, extra_key, adapter } = whose;
            let [extra_key, adapter] = [extra_key, adapter].map(|text| text.map(|text| text.to_string()));
            let came = (seed.map(bytes), extra_key, adapter, parent.map(bytes), tokens);
            ("stored", name(medium), pages.into_iter().map(bytes).collect(), Some(came), 0)
        }
        Event::Removed { medium, pages } => {
            ("removed", name(medium), pages.into_iter().map(bytes).collect(), None, 0)
        }
        Event::Cleared { medium } => ("cleared", name(medium), Vec::new(), None, 0),
        Event::Lost { pages } => ("lost", "", Vec::new(), None, pages),
    }
}

fn bytes(digest: Digest) -> Bytes {
    digest.0.to_vec().into()
}

const fn name(medium: Medium) -> &'static str {
    match medium {
        Medium::Device => "device",
        Medium::Host => "host",
        Medium::Storage => "storage",
    }
}
