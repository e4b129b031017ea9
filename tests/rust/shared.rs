//! FULL and a part in one device buffer, through the verbs: with copies that land late and pages that move meanwhile,
//! every byte that is served is the right one, and everything comes back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::mixed::Mixed;
use common::models::{STATE, Shape, WINDOW, config, unified_shapes};
use common::own::Own;
use common::squall::Squall;
use common::store::FaultStore;
use common::tenants::prompt;
use common::{Seeded, seeds};
use hicache_core::Config;
use hicache_core::host::LayoutKind;
use hicache_core::ids::{Slot, Tier};
use hicache_core::pool::{Needs, Plane, PoolSpec, Rows, SlotsOf};
use hicache_core::unified::End;
use std::sync::Arc;

#[test]
fn what_is_served_is_exactly_its_prefix_wherever_it_moved() {
    for shape in unified_shapes() {
        let (mut brought, mut loaded, mut backed_up, mut moved) = ([0; 2], 0, 0, 0);
        for seed in seeds(60) {
            let mut squall = Squall::new(&shape, seed);
            for _ in 0..400 {
                squall.step();
            }
            squall.end();
            squall.rig.drained();
            brought = [brought[0] + squall.brought[0], brought[1] + squall.brought[1]];
            moved += squall.rig.cache.stats().moved_pages;
            let stats = squall.rig.cache.part_stats(0).unwrap();
            loaded += stats.loaded;
            backed_up += stats.backed_up;
        }
        let never = shape.parts[0].2 == 0;
        let seen = format!("{brought:?} {loaded} {backed_up}, {moved} moved: {shape:?}");
        println!("{seen}");
        assert!(brought[0] > 100 && moved > 20, "it happens: {seen}");
        assert!(never || (loaded > 50 && backed_up > 100), "it happens: {seen}");
    }
}

/// The copier ends with whatever is under way, and other memory is attached: no gate and no frame is left over.
#[test]
fn a_fault_leaves_no_gate() {
    for shape in unified_shapes() {
        for seed in seeds(20) {
            let mut squall = Squall::new(&shape, seed);
            for round in 0..3 {
                (0..120).for_each(|_| squall.step());
                squall.fault(&format!("round {round}"));
                let buffer = squall.rig.cache.unified().unwrap();
                assert_eq!((buffer.gates(), End::BOTH.map(|end| buffer.span(end))), (0, [0, 0]));
            }
            squall.end();
            squall.rig.drained();
        }
    }
}

/// Over a store whose calls end in any order, late or never: what it brings is as right.
#[test]
fn what_storage_brings_is_exactly_its_prefix() {
    for shape in unified_shapes() {
        let (mut fetched, mut moved) = (0, 0);
        for seed in seeds(24) {
            let store = Arc::new(FaultStore::default());
            let shape = Shape { deadline: 3.0, ..shape.clone() };
            let mut squall = Squall::over(&shape, &store, seed, 0);
            (0..200).for_each(|_| squall.step());
            squall.end();
            squall.rig.drained();
            let made = std::mem::take(&mut squall.made);
            let mut squall =
                Squall::over(&shape, &store, seed + 1_000_000, [0, 0, 3, 5][(seed % 4) as usize]);
            squall.made = made;
            squall.late = seed % 3 > 0;
            (0..300).for_each(|_| squall.step());
            squall.end();
            squall.rig.drained();
            fetched += squall.rig.cache.part_stats(0).unwrap().prefetched;
            moved += squall.rig.cache.stats().moved_pages;
        }
        println!("{fetched} {moved}: {shape:?}");
        assert!(
            shape.parts[0].2 == 0 || (fetched > 10 && moved > 10),
            "it happens: {fetched} {moved}: {shape:?}"
        );
    }
}

/// A state is as large as 4 pages of KV; a page is one token of 2 bytes.
fn small(pages: u64) -> Config {
    let plane = |layer, bytes_per_token| Plane { layer, role: 0, bytes_per_token };
    let state = PoolSpec::new("state", vec![plane(1, 8)]).unwrap();
    let kv = PoolSpec::new("kv", vec![plane(0, 1), plane(2, 1)]).unwrap();
    Config {
        pools: vec![kv, state.with(Rows::Page, SlotsOf::Own, Needs::Last)],
        unified: Some(8 + 2 * pages),
        ..config(&Shape { page: 1, device: 228, host: 0, ..Shape::of(&[(STATE, 57, 0)]) })
    }
}

/// 28 returning requests of 8 pages and a state: 12 pages of bytes each. In one buffer of 228 pages (and the sink) 19 stay;
/// split into 188 pages and 10 states it is 10.
#[test]
fn nineteen_of_28_prefixes_stay_where_a_fixed_split_keeps_ten() {
    let mut own = Own::new(&small(228));
    let mut split = Mixed::new(&Shape { page: 1, device: 188, host: 0, ..Shape::of(&[(STATE, 10, 0)]) });
    for number in 0..28 {
        own.serve(&prompt(number, 8), None);
        split.serve(&prompt(number, 8), 8);
    }
    let mut kept = [0; 2];
    for number in 0..28 {
        let tokens = prompt(number, 8);
        kept[0] += usize::from(own.usable(&tokens) == 8);
        kept[1] += usize::from(split.usable(&tokens).0 == 8);
    }
    assert_eq!(kept, [19, 10]);
    // They are what they were, to the byte.
    for number in (0..28).filter(|&number| own.usable(&prompt(number, 8)) == 8).collect::<Vec<_>>() {
        let (hit, view) = own.load(&prompt(number, 8));
        assert_eq!(view.device, 8);
        own.cache.release(hit, 0).unwrap();
    }
    assert_eq!(own.cache.stats().evicted_device_pages, 9 * 8);
}

/// From short prefixes to a long one and back: states make way by moves, and are right where they are then.
#[test]
fn bytes_follow_what_is_wanted() {
    let mut own = Own::new(&small(228));
    (0..28).for_each(|number| _ = own.serve(&prompt(number, 2), None));
    // Every other one is used again, so that those between leave first.
    for number in (0..28).step_by(2) {
        let (hit, _) = own.load(&prompt(number, 2));
        own.cache.release(hit, 0).unwrap();
    }
    let (before, moved) = (own.cache.frames_version(), own.cache.stats().moved_pages);
    let table = own.cache.frames(1).unwrap().to_vec();
    assert_eq!(moved, 0);
    own.serve(&prompt(100, 100), None);
    assert!(own.cache.stats().moved_pages > 0, "states made way");
    assert!(own.cache.frames_version() > before, "the engine can tell");
    assert_ne!(own.cache.frames(1).unwrap(), table);
    let stays: Vec<usize> = (0..28).filter(|&number| own.usable(&prompt(number, 2)) == 2).collect();
    // 60 pages of bytes were free; 104 are wanted. Seven short ones give 42, the last page of an eighth and its state 5.
    assert_eq!(stays.len(), 20);
    for number in stays {
        let (hit, _) = own.load(&prompt(number, 2));
        own.cache.release(hit, 0).unwrap();
    }
}

/// The real copier, all host layouts, windows and states: planes interleave on the device, whatever the host does.
#[test]
fn every_layout_comes_back_to_the_byte() {
    let layouts = [
        LayoutKind::LayerFirst,
        LayoutKind::PageFirst,
        LayoutKind::PageFirstDirect,
        LayoutKind::PageHead,
        LayoutKind::PageUnified,
    ];
    for (seed, layout) in (0..).zip(layouts) {
        for (part, windows) in [((WINDOW, 60, 60), Some(2)), ((STATE, 60, 40), None)] {
            let shape = Shape { device: 60, host: 90, layout, unified: Some(1200), ..Shape::of(&[part]) };
            let (mut own, mut random) = (Own::new(&config(&shape)), Seeded(seed));
            let mut loaded = 0;
            for _ in 0..200 {
                let pages = 1 + random.below(10);
                let tokens: Vec<i32> = (0..2 * pages)
                    .map(|at| i32::try_from(random.below(if at % 2 == 0 { 3 } else { 1 })).unwrap())
                    .collect();
                loaded += own.serve(&tokens, windows).copied;
                if random.below(4) == 0 {
                    own.settle();
                    own.cache.evict(Tier::Device, random.below(30)).unwrap();
                }
            }
            own.settle();
            let moved = own.cache.stats().moved_pages;
            assert!(loaded > 50 && moved > 0, "{loaded} loaded, {moved} moved: {layout:?} {part:?}");
            own.cache.evict(Tier::Device, usize::MAX).unwrap();
            own.cache.evict_part(0, Tier::Device, usize::MAX).unwrap();
            assert_eq!(End::BOTH.map(|end| own.cache.unified().unwrap().span(end)), [0, 0]);
            own.cache.check().unwrap();
        }
    }
}

#[test]
fn what_cannot_share_is_refused_by_name() {
    let shape = || Shape { unified: Some(1100), ..Shape::of(&[(STATE, 60, 9)]) };
    let refused = |config: Config, why: &str| {
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    config(&shape()).check().unwrap();
    refused(Config { engine_owns_slots: true, ..config(&shape()) }, "unified: the engine owns the slots");
    refused(Config { gpu: Some(0), ..config(&shape()) }, "unified: is not built for GPUs yet");
    let two = Shape { parts: vec![(STATE, 9, 9), (WINDOW, 9, 9)], ..shape() };
    refused(config(&two), "unified: needs exactly one part beside the first pool, got 2");
    refused(config(&Shape { parts: vec![], ..shape() }), "got 0");
    refused(config(&Shape { unified: Some(80), ..shape() }), "bytes");
    // The GPU comes with the memory.
    let mut cache = Own::new(&config(&shape())).cache;
    cache.detach().unwrap();
    assert!(cache.frames(0).is_err());
    cache.on_gpu(Some(0));
    let device = [vec![hicache_core::assemble::DevicePlane { address: 4096, bytes: 1100 }]];
    let attach = |cache: &mut hicache_core::HiCache, device: &[Vec<_>]| {
        // SAFETY: refused.
        #[allow(unsafe_code, reason = "it is refused")]
        unsafe { cache.attach(device, &[9, 9]) }.unwrap_err().to_string()
    };
    assert!(attach(&mut cache, &device).contains("not built for GPUs"));
    cache.on_gpu(None);
    let less = [vec![hicache_core::assemble::DevicePlane { address: 4096, bytes: 1099 }]];
    assert!(attach(&mut cache, &less).contains("the buffer has 1099 bytes, 1100 are declared"));
    assert!(attach(&mut cache, &[]).contains("needs one buffer"));
    assert!(!cache.attached());
}

#[test]
fn wrong_slots_change_nothing() {
    let mut own = Own::new(&small(40));
    let slots = own.cache.allocate(2).unwrap().unwrap();
    let says = |error: hicache_core::Error, what: &str| assert!(error.to_string().contains(what), "{error}");
    says(own.cache.free(&[Slot(0)]).unwrap_err(), "slot 0 is the sink");
    says(own.cache.free(&[slots[0], slots[0]]).unwrap_err(), "named twice");
    says(own.cache.free_part(0, &[Slot(1)]).unwrap_err(), "slot 1 is free");
    says(own.cache.frames(2).unwrap_err(), "no space 2");
    assert_eq!(own.cache.device_free(0), 38);
    assert_eq!(own.cache.allocate(39).unwrap(), None);
    own.cache.free(&slots).unwrap();
    own.cache.check().unwrap();
}
