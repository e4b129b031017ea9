//! Buffer-only caches over stores that a cache in the usual mode has filled.

use super::rig::{Rig, Shape};
use super::store::FaultStore;
use super::stored::filled;
use hicache_core::HostMode;
use hicache_core::hash::{Digest, chain};
use hicache_core::ids::{HitId, Tier};
use hicache_core::page::{PageSize, Tokens};
use hicache_core::policy::Writing;
use std::sync::Arc;

/// So many pages on the device and in staging, of one token each.
pub fn shape(device: u32, host: u32) -> Shape {
    Shape {
        page: 1,
        device,
        host,
        mode: HostMode::BufferOnly,
        writing: Writing::default(),
        ..Shape::default()
    }
}

/// A store that holds these prompts.
pub fn store_of(prompts: &[Vec<i32>]) -> Arc<FaultStore> {
    filled(Shape { page: 1, ..Shape::default() }, prompts)
}

/// It, and a fresh cache over it.
pub fn over(shape: Shape, prompts: &[Vec<i32>]) -> (Rig, Arc<FaultStore>) {
    let store = store_of(prompts);
    (Rig::new(shape, Some(&store)), store)
}

/// Slots that reads have: under way, for hits that wait, and for loads.
pub fn reads(rig: &Rig) -> usize {
    rig.cache.staged()[1]
}

/// A hit that asked for what storage has.
pub fn asking(rig: &mut Rig, tokens: &[i32], at: f64) -> HitId {
    let hit = rig.find(tokens);
    assert!(rig.cache.prefetch(hit).unwrap());
    rig.poll(at);
    hit
}

/// Loads a hit, waits for its bytes, and compares every stamp. How many pages it has.
pub fn loaded(rig: &mut Rig, hit: HitId, tokens: &[i32]) -> u32 {
    let view = rig.load(hit);
    rig.until("its load", |rig| rig.cache.copying() == 0);
    rig.verify(hit, tokens);
    view.device
}

/// Nothing is left of anything: no page was ever the host's.
pub fn nothing_left(rig: &mut Rig) {
    assert_eq!(rig.cache.tree().resident(Tier::Host), 0);
    rig.drained();
    assert_eq!(rig.cache.staged(), [0, 0]);
}

/// Digests of all pages of a prompt.
pub fn keys(rig: &Rig, tokens: &[i32]) -> Vec<Digest> {
    let size = PageSize::new(u32::try_from(rig.size()).unwrap()).unwrap();
    chain(rig.namespace.seed(), Tokens::I32(tokens), size)
}
