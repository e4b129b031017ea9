//! Byte addresses against plain index arithmetic, and pages that travel through every tier and layout.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]
#![allow(unsafe_code, reason = "a cache over plain memory takes addresses")]

mod common;

use common::over::over_store;
use common::plain::Plain;
use common::side::{SHAPES, Shape, Side};
use hicache_core::assemble::DevicePlane;
use hicache_core::hash::{Digest, Namespace};
use hicache_core::host::{Layout, LayoutKind, SlabOptions};
use hicache_core::identity::Fingerprint;
use hicache_core::ids::Slot;
use hicache_core::page::{PageSize, Tokens};
use hicache_core::policy::StopOptions;
use hicache_core::pool::{Needs, Plane, PoolSpec, Rows, SlotsOf};
use hicache_core::storage::Outcome;
use hicache_core::storage::file::FileStore;
use hicache_core::transfer::Direction;
use hicache_core::transfer::GpuOptions;
use hicache_core::transfer::cpu::CpuOptions;
use hicache_core::{Config, HiCache, HostMode};
use std::time::Duration;

const KINDS: [LayoutKind; 5] = LayoutKind::ALL;

#[test]
fn addresses_are_those_of_the_axes() {
    let slots = 5;
    for shape in SHAPES {
        for kind in KINDS {
            let spec = shape.spec("kv");
            let layout = Layout::new(kind, &spec, shape.size(), slots).unwrap();
            assert_eq!(layout.page_bytes(), shape.page_bytes());
            let mut used = vec![false; layout.bytes()];
            for slot in 0..slots as usize {
                let mut page = Vec::new();
                for (at, plane) in spec.planes.iter().enumerate() {
                    let (layer, role) = (plane.layer as usize, plane.role as usize);
                    let axes = layout.axes(at);
                    assert_eq!(axes.page_bytes(), shape.bytes(role));
                    for (row, head) in (0..axes.rows).flat_map(|row| (0..shape.heads).map(move |h| (row, h)))
                    {
                        let start = shape.address(kind, slots as usize, [layer, role, slot, row, head]);
                        assert_eq!(axes.address(slot, row, head), start, "{shape:?} {kind:?} {plane:?}");
                        page.extend(start..start + axes.bytes);
                        used[start..start + axes.bytes].iter_mut().for_each(|byte| {
                            assert!(!std::mem::replace(byte, true), "two elements share a byte");
                        });
                    }
                }
                // A page's runs are (layer, role, row, head): the same order in every layout.
                let runs: Vec<usize> = layout.runs(u32::try_from(slot).unwrap()).flatten().collect();
                assert_eq!(runs, page);
            }
        }
    }
}

/// Runs are as long as they can be: (all bytes of a page, bytes with padding of three, runs of a page).
#[test]
fn the_example_has_128_bytes_a_page_and_24_become_32() {
    let bytes = |shape: Shape, kind| {
        let layout = Layout::new(kind, &shape.spec("kv"), shape.size(), 3).unwrap();
        (layout.page_bytes(), layout.bytes(), layout.runs(1).count())
    };
    let expected = [(4, 4), (8, 4), (4, 4), (16, 4), (1, 1)];
    for (kind, (example, padded)) in KINDS.into_iter().zip(expected) {
        assert_eq!(bytes(SHAPES[0], kind), (128, 384, example), "{kind:?}");
        let total = if kind == LayoutKind::PageUnified { 96 } else { 72 };
        assert_eq!(bytes(SHAPES[4], kind), (24, total, padded), "{kind:?}");
    }
    // K and V of a page of one layer, head group by head group.
    let grouped = Layout::new(LayoutKind::PageUnified, &SHAPES[6].spec("kv"), SHAPES[6].size(), 3).unwrap();
    assert_eq!(grouped.runs(1).count(), 3 * 2 * 5 * 2);
}

/// A row that belongs to a page is one row, however many tokens the page has.
#[test]
fn a_row_of_a_page_is_one_row() {
    let (page, plane) = (PageSize::new(16).unwrap(), Plane { layer: 0, role: 0, bytes_per_token: 40 });
    for (rows, of_page) in [(Rows::Token, 16), (Rows::Page, 1)] {
        let spec =
            PoolSpec::new("side", vec![plane]).unwrap().with(rows, SlotsOf::default(), Needs::default());
        for kind in KINDS {
            let layout = Layout::new(kind, &spec, page, 3).unwrap();
            let axes = layout.axes(0);
            assert_eq!(
                (axes.rows, axes.page_bytes(), layout.page_bytes()),
                (of_page, 40 * of_page, 40 * of_page)
            );
        }
    }
}

/// What one rank of another tensor-parallel size, or one pipeline stage, needs of a page is one run.
#[test]
fn a_head_groups_window_of_layers_is_one_run() {
    let (shape, slots) = (SHAPES[6], 4);
    let layout = Layout::new(LayoutKind::PageUnified, &shape.spec("kv"), shape.size(), slots).unwrap();
    let group_bytes = |layers: usize| layers * (shape.bytes(0) + shape.bytes(1)) / shape.groups;
    for (slot, group, from, to) in [(0, 0, 0, 3), (3, 1, 1, 3), (2, 1, 2, 3), (1, 0, 0, 1)] {
        let run = layout.window(slot, group, from..to).unwrap();
        let start =
            shape.address(LayoutKind::PageUnified, 4, [from as usize, 0, slot as usize, 0, group * 2]);
        assert_eq!(run, start..start + group_bytes((to - from) as usize));
    }
    assert_eq!(layout.window(0, 2, 0..1), None, "there are two groups");
    assert_eq!(layout.window(0, 0, 3..4), None, "there are three layers");
    let other = Layout::new(LayoutKind::PageHead, &shape.spec("kv"), shape.size(), slots).unwrap();
    assert_eq!(other.window(0, 0, 0..1), None);
}

#[test]
fn a_layout_has_a_name_and_a_size_that_fits() {
    for kind in KINDS {
        assert_eq!(kind.name().parse::<LayoutKind>().unwrap(), kind);
    }
    let error = "page_last".parse::<LayoutKind>().unwrap_err().to_string();
    assert!(error.contains("layout") && error.contains("page_unified"), "{error}");
    let plane = |bytes_per_token| Plane { layer: 0, role: 0, bytes_per_token };
    assert!(PoolSpec::new("kv", vec![plane(usize::MAX / 4)]).is_err());
    let huge = PoolSpec::new("kv", vec![plane(1 << 30)]).unwrap();
    for kind in KINDS {
        assert!(Layout::new(kind, &huge, PageSize::new(1 << 20).unwrap(), u32::MAX).is_err());
    }
}

/// Device [5,1,3] → host [0,2,1] → store → host [2,0,1] → device [0,4,2], for each pair of layouts.
#[test]
fn pages_travel_through_every_tier() {
    for shape in SHAPES {
        for (from, to) in KINDS.into_iter().flat_map(|from| KINDS.map(|to| (from, to))) {
            let dir = tempfile::tempdir().unwrap();
            let store = FileStore::open(dir.path()).unwrap();
            let store = Plain(&store, Fingerprint([3; 32]));
            let keys: [Digest; 3] = std::array::from_fn(|page| Digest([u8::try_from(page).unwrap(); 32]));
            let mut out = Side::new(shape, from, 3);
            (0..3).zip([5, 1, 3]).for_each(|(page, slot)| out.compute(slot, page));
            out.copy(Direction::Out, &[(5, 0), (1, 2), (3, 1)]);
            let pages = [0, 2, 1].map(|slot| out.payload(slot));
            assert_eq!(store.put(&keys, &pages.each_ref().map(Vec::as_slice)), [Outcome::Hit; 3]);

            let mut back = Side::new(shape, to, 3);
            let mut read = pages.map(|page| vec![0; page.len()]);
            let outcomes = store.get(&keys, &mut read.each_mut().map(Vec::as_mut_slice));
            assert_eq!(outcomes, [Outcome::Hit; 3]);
            [2, 0, 1].iter().zip(&read).for_each(|(&slot, page)| back.fill(slot, page));
            back.copy(Direction::In, &[(0, 2), (4, 0), (2, 1)]);
            (0..3).zip([0, 4, 2]).for_each(|(page, slot)| back.verify(slot, page));
            // Slots that nobody named are as they were.
            assert!(
                back.device
                    .iter()
                    .all(|plane| plane[plane.len() / 8..plane.len() / 4].iter().all(|&b| b == 0xDD))
            );
        }
    }
}

/// Neighbours on both sides travel as one run, and still arrive page by page.
#[test]
fn neighbours_arrive_like_strangers() {
    for kind in KINDS {
        let mut side = Side::new(SHAPES[3], kind, 8);
        (0..8).for_each(|slot| side.compute(slot as usize, slot));
        side.copy(Direction::Out, &[(0, 3), (1, 4), (2, 5), (7, 6), (6, 7), (3, 0), (4, 2)]);
        side.copy(Direction::In, &[(5, 3), (6, 4), (7, 5), (0, 7), (1, 0), (2, 2)]);
        for (slot, page) in [(5, 0), (6, 1), (7, 2), (0, 6), (1, 3), (2, 4)] {
            side.verify(slot, page);
        }
    }
}

/// `over_memory` finds both sides itself: a whole cache with two pools, one of them padded.
#[test]
fn a_cache_over_plain_memory_moves_all_pools() {
    for kind in KINDS {
        let shapes = [SHAPES[2], SHAPES[4]];
        let names = ["kv", "draft"];
        let pools: Vec<PoolSpec> = shapes.iter().zip(names).map(|(shape, name)| shape.spec(name)).collect();
        let dir = tempfile::tempdir().unwrap();
        let page_size = PageSize::new(1).unwrap();
        let config = Config {
            identity: Fingerprint::of(&[], page_size, &pools),
            page_size,
            bigrams: false,
            pools,
            device_slots: 4,
            engine_owns_slots: false,
            host_slots: 4,
            host_mode: HostMode::Cache,
            parts: Vec::new(),
            unified: None,
            checkpoints_per_path: 0,
            eviction: "lru".into(),
            writing: common::rig::MIRRORED,
            layout: kind,
            memory: SlabOptions::default(),
            restart: None,
            gpu: None,
            gpu_copies: GpuOptions::default(),
            copies: CpuOptions::default(),
            io_threads: 1,
            write_queue: 4,
            prefetch: StopOptions::named("wait_complete"),
            prefetch_deadline: 10.0,
            store_deadline: 10.0,
            prefetch_threshold: 0,
            load_threshold: 0,
        };
        let planes = |shape: &Shape| -> Vec<Vec<u8>> {
            (0..2 * shape.layers as usize).map(|at| vec![0; 4 * shape.bytes(at % 2)]).collect()
        };
        let mut memory: Vec<Vec<Vec<u8>>> = shapes.iter().map(planes).collect();
        let device: Vec<Vec<DevicePlane>> = memory
            .iter_mut()
            .map(|pool| {
                pool.iter_mut().map(|p| DevicePlane { address: p.as_mut_ptr() as usize, bytes: p.len() })
            })
            .map(Iterator::collect)
            .collect();
        let url = format!("file://{}", dir.path().display());
        travel(&config, &device, &url, &mut memory, &shapes);
    }
}

fn travel(
    config: &Config,
    device: &[Vec<DevicePlane>],
    url: &str,
    memory: &mut [Vec<Vec<u8>>],
    shapes: &[Shape],
) {
    let tokens = [7, 8, 9];
    // SAFETY: `memory` outlives the cache and is never resized.
    let cache = || unsafe { over_store(config.clone(), Some(device), url) }.unwrap();
    let plane = |shape: &Shape, at: usize, slot: Slot, page: u32| {
        let bytes = shape.bytes(at % 2);
        (slot.0 as usize * bytes..(slot.0 as usize + 1) * bytes, shape.stamp(page, at / 2, at % 2))
    };
    let until_idle = |cache: &mut HiCache| {
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while cache.in_flight() > 0 {
            cache.poll(None, 0.0).unwrap();
            assert!(std::time::Instant::now() < end, "transfers never end");
        }
        cache.check().unwrap();
    };
    let mut writer = cache();
    let hit = writer.match_prefix(Tokens::I32(&tokens), &Namespace::default(), None, 9, 0.0).unwrap();
    writer.load(&[hit], None).unwrap();
    let slots = writer.allocate(3).unwrap().unwrap();
    for (page, &slot) in (0..).zip(&slots) {
        for (pool, shape) in memory.iter_mut().zip(shapes) {
            for (at, bytes) in pool.iter_mut().enumerate() {
                let (range, stamp) = plane(shape, at, slot, page);
                bytes[range].copy_from_slice(&stamp);
            }
        }
    }
    writer.insert(hit, Tokens::I32(&tokens), &slots).unwrap();
    until_idle(&mut writer);
    drop(writer);
    memory.iter_mut().flatten().for_each(|plane| plane.fill(0));

    let mut reader = cache();
    reader.allocate(1).unwrap().unwrap();
    let hit = reader.match_prefix(Tokens::I32(&tokens), &Namespace::default(), None, 9, 0.0).unwrap();
    assert!(reader.prefetch(hit).unwrap());
    while reader.view(hit).unwrap().waiting {
        reader.poll(None, 0.0).unwrap();
    }
    let loaded = reader.load(&[hit], None).unwrap();
    assert!(reader.progress(Direction::In).wait(loaded.ticket, 2, Duration::from_secs(5)));
    until_idle(&mut reader);
    let slots = reader.hit_slots(hit).unwrap();
    assert_eq!(slots.len(), 3);
    for (page, &slot) in (0..).zip(&slots) {
        for (pool, shape) in memory.iter().zip(shapes) {
            for (at, bytes) in pool.iter().enumerate() {
                let (range, stamp) = plane(shape, at, slot, page);
                assert_eq!(bytes[range], stamp, "pool plane {at} page {page}");
            }
        }
    }
}
