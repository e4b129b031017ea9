//! The GPU's copier over an emulated runtime: real jobs, real bytes, streams in any order that events allow.
//! Nothing here runs on a GPU: `make gpu-check` does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]
#![allow(unsafe_code, reason = "the copier takes addresses; the emulation is C")]

mod common;
#[path = "cuda/far.rs"]
mod far;
#[path = "cuda/geometry.rs"]
mod geometry;
#[path = "cuda/options.rs"]
mod options;
#[path = "cuda/order.rs"]
mod order;
#[path = "cuda/pinning.rs"]
mod pinning;
#[path = "cuda/spaces.rs"]
mod spaces;
#[path = "cuda/whole.rs"]
mod whole;

use common::Seeded;
use geometry::{Kind, Pool, SHAPES};
use hicache_core::ids::Slot;
use hicache_core::transfer::cuda::{CudaCopier, CudaError, CudaResult, Engine, Settings, Stream, probe};
use hicache_core::transfer::{Copier, CopyJob, Direction};
use std::ffi::{CString, c_char};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

unsafe extern "C" {
    fn emulated_machine(seed: u64, driver: i32, devices: i32);
    fn emulated_fail(call: *const c_char, after: i32, code: i32);
    fn emulated_alive() -> usize;
    fn emulated_enqueued(launches: *mut usize, batches: *mut usize);
}

/// There is one emulated machine: one test at a time.
fn machine(seed: u64, driver: i32, devices: i32) -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: nobody else uses the machine.
    unsafe { emulated_machine(seed, driver, devices) };
    guard
}

fn fail(call: &str, after: i32, code: i32) {
    let call = CString::new(call).unwrap();
    // SAFETY: a text that ends; the emulation copies it.
    unsafe { emulated_fail(call.as_ptr(), after, code) };
}

fn alive() -> usize {
    // SAFETY: only counts.
    unsafe { emulated_alive() }
}

/// Kernels, and batches of the copy engine.
fn enqueued() -> (usize, usize) {
    let (mut launches, mut batches) = (0, 0);
    // SAFETY: both are valid for the call.
    unsafe { emulated_enqueued(&raw mut launches, &raw mut batches) };
    (launches, batches)
}

fn settings(layers: u32, engine_run: u64, staging: u64) -> Settings {
    let all = Settings::new(0, layers);
    Settings { engine_run: [engine_run; 2], staging: [staging; 2], multiprocessors: [1, 2], ..all }
}

/// # Safety
/// The pool must outlive the copier.
unsafe fn start(pool: &Pool, settings: &Settings) -> CudaResult<CudaCopier> {
    // SAFETY: the caller's promise; the pool keeps its memory where it is.
    unsafe { CudaCopier::new(settings, &pool.plan(), &pool.pinned(), &pool.memory(), [0; 2]) }
}

fn job(ticket: u64, direction: Direction, pages: &[(u32, u32)]) -> CopyJob {
    let pages = pages.iter().map(|&(device, host)| (Slot(device), Slot(host))).collect();
    CopyJob::of(ticket, direction, vec![pages])
}

#[test]
fn pages_travel_in_every_layout_by_every_way() {
    let mut random = Seeded(7);
    for shape in SHAPES {
        for kind in Kind::ALL {
            // By the copy engine alone; by kernels alone; staged where a page is dense, through little memory.
            for (engine_run, staging) in [(1, 0), (1 << 40, 0), (300, 6 << 10)] {
                let _one = machine(random.next(), 13000, 1);
                travel(
                    &mut Pool::new(shape, kind, 9, 7),
                    settings(shape.layers, engine_run, staging),
                    &mut random,
                );
                assert_eq!(alive(), 0, "streams, events, memory or pinned pages were left");
            }
        }
    }
}

fn travel(pool: &mut Pool, settings: Settings, random: &mut Seeded) {
    // SAFETY: `pool` outlives the copier and never moves its memory.
    let mut copier = unsafe { start(pool, &settings) }.unwrap();
    let pages = [(5, 0), (1, 2), (3, 6), (8, 1)];
    for (at, &(slot, _)) in pages.iter().enumerate() {
        pool.compute(slot, at);
    }
    copier.submit(job(1, Direction::Out, &pages));
    assert!(
        copier.progress(Direction::Out).wait(2, 0, Duration::from_secs(20)),
        "{:?}",
        copier.layers().fault()
    );
    pages.iter().enumerate().for_each(|(at, &(_, slot))| pool.verify_host(slot, at));
    pool.forget_device();
    // More loads than sets of events; each is asked for layer by layer.
    let back = [[(0, 0), (2, 2)], [(4, 6), (6, 1)], [(5, 2), (7, 0)], [(1, 1), (3, 6)], [(0, 6), (8, 0)]];
    let place = |host: u32| pages.iter().position(|&(_, slot)| slot == host).unwrap();
    for (ticket, pages) in (1..).zip(&back[..4 - random.below(2)]) {
        copier.submit(job(ticket, Direction::In, pages));
        for layer in 0..pool.shape.layers {
            let progress = copier.progress(Direction::In);
            assert!(
                progress.wait(ticket, layer + 1, Duration::from_secs(20)),
                "{:?}",
                copier.layers().fault()
            );
            pages.iter().for_each(|&(device, host)| pool.verify_layer(device, place(host), layer));
        }
    }
    pool.untouched_host(&pages.map(|(_, host)| host));
}

#[test]
fn what_is_missing_is_said() {
    for (driver, devices, error) in [(0, 0, CudaError::NoDriver), (13000, 0, CudaError::NoDevice)] {
        let _one = machine(1, driver, devices);
        assert_eq!(probe().unwrap_err(), error);
        assert_eq!(Engine::new(&settings(2, 1, 0)).unwrap_err(), error);
    }
    assert!(CudaError::NoDriver.to_string().starts_with("no driver"));
    assert!(CudaError::NoDevice.to_string().starts_with("no device"));
    let _one = machine(1, 13000, 2);
    assert_eq!(probe().unwrap().devices, 2);
    assert_eq!(Engine::new(&settings(0, 1, 0)).unwrap_err(), CudaError::Argument("device"));
}

#[test]
fn whatever_fails_at_the_start_leaves_nothing_behind() {
    let calls =
        ["cudaStreamCreateWithPriority", "cudaEventCreateWithFlags", "cudaMalloc", "cudaHostRegister"];
    for call in [&calls[..], &["cudaHostGetDevicePointer", "cudaGetDeviceCount"]].concat() {
        for after in 0..3 {
            let _one = machine(1, 13000, 1);
            let pool = Pool::new(SHAPES[0], Kind::PageFirst, 40, 40);
            fail(call, after, 2);
            // SAFETY: `pool` outlives the copier.
            let made = unsafe { start(&pool, &settings(2, 1, 4096)) };
            // Probing happens once, and two directions stage.
            let happens = after
                < match call {
                    "cudaGetDeviceCount" => 1,
                    "cudaMalloc" => 2,
                    _ => 3,
                };
            assert_eq!(made.is_err(), happens, "{call} {after}");
            drop(made);
            assert_eq!(alive(), 0, "after {call}, {after} good ones before");
        }
    }
}

#[test]
fn a_fault_is_kept_and_nothing_finishes_after_it() {
    for call in ["cudaMemcpyBatchAsync", "cudaEventRecord", "cudaEventQuery", "cudaStreamIsCapturing"] {
        let _one = machine(1, 13000, 1);
        let pool = Pool::new(SHAPES[0], Kind::PageUnified(1), 4, 4);
        // SAFETY: `pool` outlives the copier.
        let made = unsafe { start(&pool, &settings(2, 1, 0)) };
        let mut copier = made.unwrap();
        fail(call, 0, 700);
        copier.submit(job(1, Direction::In, &[(0, 0)]));
        // The wait ends with the fault, not with its hour.
        let progress = Arc::clone(copier.progress(Direction::In));
        assert!(!progress.wait(1, 2, Duration::from_secs(3600)), "{call}");
        assert_eq!(progress.fault().as_deref(), copier.fault().as_deref());
        assert_eq!(alive(), 0, "who hears of a fault may give memory away: nothing of the engine is left");
        let fault = copier.layers().fault().expect(call);
        assert!(matches!(&fault, CudaError::Cuda { code: 700, .. }), "{fault}");
        // SAFETY: 0 is the default stream.
        assert_eq!(unsafe { copier.layers().wait(1, 0, Stream(0)) }.unwrap_err(), fault);
        copier.submit(job(2, Direction::In, &[(1, 1)]));
        assert!(!progress.wait(2, 1, Duration::from_secs(3600)), "jobs after it end at once too");
        drop(copier);
        assert_eq!(alive(), 0);
    }
}

#[test]
fn layers_can_be_waited_for_on_any_stream_also_late() {
    let _one = machine(3, 13000, 1);
    let pool = Pool::new(SHAPES[0], Kind::PageUnified(1), 4, 4);
    // SAFETY: `pool` outlives the copier.
    let made = unsafe { start(&pool, &settings(2, 1, 0)) };
    let mut copier = made.unwrap();
    let layers = copier.layers();
    copier.submit(job(1, Direction::In, &[(0, 0)]));
    // SAFETY: 0 is the default stream.
    let wait = |layer| unsafe { layers.wait(1, layer, Stream(0)) };
    assert_eq!((wait(0), wait(1)), (Ok(()), Ok(())));
    assert_eq!(wait(2), Ok(()), "there is no third layer: after the whole load");
    drop(copier);
    assert_eq!(wait(1), Ok(()));
}

#[test]
fn each_layout_takes_the_way_that_suits_it() {
    // Rows of 64 bytes, K and V of two layers; a run of 300 is worth a copy of its own.
    for (kind, staging, ways) in [
        // K and V of all layers are in one place, in runs of 256 bytes: staged together.
        (Kind::PageUnified(1), 8 << 10, (1, 1)),
        // K and V are apart: staged one after the other.
        (Kind::PageFirst, 8 << 10, (2, 2)),
        (Kind::PageFirst, 0, (1, 0)),
        // Planes are apart: nothing to stage.
        (Kind::LayerFirst, 8 << 10, (1, 0)),
    ] {
        let _one = machine(9, 13000, 1);
        let pool = Pool::new(SHAPES[0], kind, 4, 4);
        // SAFETY: `pool` outlives the copier.
        let mut copier = unsafe { start(&pool, &settings(2, 300, staging)) }.unwrap();
        copier.submit(job(1, Direction::In, &[(0, 1), (2, 3)]));
        assert_eq!(enqueued(), ways, "{kind:?} {staging}");
    }
}

#[test]
fn a_whole_cache_goes_there_and_back() {
    for layout in ["layer_first", "page_first", "page_first_direct", "page_unified"] {
        let _one = machine(4, 13000, 1);
        whole::there_and_back(layout.parse().unwrap(), alive);
    }
}

#[test]
fn a_cache_says_what_failed() {
    let _one = machine(5, 13000, 1);
    whole::says_what_failed(|| fail("cudaEventRecord", 0, 700));
    assert_eq!(alive(), 0);
}

#[test]
fn a_cache_goes_on_with_other_memory_after_a_fault() {
    // While jobs are enqueued, and while they are asked for.
    for call in ["cudaEventRecord", "cudaStreamIsCapturing", "cudaEventQuery", "cudaStreamWaitEvent"] {
        let failed = (0..12).filter(|&after| {
            let _one = machine(8, 13000, 1);
            let failed = whole::goes_on_after_a_fault(|| fail(call, after, 700), alive);
            assert_eq!(alive(), 0, "{call} {after}");
            failed
        });
        assert!(failed.count() > 0, "{call}: nothing ever failed");
    }
}
