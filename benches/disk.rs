//! Pages to and from the disk, verified, beside fio on the same file.
//!
//! `cargo bench --bench disk -- [dir=DIRECTORY] [rounds=5] [depth=32] [io=uring|threads] [threads=16]
//! [pages=huge|shared|restart|small] [sums=yes|no] [class=BYTES]`. A pass moves 960 MiB between a slab and a file that was
//! written before, directly: puts in order, with a checksum of each page just before it is written, gets in
//! no order, each page compared with its checksum when it has come. fio does the same without checksums, at
//! the same depth, its buffers in huge pages where the system keeps some (`vm.nr_hugepages`); rounds alternate.
//! Prints medians in MB/s (10^6 bytes) and our share of fio's.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a bench that fails is loud"
)]
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "figures for people")]

mod fio;

use fio::{Fio, Memory, WHOLE, median, rate, shuffled};
use hicache_core::storage::disk::{DataFile, Direct, Disk, DiskOptions, Io, Op};
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const CLASSES: [usize; 3] = [64 << 10, 512 << 10, 2 << 20];
const NO_FIO: &str = "fio isn't there: rates alone";

struct Options {
    dir: PathBuf,
    rounds: usize,
    disk: DiskOptions,
    pages: String,
    sums: bool,
    classes: Vec<usize>,
}

impl Options {
    fn read() -> Self {
        let disk = DiskOptions { direct: Direct::Yes, ..DiskOptions::default() };
        let (dir, classes) = (std::env::temp_dir(), CLASSES.to_vec());
        let mut options = Self { dir, rounds: 5, disk, pages: "huge".to_owned(), sums: true, classes };
        for argument in std::env::args().skip(1).filter(|argument| argument != "--bench") {
            let (name, value) = argument.split_once('=').expect("name=value");
            let number = || value.parse().unwrap_or_else(|error| panic!("{argument}: {error}"));
            match name {
                "dir" => options.dir = value.into(),
                "rounds" => options.rounds = number(),
                "depth" => options.disk.depth = number(),
                "threads" => options.disk.threads = number(),
                "io" => options.disk.io = if value == "threads" { Io::Threads } else { Io::Uring },
                "pages" => options.pages = value.into(),
                "sums" => options.sums = value == "yes",
                "class" => options.classes = vec![number()],
                _ => panic!("unknown option {name}"),
            }
        }
        options
    }
}

fn main() {
    let options = Options::read();
    let dir = tempfile::tempdir_in(&options.dir).unwrap();
    let disk = Disk::open(dir.path(), options.disk).unwrap();
    let path = dir.path().join("data");
    let file = disk.create(&path).unwrap();
    let mut memory = Memory::new(&options.pages);
    let bench = Bench { disk, file, sums: options.sums, depth: options.disk.depth };
    bench.put(&memory, 2 << 20);
    bench.file.sync().unwrap();
    let sums = if options.sums { "xxh3-64" } else { "no checksums" };
    println!("{}; pages={}; {sums}", bench.disk.describe(), options.pages);
    let fio = Fio::new(&path, options.disk.depth);
    println!("{}", fio.as_ref().map_or(NO_FIO, |fio| fio.about));
    println!("{:>8} {:>5} {:>9} {:>9} {:>7}", "page", "", "MB/s", "fio", "ratio");
    for &class in &options.classes {
        // One pass that isn't counted: after prewriting, and after another class.
        bench.put(&memory, class);
        let mut rates = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..options.rounds {
            rates[0].push(bench.put(&memory, class));
            rates[1].extend(fio.as_ref().map(|fio| fio.pass("write", class)));
            // What fio wrote is nobody's page.
            let sums = bench.fill(&memory, class);
            rates[2].push(bench.get(&mut memory, class, &sums));
            rates[3].extend(fio.as_ref().map(|fio| fio.pass("randread", class)));
        }
        let [put, fio_put, get, fio_get] = rates.map(median);
        report(class, "put", put, fio_put);
        report(class, "get", get, fio_get);
    }
}

fn report(class: usize, what: &str, ours: f64, fio: f64) {
    println!("{class:>8} {what:>5} {:>9.0} {:>9.0} {:>7.2}", ours / 1e6, fio / 1e6, ours / fio);
}

struct Bench {
    disk: Disk,
    file: Arc<DataFile>,
    sums: bool,
    depth: usize,
}

impl Bench {
    fn sum(&self, slot: usize, page: &[u8]) -> u64 {
        if self.sums { xxh3_64_with_seed(page, slot as u64) } else { 0 }
    }

    /// Bytes a second.
    fn put(&self, memory: &[u8], class: usize) -> f64 {
        let start = Instant::now();
        self.fill(memory, class);
        rate(start)
    }

    /// Writes all pages; their checksums.
    fn fill(&self, memory: &[u8], class: usize) -> Vec<u64> {
        let mut pages = memory.chunks_exact(class).enumerate();
        let mut sums = Vec::with_capacity(WHOLE / class);
        let next = || {
            let (slot, page) = pages.next()?;
            sums.push(self.sum(slot, page));
            Some(Op::write(slot, Arc::clone(&self.file), (slot * class) as u64, [page]))
        };
        self.disk.run(self.depth, next, |_, result| result.unwrap());
        sums
    }

    /// Bytes a second.
    fn get(&self, memory: &mut [u8], class: usize, sums: &[u64]) -> f64 {
        let mut pages: Vec<Option<&mut [u8]>> = memory.chunks_exact_mut(class).map(Some).collect();
        // What isn't read must not pass for what was.
        pages.iter_mut().flatten().for_each(|page| page[..8].fill(0xFF));
        let order = shuffled(pages.len());
        let wrong = RefCell::new(0);
        let start = Instant::now();
        let mut slots = order.into_iter();
        let next = || {
            let slot = slots.next()?;
            let page = pages[slot].take()?;
            Some(Op::read(slot, Arc::clone(&self.file), (slot * class) as u64, [page]))
        };
        let done = |op: Op<'_>, result: std::io::Result<()>| {
            let right = op.slices().all(|page| self.sum(op.tag, page) == sums[op.tag]);
            *wrong.borrow_mut() += usize::from(result.is_err() || !right);
        };
        self.disk.run(self.depth, next, done);
        let rate = rate(start);
        assert_eq!(wrong.into_inner(), 0, "wrong pages");
        rate
    }
}
