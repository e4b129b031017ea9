//! Pools in one to three spaces of slots: device tensors, a host slab per pool, and the plan that a cache would have.
#![allow(unsafe_code, reason = "host memory is looked into")]

use super::Seeded;
use super::rig;
use hicache_core::assemble::{self, DevicePlane};
use hicache_core::executor::HostMemory;
use hicache_core::host::LayoutKind;
use hicache_core::ids::{HostSlot, Slot};
use hicache_core::page::PageSize;
use hicache_core::pool::{self, Needs, Plane, PoolSpec, Rows, SlotsOf};
use hicache_core::transfer::SpacePages;
use hicache_core::transfer::plan::Plan;
use hicache_core::{Config, PartSlots};
use std::sync::Arc;

/// What nobody wrote.
const UNTOUCHED: u8 = 0xEE;

/// One pool: the part it begins or follows (0: the cache's own), and (layer, bytes of a row) of its planes.
#[derive(Clone, Debug)]
pub struct Share {
    pub space: usize,
    pub planes: Vec<(u32, u32, usize)>,
    pub heads: [u32; 2],
}

/// Pools whose first ones of each space come in order.
pub fn pools(shares: &[Share]) -> Vec<PoolSpec> {
    let mut begun = vec![true];
    let mut specs = Vec::new();
    for (at, share) in shares.iter().enumerate() {
        let plane =
            |&(layer, role, bytes_per_token): &(u32, u32, usize)| Plane { layer, role, bytes_per_token };
        let first = begun.len() == share.space;
        if first {
            begun.push(true);
        }
        let name = match (share.space, first) {
            (space, true) => format!("part{space}"),
            _ => format!("pool{at}"),
        };
        let needs = [Needs::All, Needs::Window { tokens: 5 }, Needs::Last][share.space];
        let slots = match (share.space, first) {
            (0, _) => SlotsOf::First,
            (_, true) => SlotsOf::Own,
            (space, false) => SlotsOf::Pool(format!("part{space}")),
        };
        let rows = if needs == Needs::Last { Rows::Page } else { Rows::Token };
        let spec = PoolSpec::new(&name, share.planes.iter().map(plane).collect()).unwrap();
        specs.push(
            spec.with_heads(share.heads[0] * share.heads[1], share.heads[0])
                .unwrap()
                .with(rows, slots, needs),
        );
    }
    pool::check_all(&specs).unwrap();
    specs
}

/// Both sides of all pools.
pub struct World {
    pub config: Config,
    /// By pool, by plane.
    device: Vec<Vec<Vec<u8>>>,
    pub memory: Arc<HostMemory>,
    spaces: Vec<u8>,
}

impl World {
    /// `slots`: of each space, on the device and on the host.
    pub fn new(pools: Vec<PoolSpec>, page: u32, layout: LayoutKind, slots: &[(u32, u32)]) -> Self {
        let part = |&(device, host): &(u32, u32)| PartSlots { device, host };
        let config = Config {
            page_size: PageSize::new(page).unwrap(),
            pools,
            device_slots: slots[0].0,
            host_slots: slots[0].1,
            parts: slots[1..].iter().map(part).collect(),
            layout,
            ..rig::config(rig::Shape::default())
        };
        let memory = Arc::new(assemble::host_memory(&config).unwrap());
        for pool in memory.pools.iter().filter(|pool| pool.layout.bytes() > 0) {
            let start = pool.slab.address(0..pool.layout.bytes()).unwrap();
            // SAFETY: the whole slab, and nobody has it yet.
            unsafe { start.write_bytes(UNTOUCHED, pool.layout.bytes()) };
        }
        let spaces = pool::spaces(&config.pools);
        let tensor = |spec: &PoolSpec, plane: &Plane, slots: u32| {
            vec![UNTOUCHED; plane.bytes_per_token * spec.rows_per_page(config.page_size) * slots as usize]
        };
        let tensors = |(spec, &space): (&PoolSpec, &u8)| {
            spec.planes.iter().map(|plane| tensor(spec, plane, slots[space as usize].0)).collect()
        };
        let device = config.pools.iter().zip(&spaces).map(tensors).collect();
        Self { config, device, memory, spaces }
    }

    /// The plan of a cache over these tensors.
    pub fn plan(&mut self) -> Plan {
        let plane =
            |p: &mut Vec<u8>| DevicePlane { address: p.as_mut_ptr().expose_provenance(), bytes: p.len() };
        let device: Vec<Vec<DevicePlane>> =
            self.device.iter_mut().map(|pool| pool.iter_mut().map(plane).collect()).collect();
        assemble::plan(&self.config, &device, &self.memory).unwrap()
    }

    /// Bytes of a page of a pool's plane.
    fn page(&self, pool: usize, plane: usize) -> usize {
        let spec = &self.config.pools[pool];
        spec.planes[plane].bytes_per_token * spec.rows_per_page(self.config.page_size)
    }

    /// Random bytes in a device slot of all pools of a space.
    pub fn compute(&mut self, space: usize, slot: Slot, seed: &mut Seeded) {
        for pool in self.of(space) {
            for plane in 0..self.device[pool].len() {
                let size = self.page(pool, plane);
                let page = &mut self.device[pool][plane][slot.0 as usize * size..][..size];
                page.iter_mut().for_each(|byte| *byte = u8::try_from(seed.below(256)).unwrap());
            }
        }
    }

    /// A device page of a space's planes whose layers come before `layers`: pool after pool, plane after plane.
    pub fn device_page(&self, space: usize, slot: Slot, layers: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for pool in self.of(space) {
            for (at, plane) in self.config.pools[pool].planes.iter().enumerate() {
                let size = self.page(pool, at);
                if plane.layer < layers {
                    bytes.extend_from_slice(&self.device[pool][at][slot.0 as usize * size..][..size]);
                }
            }
        }
        bytes
    }

    fn of(&self, space: usize) -> Vec<usize> {
        (0..self.spaces.len()).filter(|&pool| self.spaces[pool] as usize == space).collect()
    }

    /// A host page as storage sees it.
    pub fn payload(&self, space: usize, slot: Slot) -> Vec<u8> {
        let page = self.memory.page(HostSlot { space: u8::try_from(space).unwrap(), slot });
        // SAFETY: inside the slabs; no copy is under way.
        let run =
            |&(address, bytes): &(*mut u8, usize)| unsafe { std::slice::from_raw_parts(address, bytes) };
        page.0.iter().flat_map(|piece| run(piece).to_vec()).collect()
    }

    pub fn fill(&self, space: usize, slot: Slot, bytes: &[u8]) {
        let page = self.memory.page(HostSlot { space: u8::try_from(space).unwrap(), slot });
        let mut at = 0;
        for (address, length) in page.0 {
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(bytes[at..at + length].as_ptr(), address, length) };
            at += length;
        }
        assert_eq!(at, bytes.len());
    }

    /// Whether nothing was written on either side but the pages of these lists.
    pub fn untouched_but(&self, pages: &SpacePages) -> bool {
        let listed = |space: usize| pages.get(space).map_or(&[][..], Vec::as_slice);
        self.spaces.iter().enumerate().all(|(pool, &space)| {
            let (host, listed) = (&self.memory.pools[pool], listed(space as usize));
            let start = host.slab.address(0..host.layout.bytes()).unwrap();
            // SAFETY: the whole slab; no copy is under way.
            let mut bytes = unsafe { std::slice::from_raw_parts(start, host.layout.bytes()) }.to_vec();
            listed
                .iter()
                .flat_map(|page| host.layout.runs(page.1.0))
                .for_each(|run| bytes[run].fill(UNTOUCHED));
            let clean = |(at, plane): (usize, &Vec<u8>)| {
                let size = self.page(pool, at).max(1);
                let other = |slot: usize| !listed.iter().any(|page| page.0.0 as usize == slot);
                let pages = plane.chunks(size).enumerate().filter(|(slot, _)| other(*slot));
                pages.flat_map(|(_, page)| page).all(|&byte| byte == UNTOUCHED)
            };
            bytes.iter().all(|&byte| byte == UNTOUCHED) && self.device[pool].iter().enumerate().all(clean)
        })
    }

    /// Layers of the model.
    pub fn layers(&self) -> u32 {
        let layers = self.config.pools.iter().flat_map(|pool| &pool.planes).map(|plane| plane.layer + 1);
        layers.max().unwrap_or(1)
    }
}

/// Pools of one to three spaces whose layers are the model's: each layer is of one space, and pools of a space share
/// its layers (a draft, an indexer).
pub fn random_shares(random: &mut Seeded) -> Vec<Share> {
    let (spaces, layers) = (1 + random.below(3), 1 + random.below(5));
    // Each space has a layer, if there are enough.
    let space_of: Vec<usize> =
        (0..layers).map(|layer| if layer < spaces { layer } else { random.below(spaces) }).collect();
    let mut shares = Vec::new();
    for (space, second) in
        (0..spaces).map(|space| (space, false)).chain((0..spaces).map(|space| (space, true)))
    {
        if second && random.below(2) == 0 {
            continue;
        }
        let heads = [1 + random.below(2), 1 + random.below(3)];
        let roles = 1 + random.below(2);
        // Sometimes all pools have one geometry: then only the space tells their parts apart.
        // Or a pool has no bytes at all.
        let head = [0, 16, 16, 16, 1 + random.below(90)][random.below(5).max(random.below(5))];
        let row = head * heads[0] * heads[1];
        let of_space = (0..layers).filter(|&layer| space_of[layer] == space);
        let planes = of_space.flat_map(|layer| (0..roles).map(move |role| (layer, role)));
        let number = |n: usize| u32::try_from(n).unwrap();
        // Or one of its planes has none.
        let mut bytes = || if random.below(9) == 0 { 0 } else { row };
        let planes = planes.map(|(layer, role)| (number(layer), number(role), bytes())).collect();
        shares.push(Share { space, planes, heads: heads.map(number) });
    }
    shares
}

/// Some pages of each space, each slot at most once: sometimes neighbours, sometimes none of a space.
pub fn random_pages(random: &mut Seeded, slots: &[(u32, u32)]) -> SpacePages {
    let mut order = |slots: u32| {
        let mut order: Vec<u32> = (0..slots).collect();
        if random.below(3) > 0 {
            (1..order.len()).rev().for_each(|at| order.swap(at, random.below(at + 1)));
        }
        let some = random.below(order.len() + 1);
        order.truncate(some);
        order
    };
    let list = |&(device, host): &(u32, u32)| {
        order(device).into_iter().zip(order(host)).map(|(d, h)| (Slot(d), Slot(h))).collect()
    };
    slots.iter().map(list).collect()
}
