//! A cache over plain memory, with the store of a URL.
#![allow(unsafe_code, reason = "a cache over plain memory takes addresses")]

use hicache_core::assemble::DevicePlane;
use hicache_core::storage::{Client, open};
use hicache_core::{Config, HiCache, Result};

/// # Safety
/// As [`HiCache::over_memory`].
pub unsafe fn over_store(config: Config, device: Option<&[Vec<DevicePlane>]>, url: &str) -> Result<HiCache> {
    let client = Client::alone(config.identity);
    // SAFETY: the caller's.
    unsafe { HiCache::over_memory(config, device, Some(&|| open(url, &client))) }
}
