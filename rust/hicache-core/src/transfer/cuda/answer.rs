//! What the C library answers, as types: whether there is a GPU, and why not.
//!
//! Works on any machine: without a driver, `probe` says so. On error: see [`CudaError`].
#![allow(unsafe_code, reason = "calls the C library")]

use super::ffi::{self, RawMachine};
use std::ffi::CStr;

/// Why something could not be had of the device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// No driver, or one older than this build needs.
    #[error("no driver: CUDA copies need an NVIDIA driver (CUDA 12 or newer), and this machine has none")]
    NoDriver,
    /// A driver, but no visible device.
    #[error("no device: the driver shows no GPU to this process (is CUDA_VISIBLE_DEVICES empty?)")]
    NoDevice,
    /// Arguments that the C library refuses.
    #[error(
        "{0}: refused by the CUDA copies: not registered, not aligned, out of range, or of another device"
    )]
    Argument(&'static str),
    /// No CPU memory for tables.
    #[error("no memory for the CUDA copies' tables")]
    Memory,
    /// Host memory that can't be pinned.
    #[error(
        "host: {bytes} bytes can't be pinned for the GPU: CUDA says {name} ({code}); is locked memory limited \
         (ulimit -l), or is the host tier too large?"
    )]
    Pinning {
        /// Of the slab.
        bytes: u64,
        /// `cudaError_t`.
        code: i32,
        /// Its name.
        name: String,
    },
    /// Pinned memory has no single distance between the CPU's and the device's addresses.
    #[error("host: the device sees pinned memory at addresses that differ from piece to piece")]
    Alias,
    /// The engine's stream is under graph capture.
    #[error("stream: it is being captured into a graph; copies and their waits stay outside of graphs")]
    Capturing,
    /// Too many registered regions.
    #[error("host: too many regions are pinned")]
    Full,
    /// CUDA's own.
    #[error("{what}: CUDA says {name} ({code})")]
    Cuda {
        /// What was tried.
        what: &'static str,
        /// `cudaError_t`.
        code: i32,
        /// Its name.
        name: String,
    },
}

/// Shorthand for this module and its callers.
pub type CudaResult<T> = Result<T, CudaError>;

/// What `probe` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// CUDA version of the driver: 1000 · major + 10 · minor.
    pub driver: i32,
    /// Visible devices.
    pub devices: i32,
}

/// Whether there is a driver and a device.
///
/// # Errors
/// Says which is missing.
pub fn probe() -> CudaResult<Machine> {
    let mut machine = RawMachine::default();
    // SAFETY: `machine` is valid for the call.
    check("probe", unsafe { ffi::hicache_cuda_probe(&raw mut machine) })?;
    Ok(Machine { driver: machine.driver, devices: machine.devices })
}

pub(super) fn check(what: &'static str, code: i32) -> CudaResult<()> {
    Err(match code {
        0 => return Ok(()),
        ffi::NO_DRIVER => CudaError::NoDriver,
        ffi::NO_DEVICE => CudaError::NoDevice,
        ffi::ARGUMENT => CudaError::Argument(what),
        ffi::MEMORY => CudaError::Memory,
        ffi::ALIAS => CudaError::Alias,
        ffi::CAPTURING => CudaError::Capturing,
        ffi::FULL => CudaError::Full,
        code => CudaError::Cuda { what, code, name: name(code) },
    })
}

fn name(code: i32) -> String {
    // SAFETY: takes any integer.
    let text = unsafe { ffi::hicache_cuda_error_name(code) };
    // SAFETY: the library promises a static text, never null.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The answer of a query.
pub(super) fn finished(what: &'static str, code: i32) -> CudaResult<bool> {
    if code == ffi::PENDING { Ok(false) } else { check(what, code).map(|()| true) }
}
