//! One description of a copy for both sides: planes, pages, up to four axes inside a page, and a run.
//!
//! Byte `b` of run `i` of page (d, h) of a plane is, on either side, at
//! `plane + page · page stride + Σ i[k] · axis stride + b`. Direction is not part of it. Mirrors
//! `cuda/include/hicache_cuda.h` field by field. Pure arithmetic; knows no memory.
//! On error: an axis too many is an argument error.

use crate::error::{Result, argument};

/// Axes inside one page of one plane.
pub const AXES: usize = 4;

/// One axis: how far it is from one index to the next, in bytes, per side.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// On the device.
    pub device: i64,
    /// On the host.
    pub host: i64,
    /// Number of indices, at least 1.
    pub extent: u32,
    /// 0.
    pub reserved: u32,
}

impl Axis {
    /// An axis that isn't there.
    pub const NONE: Self = Self::new(1, 0, 0);

    /// Strides in bytes.
    pub const fn new(extent: u32, device: i64, host: i64) -> Self {
        Self { device, host, extent, reserved: 0 }
    }

    /// Whether this axis, around `inner`, is only more of it on both sides.
    fn continues(self, inner: Self) -> bool {
        let reach = |stride: i64| stride.checked_mul(i64::from(inner.extent));
        Some(self.device) == reach(inner.device) && Some(self.host) == reach(inner.host)
    }
}

/// What all planes of a copy have in common. Normal: axes by the host's stride, merged where both sides allow.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strided {
    /// Device bytes from slot s to slot s + 1 of a plane.
    pub device_page: i64,
    /// The same on the host.
    pub host_page: i64,
    /// Outermost first; unused ones in front.
    pub axes: [Axis; AXES],
    /// Bytes that are contiguous on both sides, at least 1.
    pub run: u64,
    /// Widest vector that fits all strides: 16, 8, 4 or 1 bytes. Planes' addresses may narrow it.
    pub width: u32,
    /// 0.
    pub reserved: u32,
}

/// Where one plane's slot 0 is, on both sides.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneAt {
    /// Device address.
    pub device: u64,
    /// Host address.
    pub host: u64,
}

impl Strided {
    /// Brings axes, in any order, into the normal form. `run` is what is contiguous without them.
    ///
    /// # Errors
    /// When more than four axes are left, or a run or an axis is empty.
    pub fn new(pages: (i64, i64), axes: &[Axis], run: u64) -> Result<Self> {
        if run == 0 || axes.iter().any(|axis| axis.extent == 0) {
            return argument("pools", "a copy needs at least one byte");
        }
        let (merged, run) = merged(axes.to_vec(), run);
        if merged.len() > AXES {
            let reason = format!("a page has {} axes of bytes, at most {AXES} work", merged.len());
            return argument("pools", reason);
        }
        Ok(Self::normal(pages, merged, run))
    }

    /// The same of as many axes as always fit.
    pub(super) fn of(pages: (i64, i64), axes: [Axis; AXES], run: u64) -> Self {
        let (merged, run) = merged(axes.to_vec(), run);
        Self::normal(pages, merged, run)
    }

    fn normal(pages: (i64, i64), merged: Vec<Axis>, run: u64) -> Self {
        let mut axes = [Axis::NONE; AXES];
        for (place, axis) in axes.iter_mut().rev().zip(merged) {
            *place = axis;
        }
        let strided = Self { device_page: pages.0, host_page: pages.1, axes, run, width: 1, reserved: 0 };
        strided.fitting(&[])
    }

    /// Payload of one page of one plane, in bytes.
    pub fn page_bytes(&self) -> u64 {
        self.axes.iter().fold(self.run, |bytes, axis| bytes * u64::from(axis.extent))
    }

    /// The same with vectors that fit these planes' addresses too.
    #[must_use]
    pub fn fitting(mut self, planes: &[PlaneAt]) -> Self {
        let addresses = planes.iter().fold(0, |all, plane| all | plane.device | plane.host);
        self.width = width(self.alignment() | addresses);
        self
    }

    /// Bits that are set in any size or stride.
    fn alignment(&self) -> u64 {
        let axes = self.axes.iter().fold(0, |all, axis| all | axis.device | axis.host);
        self.run | (axes | self.device_page | self.host_page).cast_unsigned()
    }
}

/// Axes sorted by the host's stride and merged where both sides allow, innermost first; and the run with what
/// continues it.
fn merged(mut axes: Vec<Axis>, mut run: u64) -> (Vec<Axis>, u64) {
    axes.retain(|axis| axis.extent > 1);
    axes.sort_by_key(|axis| std::cmp::Reverse(axis.host.unsigned_abs()));
    let mut merged: Vec<Axis> = Vec::new();
    while let Some(axis) = axes.pop() {
        let whole = i64::try_from(run).ok();
        match merged.last_mut() {
            None if Some(axis.device) == whole && Some(axis.host) == whole => {
                run *= u64::from(axis.extent);
            }
            Some(inner) if axis.continues(*inner) && inner.extent.checked_mul(axis.extent).is_some() => {
                inner.extent *= axis.extent;
            }
            _ => merged.push(axis),
        }
    }
    (merged, run)
}

/// The widest vector that divides everything whose bits are set here.
const fn width(bits: u64) -> u32 {
    match bits.trailing_zeros() {
        0 | 1 => 1,
        2 => 4,
        3 => 8,
        _ => 16,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails is loud")]
    use super::*;

    #[test]
    fn contiguous_axes_become_one_run() {
        // 3 tokens of 2 heads of 8 bytes, the same on both sides.
        let axes = [Axis::new(2, 8, 8), Axis::new(3, 16, 16)];
        let strided = Strided::new((48, 64), &axes, 8).unwrap();
        assert_eq!((strided.run, strided.axes, strided.width), (48, [Axis::NONE; AXES], 16));
    }

    #[test]
    fn axes_are_sorted_by_the_host_and_merged_from_within() {
        // page_head: heads outermost on the host.
        let (token, head) = (Axis::new(4, 64, 8), Axis::new(2, 8, 512));
        let strided = Strided::new((256, 1024), &[token, head], 8).unwrap();
        assert_eq!(strided.axes, [Axis::NONE, Axis::NONE, head, token]);
        assert_eq!((strided.run, strided.width, strided.page_bytes()), (8, 8, 64));
        // Two axes that are one.
        let axes = [Axis::new(3, 400, 800), Axis::new(4, 100, 200)];
        assert_eq!(Strided::new((0, 0), &axes, 8).unwrap().axes[3], Axis::new(12, 100, 200));
    }

    #[test]
    fn odd_addresses_narrow_the_vector() {
        let strided = Strided::new((24, 32), &[], 24).unwrap();
        assert_eq!(strided.width, 8);
        assert_eq!(strided.fitting(&[PlaneAt { device: 4, host: 0 }]).width, 4);
        assert_eq!(strided.fitting(&[PlaneAt { device: 8, host: 2 }]).width, 1);
    }

    #[test]
    fn what_cannot_be_described_is_refused() {
        let axes: Vec<Axis> = (1..6).map(|k| Axis::new(2, 1 << (4 * k), 3 << (4 * k))).collect();
        assert!(Strided::new((0, 0), &axes, 1).is_err());
        assert!(Strided::new((0, 0), &[Axis::new(0, 1, 1)], 1).is_err());
        assert!(Strided::new((0, 0), &[], 0).is_err());
    }
}
