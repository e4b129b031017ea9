//! NUMA nodes: how many there are, which one a device hangs on, and memory that is bound to one.
//!
//! Assumes Linux's `/sys`; elsewhere, and on machines with one node, binding does nothing.
//! On error: names the node that isn't there, or what the kernel says.
#![allow(unsafe_code, reason = "binds its caller's mapping")]

use crate::error::{Result, argument};
use crate::huge::Mapping;
use std::path::Path;

/// Nodes of this machine, by number.
pub fn nodes(root: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(root.join("sys/devices/system/node")).into_iter().flatten().flatten();
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok();
    let mut nodes: Vec<u32> = entries.filter_map(number).collect();
    nodes.sort_unstable();
    nodes
}

/// The node that a PCI device ("0000:1b:00.0") hangs on; `None` where the machine doesn't say.
pub fn node_of_pci(root: &Path, device: &str) -> Option<u32> {
    let file = root.join("sys/bus/pci/devices").join(device.to_ascii_lowercase()).join("numa_node");
    // -1: the firmware doesn't say.
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Binds memory that nobody has touched yet to a node, where there are several.
///
/// # Errors
/// When there is no such node, or the kernel refuses.
pub(super) fn bind(memory: &Mapping, node: u32) -> Result<()> {
    let nodes = nodes(Path::new("/"));
    if nodes.len() > 1 && !nodes.contains(&node) {
        return argument("host", format!("there is no NUMA node {node}: there are {nodes:?}"));
    }
    if nodes.len() < 2 {
        return Ok(());
    }
    #[cfg(target_os = "linux")]
    {
        let mut mask = vec![0u64; node as usize / 64 + 1];
        mask[node as usize / 64] = 1 << (node % 64);
        // One more than the highest bit, which is how the kernel counts.
        let bits = mask.len() * 64 + 1;
        let (memory, bytes) = (memory.base(), memory.bytes());
        // SAFETY: the mapping is there as long as it is borrowed, and the mask has so many bits.
        let failed =
            unsafe { libc::syscall(libc::SYS_mbind, memory, bytes, libc::MPOL_BIND, mask.as_ptr(), bits, 0) };
        if failed != 0 {
            let error = std::io::Error::last_os_error();
            return argument("host", format!("memory can't be bound to NUMA node {node}: {error}"));
        }
    }
    Ok(())
}
