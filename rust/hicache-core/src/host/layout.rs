//! The byte address of any element of a pool in host memory: the only place that knows it.
//!
//! With L layers, N host slots, P tokens a page, H heads of D elements (a token's row of one plane is
//! H·D elements), axes from outer to inner:
//!
//! | layout | one pool of K and V |
//! |---|---|
//! | `layer_first` | (2, L, N·P, H, D): like the device; a page is 2·L runs |
//! | `page_unified` | (N, L, 2, P, H, D): one head group; a page is one run |
//!
//! A page of `page_unified` is padded to a multiple of 32 bytes. A layout is declared, never guessed.
//! On error: an unknown name is refused with the names there are.

use crate::error::{Result, argument};
use crate::page::PageSize;
use crate::pool::PoolSpec;
use std::ops::Range;

/// What a page's start is a multiple of: the widest vector load.
const PAGE_ALIGN: usize = 32;

/// Order of the axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutKind {
    /// Planes outermost.
    LayerFirst,
    /// Pages outermost: a page is one contiguous run.
    PageUnified,
}

impl std::str::FromStr for LayoutKind {
    type Err = crate::error::Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "layer_first" => Ok(Self::LayerFirst),
            "page_unified" => Ok(Self::PageUnified),
            _ => argument("layout", format!("unknown layout {name:?}: use layer_first or page_unified")),
        }
    }
}

/// Where one plane's pages are.
#[derive(Clone, Copy, Debug)]
pub struct PlaneRows {
    /// Of slot 0, from the slab's start.
    pub offset: usize,
    /// From one slot to the next.
    pub stride: usize,
    /// Of one page.
    pub bytes: usize,
}

/// Addresses of one pool's host memory.
#[derive(Clone, Debug)]
pub struct Layout {
    kind: LayoutKind,
    planes: Vec<PlaneRows>,
    page_bytes: usize,
    page_stride: usize,
    bytes: usize,
}

impl Layout {
    /// # Errors
    /// When the total doesn't fit into the address space.
    pub fn new(kind: LayoutKind, spec: &PoolSpec, page_size: PageSize, slots: u32) -> Result<Self> {
        let page_bytes = spec.page_bytes(page_size);
        let page_stride = match kind {
            LayoutKind::LayerFirst => page_bytes,
            LayoutKind::PageUnified => page_bytes.next_multiple_of(PAGE_ALIGN),
        };
        let Some(bytes) = page_stride.checked_mul(slots as usize) else {
            return argument("host", format!("pool {}: {slots} slots exceed the address space", spec.name));
        };
        let mut planes: Vec<PlaneRows> = Vec::with_capacity(spec.planes.len());
        let mut in_page = 0;
        for plane in &spec.planes {
            let bytes = plane.bytes_per_token * page_size.tokens();
            planes.push(PlaneRows { offset: in_page, stride: page_stride, bytes });
            in_page += bytes;
        }
        if kind == LayoutKind::LayerFirst {
            // All K planes, then all V planes, each N·P rows.
            let mut order: Vec<usize> = (0..planes.len()).collect();
            order.sort_by_key(|&plane| (spec.planes[plane].role, spec.planes[plane].layer));
            let mut offset = 0;
            for plane in order {
                let bytes = planes[plane].bytes;
                planes[plane] = PlaneRows { offset, stride: bytes, bytes };
                offset += bytes * slots as usize;
            }
        }
        Ok(Self { kind, planes, page_bytes, page_stride, bytes })
    }

    /// Total size, padding included.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Payload of one page.
    pub const fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Where a plane's pages are.
    pub fn plane(&self, plane: usize) -> PlaneRows {
        self.planes[plane]
    }

    /// A slot's payload as runs of bytes, in order of layer, then role: one run where pages are unified.
    pub fn runs(&self, slot: u32) -> impl Iterator<Item = Range<usize>> + '_ {
        let unified = self.kind == LayoutKind::PageUnified;
        let whole = unified.then(|| {
            let start = slot as usize * self.page_stride;
            start..start + self.page_bytes
        });
        let rows = self.planes.iter().filter(move |_| !unified).map(move |plane| {
            let start = plane.offset + slot as usize * plane.stride;
            start..start + plane.bytes
        });
        whole.into_iter().chain(rows)
    }
}
