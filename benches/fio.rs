//! What benches of bytes on a disk share: memory to move, and fio beside it.

#![allow(unsafe_code, reason = "a slab's bytes as a slice")]

use hicache_core::host::{Slab, SlabOptions};
use memmap2::{Advice, MmapMut};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Bytes of a pass.
pub const WHOLE: usize = 960 << 20;

pub fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Memory of pages: a host's slab, or small pages whatever the kernel has.
pub enum Memory {
    Slab(Slab),
    Small(MmapMut),
}

impl Memory {
    /// `huge`, `shared`, `restart`: of a `Slab` as `Host` makes it by default, with `shared`, with `restart`.
    pub fn new(kind: &str) -> Self {
        let options = SlabOptions { shared: kind == "shared", prefault_threads: 2, node: None };
        let mut memory = match kind {
            "huge" | "shared" => Self::Slab(Slab::with(WHOLE, options).unwrap()),
            "restart" => {
                let file = tempfile::tempfile_in("/dev/shm").unwrap();
                file.set_len(WHOLE as u64).unwrap();
                Self::Slab(Slab::over(&file, WHOLE, options).unwrap())
            }
            "small" => {
                let memory = MmapMut::map_anon(WHOLE).unwrap();
                memory.advise(Advice::NoHugePage).unwrap();
                Self::Small(memory)
            }
            _ => panic!("pages={kind}: need huge, shared, restart or small"),
        };
        for (n, word) in memory.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&(n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
        }
        memory
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            // SAFETY: the slab is as long as this, and nobody else's.
            Self::Slab(slab) => unsafe { std::slice::from_raw_parts(slab.address(0..WHOLE).unwrap(), WHOLE) },
            Self::Small(memory) => memory,
        }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            // SAFETY: as above.
            Self::Slab(slab) => unsafe {
                std::slice::from_raw_parts_mut(slab.address(0..WHOLE).unwrap(), WHOLE)
            },
            Self::Small(memory) => memory,
        }
    }
}

/// The same pages for every run, in no order.
pub fn shuffled(pages: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..pages).collect();
    let mut seed = 0x2545_F491_4F6C_DD1D_u64;
    for at in (1..pages).rev() {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        order.swap(at, (seed % (at as u64 + 1)) as usize);
    }
    order
}

/// Bytes a second, of a pass that began then.
pub fn rate(start: Instant) -> f64 {
    WHOLE as f64 / start.elapsed().as_secs_f64()
}

/// fio, over one file.
pub struct Fio {
    common: Vec<String>,
    /// With which buffers.
    pub about: &'static str,
}

impl Fio {
    /// `None`: it isn't there.
    pub fn new(file: &Path, depth: usize) -> Option<Self> {
        Command::new("fio").arg("--version").output().ok()?;
        let kept = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap_or_default();
        let needed = depth + 2;
        let huge = kept.trim().parse::<usize>().is_ok_and(|pages| pages >= needed);
        let (memory, about) = if huge {
            ("shmhuge", "fio: buffers in huge pages")
        } else {
            (
                "malloc",
                "fio: buffers in 4-KiB pages, which make it slower: set vm.nr_hugepages to twice the depth",
            )
        };
        let common = [
            "--name=pass".into(),
            format!("--filename={}", file.display()),
            format!("--size={WHOLE}"),
            "--direct=1".into(),
            "--ioengine=io_uring".into(),
            format!("--iodepth={depth}"),
            format!("--iomem={memory}"),
            "--fallocate=none".into(),
            "--output-format=json".into(),
        ];
        Some(Self { common: common.into(), about })
    }

    /// Bytes a second.
    pub fn pass(&self, what: &str, class: usize) -> f64 {
        let parts = [format!("--rw={what}"), format!("--bs={class}")];
        let output = Command::new("fio").args(&self.common).args(parts).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        // Of reads, of writes, of trims: two of them are zero.
        let rates = text.split("\"bw_bytes\" :").skip(1).map(|rest| {
            let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<f64>().unwrap_or(0.0)
        });
        let rate = rates.take(3).fold(0.0, f64::max);
        assert!(rate > 0.0, "fio: {}{text}", String::from_utf8_lossy(&output.stderr));
        rate
    }
}
