//! Where the host is staging: every end, from every state of a write. Slots come back when what moves bytes there lets go,
//! never before; nothing is believed stored that isn't; and the cache goes on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use common::staging::{shape, straight};
use common::store::{Fault, FaultStore, Verb};
use common::writing::path;
use hicache_core::identity::Fingerprint;
use hicache_core::ids::Tier;
use hicache_core::policy::Write;
use hicache_core::storage::Store;
use hicache_core::transfer::Direction;
use hicache_core::{Cleared, LeftBehind};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(20);
const NEXT: Fingerprint = Fingerprint([9; 32]);

/// Where the first pages of a path are that is longer than writes may have slots for; the rest waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Being copied to staging.
    Copying,
    /// In staging: no batch may begin.
    Landed,
    /// In a batch inside of the store, which hangs.
    Inside,
    /// The same when its deadline has passed.
    Late,
}

const STATES: [At; 4] = [At::Copying, At::Landed, At::Inside, At::Late];

/// 10 pages of path 1, of which 6 slots have as many as there is room for. When they have landed, one page of path 9 is
/// inside of the store.
fn at(state: At) -> (Rig, Arc<FaultStore>) {
    let store = Arc::new(FaultStore::default());
    store.plan(|verb, _| if verb == Verb::Put { Fault::Hang } else { Fault::None });
    let queue = if state == At::Landed { 1 } else { 4 };
    let shape = Shape { queue, ..shape(straight(Write::Through, 0.0), 16, 8) };
    let mut rig = Rig::new(shape, Some(&store));
    if state == At::Copying {
        rig.gate.shut(Direction::Out);
    }
    if state == At::Landed {
        rig.serve(&path(9, 1));
        rig.until("the store", |_| store.calls(Verb::Put) == 1);
    }
    rig.serve(&path(1, 10));
    match state {
        At::Copying => rig.poll(0.0),
        At::Landed => rig.until("the copy", |rig| rig.cache.copying() == 0),
        At::Inside | At::Late => rig.until("the store", |_| store.calls(Verb::Put) == 1),
    }
    if state == At::Late {
        rig.poll(11.0);
        assert_eq!(rig.cache.stats().deadlines_passed, 1);
    }
    assert_eq!(rig.cache.staged(), [6, 0], "{state:?}");
    (rig, store)
}

/// What moved bytes lets go.
fn loosen(rig: &mut Rig, store: &FaultStore) {
    rig.gate.open(Direction::Out);
    store.release();
    rig.all_written();
}

/// Everything is stored when it comes again, and nothing is held.
fn goes_on(mut rig: Rig, store: &FaultStore) {
    rig.stored_truly(store, &path(1, 10));
    rig.serve(&path(1, 10));
    rig.all_written();
    assert_eq!(rig.stored_truly(store, &path(1, 10)), 10);
    rig.all_back(&[]);
}

/// So many slots are still somebody's, whatever ended.
fn still(rig: &mut Rig, state: At, copying: usize) {
    rig.books();
    let staged = match state {
        At::Copying => copying,
        At::Landed => 1,
        At::Inside | At::Late => 6,
    };
    assert_eq!(rig.cache.staged(), [staged, 0], "{state:?}");
    rig.poll(0.0);
    assert_eq!(rig.cache.staged(), [staged, 0], "{state:?}: not before they let go");
}

#[test]
fn left_alone_all_is_stored() {
    for state in STATES {
        let (mut rig, store) = at(state);
        loosen(&mut rig, &store);
        assert_eq!(rig.stored_truly(&store, &path(1, 10)), 10, "{state:?}");
        goes_on(rig, &store);
    }
}

#[test]
fn a_store_is_detached_and_another_one_attached() {
    for state in STATES {
        let (mut rig, store) = at(state);
        let began = Instant::now();
        let left = rig.cache.detach_store(SHORT).unwrap();
        assert!(began.elapsed() < Duration::from_secs(5), "bounded");
        let (unwritten_pages, inside) = match state {
            At::Copying => (10, 0),
            At::Landed => (10, 1),
            At::Inside | At::Late => (4, 1),
        };
        assert_eq!(left, LeftBehind { unwritten_pages, inside }, "{state:?}");
        still(&mut rig, state, 6);
        let other = Arc::new(FaultStore::default());
        let attached: Arc<dyn Store> = Arc::<FaultStore>::clone(&other);
        rig.cache.attach_store(&|| Ok(Arc::clone(&attached))).unwrap();
        rig.books();
        loosen(&mut rig, &store);
        assert_eq!(
            rig.stored(&store, &path(1, 10)),
            usize::from(left.inside == 1 && state != At::Landed) * 6
        );
        goes_on(rig, &other);
    }
}

/// Without one after it, nothing is written, and nothing waits to be.
#[test]
fn a_store_is_detached_for_good() {
    for state in STATES {
        let (mut rig, store) = at(state);
        rig.cache.detach_store(SHORT).unwrap();
        loosen(&mut rig, &store);
        rig.serve(&path(2, 4));
        assert_eq!((rig.cache.pending(), rig.cache.unwritten()), (0, [0; 2]));
        rig.all_back(&[]);
    }
}

#[test]
fn memory_is_cleared() {
    for state in STATES {
        let (mut rig, store) = at(state);
        let [device, host] = rig.cache.clear_memory().unwrap();
        // Those that are being copied are held.
        let held = if state == At::Copying { 6 } else { 0 };
        let inserted = usize::try_from(rig.cache.stats().inserted_pages).unwrap();
        assert_eq!((device + held, host), (inserted, 0), "{state:?}");
        still(&mut rig, state, 6);
        loosen(&mut rig, &store);
        // Inside is the store's; the rest isn't asked for any more.
        let inside = if matches!(state, At::Inside | At::Late) { 6 } else { 0 };
        assert_eq!(rig.stored(&store, &path(1, 10)), inside, "{state:?}");
        goes_on(rig, &store);
    }
}

#[test]
fn weights_change() {
    for state in STATES {
        let (mut rig, store) = at(state);
        rig.cache.bump_epoch(NEXT).unwrap();
        still(&mut rig, state, 6);
        loosen(&mut rig, &store);
        assert_eq!(store.of(NEXT), 0, "{state:?}: nothing of before under the new identity");
        rig.serve(&path(1, 10));
        rig.all_written();
        assert_eq!(store.of(NEXT), 10);
        rig.all_back(&[]);
    }
}

#[test]
fn storage_is_cleared() {
    for state in STATES {
        let (mut rig, store) = at(state);
        let number = rig.cache.clear_storage().unwrap();
        still(&mut rig, state, 6);
        rig.gate.open(Direction::Out);
        store.release();
        rig.until("the clear", |rig| rig.cache.cleared(number) != Cleared::Waiting);
        rig.all_written();
        // What was being copied is written after the clear.
        assert_eq!(rig.stored(&store, &path(1, 10)), if state == At::Copying { 6 } else { 0 }, "{state:?}");
        goes_on(rig, &store);
    }
}

#[test]
fn copies_fail_for_good() {
    for state in STATES {
        let (mut rig, store) = at(state);
        rig.gate.end("the device is gone");
        rig.poll(0.0);
        let failed = if state == At::Copying { 6 } else { 0 };
        assert_eq!(rig.cache.stats().backup_failed_pages, failed);
        assert_eq!(rig.cache.tree().resident(Tier::Device), 0);
        // What has landed is whole.
        let staged = if state == At::Copying { 0 } else { 6 };
        assert_eq!(rig.cache.staged(), [staged, 0], "{state:?}");
        rig.wake_elsewhere();
        store.release();
        rig.all_written();
        let whole = match state {
            At::Copying => 0,
            At::Landed => 5,
            At::Inside | At::Late => 6,
        };
        assert_eq!(rig.stored(&store, &path(1, 10)), whole, "{state:?}");
        goes_on(rig, &store);
    }
}

#[test]
fn device_memory_goes() {
    for state in STATES {
        let (mut rig, store) = at(state);
        if state == At::Copying {
            assert!(rig.cache.detach().unwrap_err().to_string().contains("copies are under way"));
            loosen(&mut rig, &store);
            continue;
        }
        rig.cache.detach().unwrap();
        still(&mut rig, At::Inside, 6);
        rig.attach_elsewhere(16);
        loosen(&mut rig, &store);
        assert_eq!(rig.stored(&store, &path(1, 10)), if state == At::Landed { 5 } else { 6 });
        goes_on(rig, &store);
    }
}

#[test]
fn the_cache_is_closed() {
    for state in STATES {
        let (mut rig, store) = at(state);
        let began = Instant::now();
        rig.cache.close(SHORT);
        assert!(began.elapsed() < Duration::from_secs(5), "bounded");
        rig.books();
        assert_eq!(rig.cache.staged(), [6, 0], "{state:?}: what moves bytes there has it");
        rig.gate.open(Direction::Out);
        store.release();
    }
}

/// A request in any state may end meanwhile: it owns nothing of a write.
#[test]
fn requests_end() {
    for state in STATES {
        let (mut rig, store) = at(state);
        let hits = [rig.find(&path(1, 10)), rig.find(&path(1, 3))];
        rig.load(hits[1]);
        rig.cache.release(hits[0], 0).unwrap();
        still(&mut rig, if state == At::Landed { At::Inside } else { state }, 6);
        rig.cache.release(hits[1], 0).unwrap();
        loosen(&mut rig, &store);
        assert_eq!(rig.stored_truly(&store, &path(1, 10)), 10, "{state:?}");
        goes_on(rig, &store);
    }
}
