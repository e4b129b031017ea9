//! The host's memory: kinds of slabs, how much there is to be had, and pieces for pinning.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails is loud")]
#![allow(unsafe_code, reason = "slabs are looked into")]

use hicache_core::host::layout::Region;
use hicache_core::host::{Layout, LayoutKind, Room, Slab, SlabOptions, numa, pieces};
use hicache_core::page::PageSize;
use hicache_core::pool::{Plane, PoolSpec};
use proptest::prelude::*;
use std::fs;
use std::path::Path;

fn read(slab: &Slab, at: usize) -> u8 {
    // SAFETY: inside the slab; each test is alone with its own.
    unsafe { slab.address(at..at + 1).unwrap().read() }
}

fn write(slab: &Slab, at: usize, byte: u8) {
    // SAFETY: as above.
    unsafe { slab.address(at..at + 1).unwrap().write(byte) };
}

#[test]
fn every_kind_of_slab_is_zeroed_memory_of_its_size() {
    for shared in [false, true] {
        for prefault_threads in [0, 1, 3] {
            let options = SlabOptions { shared, prefault_threads, node: Some(0) };
            // Odd sizes, and more than one thread's share.
            for size in [1, 4097, (129 << 20) + 5] {
                let slab = Slab::with(size, options).unwrap();
                assert_eq!(slab.bytes(), size);
                assert_eq!(slab.file().is_some(), shared);
                assert!([0, size / 2, size - 1].iter().all(|&at| read(&slab, at) == 0));
                write(&slab, size - 1, 7);
                assert_eq!(slab.address(0..size + 1), None, "beyond its end");
            }
        }
    }
    assert!(Slab::with(0, SlabOptions::default()).is_ok());
}

#[cfg(target_os = "linux")]
#[test]
fn a_shared_slab_is_mapped_by_others_and_keeps_its_size() {
    use std::os::fd::AsRawFd;
    let options = SlabOptions { shared: true, ..SlabOptions::default() };
    let slab = Slab::with(1 << 20, options).unwrap();
    write(&slab, 777, 42);
    let file = slab.file().unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let open = || fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let other = Slab::attach(open(), 1 << 20).unwrap();
    assert_eq!(read(&other, 777), 42);
    write(&other, 778, 43);
    assert_eq!(read(&slab, 778), 43);
    assert!(file.set_len(4096).is_err(), "nobody can pull it away from under the others");
    let error = Slab::attach(open(), 1 << 21).unwrap_err().to_string();
    assert!(error.starts_with("host: need shared memory of 2097152 bytes"), "{error}");
    let plain = tempfile::tempfile().unwrap();
    plain.set_len(1 << 20).unwrap();
    let error = Slab::attach(plain, 1 << 20).unwrap_err().to_string();
    assert!(error.contains("sealed"), "{error}");
    drop(slab);
    assert_eq!(read(&other, 778), 43, "it outlives its first owner");
}

/// Writes a file, and the folders to it.
fn put(root: &Path, name: &str, text: &str) {
    let file = root.join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

#[test]
fn room_is_the_least_of_machine_and_groups() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    assert_eq!(Room::below(root).available(), None, "nothing to be read");
    assert_eq!(Room::below(root).check(u64::MAX), Ok(()), "no limit is known");
    put(root, "proc/meminfo", "MemTotal: 900 kB\nMemAvailable:   800 kB\n");
    assert_eq!(Room::below(root).available(), Some(800 << 10));
    put(root, "proc/self/cgroup", "0::/serving/engine\n");
    // The innermost has no limit, the one around it has two, and its files can go.
    put(root, "sys/fs/cgroup/serving/engine/memory.max", "max\n");
    put(root, "sys/fs/cgroup/serving/engine/memory.current", "1000\n");
    put(root, "sys/fs/cgroup/serving/memory.max", "500000\n");
    put(root, "sys/fs/cgroup/serving/memory.high", "400000\n");
    put(root, "sys/fs/cgroup/serving/memory.current", "150000\n");
    put(
        root,
        "sys/fs/cgroup/serving/memory.stat",
        "anon 9\nactive_file 20000\ninactive_file 30000\nfile 7\n",
    );
    let here = Room::below(root);
    assert_eq!(here.available(), Some(300_000));
    assert_eq!(here.check(300_000), Ok(()));
    let error = here.check(300_001).unwrap_err().to_string();
    assert!(error.starts_with("host: needs 300001 bytes of memory, but 300000 are available"), "{error}");
    assert!(error.ends_with("serving"), "{error}");
    put(root, "proc/meminfo", "MemAvailable: 3 kB\n");
    let error = Room::below(root).check(4096).unwrap_err().to_string();
    assert!(error.ends_with("but 3072 are available on this machine"), "{error}");
}

#[test]
fn room_knows_the_first_version_of_groups() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    put(root, "proc/self/cgroup", "4:cpu,cpuacct:/x\n3:memory:/pod\n0::/ignored\n");
    put(root, "sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "9000\n");
    put(root, "sys/fs/cgroup/memory/pod/memory.usage_in_bytes", "5000\n");
    put(root, "sys/fs/cgroup/memory/pod/memory.stat", "total_active_file 100\ntotal_inactive_file 200\n");
    put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put(root, "sys/fs/cgroup/memory/memory.usage_in_bytes", "6000\n");
    assert_eq!(Room::below(root).available(), Some(4300));
}

#[test]
fn this_machine_has_room_and_a_node() {
    let left = Room::here().available().unwrap();
    assert!(left > 1 << 20, "{left}");
    assert!(Room::here().check(u64::MAX).is_err());
}

#[test]
fn a_device_says_its_node() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    put(root, "sys/bus/pci/devices/0000:1b:00.0/numa_node", "1\n");
    put(root, "sys/bus/pci/devices/0000:1c:00.0/numa_node", "-1\n");
    for node in ["node0", "node1", "node10", "nodes"] {
        fs::create_dir_all(root.join("sys/devices/system/node").join(node)).unwrap();
    }
    assert_eq!(numa::node_of_pci(root, "0000:1B:00.0"), Some(1));
    assert_eq!(numa::node_of_pci(root, "0000:1c:00.0"), None, "the firmware doesn't say");
    assert_eq!(numa::node_of_pci(root, "0000:ff:00.0"), None);
    assert_eq!(numa::nodes(root), [0, 1, 10]);
}

/// Where there is one node, a setting means nothing; else it must be one of them.
#[test]
fn a_node_is_no_error_where_there_is_only_one() {
    let nodes = numa::nodes(Path::new("/"));
    for node in [0, 1, 63, 64, 1000] {
        let made = Slab::with(4096, SlabOptions { node: Some(node), ..SlabOptions::default() });
        if nodes.len() < 2 || nodes.contains(&node) {
            assert_eq!(made.unwrap().bytes(), 4096);
        } else {
            let error = made.unwrap_err().to_string();
            assert!(error.starts_with("host: there is no NUMA node"), "{error}");
        }
    }
}

/// Whether an end lies inside of a page.
fn splits(regions: &[Region], end: usize) -> bool {
    regions.iter().any(|region| {
        let inside = end > region.start && end < region.start + region.page * region.pages;
        inside && !(end - region.start).is_multiple_of(region.page)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn pieces_never_split_a_page(
        kind in prop::sample::select(LayoutKind::ALL.to_vec()),
        rows in prop::collection::vec((0..5000usize, 0..3000usize), 1..4),
        aligned in any::<bool>(),
        (page, slots) in (1..40u32, 0..600u32),
        most in 4096..40_000_000usize,
    ) {
        let unit = if aligned { 512 } else { 1 };
        let plane = |layer, role, bytes: usize| Plane { layer, role, bytes_per_token: bytes / unit * unit };
        let planes = (0..).zip(&rows).flat_map(|(l, &(k, v))| [plane(l, 0, k), plane(l, 1, v)]);
        let spec = PoolSpec::new("kv", planes.collect()).unwrap();
        let layout = Layout::new(kind, &spec, PageSize::new(page).unwrap(), slots).unwrap();
        let regions = layout.regions();
        let covered: usize = regions.iter().map(|region| region.page * region.pages).sum();
        prop_assert_eq!(covered, layout.bytes(), "regions are the whole slab");
        let found = pieces(&regions, layout.bytes(), most);
        let mut at = 0;
        for piece in &found {
            prop_assert_eq!(piece.start, at);
            prop_assert!(piece.end > piece.start);
            at = piece.end;
            let last = at == layout.bytes();
            prop_assert!(last || (at.is_multiple_of(4096) && !splits(&regions, at)), "{:?}", piece);
            // As large as allowed, and no larger than asked unless there is no other end.
            let allowed = |end: &usize| !splits(&regions, *end);
            let most_end = (piece.start + most).min(layout.bytes());
            let best = (1..=(most_end - piece.start) / 4096).map(|pages| piece.start + pages * 4096);
            prop_assert!(piece.start.is_multiple_of(4096));
            match best.rev().find(allowed) {
                _ if last && piece.len() <= most => {}
                Some(best) => prop_assert_eq!(at, best),
                None => prop_assert!(piece.len() > most),
            }
        }
        prop_assert_eq!(at, layout.bytes());
    }
}
