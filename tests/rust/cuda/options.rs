//! Settings of a GPU's copies reach what is enqueued: copy engine or kernels, and how wide these are.

use super::geometry::{Kind, Pool, SHAPES};
use super::{enqueued, job, machine, start, whole};
use hicache_core::transfer::cuda::Settings;
use hicache_core::transfer::{Copier, Direction, GpuOptions};
use std::time::Duration;

unsafe extern "C" {
    fn emulated_widest() -> usize;
}

/// Thread groups of the widest kernel: one multiprocessor each.
#[test]
fn kernels_take_as_many_multiprocessors_as_they_are_told() {
    let usual = GpuOptions { engine_run: [1 << 40; 2], staging: [0; 2], ..GpuOptions::default() };
    // Rows of 64 bytes: 400 pages are work for more than 12 groups.
    for multiprocessors in [[1, 2], [3, 5], [12, 1], usual.multiprocessors] {
        for direction in [Direction::In, Direction::Out] {
            let _one = machine(6, 13000, 1);
            let pool = Pool::new(SHAPES[0], Kind::PageFirst, 400, 400);
            let settings = Settings::with(0, 2, GpuOptions { multiprocessors, ..usual });
            // SAFETY: `pool` outlives the copier.
            let mut copier = unsafe { start(&pool, &settings) }.unwrap();
            let pages: Vec<(u32, u32)> = (0..400).map(|page| (page, 399 - page)).collect();
            copier.submit(job(1, direction, &pages));
            assert!(copier.progress(direction).wait(2, 0, Duration::from_secs(60)));
            // SAFETY: only looks.
            let widest = unsafe { emulated_widest() };
            assert_eq!(widest, multiprocessors[direction as usize] as usize, "{direction:?}");
        }
    }
}

#[test]
fn a_cache_copies_as_its_settings_say() {
    let usual = GpuOptions::default();
    let counts = |options| {
        let _one = machine(4, 13000, 1);
        whole::goes_by(options);
        enqueued()
    };
    let (kernels, batches) = counts(GpuOptions { engine_run: [1; 2], ..usual });
    assert!(kernels == 0 && batches > 0, "all by the copy engine");
    let (kernels, batches) = counts(GpuOptions { staging: [0; 2], ..usual });
    assert!(kernels > 0 && batches == 0, "all by kernels: runs are short");
    let (kernels, batches) = counts(GpuOptions { engine_run: [1, 1 << 40], ..usual });
    assert!(kernels > 0 && batches > 0, "each direction as it is told");
    let refused = GpuOptions { multiprocessors: [0, 1], ..usual }.check().unwrap_err().to_string();
    assert!(refused.starts_with("gpu_copies: "), "{refused}");
}
