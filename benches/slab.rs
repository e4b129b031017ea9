//! The slab store's index, its opening, and its durable puts, each beside what can't be less.
//!
//! `cargo bench --bench slab`. Puts into a full store of few and of many extents, whose cost should be the same (a place in
//! memory as `HICACHE_BENCH_DIR` leaves the disk out of it). `exists` of 10^5 keys of 10^6 in one call, beside a hash map of the same keys; opening a
//! store of 10^6 pages (its log alone: no payload is read); 16 pages of 64 KiB with `sync=yes`, beside writing and
//! flushing as much to a file that was written before, in alternating rounds. `HICACHE_BENCH_DIR` says where.
#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss)]

use hicache_core::hash::Digest;
use hicache_core::identity::Fingerprint;
use hicache_core::storage::disk::{Disk, DiskOptions, Op};
use hicache_core::storage::slab::record::{At, Record, Written};
use hicache_core::storage::slab::segment::{Header, MOST};
use hicache_core::storage::slab::{Options, Seams, SlabStore};
use hicache_core::storage::url::Share;
use hicache_core::storage::{Client, Keys, Outcome, PageRef, Store};
use std::collections::HashMap;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const US: Fingerprint = Fingerprint([1; 32]);
const PAGES: u32 = 1_000_000;
const ASKED: usize = 100_000;
const EXTENT: u64 = 256 << 20;
const PAGE: usize = 64 << 10;
const GROUP: usize = 16;

/// A digest's bytes are as good as random.
fn digest(number: u32) -> Digest {
    let mut digest = [0; 32];
    let mut word = u64::from(number);
    for bytes in digest.as_chunks_mut::<8>().0 {
        word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        *bytes = (mixed ^ (mixed >> 31)).to_le_bytes();
    }
    Digest(digest)
}

fn timed<T>(act: impl FnOnce() -> T) -> (f64, T) {
    let started = Instant::now();
    let out = act();
    (started.elapsed().as_secs_f64(), out)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn options(dir: &Path, size: u64) -> Options {
    let mut options = Options::new(dir.to_owned(), size);
    (options.extent, options.free) = (Some(EXTENT), Share::Bytes(0));
    options
}

fn opened(options: &Options) -> SlabStore {
    SlabStore::open(options.clone(), &Client::alone(US), &Seams::default()).unwrap()
}

/// A store whose log tells of pages that nobody has written: as large as such a store, less its payloads.
fn told(options: &Options, pages: u32) -> u64 {
    let extent = options.extent.unwrap();
    let slots = (extent / 4096) as u32;
    // The directory, and the store's number.
    drop(opened(options));
    let home = options.root.join("all");
    let about = fs::read_to_string(home.join("STORE")).unwrap();
    let store = about.lines().find_map(|line| line.strip_prefix("store ")).unwrap();
    let header = Header { store: u64::from_str_radix(store, 16).unwrap(), number: 1, first: 0, after: None };
    let mut records = Vec::new();
    Record::Identity(0, US).write(&mut records);
    for page in 0..pages {
        let at = At { extent: (page / slots) as u16, slot: page % slots };
        let parent = if page % 100 == 0 { [0; 8] } else { *digest(page - 1).0.first_chunk().unwrap() };
        let parent = u64::from_le_bytes(parent);
        let page =
            Written { at, identity: 0, digest: digest(page), bytes: 4096, time: 1, checksum: 7, parent };
        Record::Page(page).write(&mut records);
    }
    let mut log = header.bytes().to_vec();
    for (sequence, records) in (0..).zip(records.chunks(MOST * 64)) {
        log.extend(header.group(sequence, records));
    }
    fs::write(home.join("log-00000001"), &log).unwrap();
    // Holes: nobody reads them.
    for number in 0..pages.div_ceil(slots) {
        let file = fs::File::create(home.join(format!("data-{number:05}"))).unwrap();
        file.set_len(extent).unwrap();
    }
    log.len() as u64
}

/// Single pages put into a full store of half a million, in that many extents.
fn full(dir: &Path) {
    const PUTS: u32 = 1000;
    let pages = 1 << 19;
    for extents in [8, 512] {
        let extent = u64::from(pages / extents) * 4096;
        let mut options =
            options(&dir.join(extents.to_string()), u64::from(pages) * (4096 + 192) + (24 << 20));
        options.extent = Some(extent);
        told(&options, pages);
        let store = opened(&options);
        assert_eq!(store.statistics().pages, u64::from(pages));
        let page = [7; 4096];
        let mut each = Vec::new();
        for number in 0..PUTS {
            let digests = [digest(PAGES + number)];
            let keys = Keys { identity: &US, digests: &digests };
            let (seconds, outcomes) = timed(|| store.put(keys, &[None], &[PageRef::from(&page[..])]));
            assert_eq!(outcomes, [Outcome::Hit]);
            each.push(seconds);
        }
        assert_eq!(store.statistics().evicted_pages, u64::from(PUTS));
        println!("a put, store full     {:7.1} us p50 with {extents} extents", median(each) * 1e6);
    }
}

fn index(dir: &Path) {
    let options = options(dir, 8 << 30);
    let log = told(&options, PAGES);
    let mut opens = Vec::new();
    for _ in 0..5 {
        let (seconds, store) = timed(|| opened(&options));
        assert_eq!(store.statistics().pages, u64::from(PAGES));
        opens.push(seconds);
    }
    let each = log as f64 / f64::from(PAGES);
    println!("open of 10^6 pages    {:7.3} s    {each:.1} bytes of log a page", median(opens));
    let store = opened(&options);
    let keys: Vec<Digest> = (0..ASKED).map(|n| digest((n * 7919 % PAGES as usize) as u32)).collect();
    let missing: Vec<Digest> = (0..ASKED).map(|n| digest(PAGES + n as u32)).collect();
    let map: HashMap<[u8; 32], u32> = (0..PAGES).map(|page| (digest(page).0, page)).collect();
    let rounds = || 0..15;
    let ask = |keys: &[Digest]| {
        let each = rounds().map(|_| timed(|| store.exists(Keys { identity: &US, digests: keys })).0);
        median(each.collect()) * 1e9 / ASKED as f64
    };
    assert!(
        store.exists(Keys { identity: &US, digests: &keys }).iter().all(|outcome| *outcome == Outcome::Hit)
    );
    let plain =
        rounds().map(|_| timed(|| black_box(keys.iter().filter(|key| map.contains_key(&key.0)).count())).0);
    let plain = median(plain.collect()) * 1e9 / ASKED as f64;
    println!(
        "exists of 10^5 keys   {:7.1} ns a hit, {:.1} a miss; std's HashMap {plain:.1} a hit",
        ask(&keys),
        ask(&missing)
    );
}

fn durable(dir: &Path) {
    let mut options = options(dir, 2 << 30);
    options.sync = true;
    let store = opened(&options);
    // Let it write its extents in advance.
    let slab = store.slab().unwrap();
    while slab.space().unwritten_bytes > 0 {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let disk = Disk::open(dir, DiskOptions::default()).unwrap();
    let file = disk.create(&dir.join("bare")).unwrap();
    let memory = memmap2::MmapMut::map_anon(GROUP * PAGE).unwrap();
    let zeros = |file: &Arc<_>, at: u64| {
        let mut slots = (0..GROUP).map(|n| (n, &memory[n * PAGE..(n + 1) * PAGE]));
        let next =
            || slots.next().map(|(n, page)| Op::write(n, Arc::clone(file), at + (n * PAGE) as u64, [page]));
        disk.run(32, next, |_, done| done.unwrap());
    };
    (0..64).for_each(|group| zeros(&file, group * (GROUP * PAGE) as u64));
    file.file().sync_all().unwrap();
    let (mut bare, mut puts, mut flushes) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..200_u32 {
        bare.push(
            timed(|| {
                zeros(&file, u64::from(round % 64) * (GROUP * PAGE) as u64);
                file.sync().unwrap();
            })
            .0,
        );
        flushes.push(timed(|| file.sync().unwrap()).0);
        let digests: Vec<Digest> = (0..GROUP as u32).map(|n| digest(2 * PAGES + round * 16 + n)).collect();
        let pages: Vec<PageRef<'_>> = memory.chunks(PAGE).map(PageRef::from).collect();
        let keys = Keys { identity: &US, digests: &digests };
        let (seconds, outcomes) = timed(|| store.put(keys, &[None; GROUP], &pages));
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Hit));
        puts.push(seconds);
    }
    let (bare, puts, flush) = (median(bare) * 1e3, median(puts) * 1e3, median(flushes) * 1e3);
    println!(
        "16 durable pages      {puts:7.3} ms p50; their write and a flush {bare:.3} ms: {:.2}x; a flush alone {flush:.3} ms",
        puts / bare
    );
    println!("{}", store.describe());
}

fn main() {
    let dir = std::env::var("HICACHE_BENCH_DIR").map_or_else(|_| std::env::temp_dir(), PathBuf::from);
    let dir = tempfile::tempdir_in(dir).unwrap();
    full(&dir.path().join("full"));
    index(&dir.path().join("index"));
    durable(&dir.path().join("durable"));
}
