//! The planner: how long runs are in every layout, and that a descriptor names the same bytes as the addresses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails is loud")]

use hicache_core::host::{Layout, LayoutKind};
use hicache_core::ids::Slot;
use hicache_core::page::PageSize;
use hicache_core::pool::{Plane, PoolSpec};
use hicache_core::transfer::plan::{Part, Plan, PlanePair, Span, spans};
use hicache_core::transfer::strided::Axis;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Where the test's memory would be: beyond 2^40, planes a terabyte apart.
const SLAB: u64 = 1 << 40;
const DEVICE: u64 = 1 << 44;

fn pool(layers: u32, roles: &[usize], heads: u32, groups: u32) -> PoolSpec {
    let planes = (0..layers).flat_map(|layer| {
        (0..).zip(roles).map(move |(role, &bytes_per_token)| Plane { layer, role, bytes_per_token })
    });
    PoolSpec::new("kv", planes.collect()).unwrap().with_heads(heads, groups).unwrap()
}

fn plan(spec: &PoolSpec, kind: LayoutKind, page: u32, slots: u32) -> (Layout, Plan) {
    let layout = Layout::new(kind, spec, PageSize::new(page).unwrap(), slots).unwrap();
    let device = |at: usize| DEVICE + ((at as u64) << 40);
    let pair = |(at, plane): (usize, &Plane)| PlanePair::rows(plane.layer, device(at), SLAB, layout.axes(at));
    let plan = Plan::new(&spec.planes.iter().enumerate().map(pair).collect::<Vec<_>>());
    (layout, plan)
}

/// 60 layers of 8 heads × 128 × bf16, and 61 latents of 576 × bf16; pages of 64 tokens.
#[test]
fn runs_of_the_usual_pools() {
    use LayoutKind::{LayerFirst, PageFirst, PageFirstDirect, PageHead, PageUnified};
    let (mha, grouped, mla) =
        (pool(60, &[2048, 2048], 8, 1), pool(60, &[2048, 2048], 8, 8), pool(61, &[1152], 1, 1));
    let cases = [
        (&mha, LayerFirst, 128 << 10),
        (&mha, PageFirst, 2 << 10),
        (&mha, PageFirstDirect, 128 << 10),
        (&mha, PageHead, 256),
        (&mha, PageUnified, 128 << 10),
        (&grouped, PageUnified, 256),
        (&mla, LayerFirst, 72 << 10),
        (&mla, PageFirst, 1152),
        (&mla, PageFirstDirect, 72 << 10),
        (&mla, PageHead, 1152),
        (&mla, PageUnified, 72 << 10),
    ];
    for (spec, kind, run) in cases {
        let (layout, plan) = plan(spec, kind, 64, 16);
        let [part] = plan.parts.as_slice() else { panic!("planes of one geometry") };
        assert_eq!((part.strided.run, part.strided.width), (run, 16), "{kind:?}");
        assert_eq!(part.planes.len(), spec.planes.len());
        assert_eq!(plan.page_bytes(), layout.page_bytes() as u64);
    }
    assert!(plan(&mha, LayerFirst, 64, 16).1.parts[0].dense());
    assert!(!plan(&mha, PageUnified, 64, 16).1.parts[0].dense());
}

/// K and V of different sizes, or layers of different sizes, are copies of their own.
#[test]
fn each_geometry_is_a_part() {
    let (_, both) = plan(&pool(3, &[96, 64], 2, 1), LayoutKind::PageFirst, 2, 4);
    let shapes: Vec<(u64, &[u32])> =
        both.parts.iter().map(|part| (part.strided.run, part.layers.as_slice())).collect();
    assert_eq!(shapes, [(96, &[0, 1, 2][..]), (64, &[0, 1, 2][..])]);
    let (_, none) = plan(&pool(3, &[0, 0], 2, 1), LayoutKind::PageFirst, 2, 4);
    assert_eq!(none.parts, [], "nothing to copy");
}

#[test]
fn width_is_the_widest_that_everything_allows() {
    let width =
        |row: usize| plan(&pool(2, &[row], 1, 1), LayoutKind::PageFirst, 3, 4).1.parts[0].strided.width;
    assert_eq!(
        [16, 24, 20, 22, 33].map(|row| (row, width(row))),
        [(16, 16), (24, 8), (20, 4), (22, 1), (33, 1)]
    );
}

#[test]
fn neighbours_are_spans() {
    let pages = [(1, 4), (2, 5), (3, 7), (9, 8), (8, 9), (u32::MAX, 1), (0, 2)];
    let pages: Vec<(Slot, Slot)> = pages.iter().map(|&(d, h)| (Slot(d), Slot(h))).collect();
    let span = |device, host, pages| Span { device: Slot(device), host: Slot(host), pages };
    let expected =
        [span(1, 4, 2), span(3, 7, 1), span(9, 8, 1), span(8, 9, 1), span(u32::MAX, 1, 1), span(0, 2, 1)];
    assert_eq!(spans(&pages).collect::<Vec<_>>(), expected);
}

/// Every (device address, host address) of a page's bytes, by the descriptor's formula.
fn bytes_of(part: &Part, device: u32, host: u32) -> BTreeMap<u64, u64> {
    let strided = &part.strided;
    let mut pairs = BTreeMap::new();
    for plane in &part.planes {
        let page = |slot: u32, stride: i64| i64::from(slot) * stride;
        let mut places = vec![(page(device, strided.device_page), page(host, strided.host_page))];
        for axis in strided.axes {
            let step = |(d, h): (i64, i64), i: i64| (d + i * axis.device, h + i * axis.host);
            places =
                places.iter().flat_map(|&at| (0..i64::from(axis.extent)).map(move |i| step(at, i))).collect();
        }
        for ((device, host), byte) in places.iter().flat_map(|&at| (0..strided.run).map(move |b| (at, b))) {
            let at = |address: u64, offset: i64| address.checked_add_signed(offset).unwrap() + byte;
            let twice = pairs.insert(at(plane.device, device), at(plane.host, host));
            assert_eq!(twice, None, "a byte is copied twice");
        }
    }
    pairs
}

/// Host strides fall from outer to inner, and no neighbours could be merged.
fn is_normal(part: &Part) -> bool {
    let axes: Vec<Axis> = part.strided.axes.iter().copied().filter(|&axis| axis != Axis::NONE).collect();
    let run = part.strided.run.cast_signed();
    let end = |axis: &Axis, stride: i64| stride * i64::from(axis.extent);
    part.strided.axes[..4 - axes.len()].iter().all(|&axis| axis == Axis::NONE)
        && axes.windows(2).all(|w| w[0].host >= w[1].host)
        && !axes
            .windows(2)
            .any(|w| w[0].device == end(&w[1], w[1].device) && w[0].host == end(&w[1], w[1].host))
        && axes.last().is_none_or(|axis| axis.device != run || axis.host != run)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn descriptors_name_the_bytes_of_the_layout(
        kind in prop::sample::select(LayoutKind::ALL.to_vec()),
        (layers, head_k, head_v) in (1..4u32, 0..9usize, 0..9usize),
        (groups, heads, page) in (1..4u32, 1..4u32, 1..6u32),
        (device, host) in (0..1u32 << 24, 0..1u32 << 24),
    ) {
        let all = (groups * heads) as usize;
        let spec = pool(layers, &[head_k * all, head_v * all], groups * heads, groups);
        // So many slots that offsets go beyond 4 GiB.
        let (layout, plan) = plan(&spec, kind, page, 1 << 24);
        let mut named = BTreeMap::new();
        for part in &plan.parts {
            prop_assert!(is_normal(part), "{part:?}");
            named.extend(bytes_of(part, device, host));
        }
        let mut expected = BTreeMap::new();
        for at in 0..spec.planes.len() {
            let axes = layout.axes(at);
            for (row, head) in (0..axes.rows).flat_map(|row| (0..all).map(move |head| (row, head))) {
                let dense = (device as usize * axes.rows + row) * axes.row_bytes() + head * axes.bytes;
                let strided = axes.address(host as usize, row, head);
                for byte in 0..axes.bytes {
                    let device = DEVICE + ((at as u64) << 40) + (dense + byte) as u64;
                    expected.insert(device, SLAB + (strided + byte) as u64);
                }
            }
        }
        prop_assert_eq!(named, expected);
    }
}
