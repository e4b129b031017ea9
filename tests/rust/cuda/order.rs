//! Copies beside a model's stream: what it writes is backed up as written, what it reads is loaded over only then, and
//! what it waits for is there. Streams run in any order that events allow, another one with each seed.

use super::geometry::{Kind, Pool, SHAPES, Shape};
use super::{alive, job, machine, settings, start};
use hicache_core::transfer::cuda::{CudaCopier, Stream};
use hicache_core::transfer::{Copier, Direction};
use std::ffi::c_void;
use std::time::Duration;

unsafe extern "C" {
    fn emulated_model() -> *mut c_void;
    fn emulated_end(stream: *mut c_void);
    fn emulated_move(stream: *mut c_void, to: *mut c_void, from: *const c_void, bytes: usize);
}

/// By the copy engine, by kernels, and staged.
const WAYS: [(u64, u64); 3] = [(1, 0), (1 << 40, 0), (300, 6 << 10)];

/// The engine's stream.
struct Model(*mut c_void);

impl Model {
    fn new() -> Self {
        // SAFETY: the machine is this test's.
        Self(unsafe { emulated_model() })
    }

    fn stream(&self) -> Stream {
        Stream(self.0 as u64)
    }

    /// Copies pieces when the stream gets there.
    fn moves(&self, to: &[(*mut u8, usize)], from: &[(*mut u8, usize)]) {
        for (&(to, bytes), &(from, _)) in to.iter().zip(from) {
            // SAFETY: callers name memory that lives until the stream has ended.
            unsafe { emulated_move(self.0, to.cast(), from.cast_const().cast(), bytes) };
        }
    }

    /// All that it was told is done.
    fn end(self) {
        // SAFETY: made by us, and never used again.
        unsafe { emulated_end(self.0) };
    }
}

/// Memory as large as a page of each plane.
struct Beside(Vec<Vec<u8>>);

impl Beside {
    fn new(pool: &mut Pool) -> Self {
        Self(pool.places(0).into_iter().map(|(_, bytes)| vec![0xBB; bytes]).collect())
    }

    fn places(&mut self) -> Vec<(*mut u8, usize)> {
        self.0.iter_mut().map(|plane| (plane.as_mut_ptr(), plane.len())).collect()
    }
}

fn wait(copier: &CudaCopier, direction: Direction, ticket: u64) {
    assert!(copier.progress(direction).wait(ticket + 1, 0, Duration::from_secs(20)), "{:?}", copier.fault());
}

/// One seed's order: pages 0 and 1 are written by the model while they are backed up; page 1 is loaded over page 0
/// while the model reads that, and over another one that it waits for.
fn one_order(seed: u64, shape: Shape, kind: Kind, (run, staging): (u64, u64)) {
    let _one = machine(seed, 13000, 1);
    let mut pool = Pool::new(shape, kind, 9, 7);
    let model = Model::new();
    // What the model will have computed.
    let mut computed = [Beside::new(&mut pool), Beside::new(&mut pool)];
    for (page, beside) in computed.iter_mut().enumerate() {
        pool.compute(0, page);
        for (plane, (from, bytes)) in beside.0.iter_mut().zip(pool.places(0)) {
            // SAFETY: a page of the pool; nothing runs yet.
            plane.copy_from_slice(unsafe { std::slice::from_raw_parts(from, bytes) });
        }
    }
    pool.forget_device();
    let (mut read, mut waited) = (Beside::new(&mut pool), Beside::new(&mut pool));
    {
        // SAFETY: `pool` outlives the copier and never moves its memory.
        let mut copier = unsafe { start(&pool, &settings(2, run, staging)) }.unwrap();
        copier.follow(model.stream().0);
        let sources = [3, 5].map(|slot| pool.places(slot));
        for (to, from) in sources.iter().zip(&mut computed) {
            model.moves(to, &from.places());
        }
        copier.submit(job(1, Direction::Out, &[(3, 0), (5, 2)]));
        wait(&copier, Direction::Out, 1);
        pool.verify_host(0, 0);
        pool.verify_host(2, 1);
        // The model still reads page 0 where page 1 is about to be loaded.
        model.moves(&read.places(), &sources[0]);
        copier.submit(job(1, Direction::In, &[(3, 2)]));
        copier.submit(job(2, Direction::In, &[(7, 2)]));
        let (target, saw) = (pool.places(7), waited.places());
        let planes = target.len() / 2;
        for layer in 0..2_u32 {
            // SAFETY: the model's stream lives.
            unsafe { copier.layers().wait(2, layer, model.stream()) }.unwrap();
            let of_layer = layer as usize * planes..(layer as usize + 1) * planes;
            model.moves(&saw[of_layer.clone()], &target[of_layer]);
        }
        wait(&copier, Direction::In, 2);
        model.end();
    }
    assert!(read.0 == computed[0].0, "loaded over what the model was still reading");
    assert!(waited.0 == computed[1].0, "the model went on before its layer was there");
    assert_eq!(alive(), 0);
}

#[test]
fn copies_and_a_model_wait_for_each_other() {
    for seed in 0..40 {
        for kind in [Kind::LayerFirst, Kind::PageFirst, Kind::PageUnified(1)] {
            WAYS.iter().for_each(|&way| one_order(seed, SHAPES[0], kind, way));
        }
    }
}

/// Layers so large that each has its own copies: none is there with the one before it.
#[test]
fn a_model_waits_for_the_layer_that_it_names() {
    let large = Shape { layers: 2, planes: 2, page: 1, heads: 1, head: 70 << 10 };
    for seed in 0..25 {
        one_order(seed, large, Kind::LayerFirst, WAYS[0]);
    }
}
