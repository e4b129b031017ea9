//! The descriptor of a copy: one geometry for both sides, direction not in it. Plain data, in the order of
//! the C header.
//!
//! Byte `b` of run (i0, i1, i2, i3) of page j of plane p is, on each side, at
//! `plane.side + pages[j].side · side_page + Σ iₖ · axes[k].side + b`.

/// Axes inside one page of one plane.
pub const AXES: usize = 4;

/// One axis: bytes from one index to the next on each side, and how many there are.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// On the device.
    pub device: i64,
    /// On the host.
    pub host: i64,
    /// At least 1.
    pub extent: u32,
    /// 0.
    pub reserved: u32,
}

impl Axis {
    /// An axis that is not there.
    pub const NONE: Self = Self { device: 0, host: 0, extent: 1, reserved: 0 };
}

/// Addresses of a plane's slot 0 on both sides.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneAt {
    /// On the device.
    pub device: u64,
    /// On the host.
    pub host: u64,
}

/// The geometry that all planes of one copy share. Bytes throughout.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strided {
    /// From one device slot to the next.
    pub device_page: i64,
    /// From one host slot to the next.
    pub host_page: i64,
    /// Outermost first; those that are not there come first.
    pub axes: [Axis; AXES],
    /// Contiguous on both sides, at least 1.
    pub run: u64,
    /// 16, 8, 4 or 1: the widest that divides the run, all strides and all addresses.
    pub width: u32,
    /// 0.
    pub reserved: u32,
}
