//! Device memory as plain bytes, the host slab beside it, and stamps that tell every page apart.
#![allow(unsafe_code, reason = "looks into the host slab")]

use super::mix;
use hicache_core::Config;
use hicache_core::executor::{HostMemory, HostPool};
use hicache_core::hash::Namespace;
use hicache_core::host::{Layout, Slab};
use hicache_core::ids::Slot;
use hicache_core::transfer::{CopyJob, Direction};
use std::sync::{Arc, Mutex, Weak};

/// Both memories of a cache with one pool.
pub struct Memory {
    /// Rows of each plane.
    device: Mutex<Vec<Vec<u8>>>,
    /// Bytes of a page in each plane.
    sizes: Vec<usize>,
    layout: Layout,
    slab: Arc<Slab>,
}

impl Memory {
    /// The host's, which the cache has, and whoever is left behind.
    pub fn slab(&self) -> Weak<Slab> {
        Arc::downgrade(&self.slab)
    }

    pub fn new(config: &Config, host: &HostMemory) -> Self {
        let HostPool { layout, slab, .. } = &host.pools[0];
        let page = |bytes: usize| bytes * config.page_size.tokens();
        let sizes: Vec<usize> =
            config.pools[0].planes.iter().map(|plane| page(plane.bytes_per_token)).collect();
        let device = sizes.iter().map(|size| vec![0; size * config.device_slots as usize]).collect();
        Self { device: Mutex::new(device), sizes, layout: layout.clone(), slab: Arc::clone(slab) }
    }

    pub fn page_bytes(&self) -> usize {
        self.sizes.iter().sum()
    }

    /// A device page, plane after plane.
    pub fn device_page(&self, slot: Slot) -> Vec<u8> {
        let device = self.device.lock().unwrap();
        let rows = device.iter().zip(&self.sizes);
        rows.flat_map(|(plane, size)| plane[slot.0 as usize * size..][..*size].to_vec()).collect()
    }

    pub fn write_device(&self, slot: Slot, page: &[u8]) {
        let mut device = self.device.lock().unwrap();
        let mut at = 0;
        for (plane, size) in device.iter_mut().zip(&self.sizes) {
            plane[slot.0 as usize * size..][..*size].copy_from_slice(&page[at..at + size]);
            at += size;
        }
    }

    /// The engine has other memory: nothing that was in it is there any more.
    pub fn forget_device(&self) {
        self.device.lock().unwrap().iter_mut().for_each(|plane| plane.fill(0xAA));
    }

    /// A host page, plane after plane.
    pub fn host_page(&self, slot: Slot) -> Vec<u8> {
        let mut page = Vec::with_capacity(self.page_bytes());
        for run in self.layout.runs(slot.0) {
            let address = self.slab.address(run.clone()).expect("inside the slab");
            // SAFETY: inside the slab; no transfer writes to a page that a test looks at.
            page.extend_from_slice(unsafe { std::slice::from_raw_parts(address, run.len()) });
        }
        page
    }

    pub fn write_host(&self, slot: Slot, page: &[u8]) {
        let mut at = 0;
        for run in self.layout.runs(slot.0) {
            let address = self.slab.address(run.clone()).expect("inside the slab");
            // SAFETY: inside the slab; the caller owns the slot.
            unsafe { std::ptr::copy_nonoverlapping(page[at..].as_ptr(), address, run.len()) };
            at += run.len();
        }
    }

    pub fn carry_out(&self, job: &CopyJob) {
        for &(device, host) in job.space(0) {
            match job.direction {
                Direction::In => self.write_device(device, &self.host_page(host)),
                Direction::Out => self.write_host(host, &self.device_page(device)),
            }
        }
    }
}

/// The bytes that the page after these tokens must have: no two prefixes or namespaces share a stamp.
pub fn stamp(namespace: &Namespace, prefix: &[i32], bytes: usize) -> Vec<u8> {
    let names = [&namespace.extra_key, &namespace.salt, &namespace.adapter];
    let names = format!("{names:?}");
    let start = names.bytes().fold(1, |state, byte| mix(state ^ u64::from(byte)));
    let seed = prefix.iter().fold(start, |state, &token| mix(state ^ u64::from(token.unsigned_abs())));
    (0..bytes as u64).map(|at| mix(seed ^ (at / 8 + 1)).to_le_bytes()[(at % 8) as usize]).collect()
}
