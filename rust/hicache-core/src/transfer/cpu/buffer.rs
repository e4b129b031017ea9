//! A device buffer that the CPU reaches: moves pages inside it.
//!
//! Knows its address and how large a page of each space is; page `f` of a space is at `f` pages from the first byte.
//! Assumes that nobody else touches the places it is told. On error: a place outside the buffer is a bug, and stops
//! the process rather than move foreign bytes.
#![allow(unsafe_code, reason = "moves between raw addresses that gates guard")]

use crate::ids::Slot;

/// One buffer, in pages of several sizes.
#[derive(Clone, Debug)]
pub struct DeviceBuffer {
    address: usize,
    bytes: usize,
    /// By space.
    page_bytes: Vec<usize>,
}

impl DeviceBuffer {
    /// # Safety
    /// The memory must stay valid and unmoved as long as pages are moved in it; nobody reads or writes the places
    /// of a move, of which none is in a list twice, while it is carried out.
    pub const unsafe fn new(address: usize, bytes: usize, page_bytes: Vec<usize>) -> Self {
        Self { address, bytes, page_bytes }
    }

    /// Moves pages (from, to) of a space, in order.
    pub(super) fn relocate(&self, space: u32, pages: &[(Slot, Slot)]) {
        let size = self.page_bytes[space as usize];
        let at = |frame: Slot| {
            let start = frame.0 as usize * size;
            assert!(start + size <= self.bytes, "a page outside the buffer");
            self.address + start
        };
        for &(from, to) in pages {
            let (from, to) = (at(from), at(to));
            // SAFETY: both inside the buffer; `copy`, since it doesn't depend on the two being apart.
            unsafe {
                std::ptr::copy(
                    std::ptr::with_exposed_provenance::<u8>(from),
                    std::ptr::with_exposed_provenance_mut::<u8>(to),
                    size,
                );
            }
        }
    }
}
