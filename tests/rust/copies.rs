//! The CPU copier on random geometries: every layout to every other one, bit for bit, and nothing beside it.
//! Faults that are planted in the plan must be seen by the same checks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::Seeded;
use common::travel::{Far, Fault, Travel};
use hicache_core::host::LayoutKind;
use hicache_core::page::PageSize;
use hicache_core::pool::{Needs, Plane, PoolSpec, Rows, SlotsOf};
use hicache_core::transfer::Direction;
use hicache_core::transfer::cpu::{Arrival, CpuOptions};
use hicache_core::transfer::plan::Plan;
use proptest::prelude::*;

/// Under Miri everything takes a thousand times as long.
const CASES: u32 = if cfg!(miri) { 2 } else { 400 };

/// Pages as (device, host) slots: strangers, and neighbours that become one run.
const OUT: [(u32, u32); 4] = [(5, 0), (1, 3), (2, 4), (3, 1)];
const IN: [(u32, u32); 4] = [(0, 2), (4, 5), (3, 0), (5, 1)];

/// A pool: per layer the head sizes of its tensors, and how heads are grouped.
#[derive(Clone, Debug)]
struct Geometry {
    layers: Vec<Vec<usize>>,
    groups: u32,
    heads_per_group: u32,
    page: u32,
    rows: Rows,
}

impl Geometry {
    fn spec(&self) -> PoolSpec {
        let heads = self.groups * self.heads_per_group;
        let bytes = |head: usize| head * heads as usize;
        let layer = |(layer, heads): (u32, &Vec<usize>)| -> Vec<Plane> {
            let plane = |(role, &head)| Plane { layer, role, bytes_per_token: bytes(head) };
            (0..).zip(heads).map(plane).collect()
        };
        let planes = (0..).zip(&self.layers).flat_map(layer).collect();
        let spec = PoolSpec::new("kv", planes).unwrap().with_heads(heads, self.groups).unwrap();
        spec.with(self.rows, SlotsOf::First, Needs::All)
    }
}

fn head() -> impl Strategy<Value = usize> {
    prop_oneof![2 => 1..90usize, 1 => Just(64usize), 1 => Just(128usize), 1 => Just(0usize)]
}

fn geometry() -> impl Strategy<Value = Geometry> {
    let uniform = (1..5usize, prop::collection::vec(head(), 1..3)).prop_map(|(n, layer)| vec![layer; n]);
    let ragged = prop::collection::vec(prop::collection::vec(head(), 1..4), 1..4);
    let rows = prop_oneof![4 => Just(Rows::Token), 1 => Just(Rows::Page)];
    (prop_oneof![2 => uniform, 1 => ragged], 1..4u32, 1..4u32, 1..8u32, rows).prop_map(
        |(layers, groups, heads_per_group, page, rows)| Geometry {
            layers,
            groups,
            heads_per_group,
            page,
            rows,
        },
    )
}

fn options() -> impl Strategy<Value = CpuOptions> {
    let arrival = prop_oneof![Just(Arrival::Auto), Just(Arrival::Layers), Just(Arrival::Together)];
    let past_caches_from = prop_oneof![3 => Just(0), 1 => Just(usize::MAX)];
    (1..4usize, arrival, past_caches_from).prop_map(|(threads, arrival, past_caches_from)| CpuOptions {
        threads,
        arrival,
        past_caches_from,
    })
}

fn sound(_: &mut Plan) {}

/// Device → host in one layout → what storage sees → host in another one → device. False if anything is
/// not where it belongs, or anything else was touched.
fn travels(
    geometry: &Geometry,
    kinds: [LayoutKind; 2],
    options: CpuOptions,
    seed: u64,
    fault: Fault,
) -> bool {
    let (spec, page) = (geometry.spec(), PageSize::new(geometry.page).unwrap());
    let mut seed = Seeded(seed);
    let [mut out, mut back] = kinds.map(|kind| Travel::new(&spec, page, kind, options, fault));
    let pages: Vec<Vec<u8>> = OUT.iter().map(|&(device, _)| out.compute(device, &mut seed)).collect();
    out.copy(Direction::Out, &OUT);
    let stored = OUT.map(|(_, host)| out.payload(host));
    for ((_, host), page) in IN.iter().zip(&stored) {
        back.fill(*host, page);
    }
    back.copy(Direction::In, &IN);
    stored.iter().eq(&pages)
        && IN.iter().zip(&pages).all(|(&(device, _), page)| back.device_page(device) == *page)
        && out.untouched_but(&OUT.map(|(device, _)| device), &OUT.map(|(_, host)| host))
        && back.untouched_but(&IN.map(|(device, _)| device), &IN.map(|(_, host)| host))
}

fn kinds() -> impl Strategy<Value = [LayoutKind; 2]> {
    let kind = || prop::sample::select(LayoutKind::ALL.to_vec());
    (kind(), kind()).prop_map(|(a, b)| [a, b])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_geometry_travels_through_any_two_layouts(
        geometry in geometry(), kinds in kinds(), options in options(), seed in any::<u64>(),
    ) {
        prop_assert!(travels(&geometry, kinds, options, seed, sound));
    }
}

/// Every pair of layouts, on the geometries that are easy to get wrong.
#[test]
fn odd_geometries_travel_through_every_pair_of_layouts() {
    let geometry = |layers, [groups, heads_per_group]: [u32; 2], page| Geometry {
        layers,
        groups,
        heads_per_group,
        page,
        rows: Rows::Token,
    };
    let cases = [
        // One head; odd sizes; 24 bytes a page, padded to 32.
        geometry(vec![vec![66, 66]; 3], [1, 1], 5),
        geometry(vec![vec![6, 6]; 2], [1, 1], 1),
        // K and V of different sizes, three heads a group; a latent; whole lines.
        geometry(vec![vec![33, 17]; 2], [2, 3], 3),
        geometry(vec![vec![1152]; 3], [1, 1], 4),
        geometry(vec![vec![256, 256]; 4], [2, 4], 8),
        // So many layers that some are copied together.
        geometry(vec![vec![40]; 70], [1, 1], 2),
        // Layers of different sizes, and one that has no V.
        geometry(vec![vec![64, 64], vec![128], vec![32, 64]], [1, 2], 3),
    ];
    for geometry in cases.iter().take(if cfg!(miri) { 1 } else { usize::MAX }) {
        let pairs = LayoutKind::ALL.into_iter().flat_map(|a| LayoutKind::ALL.map(|b| (a, b)));
        for (from, to) in pairs.take(if cfg!(miri) { 2 } else { usize::MAX }) {
            for arrival in [Arrival::Layers, Arrival::Together] {
                let options = CpuOptions { threads: 2, arrival, past_caches_from: 0 };
                assert!(travels(geometry, [from, to], options, 7, sound), "{geometry:?} {from:?} {to:?}");
            }
        }
    }
}

/// What can go wrong in a plan, each without leaving the memory.
const FAULTS: [(&str, Fault); 8] = [
    ("a plane is forgotten", |plan| plan.parts[0].planes.truncate(3)),
    ("two planes are exchanged on the host", |plan| {
        let planes = &mut plan.parts[0].planes;
        (planes[0].host, planes[1].host) = (planes[1].host, planes[0].host);
    }),
    ("K is read for V", |plan| plan.parts[0].planes[1].device = plan.parts[0].planes[0].device),
    ("the last byte of a run is left out", |plan| plan.parts[0].strided.run -= 1),
    ("the last index of an axis is left out", |plan| plan.parts[0].strided.axes[3].extent -= 1),
    ("an axis stands still on the device", |plan| plan.parts[0].strided.axes[3].device = 0),
    ("a page lands on its neighbour's end", |plan| {
        plan.parts[0].planes.iter_mut().for_each(|plane| plane.host += 1);
        plan.parts[0].strided.run -= 1;
    }),
    ("every slot is slot 0 on the host", |plan| plan.parts[0].strided.host_page = 0),
];

#[test]
fn planted_faults_are_seen() {
    let geometry =
        Geometry { layers: vec![vec![64, 64]; 2], groups: 1, heads_per_group: 4, page: 3, rows: Rows::Token };
    let kinds = [LayoutKind::PageHead, LayoutKind::PageFirst];
    for past_caches_from in [0, usize::MAX] {
        let options = CpuOptions { threads: 1, arrival: Arrival::Auto, past_caches_from };
        assert!(travels(&geometry, kinds, options, 3, sound));
        for (what, fault) in FAULTS {
            assert!(!travels(&geometry, kinds, options, 3, fault), "not seen: {what}");
        }
    }
}

/// Slots whose bytes begin beyond 4 GiB on both sides. Only the pages that are used cost memory.
#[test]
#[cfg_attr(miri, ignore = "ten gigabytes")]
fn pages_beyond_four_gigabytes_arrive() {
    let spec = PoolSpec::new("kv", vec![Plane { layer: 0, role: 0, bytes_per_token: 1 << 20 }]).unwrap();
    for kind in [LayoutKind::LayerFirst, LayoutKind::PageUnified] {
        let mut far = Far::new(&spec, kind);
        let page = far.compute(5100);
        far.copy(Direction::Out, (5100, 5110));
        far.copy(Direction::In, (5105, 5110));
        assert_eq!(far.device_page(5105), page);
    }
}

/// A run one line too long, into the last slot of a device tensor.
fn overflows(past_caches_from: usize) {
    let one = Geometry { layers: vec![vec![64]], groups: 1, heads_per_group: 1, page: 1, rows: Rows::Token };
    let options = CpuOptions { threads: 1, arrival: Arrival::Auto, past_caches_from };
    let longer: Fault = |plan| plan.parts[0].strided.run += 64;
    let page = PageSize::new(1).unwrap();
    let mut travel = Travel::new(&one.spec(), page, LayoutKind::PageUnified, options, longer);
    travel.copy(Direction::In, &[(5, 0)]);
}

#[test]
#[ignore = "writes beyond its memory: `make sanitize` runs it and must notice"]
fn an_overflow_through_the_caches() {
    overflows(usize::MAX);
}

#[test]
#[ignore = "writes beyond its memory: `make sanitize` runs it and must notice"]
fn an_overflow_past_the_caches() {
    overflows(0);
}
