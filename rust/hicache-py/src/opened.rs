//! `Store`: any store of the core, over buffers: for the conformance kit, for maintenance, and for a cache to use.
//!
//! On error: `ArgumentError` names the argument; outcomes are numbers, one per key.

use crate::errors::{OrRaise, raise};
use crate::process::Origin;
use crate::relay::Desk;
use hicache_core::Error;
use hicache_core::hash::Digest;
use hicache_core::identity::Fingerprint;
use hicache_core::storage::{
    self as core, Client, Keys, Outcome, PageMut, PageRef, Relay, Statistics, Verified,
};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

/// Digests, or an identity, as Python has them.
type Name<'py> = Bound<'py, PyBytes>;
/// A page: its runs.
type Runs<'py> = Vec<Bound<'py, PyAny>>;

#[pyclass(module = "hicache._hicache", frozen)]
pub struct Store {
    core: ManuallyDrop<Arc<dyn core::Store>>,
    origin: Origin,
}

impl Drop for Store {
    fn drop(&mut self) {
        // A forked child has the memory, but not the threads that dropping might wait for.
        if self.origin.is_here() {
            // SAFETY: never used again: we are being dropped.
            #[allow(unsafe_code)]
            unsafe {
                ManuallyDrop::drop(&mut self.core);
            }
        }
    }
}

impl Store {
    fn new(core: Arc<dyn core::Store>) -> Self {
        Self { core: ManuallyDrop::new(core), origin: Origin::here() }
    }

    /// The store, unless a fork brought it here.
    fn core(&self, py: Python<'_>) -> PyResult<&Arc<dyn core::Store>> {
        if self.origin.is_here() { Ok(&self.core) } else { Err(raise(py, &Error::Forked)) }
    }

    /// The same, for a cache to keep.
    pub fn share(&self) -> Result<Arc<dyn core::Store>, Error> {
        if self.origin.is_here() { Ok(Arc::clone(&self.core)) } else { Err(Error::Forked) }
    }

    fn on_keys(
        &self,
        py: Python<'_>,
        identity: &[u8],
        keys: &[Name<'_>],
        act: impl FnOnce(&dyn core::Store, Keys<'_>) -> Vec<Outcome> + Send,
    ) -> PyResult<Py<PyBytes>> {
        let store = self.core(py)?;
        let identity = Fingerprint(name(py, "identity", identity)?);
        let digests = digests(py, "keys", keys)?;
        let outcomes = py.detach(|| act(&**store, Keys { identity: &identity, digests: &digests }));
        Ok(PyBytes::new(py, &outcomes.into_iter().map(|outcome| outcome as u8).collect::<Vec<_>>()).unbind())
    }
}

fn name(py: Python<'_>, argument: &'static str, bytes: &[u8]) -> PyResult<[u8; 32]> {
    bytes.try_into().or_else(|_| wrong(py, argument, format!("need 32 bytes, got {}", bytes.len())))
}

fn digests(py: Python<'_>, argument: &'static str, names: &[Name<'_>]) -> PyResult<Vec<Digest>> {
    names.iter().map(|bytes| Ok(Digest(name(py, argument, bytes.as_bytes())?))).collect()
}

fn wrong<T>(py: Python<'_>, argument: &'static str, reason: String) -> PyResult<T> {
    Err(Error::Argument { argument, reason }).or_raise(py)
}

/// The buffers of all pages, which stay exported while they are held.
struct Buffers(Vec<Vec<PyUntypedBuffer>>);

impl Buffers {
    fn get(py: Python<'_>, pages: &[Runs<'_>], keys: usize, writable: bool) -> PyResult<Self> {
        if pages.len() != keys {
            return wrong(py, "pages", format!("{keys} keys, but {} pages", pages.len()));
        }
        let buffer = |run: &Bound<'_, PyAny>| {
            let buffer = PyUntypedBuffer::get(run)?;
            if !buffer.is_c_contiguous() {
                return wrong(py, "pages", "need contiguous memory".to_owned());
            }
            if writable && buffer.readonly() {
                return wrong(py, "pages", "need memory that can be written to".to_owned());
            }
            Ok(buffer)
        };
        let page = |runs: &Runs<'_>| runs.iter().map(buffer).collect::<PyResult<Vec<_>>>();
        let buffers = Self(pages.iter().map(page).collect::<PyResult<Vec<_>>>()?);
        if writable && buffers.overlap() {
            return wrong(py, "pages", "overlap".to_owned());
        }
        Ok(buffers)
    }

    fn overlap(&self) -> bool {
        let range = |run: &PyUntypedBuffer| (run.buf_ptr().addr(), run.len_bytes());
        let mut ranges: Vec<_> = self.0.iter().flatten().map(range).filter(|range| range.1 > 0).collect();
        ranges.sort_unstable();
        ranges.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0)
    }

    fn addresses(&self) -> Vec<core::Page> {
        let run = |run: &PyUntypedBuffer| (run.buf_ptr().cast::<u8>(), run.len_bytes());
        self.0.iter().map(|page| core::Page(page.iter().map(run).collect())).collect()
    }
}

/// # Safety
/// The memory is there, and nobody else's, as long as the view is.
#[allow(unsafe_code)]
unsafe fn view_mut<'a>(page: &core::Page) -> PageMut<'a> {
    let run = |&(at, bytes): &(*mut u8, usize)| {
        if bytes == 0 {
            return &mut [][..];
        }
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts_mut(at, bytes) }
    };
    PageMut::new(page.0.iter().map(run).collect())
}

/// # Safety
/// The memory is there as long as the view is; nobody writes to it.
#[allow(unsafe_code)]
unsafe fn view<'a>(page: &core::Page) -> PageRef<'a> {
    let run = |&(at, bytes): &(*mut u8, usize)| {
        if bytes == 0 {
            return &[][..];
        }
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts(at.cast_const(), bytes) }
    };
    PageRef::new(page.0.iter().map(run).collect())
}

#[pymethods]
#[allow(clippy::needless_pass_by_value, reason = "from Python's lists")]
impl Store {
    /// The store that a URL names, for an identity's fields, as a rank of a world.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        url: &str,
        identity: &[u8],
        fields: Vec<(String, String)>,
        rank: Vec<u32>,
        world: Vec<u32>,
    ) -> PyResult<Self> {
        let client = Client { identity: Fingerprint(name(py, "identity", identity)?), fields, rank, world };
        py.detach(|| core::open(url, &client)).or_raise(py).map(Self::new)
    }

    /// The store whose calls are answered at a desk.
    #[staticmethod]
    fn relayed(
        py: Python<'_>,
        desk: &Desk,
        timeout: f64,
        description: String,
        verify: bool,
    ) -> PyResult<Self> {
        let timeout =
            Duration::try_from_secs_f64(timeout).unwrap_or(Duration::MAX.min(Duration::from_secs(1 << 31)));
        if timeout.is_zero() {
            return wrong(py, "timeout", "must be a positive number of seconds".to_owned());
        }
        let relay = Arc::new(Relay::new(Arc::clone(&desk.core), timeout, description));
        Ok(Self::new(if verify { Arc::new(Verified::new(relay)) } else { relay }))
    }

    fn exists(&self, py: Python<'_>, identity: &[u8], keys: Vec<Name<'_>>) -> PyResult<Py<PyBytes>> {
        self.on_keys(py, identity, &keys, |store, keys| store.exists(keys))
    }

    fn remove(&self, py: Python<'_>, identity: &[u8], keys: Vec<Name<'_>>) -> PyResult<Py<PyBytes>> {
        self.on_keys(py, identity, &keys, |store, keys| store.remove(keys))
    }

    fn get(
        &self,
        py: Python<'_>,
        identity: &[u8],
        keys: Vec<Name<'_>>,
        pages: Vec<Runs<'_>>,
    ) -> PyResult<Py<PyBytes>> {
        let buffers = Buffers::get(py, &pages, keys.len(), true)?;
        let pages = buffers.addresses();
        self.on_keys(py, identity, &keys, |store, keys| {
            // SAFETY: `buffers` keeps them exported; they don't overlap. That nobody else writes is the caller's part.
            #[allow(unsafe_code)]
            let mut views: Vec<_> = pages.iter().map(|page| unsafe { view_mut(page) }).collect();
            store.get(keys, &mut views)
        })
    }

    fn put(
        &self,
        py: Python<'_>,
        identity: &[u8],
        keys: Vec<Name<'_>>,
        parents: Vec<Option<Name<'_>>>,
        pages: Vec<Runs<'_>>,
    ) -> PyResult<Py<PyBytes>> {
        if parents.len() != keys.len() {
            return wrong(py, "parents", format!("{} keys, but {} parents", keys.len(), parents.len()));
        }
        let parent = |parent: &Option<Name<'_>>| {
            parent.as_ref().map(|bytes| name(py, "parents", bytes.as_bytes()).map(Digest)).transpose()
        };
        let parents = parents.iter().map(parent).collect::<PyResult<Vec<_>>>()?;
        let buffers = Buffers::get(py, &pages, keys.len(), false)?;
        let pages = buffers.addresses();
        self.on_keys(py, identity, &keys, |store, keys| {
            // SAFETY: `buffers` keeps them exported. That nobody writes meanwhile is the caller's part.
            #[allow(unsafe_code)]
            let views: Vec<_> = pages.iter().map(|page| unsafe { view(page) }).collect();
            store.put(keys, &parents, &views)
        })
    }

    fn clear(&self, py: Python<'_>, identity: &[u8]) -> PyResult<u64> {
        let identity = Fingerprint(name(py, "identity", identity)?);
        let store = self.core(py)?;
        py.detach(|| store.clear(&identity)).or_raise(py)
    }

    /// Identity, key, bytes and age of every page.
    #[allow(clippy::type_complexity, reason = "four columns")]
    fn list<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>, u64, u64)>> {
        let store = self.core(py)?;
        let held = py.detach(|| store.list()).or_raise(py)?;
        let row = |held: core::Held| {
            let (identity, key) = (PyBytes::new(py, &held.identity.0), PyBytes::new(py, &held.digest.0));
            (identity, key, held.bytes, held.age)
        };
        Ok(held.into_iter().map(row).collect())
    }

    fn compact(&self, py: Python<'_>) -> PyResult<u64> {
        let store = self.core(py)?;
        py.detach(|| store.compact()).or_raise(py)
    }

    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let store = self.core(py)?;
        to_dict(py, &py.detach(|| store.statistics()))
    }

    fn describe(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.core(py)?.describe())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.core(py)?;
        py.detach(|| store.close());
        Ok(())
    }
}

/// Every count under its own name; a new one in the core fails to compile until it is named here.
pub fn to_dict<'py>(py: Python<'py>, statistics: &Statistics) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    macro_rules! put {
        ($($name:ident),* $(,)?) => {{
            let Statistics { $($name),* } = *statistics;
            $(dict.set_item(stringify!($name), $name)?;)*
        }};
    }
    put!(
        pages,
        bytes,
        capacity,
        read_pages,
        read_bytes,
        written_pages,
        written_bytes,
        absent_pages,
        short_pages,
        corrupt_pages,
        failed_pages,
        declined_pages,
        evicted_pages,
        expired_pages,
        mismatched_pages,
        unverified_pages,
    );
    Ok(dict)
}
