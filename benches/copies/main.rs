//! Conversion between device rows and the host's layouts on the CPU, beside flat copies of the same bytes.
//!
//! `cargo bench --bench copies`; a part of a name selects, as in `-- "page_head in"`. Everything is measured
//! in turns in one run, medians of rounds. `flat` copies one region
//! to another past the caches, `memcpy` with memcpy; `naive` is one memcpy per run in the target's order. All
//! use the same number of threads, which wait for work as the copier's do. Shares are of the flat copies
//! right before and after; `bests` is the fastest round over the fastest flat copy, which a machine that others
//! use disturbs less. The goal is 90 % (60 % for `page_head in`).
//! `scattered` in a name: pages are in random slots on both sides, else in order. `layers`: the layers of a
//! load arrive one after another although a layer's share of a page is in pieces.
#![allow(missing_docs, clippy::unwrap_used, unsafe_code)]
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
#![allow(clippy::cast_possible_wrap, clippy::cast_sign_loss)]

mod flat;

use flat::{Crew, Work, flat, memcpy, past_caches};
use hicache_core::host::{Layout, LayoutKind, Slab};
use hicache_core::ids::Slot;
use hicache_core::page::PageSize;
use hicache_core::pool::{Plane, PoolSpec};
use hicache_core::transfer::cpu::{Arrival, CpuCopier, CpuOptions};
use hicache_core::transfer::plan::{Plan, PlanePair};
use hicache_core::transfer::{Copier, CopyJob, Direction};
use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PAGE: u32 = 64;
const BYTES: usize = 192 << 20;
const ROUNDS: usize = 25;

struct Case {
    name: String,
    copier: CpuCopier,
    job: CopyJob,
    /// (source, target, bytes), in the target's order.
    runs: Arc<Vec<(usize, usize, usize)>>,
    bytes: usize,
    _device: Arc<Slab>,
}

/// A pool's planes, one behind the other in one region.
fn planes(spec: &PoolSpec, slots: usize) -> (Arc<Slab>, Vec<u64>) {
    let sizes: Vec<usize> = spec.planes.iter().map(|p| p.bytes_per_token * PAGE as usize * slots).collect();
    let slab = Arc::new(touched(sizes.iter().sum()));
    let start = slab.address(0..0).unwrap().expose_provenance() as u64;
    let offset = |at: usize| sizes[..at].iter().sum::<usize>() as u64;
    let addresses = (0..sizes.len()).map(|at| start + offset(at)).collect();
    (slab, addresses)
}

fn touched(bytes: usize) -> Slab {
    let slab = Slab::new(bytes).unwrap();
    // SAFETY: the whole slab, which nobody else has.
    unsafe { slab.address(0..bytes).unwrap().write_bytes(1, bytes) };
    slab
}

/// Numbers below `count` in an order that nothing foresees.
fn shuffled(count: u32, mut seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    for at in (1..order.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(at, (seed >> 33) as usize % (at + 1));
    }
    order
}

impl Case {
    fn new(
        pool: &(&str, PoolSpec),
        kind: LayoutKind,
        direction: Direction,
        scattered: bool,
        options: CpuOptions,
    ) -> Self {
        let size = PageSize::new(PAGE).unwrap();
        let slots = BYTES.div_ceil(pool.1.page_bytes(size));
        let layout = Layout::new(kind, &pool.1, size, slots as u32).unwrap();
        let (device, addresses) = planes(&pool.1, slots);
        let host = touched(layout.bytes());
        let start = host.address(0..0).unwrap().expose_provenance() as u64;
        let pair = |(at, plane): (usize, &Plane)| {
            PlanePair::rows(plane.layer, addresses[at], start, layout.axes(at))
        };
        let pairs: Vec<PlanePair> = pool.1.planes.iter().enumerate().map(pair).collect();
        let plan = Plan::new(&pairs);
        let memory: Arc<dyn Any + Send + Sync> = Arc::new(host);
        // SAFETY: the case keeps `device`, and the copier the host's memory.
        let copier = unsafe { CpuCopier::new(&plan, &memory, options, [0; 2]) }.unwrap();
        let order = |seed| if scattered { shuffled(slots as u32, seed) } else { (0..slots as u32).collect() };
        let (from, to) = (order(3), order(4));
        let pages: Vec<(Slot, Slot)> = from.iter().zip(to).map(|(&d, h)| (Slot(d), Slot(h))).collect();
        let runs = Arc::new(runs(&plan, direction, &pages));
        let way = if direction == Direction::In { "in" } else { "out" };
        let layers = if options.arrival == Arrival::Layers { " layers" } else { "" };
        let places = if scattered { " scattered" } else { "" };
        let name = format!("{} {} {way}{layers}{places}", pool.0, kind.name());
        let bytes = slots * pool.1.page_bytes(size);
        let job = CopyJob::of(0, direction, vec![pages]);
        Self { name, copier, job, runs, bytes, _device: device }
    }

    fn ours(&mut self) -> f64 {
        self.job.ticket += 1;
        let (start, job) = (Instant::now(), self.job.clone());
        self.copier.submit(job);
        let progress = self.copier.progress(self.job.direction);
        assert!(progress.wait(self.job.ticket + 1, 0, Duration::from_secs(60)));
        start.elapsed().as_secs_f64()
    }

    /// Its runs one by one.
    fn naive(&self, threads: usize) -> Work {
        let runs = Arc::clone(&self.runs);
        Arc::new(move |at| {
            for &(from, to, bytes) in runs.chunks(runs.len().div_ceil(threads)).nth(at).unwrap_or_default() {
                // SAFETY: runs of the case's own memory; threads have different ones.
                unsafe { copy(from, to, bytes) };
            }
        })
    }
}

/// # Safety
/// As for `copy_nonoverlapping`.
unsafe fn copy(from: usize, to: usize, bytes: usize) {
    let (from, to) =
        (std::ptr::with_exposed_provenance::<u8>(from), std::ptr::with_exposed_provenance_mut(to));
    // SAFETY: the caller's.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}

/// Every run of every page in the order of the target's addresses.
fn runs(plan: &Plan, direction: Direction, pages: &[(Slot, Slot)]) -> Vec<(usize, usize, usize)> {
    let mut runs = Vec::new();
    for part in &plan.parts {
        let strided = &part.strided;
        for (plane, &(device, host)) in
            part.planes.iter().flat_map(|p| pages.iter().map(move |page| (p, page)))
        {
            let device = plane.device as i64 + i64::from(device.0) * strided.device_page;
            let host = plane.host as i64 + i64::from(host.0) * strided.host_page;
            let mut places = vec![(device, host)];
            for axis in strided.axes {
                let step = |(d, h): (i64, i64), i: i64| (d + i * axis.device, h + i * axis.host);
                let all = |&at: &(i64, i64)| (0..i64::from(axis.extent)).map(move |i| step(at, i));
                places = places.iter().flat_map(all).collect();
            }
            runs.extend(places.into_iter().map(|(device, host)| match direction {
                Direction::In => (host as usize, device as usize, strided.run as usize),
                Direction::Out => (device as usize, host as usize, strided.run as usize),
            }));
        }
    }
    runs.sort_unstable_by_key(|run| run.1);
    runs
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(case: &mut Case, regions: &Arc<[Slab; 2]>, threads: usize) {
    let crew = Crew::new(threads);
    let nt = flat(regions, threads, case.bytes, past_caches);
    let others = [flat(regions, threads, case.bytes, memcpy), case.naive(threads)];
    // Rates, and shares of the flat copies right before and after.
    let (mut rates, mut shares): ([Vec<f64>; 2], [Vec<f64>; 3]) = Default::default();
    let mut before = crew.time(&nt);
    for _ in 0..ROUNDS {
        let ours = case.ours();
        let after = crew.time(&nt);
        let beside = f64::midpoint(before, after);
        let others = others.each_ref().map(|work| crew.time(work));
        before = crew.time(&nt);
        rates[0].push(case.bytes as f64 / ours / 1e9);
        rates[1].push(case.bytes as f64 / beside / 1e9);
        let times = [(ours, beside), (others[0], after), (others[1], before)];
        shares.iter_mut().zip(times).for_each(|(share, (time, beside))| share.push(100.0 * beside / time));
    }
    let best = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
    let bests = 100.0 * best(&rates[0]) / best(&rates[1]);
    let ([ours, nt], [share, plain, naive]) = (rates.map(median), shares.map(median));
    let others = format!("{plain:4.0} %  {naive:4.0} %");
    println!("{:48} {threads}  {ours:6.1} {nt:6.1}   {share:4.0} %  {bests:4.0} %  {others}", case.name);
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let pool = |layers: u32, roles: u32, row: usize, heads, groups| {
        let of = |layer| (0..roles).map(move |role| Plane { layer, role, bytes_per_token: row });
        let spec = PoolSpec::new("kv", (0..layers).flat_map(of).collect()).unwrap();
        spec.with_heads(heads, groups).unwrap()
    };
    let pools = [
        ("mha 60x8x128", pool(60, 2, 2048, 8, 1)),
        ("mha 60x8x128 G=8", pool(60, 2, 2048, 8, 8)),
        ("mla 61x576", pool(61, 1, 1152, 1, 1)),
    ];
    let regions = Arc::new([0; 2].map(|_| touched(BYTES + (32 << 20))));
    println!("{:43} threads  GB/s   flat   share   bests   memcpy  naive", "");
    for (pool, kind) in pools.iter().flat_map(|pool| LayoutKind::ALL.map(|kind| (pool, kind))) {
        let grouped = pool.1.head_groups > 1;
        if grouped && kind != LayoutKind::PageUnified {
            continue;
        }
        let in_pieces = grouped || matches!(kind, LayoutKind::PageFirst | LayoutKind::PageHead);
        let mut ways = vec![
            (Direction::Out, Arrival::Auto, false),
            (Direction::Out, Arrival::Auto, true),
            (Direction::In, Arrival::Auto, false),
            (Direction::In, Arrival::Auto, true),
        ];
        ways.extend(in_pieces.then_some((Direction::In, Arrival::Layers, false)));
        for ((direction, arrival, scattered), threads) in
            ways.into_iter().flat_map(|way| [1, 2].map(|n| (way, n)))
        {
            let options = CpuOptions { threads, arrival, ..CpuOptions::default() };
            let mut case = Case::new(pool, kind, direction, scattered, options);
            if wanted.iter().all(|part| case.name.contains(part.as_str())) {
                measure(&mut case, &regions, threads);
            }
        }
    }
}
