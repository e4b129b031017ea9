//! `Desk` and `Call`: how threads of Python answer the calls of a store that is written in Python.
//!
//! A thread takes a call, hands its pages to the store, and ends it with what became of each key. It has the GIL only while
//! there is a call. The memory of pages is taken back before a call is over; where that can't be, it isn't over.
//! On error: what can't be believed is a failed call, counted.

use crate::lent::Loan;
use hicache_core::hash::Digest;
use hicache_core::identity::Fingerprint;
use hicache_core::storage::call::{Ask, Call as Core, Reply};
use hicache_core::storage::{Desk as CoreDesk, Held, Outcome, Page, Statistics};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMemoryView};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Calls that a thread of Python has, by where the core has them.
type Taken = Arc<Mutex<HashMap<usize, Py<Call>>>>;

fn open(taken: &Taken) -> MutexGuard<'_, HashMap<usize, Py<Call>>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pyclass(module = "hicache._hicache", frozen)]
pub struct Desk {
    pub core: Arc<CoreDesk>,
    taken: Taken,
}

#[pymethods]
impl Desk {
    #[new]
    fn new(queue: usize) -> Self {
        Self { core: Arc::new(CoreDesk::new(queue)), taken: Taken::default() }
    }

    fn take(&self, py: Python<'_>) -> PyResult<Option<Py<Call>>> {
        let Some(core) = py.detach(|| self.core.take()) else { return Ok(None) };
        let at = Arc::as_ptr(&core).addr();
        let call = Py::new(py, Call::new(py, core, &self.core, &self.taken)?)?;
        open(&self.taken).insert(at, call.clone_ref(py));
        Ok(Some(call))
    }

    /// The next call that is late and that somebody has.
    fn late(&self, py: Python<'_>) -> Option<Py<Call>> {
        loop {
            let core = py.detach(|| self.core.late())?;
            let taken = open(&self.taken);
            if let Some(call) = taken.get(&Arc::as_ptr(&core).addr()) {
                return Some(call.clone_ref(py));
            }
        }
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.core.close());
    }

    #[getter]
    fn closed(&self) -> bool {
        self.core.is_closed()
    }

    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, count) in self.core.counts.named() {
            dict.set_item(name, count)?;
        }
        Ok(dict)
    }

    #[pyo3(signature = (pages, size, capacity, evicted, expired))]
    fn holds(&self, pages: u64, size: u64, capacity: Option<u64>, evicted: u64, expired: u64) {
        let (evicted_pages, expired_pages) = (evicted, expired);
        let holds = Statistics {
            pages,
            bytes: size,
            capacity,
            evicted_pages,
            expired_pages,
            ..Statistics::default()
        };
        self.core.holds(holds);
    }
}

#[pyclass(module = "hicache._hicache", frozen)]
pub struct Call {
    core: Arc<Core>,
    desk: Arc<CoreDesk>,
    taken: Taken,
    /// By page.
    loans: Vec<Vec<Loan>>,
    /// Whether the thread that took it has ended it.
    ended: AtomicBool,
    kept: AtomicBool,
}

impl Call {
    fn new(py: Python<'_>, core: Arc<Core>, desk: &Arc<CoreDesk>, taken: &Taken) -> PyResult<Self> {
        let (pages, writable): (&[Page], bool) = match &core.ask {
            Ask::Get(pages) => (pages, true),
            Ask::Put(pages, _) => (pages, false),
            _ => (&[], false),
        };
        let lend = |page: &Page| page.0.iter().map(|&run| Loan::new(py, run, writable)).collect();
        let loans = pages.iter().map(lend).collect::<PyResult<Vec<_>>>();
        let loans = loans.inspect_err(|error| {
            core.answer(Reply::Failed(error.to_string()));
        })?;
        let (desk, taken) = (Arc::clone(desk), Arc::clone(taken));
        Ok(Self { core, desk, taken, loans, ended: AtomicBool::new(false), kept: AtomicBool::new(false) })
    }

    /// Ends it with a reply, once its memory has come back; false: it hasn't.
    fn over(&self, py: Python<'_>, reply: Reply) -> bool {
        // While the store has the call, it has the list of its runs as well.
        let lists = isize::from(!self.ended.load(Ordering::Relaxed));
        // All of them, not only up to the first that is kept.
        let kept = self.loans.iter().flatten().filter(|loan| !loan.end(py, lists)).count();
        if kept == 0 || !self.core.is_open() {
            self.core.answer(reply);
            if self.ended.load(Ordering::Relaxed) {
                open(&self.taken).remove(&Arc::as_ptr(&self.core).addr());
            }
            return true;
        }
        self.desk.keep(Arc::clone(&self.core), !self.kept.swap(true, Ordering::Relaxed));
        false
    }

    fn end(&self, py: Python<'_>, reply: Reply) -> bool {
        self.ended.store(true, Ordering::Relaxed);
        self.over(py, reply)
    }
}

#[pymethods]
impl Call {
    #[getter]
    fn verb(&self) -> &'static str {
        match self.core.ask {
            Ask::Exists => "exists",
            Ask::Get(_) => "get",
            Ask::Put(..) => "put",
            Ask::Remove => "remove",
            Ask::Clear => "clear",
            Ask::List => "list",
            Ask::Compact => "compact",
            Ask::Close => "close",
        }
    }

    #[getter]
    fn identity<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.core.identity.0)
    }

    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.core.digests.iter().map(|key| PyBytes::new(py, &key.0)))
    }

    #[getter]
    fn parents<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let parents: &[Option<Digest>] = match &self.core.ask {
            Ask::Put(_, parents) => parents,
            _ => &[],
        };
        PyList::new(py, parents.iter().map(|key| key.map(|key| PyBytes::new(py, &key.0))))
    }

    /// For each page its runs.
    #[getter]
    fn pages<'py>(&self, py: Python<'py>) -> Vec<Vec<Bound<'py, PyMemoryView>>> {
        self.loans.iter().map(|page| page.iter().map(|loan| loan.view(py)).collect()).collect()
    }

    /// Ends it with an outcome's number for each key.
    fn outcomes(&self, py: Python<'_>, numbers: &[u8]) -> bool {
        let known = |&number: &u8| Outcome::ALL.get(usize::from(number)).copied();
        let reply = match numbers.iter().map(known).collect::<Option<Vec<_>>>() {
            Some(outcomes) => Reply::Outcomes(outcomes),
            None => return self.fail(py, "no outcome has such a number", true),
        };
        self.end(py, reply)
    }

    fn number(&self, py: Python<'_>, number: u64) -> bool {
        self.end(py, Reply::Number(number))
    }

    /// Ends it with pages: identity, key, bytes, age in seconds.
    #[allow(clippy::needless_pass_by_value, reason = "from a Python list")]
    fn held(&self, py: Python<'_>, pages: Vec<([u8; 32], [u8; 32], u64, u64)>) -> bool {
        let held = |&(identity, key, bytes, age): &_| Held {
            identity: Fingerprint(identity),
            digest: Digest(key),
            bytes,
            age,
        };
        self.end(py, Reply::Held(pages.iter().map(held).collect()))
    }

    /// Ends it without an answer.
    fn fail(&self, py: Python<'_>, why: &str, nonsense: bool) -> bool {
        if nonsense {
            self.desk.counts.nonsense(1);
        }
        self.end(py, Reply::Failed(why.to_owned()))
    }

    /// Takes its memory back and ends it for who waits; false: somebody has the memory, and nobody else gets it.
    fn revoke(&self, py: Python<'_>) -> bool {
        let ended = self.ended.load(Ordering::Relaxed);
        let kept = || Reply::Failed("it kept its pages' memory".to_owned());
        self.over(py, if ended { kept() } else { Reply::TimedOut })
    }
}
