//! Pages of one to three spaces by the GPU's copier: every layout, every way, layers in the model's order.

use super::common::Seeded;
use super::common::travels::{FAULTS, Journey, Planted, SOUND, alike, alike_of};
use super::{alive, machine, settings};
use hicache_core::executor::{HostMemory, HostPool};
use hicache_core::host::LayoutKind;
use hicache_core::transfer::Copier;
use hicache_core::transfer::cuda::{CudaCopier, Pinned};
use hicache_core::transfer::plan::Plan;
use std::any::Any;
use std::sync::Arc;

/// By the copy engine alone; by kernels alone; staged where a page is dense, through little memory.
const WAYS: [(u64, u64); 3] = [(1, 0), (1 << 40, 0), (300, 12 << 10)];

fn by_gpu((run, staging): (u64, u64)) -> impl Fn(&Plan, &Arc<HostMemory>, u32) -> Box<dyn Copier> {
    move |plan, memory, layers| {
        let pin = |HostPool { layout, slab, .. }: &HostPool| Pinned {
            base: slab.address(0..layout.bytes()).unwrap(),
            pieces: vec![layout.bytes() as u64],
            regions: layout.regions(),
        };
        let pools = memory.pools.iter().filter(|pool| pool.layout.bytes() > 0);
        let pinned: Vec<Pinned> = pools.map(pin).collect();
        let memory: Arc<dyn Any + Send + Sync> = Arc::<HostMemory>::clone(memory);
        let settings = settings(layers, run, staging);
        // SAFETY: a journey drops its copier before its worlds, whose planes never move.
        Box::new(unsafe { CudaCopier::new(&settings, plan, &pinned, &memory, [0; 2]) }.unwrap())
    }
}

#[test]
fn pages_of_several_spaces_travel_by_every_way() {
    let mut random = Seeded(21);
    for case in 0..60 {
        let journey = Journey::random(&mut random);
        let kinds = [(); 2].map(|()| LayoutKind::ALL[random.below(LayoutKind::ALL.len())]);
        for way in WAYS {
            let _one = machine(random.next(), 13000, 1);
            let travels = journey.travels(kinds, &by_gpu(way), random.next(), SOUND);
            assert!(travels, "case {case}: {:?} {kinds:?} {way:?}", journey.shares);
            assert_eq!(alive(), 0, "streams, events, memory or pinned pages were left");
        }
    }
}

#[test]
fn a_page_of_the_wrong_space_or_one_page_off_is_seen() {
    let journey = alike();
    for kind in LayoutKind::ALL {
        for way in WAYS {
            let _one = machine(6, 13000, 1);
            assert!(journey.travels([kind; 2], &by_gpu(way), 5, SOUND), "{kind:?} {way:?}");
            for (what, planted) in FAULTS {
                let seen = !journey.travels([kind; 2], &by_gpu(way), 5, planted);
                assert!(seen, "not seen: {what} ({kind:?} {way:?})");
            }
        }
    }
}

/// The window's first layer is told to be the last one: it is said to be there before it is copied.
#[test]
fn a_layer_that_arrives_out_of_the_models_order_is_seen() {
    let late: Planted = Planted {
        plan: |plan| {
            plan.parts.iter_mut().filter(|part| part.space == 1).for_each(|part| part.layers.fill(2));
        },
        ..SOUND
    };
    // Rows so large that no layer is copied together with the next one.
    let journey = alike_of(16 << 10);
    // Streams run in an order of their own with each seed: some order shows it.
    let seen = |seed: u64| {
        let _one = machine(seed, 13000, 1);
        !journey.travels([LayoutKind::LayerFirst; 2], &by_gpu((1, 0)), 5, late)
    };
    assert!((0..200).any(seen));
}
