//! Pools whose slots are their own: pages of one to three spaces travel through every layout by the CPU's copier.
//! Faults that are planted in the plan or in a job must be seen by the same checks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]
#![allow(unsafe_code, reason = "the CPU copier takes addresses")]

mod common;

use common::Seeded;
use common::rig;
use common::spaces::{Share, pools};
use common::travels::{FAULTS, Journey, SOUND, alike};
use hicache_core::assemble;
use hicache_core::executor::HostMemory;
use hicache_core::host::{LayoutKind, Room};
use hicache_core::pool::{self, SlotsOf};
use hicache_core::transfer::Copier;
use hicache_core::transfer::cpu::{Arrival, CpuCopier, CpuOptions};
use hicache_core::transfer::plan::Plan;
use hicache_core::tree::Component;
use hicache_core::{Config, PartSlots};
use std::any::Any;
use std::sync::Arc;

fn by_cpu(options: CpuOptions) -> impl Fn(&Plan, &Arc<HostMemory>, u32) -> Box<dyn Copier> {
    move |plan, memory, _| {
        let memory: Arc<dyn Any + Send + Sync> = Arc::<HostMemory>::clone(memory);
        // SAFETY: a journey drops its copier before its worlds, whose planes never grow.
        Box::new(unsafe { CpuCopier::new(plan, &memory, options, [0; 2]) }.unwrap())
    }
}

#[test]
fn pages_of_several_spaces_travel_through_any_two_layouts() {
    let mut random = Seeded(11);
    for case in 0..if cfg!(miri) { 2 } else { 400 } {
        let journey = Journey::random(&mut random);
        let kinds = [(); 2].map(|()| LayoutKind::ALL[random.below(LayoutKind::ALL.len())]);
        let arrival = [Arrival::Auto, Arrival::Layers, Arrival::Together][random.below(3)];
        let past_caches_from = [0, usize::MAX][random.below(2)];
        let options = CpuOptions { threads: 1 + random.below(3), arrival, past_caches_from };
        let travels = journey.travels(kinds, &by_cpu(options), random.next(), SOUND);
        assert!(travels, "case {case}: {:?} {kinds:?} {options:?}", journey.shares);
    }
}

#[test]
fn a_page_of_the_wrong_space_or_one_page_off_is_seen() {
    let (journey, options) = (alike(), CpuOptions { threads: 1, ..CpuOptions::default() });
    for kind in LayoutKind::ALL {
        assert!(journey.travels([kind; 2], &by_cpu(options), 5, SOUND));
        for (what, planted) in FAULTS {
            assert!(!journey.travels([kind; 2], &by_cpu(options), 5, planted), "not seen: {what} ({kind:?})");
        }
    }
}

#[test]
fn a_plan_has_every_plane_at_its_layer_and_space() {
    let journey = alike();
    let mut world =
        common::spaces::World::new(pools(&journey.shares), 2, LayoutKind::PageFirst, &journey.slots);
    let plan = world.plan();
    let mut layers: Vec<(u32, u32)> = Vec::new();
    for part in &plan.parts {
        assert!(part.layers.is_sorted(), "in the model's order");
        layers.extend(part.layers.iter().map(|&layer| (layer, part.space)));
    }
    layers.sort_unstable();
    assert_eq!(layers, [(0, 1), (0, 1), (1, 0), (1, 0), (2, 1), (2, 1)]);
}

#[test]
fn a_space_without_host_slots_is_never_copied() {
    let journey = alike();
    let slots = [(5, 5), (5, 0)];
    let mut world = common::spaces::World::new(pools(&journey.shares), 2, LayoutKind::PageUnified, &slots);
    assert!(world.plan().parts.iter().all(|part| part.space == 0));
}

/// A cache whose pools are of three spaces.
fn config() -> Config {
    let share = |space, layer| Share { space, planes: vec![(layer, 0, 8)], heads: [1, 1] };
    let part = PartSlots { device: 3, host: 4 };
    let pools = pools(&[share(0, 0), share(1, 1), share(2, 2), share(1, 3), share(0, 4)]);
    Config { pools, parts: vec![part; 2], ..rig::config(rig::Shape { page: 2, ..rig::Shape::default() }) }
}

#[test]
fn pools_name_their_spaces_and_parts() {
    let config = config();
    assert_eq!(pool::spaces(&config.pools), [0, 1, 2, 1, 0]);
    assert_eq!(config.part_names(), ["part1", "part2"]);
    assert_eq!((config.part("part2"), config.part("pool0"), config.part("pool3")), (Some(1), None, None));
    // Five tokens in pages of two: three pages.
    assert_eq!(config.components(), [Component::Swa { window: 3 }, Component::State]);
    assert_eq!((config.device_spaces(), config.host_spaces()), (vec![16, 3, 3], vec![32, 4, 4]));
}

/// Pools that would each fit alone: what is asked for is all of them together.
#[test]
fn a_host_tier_that_does_not_fit_is_refused_with_need_and_room() {
    let share = |space| Share { space, planes: vec![(0, 0, 1 << 20)], heads: [1, 1] };
    let mut config = Config { pools: pools(&[share(0), share(1)]), ..config() };
    let slots = u32::try_from(Room::here().available().unwrap() / (2 << 20) * 6 / 10).unwrap();
    config.host_slots = slots;
    config.parts = vec![PartSlots { device: 1, host: slots }];
    let error = assemble::host_memory(&config).unwrap_err().to_string();
    let need = format!("host: needs {} bytes of memory, but ", 2 * (u64::from(slots) << 21));
    assert!(error.starts_with(&need) && error.contains(" are available "), "{error}");
}

#[test]
fn slots_that_cannot_be_meant_are_refused_by_name() {
    let mut given = config();
    given.parts[1].device = 0;
    let refused = |config: &Config| config.check().unwrap_err().to_string();
    assert!(refused(&given).contains("part2: there is no room on the device"), "{}", refused(&given));
    given = config();
    given.parts.pop();
    assert!(refused(&given).contains("slots of 2 spaces are given, of 3 needed"), "{}", refused(&given));
    given = config();
    given.host_slots = 0;
    assert!(refused(&given).contains("part1: has host slots without a host tier"), "{}", refused(&given));
    given = config();
    given.pools[4].slots = SlotsOf::Own;
    assert!(refused(&given).contains("pool4: has slots of its own"), "{}", refused(&given));
}
