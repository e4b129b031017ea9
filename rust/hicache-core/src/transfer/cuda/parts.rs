//! What one job copies, in which order: pools' planes by geometry and space of slots, layers in order.
//!
//! Assumes an engine whose host memory is registered. Knows no threads and no progress.
//! On error: the engine's; what was enqueued before it still runs.
#![allow(unsafe_code, reason = "hands addresses to the engine")]

use super::answer::{CudaError, CudaResult};
use super::engine::{Engine, LAYER_SETS, Route};
use super::ffi::Page;
use super::pin::Pinned;
use crate::transfer::Direction;
use crate::transfer::plan::{Part, Plan};
use crate::transfer::strided::PlaneAt;

/// Enqueueing a layer costs about as much host time as the device needs for so many bytes: fewer go together.
const TOGETHER: u64 = 128 << 10;

/// All parts of all pools.
#[derive(Debug)]
pub struct Parts {
    /// Each with whether it is loaded whole, by staging, rather than layer by layer.
    parts: Vec<(Part, bool)>,
    /// Of the model.
    pub layers: u32,
}

/// The events that a load uses.
pub fn set_of(ticket: u64) -> u32 {
    u32::try_from(ticket % LAYER_SETS).unwrap_or_default()
}

impl Parts {
    /// Parts of several pools are divided by what is pinned: the engine's copies are within one region. Those that
    /// are dense within a page, but not all in one place (K and V apart), are divided so that they can be staged.
    ///
    /// # Errors
    /// A plan that the engine can't carry out.
    pub fn new(engine: &Engine, plan: &Plan, pinned: &[Pinned], layers: u32) -> CudaResult<Self> {
        let mut parts = Vec::new();
        for part in &plan.parts.iter().flat_map(|part| by_region(part, pinned)).collect::<Vec<_>>() {
            if part.layers.last().is_some_and(|&last| last >= layers) {
                return Err(CudaError::Argument("layers"));
            }
            let staged = |part: &Part| engine.stages(Direction::In, &part.strided, &part.planes);
            let places = by_place(part);
            if places.iter().map(staged).collect::<CudaResult<Vec<bool>>>()?.contains(&true) {
                parts.extend(
                    places
                        .into_iter()
                        .map(|part| Ok((part.clone(), staged(&part)?)))
                        .collect::<CudaResult<Vec<_>>>()?,
                );
            } else {
                parts.push((part.clone(), false));
            }
        }
        Ok(Self { parts, layers })
    }

    /// First what is staged, with all layers at once; then the rest, some layers at a time.
    ///
    /// # Errors
    /// The engine's.
    ///
    /// # Safety
    /// As for [`Engine::enqueue`].
    pub unsafe fn load(&self, engine: &mut Engine, ticket: u64, pages: &[Vec<Page>]) -> CudaResult<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy(engine, Direction::In, pages, 0..self.layers, |part| part.1) }?;
        let mut from = 0;
        while from < self.layers {
            let to = self.together(from, pages);
            // SAFETY: the caller's promise.
            unsafe { self.copy(engine, Direction::In, pages, from..to, |part| !part.1) }?;
            (from..to).try_for_each(|layer| engine.record_layer(set_of(ticket), layer))?;
            from = to;
        }
        Ok(())
    }

    /// Where a group of layers ends that starts at `from` and has enough bytes to be worth its calls.
    fn together(&self, from: u32, pages: &[Vec<Page>]) -> u32 {
        let bytes = |layer: u32| -> u64 {
            let planes = |part: &Part| range(part, layer..layer + 1).len() as u64;
            let of_part = |part: &Part| planes(part) * part.page_bytes() * of(pages, part).len() as u64;
            self.parts.iter().map(|(part, _)| of_part(part)).sum()
        };
        let (mut to, mut sum) = (from, 0);
        while to < self.layers && sum < TOGETHER {
            sum += bytes(to);
            to += 1;
        }
        to
    }

    /// All layers together.
    ///
    /// # Errors
    /// The engine's.
    ///
    /// # Safety
    /// As for [`Engine::enqueue`].
    pub unsafe fn back_up(&self, engine: &mut Engine, pages: &[Vec<Page>]) -> CudaResult<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy(engine, Direction::Out, pages, 0..self.layers, |_| true) }
    }

    unsafe fn copy(
        &self,
        engine: &mut Engine,
        direction: Direction,
        pages: &[Vec<Page>],
        layers: std::ops::Range<u32>,
        which: impl Fn(&(Part, bool)) -> bool,
    ) -> CudaResult<()> {
        for (part, _) in self.parts.iter().filter(|part| which(part)) {
            let (planes, pages) = (&part.planes[range(part, layers.clone())], of(pages, part));
            if !planes.is_empty() && !pages.is_empty() {
                // SAFETY: the caller's promise.
                unsafe { engine.enqueue(direction, &part.strided, planes, pages, Route::Auto) }?;
            }
        }
        Ok(())
    }
}

/// The pages of a part's space, of a list for each space.
fn of<'a>(pages: &'a [Vec<Page>], part: &Part) -> &'a [Page] {
    pages.get(part.space as usize).map_or(&[], Vec::as_slice)
}

/// The planes of a part that a range of layers reads.
fn range(part: &Part, layers: std::ops::Range<u32>) -> std::ops::Range<usize> {
    let from = part.layers.partition_point(|&layer| layer < layers.start);
    from..part.layers.partition_point(|&layer| layer < layers.end)
}

/// The same planes, divided by the pinned memory that they are in.
fn by_region(part: &Part, pinned: &[Pinned]) -> Vec<Part> {
    let region = |plane: &PlaneAt| {
        let inside = |region: &Pinned| {
            let start = region.base.addr() as u64;
            plane.host.checked_sub(start).is_some_and(|at| at < region.bytes())
        };
        pinned.iter().position(inside)
    };
    divided(part, |first, plane| region(first) == region(plane))
}

/// The same planes, divided where two of them are further apart on the host than one page is long.
fn by_place(part: &Part) -> Vec<Part> {
    divided(part, |first, plane| plane.host - first.host < part.strided.host_page.unsigned_abs())
}

/// The same planes in order of their host addresses, divided where one doesn't go with the first of its group; each
/// group in order of layer again.
fn divided(part: &Part, together: impl Fn(&PlaneAt, &PlaneAt) -> bool) -> Vec<Part> {
    let mut sorted: Vec<_> = part.planes.iter().copied().zip(part.layers.iter().copied()).collect();
    sorted.sort_by_key(|(plane, _)| plane.host);
    let mut places: Vec<Vec<(PlaneAt, u32)>> = Vec::new();
    for plane in sorted {
        let same = |place: &&mut Vec<(PlaneAt, u32)>| together(&place[0].0, &plane.0);
        match places.last_mut().filter(same) {
            Some(place) => place.push(plane),
            None => places.push(vec![plane]),
        }
    }
    let of_place = |mut place: Vec<(PlaneAt, u32)>| {
        place.sort_by_key(|&(_, layer)| layer);
        let mut of_place = part.clone();
        (of_place.planes, of_place.layers) = place.into_iter().unzip();
        of_place
    };
    places.into_iter().map(of_place).collect()
}
