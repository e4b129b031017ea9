//! Moving stamped bytes through a disk and back.

use hicache_core::storage::disk::{DataFile, Disk, Op};
use std::io;
use std::ops::Range;
use std::sync::Arc;

pub fn stamped(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed.wrapping_mul(97)) as u8 | 1).collect()
}

/// Memory that begins so far behind a boundary of 4,096 bytes.
pub struct Memory {
    all: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Memory {
    pub fn new(bytes: usize, skew: usize) -> Self {
        let all = vec![0; bytes + skew + 4096];
        let start = all.as_ptr().align_offset(4096) + skew;
        Self { all, start, bytes }
    }

    pub fn slice(&mut self) -> &mut [u8] {
        &mut self.all[self.start..self.start + self.bytes]
    }
}

/// Moves one piece of memory, cut into runs of these sizes; the result.
pub fn one(
    disk: &Disk,
    write: bool,
    file: &Arc<DataFile>,
    at: u64,
    memory: &mut [u8],
    cuts: &[usize],
) -> io::Result<()> {
    let (mut runs, mut rest) = (Vec::new(), memory);
    for &cut in cuts {
        let (run, more) = rest.split_at_mut(cut);
        runs.push(run);
        rest = more;
    }
    runs.push(rest);
    let op = if write {
        Op::write(7, Arc::clone(file), at, runs.into_iter().map(|run| &*run))
    } else {
        Op::read(7, Arc::clone(file), at, runs)
    };
    let (mut op, mut result) = (Some(op), None);
    disk.run(
        1,
        || op.take(),
        |op, done| {
            assert_eq!(op.tag, 7);
            assert!(result.replace(done).is_none(), "done twice");
        },
    );
    result.expect("an operation that isn't done")
}

impl Memory {
    pub fn filled(bytes: usize, byte: u8) -> Self {
        let mut memory = Self::new(bytes, 0);
        memory.slice().fill(byte);
        memory
    }
}

/// Slots of a file, each with its stamp; every operation is done once, whatever the depth.
pub fn fill(
    disk: &Disk,
    file: &Arc<DataFile>,
    slots: Range<usize>,
    bytes: usize,
    depth: usize,
) -> Vec<usize> {
    let pages: Vec<Vec<u8>> = slots.clone().map(|slot| stamped(slot, bytes)).collect();
    let mut next = slots.clone().zip(&pages);
    let mut done = Vec::new();
    disk.run(
        depth,
        || next.next().map(|(slot, page)| op_at(slot, file, page)),
        |op, result| {
            result.unwrap();
            assert!(op.slices().eq([pages[op.tag - slots.start].as_slice()]));
            done.push(op.tag);
        },
    );
    done.sort_unstable();
    done
}

pub fn op_at<'m>(slot: usize, file: &Arc<DataFile>, page: &'m [u8]) -> Op<'m> {
    Op::write(slot, Arc::clone(file), (slot * page.len().next_multiple_of(4096)) as u64, [page])
}

/// Reads slots and compares; the tags of those that are wrong or failed.
pub fn wrong(disk: &Disk, file: &Arc<DataFile>, slots: Range<usize>, bytes: usize) -> Vec<usize> {
    let mut pages: Vec<Vec<u8>> = slots.clone().map(|_| vec![0; bytes]).collect();
    let mut next = slots.zip(&mut pages);
    let mut wrong = Vec::new();
    let place = bytes.next_multiple_of(4096);
    disk.run(
        8,
        || {
            next.next()
                .map(|(slot, page)| Op::read(slot, Arc::clone(file), (slot * place) as u64, [&mut **page]))
        },
        |op, result| {
            if result.is_err() || !op.slices().eq([stamped(op.tag, bytes).as_slice()]) {
                wrong.push(op.tag);
            }
        },
    );
    wrong.sort_unstable();
    wrong
}
