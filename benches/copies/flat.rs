//! Flat copies of one region to another, by threads that wait for work.

use crossbeam_channel::{Receiver, Sender, unbounded};
use hicache_core::host::Slab;
use std::sync::Arc;
use std::time::Instant;

/// Threads that wait for work, as the copier's do.
pub struct Crew {
    queues: Vec<Sender<Work>>,
    done: Receiver<()>,
}

/// What each of so many threads does, by its number.
pub type Work = Arc<dyn Fn(usize) + Send + Sync>;

impl Crew {
    pub fn new(threads: usize) -> Self {
        let (tell, done) = unbounded();
        let start = |at: usize| {
            let (queue, work) = unbounded::<Work>();
            let tell = tell.clone();
            std::thread::spawn(move || {
                for work in work {
                    work(at);
                    tell.send(()).unwrap();
                }
            });
            queue
        };
        Self { queues: (0..threads).map(start).collect(), done }
    }

    /// Seconds until all have done their share.
    pub fn time(&self, work: &Work) -> f64 {
        let start = Instant::now();
        self.queues.iter().for_each(|queue| queue.send(Arc::clone(work)).unwrap());
        self.queues.iter().for_each(|_| self.done.recv().unwrap());
        start.elapsed().as_secs_f64()
    }
}

/// One region to another, in equal shares.
pub fn flat(
    regions: &Arc<[Slab; 2]>,
    threads: usize,
    bytes: usize,
    copy: unsafe fn(*const u8, *mut u8, usize),
) -> Work {
    let (share, regions) = ((bytes / threads) & !63, Arc::clone(regions));
    Arc::new(move |at| {
        let run = at * share..(at + 1) * share;
        let [from, to] = regions.each_ref().map(|slab| slab.address(run.clone()).unwrap());
        // SAFETY: two regions, and each thread has its own share of them.
        unsafe { copy(from, to, share) };
    })
}

/// # Safety
/// As for `copy_nonoverlapping`.
pub unsafe fn memcpy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}

/// # Safety
/// As for `copy_nonoverlapping`; the machine has AVX, `to` is a multiple of 32 and `bytes` of 64.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
pub unsafe fn past_caches(from: *const u8, to: *mut u8, bytes: usize) {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
    for at in (0..bytes).step_by(64) {
        #[allow(clippy::cast_ptr_alignment, reason = "the caller's")]
        let (from, to) = (from.wrapping_add(at).cast::<__m256i>(), to.wrapping_add(at).cast::<__m256i>());
        // SAFETY: the caller's, for this line's two halves.
        #[allow(clippy::multiple_unsafe_ops_per_block, reason = "one line is one copy")]
        unsafe {
            let (first, second) = (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
            _mm256_stream_si256(to, first);
            _mm256_stream_si256(to.add(1), second);
        }
    }
    _mm_sfence();
}

#[cfg(not(target_arch = "x86_64"))]
pub use memcpy as past_caches;
