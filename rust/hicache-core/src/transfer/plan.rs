//! From pairs of slots to runs of bytes: neighbouring pages become one run where both sides allow it.
//!
//! Pure arithmetic; knows no memory.

use crate::ids::Slot;

/// One plane on both sides: page `s` is `stride` bytes after page `s - 1`.
#[derive(Clone, Copy, Debug)]
pub struct PlanePair {
    /// The layer that reads the plane.
    pub layer: u32,
    /// Device bytes from one slot to the next.
    pub device_stride: usize,
    /// Host bytes from one slot to the next.
    pub host_stride: usize,
    /// Of one page.
    pub bytes: usize,
}

/// A run of bytes: offsets from each side's slot 0, and a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// From the device plane's start.
    pub device: usize,
    /// From the host plane's slot 0.
    pub host: usize,
    /// Length in bytes.
    pub bytes: usize,
}

/// The runs of one plane for pages (device slot, host slot), in their order.
pub fn runs(plane: PlanePair, pages: &[(Slot, Slot)]) -> impl Iterator<Item = Run> + '_ {
    // Pages touch only where there is no room between them on either side.
    let dense = plane.device_stride == plane.bytes && plane.host_stride == plane.bytes;
    let mut at = 0;
    std::iter::from_fn(move || {
        let &(device, host) = pages.get(at)?;
        let mut count = 1;
        while dense && pages.get(at + count).is_some_and(|&next| follows((device, host), next, count)) {
            count += 1;
        }
        at += count;
        Some(Run {
            device: device.0 as usize * plane.device_stride,
            host: host.0 as usize * plane.host_stride,
            bytes: plane.bytes * count,
        })
    })
}

fn follows(first: (Slot, Slot), next: (Slot, Slot), count: usize) -> bool {
    let expected = |slot: Slot| slot.0 as usize + count;
    next.0.0 as usize == expected(first.0) && next.1.0 as usize == expected(first.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pages: &[(u32, u32)]) -> Vec<(Slot, Slot)> {
        pages.iter().map(|&(d, h)| (Slot(d), Slot(h))).collect()
    }

    #[test]
    fn neighbours_become_one_run_where_both_sides_are_dense() {
        let dense = PlanePair { layer: 0, device_stride: 8, host_stride: 8, bytes: 8 };
        let pages = pairs(&[(1, 4), (2, 5), (3, 7), (9, 8), (8, 9)]);
        let got: Vec<Run> = runs(dense, &pages).collect();
        let run = |device, host, bytes| Run { device, host, bytes };
        assert_eq!(got, [run(8, 32, 16), run(24, 56, 8), run(72, 64, 8), run(64, 72, 8)]);
    }

    #[test]
    fn padded_pages_stay_apart() {
        let padded = PlanePair { layer: 0, device_stride: 24, host_stride: 32, bytes: 24 };
        let pages = pairs(&[(0, 0), (1, 1)]);
        let got: Vec<Run> = runs(padded, &pages).collect();
        assert_eq!(
            got.iter().map(|run| (run.device, run.host, run.bytes)).collect::<Vec<_>>(),
            [(0, 0, 24), (24, 32, 24)]
        );
    }

    #[test]
    fn offsets_beyond_four_gigabytes_do_not_wrap() {
        let plane = PlanePair { layer: 0, device_stride: 5 << 30, host_stride: 5 << 30, bytes: 64 };
        let pages = pairs(&[(3, 2)]);
        assert_eq!(runs(plane, &pages).next(), Some(Run { device: 15 << 30, host: 10 << 30, bytes: 64 }));
    }
}
