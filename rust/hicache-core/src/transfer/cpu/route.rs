//! In which order the CPU walks a plan: the source's. Reading in order is what a CPU is fast at; writing whole
//! lines anywhere costs it nothing.
//!
//! Pure arithmetic on addresses. On error: nothing here fails.

use super::nontemporal::Level;
use crate::error::{Error, Result, argument};
use crate::transfer::Direction;
use crate::transfer::plan::{Part, Plan};
use crate::transfer::strided::Axis;

/// What is read in one piece at the full rate.
const STEP_BYTES: usize = 192 << 10;

/// When the layers of a load arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrival {
    /// One after another where a layer's share of a host page is one run; else together, for a layer at a
    /// time would read the host in pieces, at half the rate.
    #[default]
    Auto,
    /// One after another, whatever it costs.
    Layers,
    /// Together, at the end.
    Together,
}

impl std::str::FromStr for Arrival {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "auto" => Ok(Self::Auto),
            "layers" => Ok(Self::Layers),
            "together" => Ok(Self::Together),
            _ => argument("arrival", format!("unknown value {name:?}: use auto, layers or together")),
        }
    }
}

/// Copies of some planes: for every page, levels of runs.
#[derive(Clone, Debug)]
pub(super) struct Nest {
    /// The space whose pages are copied.
    pub space: u32,
    /// Address of slot 0 at the source.
    pub from: usize,
    /// And at the target.
    pub to: usize,
    /// From one slot to the next at the source.
    pub from_page: usize,
    /// And at the target.
    pub to_page: usize,
    /// Outermost first; at least one.
    pub levels: Vec<Level>,
    pub run: usize,
    /// Of one page, all runs.
    pub bytes: usize,
    /// Neighbouring pages are one run.
    pub dense: bool,
}

/// What is copied before some layers count as there.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    pub nests: Vec<Nest>,
    /// Layers that are there after it, counted from 0.
    pub layers: u32,
}

/// All steps of a direction, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Route {
    pub steps: Vec<Step>,
}

impl Route {
    pub fn new(plan: &Plan, direction: Direction, arrival: Arrival) -> Self {
        let mut layers: Vec<u32> = plan.parts.iter().flat_map(|part| part.layers.iter().copied()).collect();
        layers.sort_unstable();
        layers.dedup();
        let by_layer = match (direction, arrival) {
            // A backup is waited for as a whole: its pages are read plane by plane, as the device has them.
            (Direction::Out, _) => true,
            (Direction::In, Arrival::Auto) => !plan.parts.iter().any(layers_in_pieces),
            (Direction::In, arrival) => arrival == Arrival::Layers,
        };
        let most = if by_layer { layers_a_step(plan, layers.len()) } else { layers.len().max(1) };
        let steps = layers.chunks(most).filter_map(|some| {
            let (first, last) = (some.first()?, some.last()?);
            Some((*first..last + 1, last + 1))
        });
        let step = |(chosen, layers): (std::ops::Range<u32>, u32)| {
            let nests = plan.parts.iter().flat_map(|part| nests(part, direction, &chosen)).collect();
            Step { nests, layers }
        };
        Self { steps: steps.map(step).collect() }
    }
}

/// How many layers are copied together although they arrive one after another: pieces of less than 192 KiB
/// cost a tenth of the rate where the next layer's lies right behind. At most a sixteenth of all layers.
fn layers_a_step(plan: &Plan, layers: usize) -> usize {
    let pieces: Option<Vec<usize>> = plan.parts.iter().map(piece_of_a_layer).collect();
    let Some(piece) = pieces.and_then(|pieces| pieces.into_iter().min()) else { return 1 };
    STEP_BYTES.div_ceil(piece.max(1)).min(layers / 16).max(1)
}

/// Bytes that lie together of a layer's share of a host page, where what lies behind them is the next layer's; of
/// several such rows of layers (K here, V there) the smallest. None where layers don't follow each other.
fn piece_of_a_layer(part: &Part) -> Option<usize> {
    let mut planes: Vec<(u64, u32)> =
        part.planes.iter().zip(&part.layers).map(|(plane, &layer)| (plane.host, layer)).collect();
    planes.sort_unstable();
    let behind = |a: &(u64, u32), b: &(u64, u32)| a.0 + part.page_bytes() == b.0 && a.1 <= b.1;
    let piece = |row: &[(u64, u32)]| {
        let layers = 1 + row.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
        let bytes = usize::try_from(part.page_bytes()).unwrap_or(usize::MAX).saturating_mul(row.len());
        (layers > 1).then_some(bytes / layers)
    };
    planes.chunk_by(behind).map(piece).min()?
}

/// Whether layers lie inside of an axis of the host's pages, so that one layer's share of a page is in pieces.
fn layers_in_pieces(part: &Part) -> bool {
    let mut hosts: Vec<(u64, u32)> =
        part.planes.iter().zip(&part.layers).map(|(plane, &layer)| (plane.host, layer)).collect();
    hosts.sort_unstable();
    let widest = part.strided.axes.iter().map(|axis| axis.host.unsigned_abs()).max().unwrap_or(0);
    hosts.windows(2).any(|pair| pair[0].1 != pair[1].1 && pair[1].0 - pair[0].0 < widest)
}

/// Nests of those planes of a part whose layers are chosen. Planes at equal distances within a page of the
/// source become a level of one nest.
#[expect(clippy::cast_possible_truncation, reason = "addresses of this process")]
fn nests(part: &Part, direction: Direction, chosen: &std::ops::Range<u32>) -> Vec<Nest> {
    let sides = |device: u64, host: u64| match direction {
        Direction::In => (host as usize, device as usize),
        Direction::Out => (device as usize, host as usize),
    };
    let mut all: Vec<(usize, usize)> = part
        .planes
        .iter()
        .zip(&part.layers)
        .filter(|(_, layer)| chosen.contains(layer))
        .map(|(plane, _)| sides(plane.device, plane.host))
        .collect();
    all.sort_unstable();
    let strided = &part.strided;
    let (from_page, to_page) = sides(strided.device_page.cast_unsigned(), strided.host_page.cast_unsigned());
    let mut nests = Vec::new();
    let mut rest = all.as_slice();
    while let Some(&(from, to)) = rest.first() {
        let (count, distance) = evenly(rest, from_page);
        let mut levels: Vec<(usize, Level)> =
            strided.axes.iter().filter(|axis| axis.extent > 1).map(|axis| level(axis, &sides)).collect();
        if count > 1 {
            let places = rest[..count].iter().map(|&(f, t)| (f - from, t.wrapping_sub(to))).collect();
            levels.push((distance, Level::Each(places)));
        }
        levels.sort_by_key(|level| std::cmp::Reverse(level.0));
        let mut levels: Vec<Level> = levels.into_iter().map(|(_, level)| level).collect();
        if levels.is_empty() {
            levels.push(Level::Even { extent: 1, from: 0, to: 0 });
        }
        let bytes = part.page_bytes() as usize * count;
        let dense = count == 1 && part.dense();
        let (space, run) = (part.space, strided.run as usize);
        nests.push(Nest { space, from, to, from_page, to_page, levels, run, bytes, dense });
        rest = &rest[count..];
    }
    nests
}

fn level(axis: &Axis, sides: &impl Fn(u64, u64) -> (usize, usize)) -> (usize, Level) {
    let (from, to) = sides(axis.device.cast_unsigned(), axis.host.cast_unsigned());
    (from, Level::Even { extent: axis.extent as usize, from, to })
}

/// How many leading planes lie at equal distances of less than a page, and the distance.
fn evenly(planes: &[(usize, usize)], page: usize) -> (usize, usize) {
    let distance = planes.get(1).map_or(usize::MAX, |second| second.0 - planes[0].0);
    if distance >= page {
        return (1, 0);
    }
    let even = planes.windows(2).take_while(|pair| pair[1].0 - pair[0].0 == distance).count();
    (even + 1, distance)
}
