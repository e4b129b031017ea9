//! Stores that were filled by an earlier cache, and requests that ask for what they have.

use super::rig::{Rig, Shape};
use super::store::FaultStore;
use hicache_core::ids::HitId;
use std::sync::Arc;

/// A store that holds the pages of these prompts, and a fresh cache over it.
pub fn stored(shape: Shape, prompts: &[Vec<i32>]) -> (Rig, Arc<FaultStore>) {
    let store = filled(shape, prompts);
    (Rig::new(shape, Some(&store)), store)
}

pub fn filled(shape: Shape, prompts: &[Vec<i32>]) -> Arc<FaultStore> {
    let store = Arc::new(FaultStore::default());
    let mut writer = Rig::new(Shape { device: 4096, host: 4096, ..shape }, Some(&store));
    prompts.iter().for_each(|tokens| _ = writer.serve(tokens));
    writer.settle();
    store
}

pub fn prompt(number: i32, tokens: i32) -> Vec<i32> {
    (0..tokens).map(|token| 1000 * number + token).collect()
}

pub fn asking(rig: &mut Rig, tokens: &[i32]) -> HitId {
    let hit = rig.find(tokens);
    assert!(rig.cache.prefetch(hit).unwrap());
    hit
}
