//! What a cache promises its store about memory: told once, before the first page, of all that pages will be in, and mapped
//! until the store is closed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]
#![allow(unsafe_code, reason = "reads the memory that it was told of")]

mod common;

use common::models::{Shape, WINDOW, config};
use common::store::FaultStore;
use hicache_core::hash::{Digest, Namespace, chain};
use hicache_core::identity::Fingerprint;
use hicache_core::page::Tokens;
use hicache_core::storage::{Keys, Outcome, PageMut, PageRef, Statistics, Store, Verified};
use hicache_core::{Config, HiCache, Result};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A store that compares what it is told with what it gets.
#[derive(Default)]
struct Told {
    pages: FaultStore,
    /// Of each time that it was told: addresses and sizes.
    memory: Mutex<Vec<Vec<(usize, usize)>>>,
    /// Runs of pages inside of what it was told of, and outside.
    runs: [AtomicUsize; 2],
    /// Bytes that could be read when it was closed.
    mapped: AtomicUsize,
}

impl Told {
    fn see(&self, run: &[u8]) {
        let (at, end) = (run.as_ptr().addr(), run.as_ptr().addr() + run.len());
        let told = self.memory.lock().unwrap();
        let inside = told.iter().flatten().any(|&(start, bytes)| start <= at && end <= start + bytes);
        self.runs[usize::from(!inside)].fetch_add(1, Ordering::SeqCst);
    }

    fn seen(&self) -> [usize; 2] {
        [0, 1].map(|which| self.runs[which].load(Ordering::SeqCst))
    }
}

impl Store for Told {
    fn exists(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.pages.exists(keys)
    }

    fn get(&self, keys: Keys<'_>, pages: &mut [PageMut<'_>]) -> Vec<Outcome> {
        pages.iter().for_each(|page| page.view().runs().iter().for_each(|run| self.see(run)));
        self.pages.get(keys, pages)
    }

    fn put(&self, keys: Keys<'_>, parents: &[Option<Digest>], pages: &[PageRef<'_>]) -> Vec<Outcome> {
        pages.iter().for_each(|page| page.runs().iter().for_each(|run| self.see(run)));
        self.pages.put(keys, parents, pages)
    }

    fn remove(&self, keys: Keys<'_>) -> Vec<Outcome> {
        self.pages.remove(keys)
    }

    fn clear(&self, identity: &Fingerprint) -> Result<u64> {
        self.pages.clear(identity)
    }

    fn statistics(&self) -> Statistics {
        self.pages.statistics()
    }

    fn register(&self, memory: &[(*mut u8, usize)]) {
        let memory = memory.iter().map(|&(at, bytes)| (at.expose_provenance(), bytes)).collect();
        self.memory.lock().unwrap().push(memory);
    }

    fn describe(&self) -> String {
        "told".into()
    }

    fn close(&self) {
        for &(at, bytes) in self.memory.lock().unwrap().iter().flatten() {
            let at = std::ptr::with_exposed_provenance::<u8>(at);
            // SAFETY: what this test is about: it is mapped until this returns.
            (0..bytes).step_by(4096).for_each(|byte| _ = unsafe { at.wrapping_add(byte).read_volatile() });
            self.mapped.fetch_add(bytes, Ordering::SeqCst);
        }
    }
}

/// A store for a cache without device memory, and how the cache is opened with it.
fn cache(config: Config, told: &Arc<Told>) -> HiCache {
    let open = || -> Result<Arc<dyn Store>> { Ok(Arc::<Told>::clone(told)) };
    // SAFETY: there is no device memory.
    unsafe { HiCache::over_memory(config, None, Some(&open)) }.unwrap()
}

/// The pages of these tokens, of so many bytes each, as somebody else stored them.
fn stored(config: &Config, told: &Told, tokens: &[i32], bytes: usize) {
    let digests = chain(Namespace::default().seed(), Tokens::I32(tokens), config.page_size);
    let page = vec![7; bytes];
    let pages: Vec<PageRef<'_>> = digests.iter().map(|_| PageRef::from(&page[..])).collect();
    let keys = Keys { identity: &config.identity, digests: &digests };
    let parents = vec![None; digests.len()];
    assert!(told.pages.put(keys, &parents, &pages).iter().all(|outcome| *outcome == Outcome::Hit));
}

#[test]
fn a_store_is_told_once_of_all_host_memory_which_is_mapped_until_it_is_closed() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    for (parts, restart) in [(false, None), (true, None), (false, Some(home.path().join("host")))] {
        let parts = if parts { vec![(WINDOW, 12, 14)] } else { Vec::new() };
        let config = Config { restart, ..config(&Shape::of(&parts)) };
        let (pools, told) = (config.pools.len(), Arc::new(Told::default()));
        let tokens = [1, 2, 3, 4, 5, 6];
        stored(&config, &told, &tokens, 40);
        let mut cache = cache(config, &told);
        let memory = told.memory.lock().unwrap().clone();
        let mut slabs = memory.concat();
        slabs.sort_unstable();
        assert_eq!((memory.len(), slabs.len()), (1, pools), "told once, of a slab a pool");
        assert!(slabs.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0), "of each byte once");
        assert!(slabs.iter().all(|&(_, bytes)| bytes > 0));
        assert_eq!(told.seen(), [0, 0], "before the first page");
        let all = slabs.iter().map(|(_, bytes)| bytes).sum::<usize>();

        if parts.is_empty() {
            let hit = cache.match_prefix(Tokens::I32(&tokens), &Namespace::default(), None, 9, 0.0).unwrap();
            assert!(cache.prefetch(hit).unwrap());
            while cache.view(hit).unwrap().waiting {
                cache.poll(None, 0.0).unwrap();
            }
            let [inside, outside] = told.seen();
            assert!(inside >= 3 && outside == 0, "{outside} runs of pages were elsewhere, {inside} there");
        }
        cache.close(Duration::from_secs(10));
        assert_eq!(told.mapped.load(Ordering::SeqCst), all, "closed, and while it was mapped");
        drop(cache);
    }
}

#[test]
fn a_store_around_another_tells_it() {
    let (told, mut page) = (Arc::new(Told::default()), [0; 40]);
    let around = Verified::new(Arc::<Told>::clone(&told));
    around.register(&[(page.as_mut_ptr(), page.len())]);
    assert_eq!(*told.memory.lock().unwrap(), [[(page.as_ptr().expose_provenance(), 40)]]);
}
