//! The byte address of any element of a pool in host memory: the only place that knows it.
//!
//! With L layers, N host slots, P rows a page (its tokens; 1 where a row is a page), H heads of D elements
//! and G groups of heads, axes from outer to inner:
//!
//! | layout | a pool of K and V | runs of a page |
//! |---|---|---|
//! | `layer_first` | (2, L, N·P, H, D): like the device | 2·L |
//! | `page_first` | (2, N·P, L, H, D) | 2 |
//! | `page_first_direct` | (2, N, L, P, H, D) | 2 |
//! | `page_head` | (2, N, H, P, L, D) | 2 |
//! | `page_unified` | (N, G, L, 2, P, H/G, D) | 1 |
//!
//! A pool with one tensor a layer (a latent) has no axis of 2. Layers may have rows of different sizes: an
//! axis's stride is then the sum over what is inside of it. A page of `page_unified` is padded to a multiple
//! of 32 bytes. What is stored of a page has the order (L, 2, P, H, D) whatever the layout ([`Layout::runs`]).
//!
//! | file | what |
//! |---|---|
//! | `kind` | the layouts' names |
//! | `axes` | one plane: a base and one stride per axis |
//!
//! On error: a total that exceeds the address space is refused.

mod axes;
mod kind;

pub use axes::Axes;
pub use kind::LayoutKind;

use crate::error::{Result, argument};
use crate::page::PageSize;
use crate::pool::{Plane, PoolSpec};
use std::ops::Range;

/// What a page's start is a multiple of: the widest vector load.
const PAGE_ALIGN: usize = 32;

/// Addresses of one pool's host memory.
#[derive(Clone, Debug)]
pub struct Layout {
    kind: LayoutKind,
    planes: Vec<Axes>,
    /// The planes' layers, in order.
    layers: Vec<u32>,
    page_bytes: usize,
    page_stride: usize,
    slots: usize,
    bytes: usize,
}

/// Pages one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Of the first page, from the slab's start.
    pub start: usize,
    /// Bytes from one page to the next.
    pub page: usize,
    /// How many there are.
    pub pages: usize,
}

impl Layout {
    /// # Errors
    /// When the total doesn't fit into the address space.
    pub fn new(kind: LayoutKind, spec: &PoolSpec, page_size: PageSize, slots: u32) -> Result<Self> {
        let page_bytes = spec.page_bytes(page_size);
        let page_stride = match kind {
            LayoutKind::PageUnified => page_bytes.next_multiple_of(PAGE_ALIGN),
            _ => page_bytes,
        };
        let total = page_stride.checked_mul(slots as usize).filter(|&bytes| isize::try_from(bytes).is_ok());
        let Some(bytes) = total else {
            return argument("host", format!("pool {}: {slots} slots exceed the address space", spec.name));
        };
        let place =
            Place { kind, spec, rows: spec.rows_per_page(page_size), slots: slots as usize, page_stride };
        let planes = spec.planes.iter().map(|plane| place.axes(plane)).collect();
        let layers = spec.planes.iter().map(|plane| plane.layer).collect();
        Ok(Self { kind, planes, layers, page_bytes, page_stride, slots: slots as usize, bytes })
    }

    /// Order of the axes.
    pub const fn kind(&self) -> LayoutKind {
        self.kind
    }

    /// Total size, padding included.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many pages there are.
    pub const fn slots(&self) -> usize {
        self.slots
    }

    /// Payload of one page.
    pub const fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Where a plane's elements are.
    pub fn axes(&self, plane: usize) -> &Axes {
        &self.planes[plane]
    }

    /// Where pages lie one behind the other, from the slab's start to its end.
    pub fn regions(&self) -> Vec<Region> {
        let region = |start, page| Region { start, page, pages: self.slots };
        let starts = if self.kind == LayoutKind::PageUnified {
            vec![region(0, self.page_stride)]
        } else {
            // Of each plane, or of each role: the planes of one share a page, and begin inside of it.
            let mut planes: Vec<&Axes> = self.planes.iter().collect();
            planes.sort_by_key(|axes| axes.offset);
            planes.dedup_by(|next, one| next.offset < one.offset + one.page * self.slots);
            planes.into_iter().map(|axes| region(axes.offset, axes.page)).collect()
        };
        starts.into_iter().filter(|region| region.page > 0).collect()
    }

    /// The one run that holds a head group's share of a window of layers, `page_unified` only.
    pub fn window(&self, slot: u32, group: usize, layers: Range<u32>) -> Option<Range<usize>> {
        let inside = |&plane: &usize| layers.contains(&self.layers[plane]);
        let mut planes = (0..self.planes.len()).filter(inside).map(|plane| &self.planes[plane]);
        let first =
            planes.next().filter(|axes| self.kind == LayoutKind::PageUnified && group < axes.groups)?;
        let start = first.address(slot as usize, 0, group * first.heads);
        let bytes = first.page_bytes() / first.groups;
        Some(start..planes.fold(start + bytes, |end, axes| end + axes.page_bytes() / axes.groups))
    }

    /// A slot's payload as runs of bytes, in order of layer, role, row, head: one run where a page is.
    pub fn runs(&self, slot: u32) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut pieces = self.planes.iter().flat_map(move |axes| pieces(axes, slot as usize)).peekable();
        std::iter::from_fn(move || {
            let mut run = pieces.next()?;
            while let Some(next) = pieces.next_if(|next| next.start == run.end) {
                run.end = next.end;
            }
            Some(run)
        })
    }
}

/// A plane's page in the order of its payload.
fn pieces(axes: &Axes, slot: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let ([(n0, s0), (n1, s1), (n2, s2)], run) = axes.nest();
    let start = axes.offset + slot * axes.page;
    let some = if run == 0 { 0 } else { n0 };
    (0..some).flat_map(move |i0| {
        (0..n1).flat_map(move |i1| {
            (0..n2).map(move |i2| {
                let start = start + i0 * s0 + i1 * s1 + i2 * s2;
                start..start + run
            })
        })
    })
}

/// What decides where planes are.
struct Place<'a> {
    kind: LayoutKind,
    spec: &'a PoolSpec,
    /// Rows of a page.
    rows: usize,
    slots: usize,
    page_stride: usize,
}

impl Place<'_> {
    /// Bytes of a row in those planes that a predicate chooses.
    fn sum(&self, chosen: impl Fn(&Plane) -> bool) -> usize {
        self.spec.planes.iter().filter(|plane| chosen(plane)).map(|plane| plane.bytes_per_token).sum()
    }

    fn axes(&self, plane: &Plane) -> Axes {
        let heads = self.spec.heads as usize;
        let (row, rows) = (plane.bytes_per_token, self.rows);
        let head = row / heads;
        // Rows of the same tensor of all layers, of those before this one; and all of the roles before.
        let all = self.sum(|other| other.role == plane.role);
        let before = self.sum(|other| other.role == plane.role && other.layer < plane.layer);
        let role = self.slots * rows * self.sum(|other| other.role < plane.role);
        let one = |offset, page, row, head_stride| Axes {
            offset,
            page,
            group: 0,
            row,
            head: head_stride,
            groups: 1,
            rows,
            heads,
            bytes: head,
        };
        match self.kind {
            LayoutKind::LayerFirst => one(role + self.slots * rows * before, rows * row, row, head),
            LayoutKind::PageFirst => one(role + before, rows * all, all, head),
            LayoutKind::PageFirstDirect => one(role + rows * before, rows * all, row, head),
            LayoutKind::PageHead => one(role + before / heads, rows * all, all / heads, rows * (all / heads)),
            LayoutKind::PageUnified => {
                let groups = self.spec.head_groups as usize;
                let order = (plane.layer, plane.role);
                let before = self.sum(|other| (other.layer, other.role) < order);
                Axes {
                    offset: rows * (before / groups),
                    page: self.page_stride,
                    group: rows * (self.sum(|_| true) / groups),
                    row: row / groups,
                    head,
                    groups,
                    rows,
                    heads: heads / groups,
                    bytes: head,
                }
            }
        }
    }
}
