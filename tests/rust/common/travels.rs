//! Pages of several spaces travel out and in again, by any copier, and everything is looked at.

use super::Seeded;
use super::spaces::{Share, World, pools, random_pages, random_shares};
use hicache_core::executor::HostMemory;
use hicache_core::host::LayoutKind;
use hicache_core::ids::Slot;
use hicache_core::transfer::plan::Plan;
use hicache_core::transfer::{Copier, CopyJob, Direction, SpacePages};
use std::sync::Arc;
use std::time::Duration;

/// Makes a copier for a plan of a model with so many layers; the host's memory is kept by it.
pub type Start<'a> = &'a dyn Fn(&Plan, &Arc<HostMemory>, u32) -> Box<dyn Copier>;

/// What a test plants: in the plan, or in a job's lists.
#[derive(Clone, Copy)]
pub struct Planted {
    pub plan: fn(&mut Plan),
    pub pages: fn(&mut SpacePages),
}

pub const SOUND: Planted = Planted { plan: |_| {}, pages: |_| {} };

/// One journey: pools, page size, slots of each space, and which pages go.
pub struct Journey {
    pub shares: Vec<Share>,
    pub page: u32,
    pub slots: Vec<(u32, u32)>,
    pub out: SpacePages,
    /// Onto which device slots they come back, from the same host slots.
    pub back: SpacePages,
}

impl Journey {
    pub fn random(random: &mut Seeded) -> Self {
        let shares = random_shares(random);
        let spaces = shares.iter().map(|share| share.space).max().unwrap() + 1;
        let mut some = || u32::try_from(3 + random.below(6)).unwrap();
        let slots: Vec<(u32, u32)> = (0..spaces).map(|_| (some(), some())).collect();
        let page = u32::try_from(1 + random.below(5)).unwrap();
        let out = random_pages(random, &slots);
        // The same host pages, to the device slots in turned order.
        let back = out.iter().map(|list| {
            let mut device: Vec<Slot> = list.iter().map(|page| page.0).collect();
            let by = usize::from(device.len() > 1);
            device.rotate_left(by);
            device.into_iter().zip(list.iter().map(|page| page.1)).collect()
        });
        let back = back.collect();
        Self { shares, page, slots, out, back }
    }

    /// Device → host in one layout → what storage sees → host in another one → device, layer by layer. False if
    /// anything is not where it belongs when it is said to be there, or anything else was touched.
    pub fn travels(&self, kinds: [LayoutKind; 2], start: Start, seed: u64, planted: Planted) -> bool {
        let specs = pools(&self.shares);
        let [mut from, mut to] = kinds.map(|kind| World::new(specs.clone(), self.page, kind, &self.slots));
        let mut seed = Seeded(seed);
        for (space, list) in self.out.iter().enumerate() {
            list.iter().for_each(|&(device, _)| from.compute(space, device, &mut seed));
        }
        let mut job = CopyJob::of(1, Direction::Out, self.out.clone());
        (planted.pages)(&mut job.pages);
        let mut copier = begin(&mut from, start, planted);
        copier.submit(job);
        assert!(copier.progress(Direction::Out).wait(2, 0, Duration::from_secs(20)), "{:?}", copier.fault());
        drop(copier);
        let mut right = from.untouched_but(&self.out);
        for (space, list) in self.out.iter().enumerate() {
            for &(device, host) in list {
                let page = from.payload(space, host);
                right &= page == from.device_page(space, device, u32::MAX);
                to.fill(space, host, &page);
            }
        }
        let mut copier = begin(&mut to, start, planted);
        copier.submit(CopyJob::of(1, Direction::In, self.back.clone()));
        for layers in 1..=to.layers() {
            assert!(copier.progress(Direction::In).wait(1, layers, Duration::from_secs(20)));
            right &= self.there(&from, &to, layers);
        }
        assert!(copier.progress(Direction::In).wait(2, 0, Duration::from_secs(20)));
        drop(copier);
        right && to.untouched_but(&self.back)
    }

    /// Whether the first layers of the model are there, whichever space they are of.
    fn there(&self, from: &World, to: &World, layers: u32) -> bool {
        self.back.iter().enumerate().all(|(space, list)| {
            list.iter().zip(&self.out[space]).all(|(&(device, _), &(source, _))| {
                to.device_page(space, device, layers) == from.device_page(space, source, layers)
            })
        })
    }
}

fn begin(world: &mut World, start: Start, planted: Planted) -> Box<dyn Copier> {
    let mut plan = world.plan();
    (planted.plan)(&mut plan);
    start(&plan, &world.memory, world.layers())
}

/// Two spaces of one geometry, all slots alike in number: only the space tells them apart.
pub fn alike() -> Journey {
    alike_of(48)
}

/// The same with rows of so many bytes.
pub fn alike_of(row: usize) -> Journey {
    let share = |space, layer| Share { space, planes: vec![(layer, 0, row), (layer, 1, row)], heads: [1, 2] };
    let pages = |pairs: &[(u32, u32)]| pairs.iter().map(|&(d, h)| (Slot(d), Slot(h))).collect::<Vec<_>>();
    Journey {
        // The window's layers come before and after that of full attention.
        shares: vec![share(0, 1), share(1, 0), share(1, 2)],
        page: 2,
        slots: vec![(5, 5), (5, 5)],
        out: vec![pages(&[(0, 1), (1, 2), (3, 0)]), pages(&[(2, 4), (4, 3)])],
        back: vec![pages(&[(2, 1), (4, 2), (0, 0)]), pages(&[(1, 4), (3, 3)])],
    }
}

/// Faults, each without leaving the memory.
pub const FAULTS: [(&str, Planted); 6] = [
    (
        "a window's pages are copied by the list of full attention",
        Planted {
            plan: |plan| plan.parts.iter_mut().filter(|part| part.space == 1).for_each(|part| part.space = 0),
            ..SOUND
        },
    ),
    ("the lists of two spaces are exchanged", Planted { pages: |pages| pages.swap(0, 1), ..SOUND }),
    ("a space's list is left out", Planted { pages: |pages| drop(pages.pop()), ..SOUND }),
    (
        "a window's page is one page off on the device",
        Planted { pages: |pages| pages[1][0].0.0 -= 1, ..SOUND },
    ),
    ("a window's page is one page off on the host", Planted { pages: |pages| pages[1][1].1.0 -= 1, ..SOUND }),
    (
        "a window's page is copied to where another one goes",
        Planted { pages: |pages| pages[1][0].1 = pages[1][1].1, ..SOUND },
    ),
];
