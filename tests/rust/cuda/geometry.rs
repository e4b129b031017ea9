//! A pool in any of the five layouts, written from the shapes of its tensors, and bytes to know again.

use hicache_core::host::Slab;
use hicache_core::transfer::cuda::Pinned;
use hicache_core::transfer::plan::{Plan, PlanePair, Side};
use std::any::Any;
use std::sync::Arc;

/// `planes` (K and V, or one latent) of `layers`, heads of `head` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub layers: u32,
    pub planes: usize,
    pub page: usize,
    pub heads: usize,
    pub head: usize,
}

pub const SHAPES: [Shape; 5] = [
    Shape { layers: 2, planes: 2, page: 4, heads: 2, head: 32 },
    Shape { layers: 3, planes: 2, page: 1, heads: 1, head: 24 },
    Shape { layers: 3, planes: 1, page: 5, heads: 1, head: 36 },
    Shape { layers: 2, planes: 2, page: 3, heads: 4, head: 33 },
    // Rows of a kilobyte: whole warps move them.
    Shape { layers: 2, planes: 2, page: 2, heads: 2, head: 1040 },
];

/// Axes of the host's tensor, outermost first: N slots, L layers, P tokens, H heads, D bytes of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// (2, L, N·P, H, D)
    LayerFirst,
    /// (2, N·P, L, H, D)
    PageFirst,
    /// (2, N, L, P, H, D)
    PageFirstDirect,
    /// (2, N, H, P, L, D)
    PageHead,
    /// (N, G, L, 2, P, H/G, D), pages padded to 32 bytes
    PageUnified(usize),
}

impl Kind {
    pub const ALL: [Self; 6] = [
        Self::LayerFirst,
        Self::PageFirst,
        Self::PageFirstDirect,
        Self::PageHead,
        Self::PageUnified(1),
        Self::PageUnified(2),
    ];
}

pub struct Pool {
    pub shape: Shape,
    kind: Kind,
    /// One tensor per layer and plane: (slots · P, H, D).
    device: Vec<Vec<u8>>,
    slab: Arc<Slab>,
    slots: usize,
}

impl Pool {
    pub fn new(shape: Shape, kind: Kind, device: usize, host: usize) -> Self {
        let plane = shape.page * shape.heads * shape.head;
        let device = vec![vec![0xDD; plane * device]; shape.layers as usize * shape.planes];
        let mut pool = Self { shape, kind, device, slab: Arc::new(Slab::new(0).unwrap()), slots: host };
        pool.slab = Arc::new(Slab::new(pool.page_stride() * host * pool.halves()).unwrap());
        pool
    }

    /// K and V are apart, except where pages are unified.
    fn halves(&self) -> usize {
        if self.unified() { 1 } else { self.shape.planes }
    }

    fn unified(&self) -> bool {
        matches!(self.kind, Kind::PageUnified(_))
    }

    fn groups(&self) -> usize {
        match self.kind {
            Kind::PageUnified(groups) if self.shape.heads.is_multiple_of(groups) => groups,
            _ => 1,
        }
    }

    fn page_stride(&self) -> usize {
        let Shape { layers, planes, page, heads, head } = self.shape;
        let half = layers as usize * page * heads * head;
        if self.unified() { (half * planes).next_multiple_of(32) } else { half }
    }

    /// Offset in the slab of one element's first byte, by the tensors' shapes.
    fn host(&self, slot: usize, layer: usize, plane: usize, token: usize, head: usize) -> usize {
        let Shape { layers, planes, page, heads, head: bytes } = self.shape;
        let layers = layers as usize;
        let half = plane * self.page_stride() * self.slots;
        let (group, in_group) = (head / (heads / self.groups()), head % (heads / self.groups()));
        let of_group = heads / self.groups();
        match self.kind {
            Kind::LayerFirst => half + (((layer * self.slots + slot) * page + token) * heads + head) * bytes,
            Kind::PageFirst => half + (((slot * page + token) * layers + layer) * heads + head) * bytes,
            Kind::PageFirstDirect => half + (((slot * layers + layer) * page + token) * heads + head) * bytes,
            Kind::PageHead => half + (((slot * heads + head) * page + token) * layers + layer) * bytes,
            Kind::PageUnified(_) => {
                let in_page = ((group * layers + layer) * planes + plane) * page + token;
                slot * self.page_stride() + (in_page * of_group + in_group) * bytes
            }
        }
    }

    /// The planner's, from differences of addresses.
    pub fn plan(&self) -> Plan {
        let Shape { layers, planes, page, heads, head } = self.shape;
        let (groups, of_group) = (self.groups(), heads / self.groups());
        let signed = |bytes: usize| i64::try_from(bytes).unwrap();
        let extent = |count: usize| u32::try_from(count).unwrap();
        let step = |to: usize| signed(to) - signed(self.host(0, 0, 0, 0, 0));
        let slab = self.slab.address(0..0).unwrap() as u64;
        let pair = |layer: usize, plane: usize| PlanePair {
            layer: u32::try_from(layer).unwrap(),
            space: 0,
            device: Side {
                address: self.device[layer * planes + plane].as_ptr() as u64,
                page: signed(page * heads * head),
                row: signed(heads * head),
                group: signed(of_group * head),
                head: signed(head),
            },
            host: Side {
                address: slab + self.host(0, layer, plane, 0, 0) as u64,
                page: step(self.host(1, 0, 0, 0, 0)),
                row: step(self.host(0, 0, 0, 1, 0)),
                group: if groups > 1 { step(self.host(0, 0, 0, 0, of_group)) } else { 0 },
                head: if of_group > 1 { step(self.host(0, 0, 0, 0, 1)) } else { signed(head) },
            },
            rows: extent(page),
            groups: extent(groups),
            heads: extent(of_group),
            bytes: head as u64,
        };
        let pairs = (0..layers as usize).flat_map(|layer| (0..planes).map(move |plane| (layer, plane)));
        Plan::new(&pairs.map(|(layer, plane)| pair(layer, plane)).collect::<Vec<_>>())
    }

    /// In pieces that pages may cross: what goes by the copy engine must be cut.
    pub fn pinned(&self) -> Vec<Pinned> {
        let bytes = self.page_stride() * self.slots * self.halves();
        let pieces = (0..bytes).step_by(8192).map(|at| (bytes - at).min(8192) as u64).collect();
        vec![Pinned { base: self.slab.address(0..bytes).unwrap(), pieces, regions: Vec::new() }]
    }

    pub fn memory(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.slab) as Arc<dyn Any + Send + Sync>
    }

    fn stamp(&self, page: usize, layer: usize, plane: usize, token: usize, head: usize) -> Vec<u8> {
        let element = (((page * 31 + layer) * 7 + plane) * 11 + token) * 13 + head;
        (0..self.shape.head)
            .map(|byte| (super::common::mix((element * 4096 + byte) as u64) & 0xFF) as u8)
            .collect()
    }

    /// All elements of a page: (layer, plane, token, head).
    fn elements(&self) -> impl Iterator<Item = (usize, usize, usize, usize)> + use<> {
        let Shape { layers, planes, page, heads, .. } = self.shape;
        (0..layers as usize * planes * page * heads).map(move |n| {
            let (rest, head) = (n / heads, n % heads);
            let (rest, token) = (rest / page, rest % page);
            (rest / planes, rest % planes, token, head)
        })
    }

    fn device_range(&self, slot: u32, token: usize, head: usize) -> std::ops::Range<usize> {
        let start = ((slot as usize * self.shape.page + token) * self.shape.heads + head) * self.shape.head;
        start..start + self.shape.head
    }

    pub fn compute(&mut self, slot: u32, page: usize) {
        for (layer, plane, token, head) in self.elements() {
            let (stamp, range) =
                (self.stamp(page, layer, plane, token, head), self.device_range(slot, token, head));
            self.device[layer * self.shape.planes + plane][range].copy_from_slice(&stamp);
        }
    }

    /// Addresses and sizes of a device slot in every plane, layer after layer.
    pub fn places(&mut self, slot: u32) -> Vec<(*mut u8, usize)> {
        let size = self.shape.page * self.shape.heads * self.shape.head;
        self.device.iter_mut().map(|plane| (plane[slot as usize * size..].as_mut_ptr(), size)).collect()
    }

    pub fn forget_device(&mut self) {
        self.device.iter_mut().for_each(|plane| plane.fill(0xDD));
    }

    pub fn verify_layer(&self, slot: u32, page: usize, layer: u32) {
        for (at, plane, token, head) in self.elements().filter(|&(at, ..)| at == layer as usize) {
            let range = self.device_range(slot, token, head);
            let got = read(&raw const self.device[at * self.shape.planes + plane][range.start], range.len());
            assert_eq!(got, self.stamp(page, at, plane, token, head), "{:?} {:?}", self.kind, self.shape);
        }
    }

    fn host_bytes(&self, from: usize) -> Vec<u8> {
        read(self.slab.address(from..from + self.shape.head).unwrap(), self.shape.head)
    }

    pub fn verify_host(&self, slot: u32, page: usize) {
        for (layer, plane, token, head) in self.elements() {
            let got = self.host_bytes(self.host(slot as usize, layer, plane, token, head));
            assert_eq!(got, self.stamp(page, layer, plane, token, head), "{:?} {:?}", self.kind, self.shape);
        }
    }

    /// Slots that no backup named are as the kernel gave them.
    pub fn untouched_host(&self, used: &[u32]) {
        for slot in (0..self.slots).filter(|&slot| !used.iter().any(|&used| used as usize == slot)) {
            for (layer, plane, token, head) in self.elements() {
                let got = self.host_bytes(self.host(slot, layer, plane, token, head));
                assert!(got.iter().all(|&byte| byte == 0), "{:?} slot {slot}", self.kind);
            }
        }
    }
}

/// Volatile: the copies of another thread wrote them.
fn read(at: *const u8, bytes: usize) -> Vec<u8> {
    // SAFETY: callers name bytes of a tensor or of the slab, which live.
    (0..bytes).map(|byte| unsafe { at.wrapping_add(byte).read_volatile() }).collect()
}
