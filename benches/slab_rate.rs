//! Pages through a whole slab store, acknowledged and verified, beside fio.
//!
//! `cargo bench --bench slab_rate -- [dir=DIRECTORY] [rounds=3] [threads=2] [pages=huge|shared|restart|small]`. A pass puts 960 MiB in
//! groups of 128 pages, `threads` groups at once, then gets them in no order; slots were written before (a pass that isn't
//! counted, its pages removed). fio moves as much, depth 32, directly, on a file beside; rounds alternate. Medians in MB/s
//! (10^6 bytes) and our share of fio's.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a bench that fails is loud"
)]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "figures for people"
)]

mod fio;

use fio::{Fio, Memory, WHOLE, median, rate, shuffled};
use hicache_core::hash::{Digest, page_digest};
use hicache_core::identity::Fingerprint;
use hicache_core::page::Tokens;
use hicache_core::storage::disk::{Disk, DiskOptions, Op};
use hicache_core::storage::slab::{Options, Seams, SlabStore};
use hicache_core::storage::url::Share;
use hicache_core::storage::{Client, Keys, Outcome, PageMut, PageRef, Store};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const US: Fingerprint = Fingerprint([1; 32]);
const CLASSES: [usize; 3] = [64 << 10, 512 << 10, 2 << 20];
const GROUP: usize = 128;

fn keys(class: usize) -> Vec<Digest> {
    (0..WHOLE / class).map(|n| page_digest(None, Tokens::I32(&[class as i32, n as i32]))).collect()
}

fn all_hit(outcomes: &[Outcome]) {
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Hit), "{outcomes:?}");
}

/// Bytes a second of groups of pages that several threads take in turn.
fn pass<T: Send>(groups: Vec<T>, threads: usize, act: impl Fn(T) + Sync) -> f64 {
    let groups: Vec<_> = groups.into_iter().map(|group| std::sync::Mutex::new(Some(group))).collect();
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                    act(group.lock().unwrap().take().unwrap());
                }
            });
        }
    });
    rate(start)
}

fn put(store: &SlabStore, memory: &[u8], class: usize, threads: usize) -> f64 {
    let keys = keys(class);
    let groups = keys.chunks(GROUP).zip(memory.chunks(GROUP * class)).collect();
    pass(groups, threads, |(digests, memory): (&[Digest], &[u8])| {
        let pages: Vec<PageRef<'_>> = memory.chunks_exact(class).map(PageRef::from).collect();
        all_hit(&store.put(Keys { identity: &US, digests }, &vec![None; digests.len()], &pages));
    })
}

fn get(store: &SlabStore, memory: &mut [u8], class: usize, threads: usize) -> f64 {
    let keys = keys(class);
    let mut pages: Vec<Option<&mut [u8]>> = memory.chunks_exact_mut(class).map(Some).collect();
    pages.iter_mut().flatten().for_each(|page| page[..8].fill(0xFF));
    let order = shuffled(pages.len());
    let groups = order.chunks(GROUP).map(|group| {
        let digests: Vec<Digest> = group.iter().map(|&page| keys[page]).collect();
        (digests, group.iter().map(|&page| PageMut::from(pages[page].take().unwrap())).collect::<Vec<_>>())
    });
    let groups = groups.collect();
    pass(groups, threads, |(digests, mut pages): (Vec<Digest>, Vec<PageMut<'_>>)| {
        all_hit(&store.get(Keys { identity: &US, digests: &digests }, &mut pages));
    })
}

/// A file that was written.
fn written(path: &Path, memory: &[u8]) {
    let disk = Disk::open(path.parent().unwrap(), DiskOptions::default()).unwrap();
    let file = disk.create(path).unwrap();
    let mut parts = memory.chunks(2 << 20).enumerate();
    let next = || parts.next().map(|(n, part)| Op::write(n, Arc::clone(&file), (n << 21) as u64, [part]));
    disk.run(32, next, |_, done| done.unwrap());
    file.sync().unwrap();
}

fn main() {
    let (mut dir, mut rounds, mut threads, mut kind) = (std::env::temp_dir(), 3, 2, "huge".to_owned());
    for argument in std::env::args().skip(1).filter(|argument| argument != "--bench") {
        let (name, value) = argument.split_once('=').expect("name=value");
        match name {
            "dir" => dir = PathBuf::from(value),
            "rounds" => rounds = value.parse().unwrap(),
            "threads" => threads = value.parse().unwrap(),
            "pages" => kind = value.into(),
            _ => panic!("unknown option {name}"),
        }
    }
    let dir = tempfile::tempdir_in(dir).unwrap();
    let mut memory = Memory::new(&kind);
    let beside = dir.path().join("beside");
    written(&beside, &memory);
    let fio = Fio::new(&beside, 32);
    println!("{}", fio.as_ref().map_or("fio isn't there", |fio| fio.about));
    for class in CLASSES {
        let root = dir.path().join(class.to_string());
        let mut options = Options::new(root.clone(), 2 << 30);
        (options.extent, options.free) = (Some(256 << 20), Share::Bytes(0));
        let store = SlabStore::open(options, &Client::alone(US), &Seams::default()).unwrap();
        put(&store, &memory, class, threads);
        let mut rates = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..rounds {
            store.clear(&US).unwrap();
            rates[0].push(put(&store, &memory, class, threads));
            rates[1].extend(fio.as_ref().map(|fio| fio.pass("write", class)));
            rates[2].push(get(&store, &mut memory, class, threads));
            rates[3].extend(fio.as_ref().map(|fio| fio.pass("randread", class)));
        }
        let [put, fio_put, get, fio_get] = rates.map(median);
        for (what, ours, fio) in [("put", put, fio_put), ("get", get, fio_get)] {
            println!("{class:>8} {what} {:>6.0} MB/s, fio {:>6.0}: {:.2}", ours / 1e6, fio / 1e6, ours / fio);
        }
        println!("{}", store.describe());
        drop(store);
        std::fs::remove_dir_all(root).unwrap();
    }
}
