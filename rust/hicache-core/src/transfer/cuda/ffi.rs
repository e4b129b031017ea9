//! `cuda/include/hicache_cuda.h`, as declared there. Nothing is decided here.
#![allow(unsafe_code, reason = "declares foreign functions")]

use crate::ids::Slot;
use crate::transfer::strided::{PlaneAt, Strided};
use std::ffi::{c_char, c_void};

pub const PENDING: i32 = -1;
pub const NO_DRIVER: i32 = -2;
pub const NO_DEVICE: i32 = -3;
pub const ARGUMENT: i32 = -4;
pub const MEMORY: i32 = -5;
pub const ALIAS: i32 = -6;
pub const CAPTURING: i32 = -7;
pub const FULL: i32 = -8;

/// Lives behind the pointer only.
#[repr(C)]
pub struct RawEngine {
    _private: [u8; 0],
}

/// `hicache_cuda_machine`.
#[repr(C)]
#[derive(Default)]
pub struct RawMachine {
    pub driver: i32,
    pub devices: i32,
}

/// `hicache_cuda_settings`.
#[repr(C)]
pub struct RawSettings {
    pub device: i32,
    pub layers: u32,
    pub engine_run: [u64; 2],
    pub staging: [u64; 2],
    pub multiprocessors: [u32; 2],
}

/// `hicache_copy`. A page is (device slot, host slot): two u32 in this order.
#[repr(C)]
pub struct RawCopy {
    pub shape: Strided,
    pub planes: *const PlaneAt,
    pub pages: *const Page,
    pub plane_count: u32,
    pub page_count: u32,
    pub route: u32,
    pub reserved: u32,
}

/// `hicache_page`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Slot on the device.
    pub device: u32,
    /// Slot on the host.
    pub host: u32,
}

impl From<(Slot, Slot)> for Page {
    fn from((device, host): (Slot, Slot)) -> Self {
        Self { device: device.0, host: host.0 }
    }
}

unsafe extern "C" {
    pub fn hicache_cuda_probe(machine: *mut RawMachine) -> i32;
    pub fn hicache_cuda_error_name(code: i32) -> *const c_char;
    pub fn hicache_cuda_create(settings: *const RawSettings, engine: *mut *mut RawEngine) -> i32;
    pub fn hicache_cuda_destroy(engine: *mut RawEngine) -> i32;
    pub fn hicache_cuda_register(
        engine: *mut RawEngine,
        base: *mut c_void,
        pieces: *const u64,
        piece_count: u32,
    ) -> i32;
    pub fn hicache_cuda_unregister(engine: *mut RawEngine, base: *mut c_void) -> i32;
    pub fn hicache_cuda_fence(engine: *mut RawEngine, direction: u32, stream: u64) -> i32;
    pub fn hicache_cuda_enqueue(engine: *mut RawEngine, direction: u32, copy: *const RawCopy) -> i32;
    pub fn hicache_cuda_choose(engine: *const RawEngine, direction: u32, copy: *const RawCopy) -> i32;
    pub fn hicache_cuda_record_layer(engine: *mut RawEngine, set: u32, layer: u32) -> i32;
    pub fn hicache_cuda_wait_layer(engine: *mut RawEngine, set: u32, layer: u32, stream: u64) -> i32;
    pub fn hicache_cuda_query_layer(engine: *mut RawEngine, set: u32, layer: u32) -> i32;
    pub fn hicache_cuda_record_done(engine: *mut RawEngine, direction: u32, ticket: u64) -> i32;
    pub fn hicache_cuda_wait_done(engine: *mut RawEngine, direction: u32, ticket: u64, stream: u64) -> i32;
    pub fn hicache_cuda_query_done(engine: *mut RawEngine, direction: u32, ticket: u64) -> i32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// The sizes and offsets that `tests/cuda/scenario.cpp` asserts of the C structs.
    #[test]
    fn structs_are_the_headers() {
        assert_eq!(
            (size_of::<Strided>(), offset_of!(Strided, run), offset_of!(Strided, width)),
            (128, 112, 120)
        );
        assert_eq!(
            (size_of::<RawCopy>(), offset_of!(RawCopy, planes), offset_of!(RawCopy, route)),
            (160, 128, 152)
        );
        assert_eq!((size_of::<PlaneAt>(), size_of::<Page>(), size_of::<RawMachine>()), (16, 8, 8));
        assert_eq!((size_of::<RawSettings>(), offset_of!(RawSettings, multiprocessors)), (48, 40));
    }
}
