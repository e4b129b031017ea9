//! Several jobs at a time, both ways, by the CPU's copier: what is said to be there is there, whichever thread was
//! first. Jobs are so large that each is cut into many tasks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]
#![allow(unsafe_code, reason = "the CPU copier takes addresses")]

mod common;

use common::Seeded;
use common::spaces::{Share, World, pools};
use hicache_core::host::LayoutKind;
use hicache_core::ids::Slot;
use hicache_core::transfer::cpu::{Arrival, CpuCopier, CpuOptions};
use hicache_core::transfer::{Copier, CopyJob, Direction, SpacePages};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

const LAYERS: u32 = 3;
/// Slots of each space, on either side: a job of all of them has several tasks for each plane.
const SLOTS: u32 = if cfg!(miri) { 6 } else { 40 };
const ROW: usize = if cfg!(miri) { 40 } else { 20 << 10 };

/// Windows between layers of full attention.
fn world(kind: LayoutKind) -> World {
    let share = |space, layer| Share { space, planes: vec![(layer, 0, ROW), (layer, 1, ROW)], heads: [1, 2] };
    World::new(pools(&[share(0, 0), share(1, 1), share(0, 2)]), 4, kind, &[(SLOTS, SLOTS), (SLOTS, SLOTS)])
}

fn copier(world: &mut World, arrival: Arrival) -> CpuCopier {
    let memory: Arc<dyn Any + Send + Sync> = Arc::<_>::clone(&world.memory) as _;
    let options = CpuOptions { threads: 3, arrival, past_caches_from: 0 };
    // SAFETY: each test drops its copier before its world, whose planes never grow.
    unsafe { CpuCopier::new(&world.plan(), &memory, options, [0; 2]) }.unwrap()
}

/// All slots in a random order, as jobs of very different sizes: the small ones overtake the large ones if they can.
fn jobs(random: &mut Seeded) -> Vec<SpacePages> {
    let mut order = || {
        let mut order: Vec<u32> = (0..SLOTS).collect();
        (1..order.len()).rev().for_each(|at| order.swap(at, random.below(at + 1)));
        order.into_iter().map(Slot)
    };
    let lists: Vec<Vec<(Slot, Slot)>> = (0..2).map(|_| order().zip(order()).collect()).collect();
    let cuts = [0, SLOTS - 5, SLOTS - 4, SLOTS - 4, SLOTS - 1, SLOTS].map(|cut| cut as usize);
    cuts.windows(2).map(|cut| lists.iter().map(|list| list[cut[0]..cut[1]].to_vec()).collect()).collect()
}

fn submit(copier: &mut CpuCopier, direction: Direction, first: u64, jobs: &[SpacePages]) {
    for (ticket, pages) in (first..).zip(jobs) {
        copier.submit(CopyJob::of(ticket, direction, pages.clone()));
    }
}

/// Slots of a space and what is in them.
type Kept = Vec<(usize, Slot, Vec<u8>)>;

/// Random bytes in all device slots of a job.
fn compute(world: &mut World, job: &SpacePages, random: &mut Seeded) -> Kept {
    let mut kept = Kept::new();
    for (space, list) in job.iter().enumerate() {
        for &(device, host) in list {
            world.compute(space, device, random);
            kept.push((space, host, world.device_page(space, device, u32::MAX)));
        }
    }
    kept
}

#[test]
fn jobs_are_there_in_their_order_with_all_of_their_layers() {
    let mut random = Seeded(3);
    let rounds = if cfg!(miri) { 1 } else { 2 };
    for (kind, arrival) in
        (0..rounds).flat_map(|_| LayoutKind::ALL).zip([Arrival::Layers, Arrival::Together].iter().cycle())
    {
        let mut world = world(kind);
        let mut copier = copier(&mut world, *arrival);
        let jobs = jobs(&mut random);
        let kept: Vec<Kept> = jobs.iter().map(|job| compute(&mut world, job, &mut random)).collect();
        submit(&mut copier, Direction::Out, 1, &jobs);
        for (ticket, kept) in (1..).zip(&kept) {
            assert!(copier.progress(Direction::Out).wait(ticket, LAYERS, Duration::from_secs(20)));
            kept.iter().for_each(|(space, host, page)| assert!(world.payload(*space, *host) == *page));
        }
        // Back to other device slots, all at once.
        let back: Vec<SpacePages> = jobs.iter().map(elsewhere).collect();
        submit(&mut copier, Direction::In, 1, &back);
        for (ticket, (job, kept)) in (1..).zip(back.iter().zip(&kept)) {
            let slots =
                job.iter().enumerate().flat_map(|(space, list)| list.iter().map(move |page| (space, page.0)));
            for layers in 1..=LAYERS {
                assert!(copier.progress(Direction::In).wait(ticket, layers, Duration::from_secs(20)));
                for ((space, device), (_, host, page)) in slots.clone().zip(kept) {
                    let now = world.device_page(space, device, layers);
                    assert!(page.starts_with(&now), "{kind:?} job {ticket}, {layers} layers, {host:?}");
                }
            }
            assert!(copier.progress(Direction::In).finished() >= ticket - 1, "told in order");
        }
        assert!(copier.progress(Direction::In).wait(jobs.len() as u64 + 1, 0, Duration::from_secs(20)));
        drop(copier);
    }
}

/// The same host slots, to the device slots of the job in reverse.
fn elsewhere(job: &SpacePages) -> SpacePages {
    let turned = |list: &Vec<(Slot, Slot)>| {
        let device = list.iter().rev().map(|page| page.0);
        device.zip(list.iter().map(|page| page.1)).collect()
    };
    job.iter().map(turned).collect()
}
