//! From planes on both sides to strided copies, one part for all planes of one geometry and space of slots.
//!
//! The plan is made once; a job adds pages. Pure arithmetic; knows addresses as numbers, no memory.
//! On error: nothing here fails; planes without bytes are left out.

use super::strided::{Axis, PlaneAt, Strided};
use crate::host::layout::Axes;
use crate::ids::Slot;

/// One plane on one side: its address, and a stride per axis. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Of slot 0.
    pub address: u64,
    /// From one slot to the next.
    pub page: i64,
    /// From one row to the next.
    pub row: i64,
    /// From one group of heads to the next.
    pub group: i64,
    /// From one head of a group to the next.
    pub head: i64,
}

/// One plane on both sides, and how many of what a page of it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanePair {
    /// The layer that reads it.
    pub layer: u32,
    /// The space whose slots it uses.
    pub space: u32,
    /// On the device.
    pub device: Side,
    /// On the host.
    pub host: Side,
    /// Rows of a page.
    pub rows: u32,
    /// Groups of heads.
    pub groups: u32,
    /// Heads of a group.
    pub heads: u32,
    /// Of one head of one row.
    pub bytes: u64,
}

impl PlanePair {
    /// A plane whose device rows lie one behind the other, as a tensor (slots·rows, heads, head) has them, and
    /// whose host side has these axes in a slab at an address. Its slots are the cache's own.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "inside one address space"
    )]
    pub fn rows(layer: u32, device: u64, slab: u64, axes: &Axes) -> Self {
        Self {
            layer,
            space: 0,
            device: Side {
                address: device,
                page: axes.page_bytes() as i64,
                row: axes.row_bytes() as i64,
                group: (axes.heads * axes.bytes) as i64,
                head: axes.bytes as i64,
            },
            host: Side {
                address: slab + axes.offset as u64,
                page: axes.page as i64,
                row: axes.row as i64,
                group: axes.group as i64,
                head: axes.head as i64,
            },
            rows: axes.rows as u32,
            groups: axes.groups as u32,
            heads: axes.heads as u32,
            bytes: axes.bytes as u64,
        }
    }

    /// The same where the device has the rows of all planes of a page in one run: bytes from one page to the next,
    /// and from one row of this plane to the next.
    #[must_use]
    pub const fn interleaved(self, page: i64, row: i64) -> Self {
        Self { device: Side { page, row, ..self.device }, ..self }
    }

    /// The same in the slots of another space.
    #[must_use]
    pub const fn in_space(self, space: u32) -> Self {
        Self { space, ..self }
    }

    fn strided(&self) -> Strided {
        let axes = [
            Axis::new(self.rows, self.device.row, self.host.row),
            Axis::new(self.groups, self.device.group, self.host.group),
            Axis::new(self.heads, self.device.head, self.host.head),
            Axis::NONE,
        ];
        Strided::of((self.device.page, self.host.page), axes, self.bytes)
    }
}

/// Planes of one geometry and one space, in order of layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The geometry.
    pub strided: Strided,
    /// The space whose slots the planes use.
    pub space: u32,
    /// Addresses of slot 0.
    pub planes: Vec<PlaneAt>,
    /// The layer of each plane.
    pub layers: Vec<u32>,
}

impl Part {
    /// Bytes of one page of one plane.
    pub fn page_bytes(&self) -> u64 {
        self.strided.page_bytes()
    }

    /// Whether neighbouring pages touch on both sides, so that they become one run.
    pub fn dense(&self) -> bool {
        let run = self.strided.run.cast_signed();
        self.page_bytes() == self.strided.run
            && self.strided.device_page == run
            && self.strided.host_page == run
    }
}

/// All copies that move a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// One per geometry and space, in order of their first planes.
    pub parts: Vec<Part>,
}

impl Plan {
    /// Of planes in order of layer. Planes without bytes need no copy.
    pub fn new(planes: &[PlanePair]) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        for plane in planes.iter().filter(|plane| plane.bytes > 0 && plane.rows > 0) {
            let strided = plane.strided();
            let same = |part: &Part| part.strided == strided && part.space == plane.space;
            let at = parts.iter().position(same).unwrap_or_else(|| {
                parts.push(Part { strided, space: plane.space, planes: Vec::new(), layers: Vec::new() });
                parts.len() - 1
            });
            let part = &mut parts[at];
            part.planes.push(PlaneAt { device: plane.device.address, host: plane.host.address });
            part.layers.push(plane.layer);
        }
        parts.iter_mut().for_each(|part| part.strided = part.strided.fitting(&part.planes));
        Self { parts }
    }

    /// Bytes of one page of each space, over all planes.
    pub fn page_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.page_bytes() * part.planes.len() as u64).sum()
    }
}

/// Neighbouring pages, each one slot on from the one before on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First device slot.
    pub device: Slot,
    /// First host slot.
    pub host: Slot,
    /// Pages.
    pub pages: u32,
}

/// Pages (device slot, host slot) as spans, in their order.
pub fn spans(pages: &[(Slot, Slot)]) -> impl Iterator<Item = Span> + '_ {
    let mut rest = pages.iter().copied().peekable();
    std::iter::from_fn(move || {
        let (device, host) = rest.next()?;
        let mut pages = 1;
        let next = |slot: Slot, pages| slot.0.checked_add(pages).map(Slot);
        while rest.next_if(|&(d, h)| (Some(d), Some(h)) == (next(device, pages), next(host, pages))).is_some()
        {
            pages += 1;
        }
        Some(Span { device, host, pages })
    })
}
