//! The host side of all pools: where the bytes of a slot are, as storage gets them.
//!
//! Knows layouts and slabs; refuses to know what is in a slot. On error: a slot that doesn't exist has no bytes.

use crate::host::{Layout, Slab};
use crate::ids::HostSlot;
use crate::storage::Page;
use std::ops::Range;
use std::sync::Arc;

/// The host side of one pool.
#[derive(Clone, Debug)]
pub struct HostPool {
    /// The space whose slots it uses.
    pub space: u8,
    /// Where its bytes are.
    pub layout: Layout,
    /// Them.
    pub slab: Arc<Slab>,
}

/// The host side of all pools.
#[derive(Debug, Default)]
pub struct HostMemory {
    /// In order of the pools.
    pub pools: Vec<HostPool>,
}

impl HostMemory {
    /// A page's payload: the runs of all pools of its space, in order.
    pub fn page(&self, at: HostSlot) -> Page {
        let of_space = || self.pools.iter().filter(|pool| pool.space == at.space);
        let runs = of_space().flat_map(|pool| {
            let address = |run: Range<usize>| Some((pool.slab.address(run.clone())?, run.len()));
            pool.layout.runs(at.slot.0).filter_map(address)
        });
        let page = Page(runs.collect());
        debug_assert_eq!(
            page.bytes(),
            of_space().map(|pool| pool.layout.page_bytes()).sum::<usize>(),
            "a slot's runs"
        );
        page
    }
}
