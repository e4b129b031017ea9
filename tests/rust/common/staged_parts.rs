//! Buffer-only caches for models with windows and states, over stores that a cache in the usual mode has filled.

use super::mixed::Mixed;
use super::models::{STATE, Shape, WINDOW};
use super::store::FaultStore;
use hicache_core::HostMode;
use hicache_core::hash::{Digest, chain, of_part};
use hicache_core::ids::{HitId, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::policy::Writing;
use hicache_core::pool::Needs;
use std::sync::Arc;

/// A window of two pages, and a state.
pub const BOTH: [(Needs, u32, u32); 2] = [(WINDOW, 16, 8), (STATE, 8, 4)];

pub fn pages(range: std::ops::Range<i32>) -> Vec<i32> {
    range.flat_map(|page| [2 * page, 2 * page + 1]).collect()
}

/// The key of a page, or of what a part has of it.
pub fn key(tokens: &[i32], page: usize, part: Option<&str>) -> Digest {
    let digest = chain(None, Tokens::I32(tokens), PageSize::new(2).unwrap())[page];
    part.map_or(digest, |part| of_part(&digest, part))
}

/// A store that a cache in the usual mode filled with these paths, in chunks of two pages.
pub fn filled(paths: &[&[i32]]) -> Arc<FaultStore> {
    let store = Arc::new(FaultStore::default());
    let roomy = [(WINDOW, 32, 64), (STATE, 16, 32)];
    let mut rig = Mixed::over(&Shape { device: 64, host: 128, ..Shape::of(&roomy) }, Some(&store));
    paths.iter().for_each(|tokens| _ = rig.serve(tokens, 2));
    rig.drained();
    store
}

pub fn buffer(host: u32, parts: &[(Needs, u32, u32)]) -> Shape {
    Shape { host, mode: HostMode::BufferOnly, writing: Writing::default(), ..Shape::of(parts) }
}

pub fn fresh(store: &Arc<FaultStore>, host: u32) -> Mixed {
    Mixed::over(&buffer(host, &BOTH), Some(store))
}

pub fn reads(rig: &Mixed) -> usize {
    rig.cache.staged()[1]
}

/// Loads a hit and compares every stamp; how many pages it has.
pub fn loaded(rig: &mut Mixed, hit: HitId, tokens: &[i32]) -> u32 {
    let view = rig.load(hit);
    rig.land();
    assert_eq!(rig.wrong(hit, tokens, true), None);
    view.device
}

pub fn nothing_left(rig: &mut Mixed) {
    assert_eq!(rig.cache.tree().resident(Tier::Host), 0);
    rig.drained();
    assert_eq!(rig.cache.staged(), [0, 0]);
}
