//! The disk: what it is told to move it moves, through both engines, whatever the kernel makes of it.
#![allow(clippy::cast_possible_truncation, reason = "stamps are bytes")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

#[cfg(target_os = "linux")]
#[path = "disk/copies.rs"]
mod copies;
#[path = "disk/faults.rs"]
mod faults;
#[path = "common/hostile.rs"]
mod hostile;
#[path = "disk/moves.rs"]
mod moves;
#[cfg(target_os = "linux")]
#[path = "disk/refused.rs"]
mod refused;

use hicache_core::storage::disk::{DataFile, Direct, Disk, DiskOptions, Io};
use moves::{Memory, fill, one, op_at, stamped, wrong};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Both, where the system allows io_uring: containers often don't.
fn engines() -> Vec<Io> {
    let allowed = Disk::open(dir().path(), options(Io::Uring, Direct::No)).is_ok();
    if !allowed {
        eprintln!("no io_uring here: tested with threads alone");
    }
    [Io::Threads, Io::Uring].into_iter().take(1 + usize::from(allowed)).collect()
}

fn options(io: Io, direct: Direct) -> DiskOptions {
    DiskOptions { io, direct, depth: 8, threads: 4 }
}

/// Slots that are wrong.
const NONE: [usize; 0] = [];

/// A directory on a real file system, not in memory.
fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Every kind of disk that this system has.
fn disks(dir: &Path) -> Vec<Disk> {
    let kinds =
        engines().into_iter().flat_map(|io| [Direct::Auto, Direct::No].map(|direct| options(io, direct)));
    kinds.map(|options| Disk::open(dir, options).unwrap()).collect()
}

/// Writes of many shapes, then reads of other ones; what is between them stays.
#[test]
fn bytes_of_every_shape_come_back() {
    let dir = dir();
    let shapes: &[(usize, usize, &[usize])] = &[
        (65536, 0, &[]),
        (65536, 0, &[4096, 8192, 4096]),
        (65536, 8, &[]),
        (65536, 512, &[512, 1024]),
        (41984, 0, &[]),
        (5000, 0, &[]),
        (4097, 3, &[1, 0, 7]),
        (1, 0, &[]),
        (3 << 20, 0, &[1 << 20]),
        (8192 + 17, 0, &[4096]),
        (1500 * 512, 0, &[512; 1400]),
    ];
    for (n, disk) in disks(dir.path()).iter().enumerate() {
        let file = disk.create(&dir.path().join(format!("f{n}"))).unwrap();
        for (seed, &(bytes, skew, cuts)) in shapes.iter().enumerate() {
            let whole = bytes.next_multiple_of(4096);
            file.file().write_all_at(Memory::filled(whole + 8192, 0xEE).slice(), 0).unwrap();
            let mut memory = Memory::new(bytes, skew);
            memory.slice().copy_from_slice(&stamped(seed, bytes));
            one(disk, true, &file, 4096, memory.slice(), cuts).unwrap();
            for (skew, cuts) in [(skew, cuts), (0, &[][..]), (5, &[])] {
                let mut back = Memory::new(bytes, skew);
                one(disk, false, &file, 4096, back.slice(), cuts).unwrap();
                assert!(back.slice() == stamped(seed, bytes), "{}: shape {seed}", disk.describe());
            }
            check_around(&file, bytes, disk.direct());
        }
    }
}

/// Before and behind the slot nothing has changed; in it only zeros were added.
fn check_around(file: &DataFile, bytes: usize, direct: bool) {
    let whole = bytes.next_multiple_of(4096);
    let mut all = Memory::new(whole + 8192, 0);
    file.file().read_exact_at(all.slice(), 0).unwrap();
    let all = all.slice();
    assert!(all[..4096].iter().all(|&byte| byte == 0xEE), "before the slot");
    assert!(all[4096 + whole..].iter().all(|&byte| byte == 0xEE), "behind the slot");
    let padding = &all[4096 + bytes..4096 + whole];
    let zeros = padding.iter().take_while(|&&byte| byte == 0).count();
    assert!(padding[zeros..].iter().all(|&byte| byte == 0xEE), "padding is zeros, then what was there");
    assert!(direct || zeros == 0, "nothing needs padding");
}

#[test]
fn a_batch_does_each_operation_once() {
    let dir = dir();
    for (n, disk) in disks(dir.path()).iter().enumerate() {
        let file = disk.create(&dir.path().join(format!("f{n}"))).unwrap();
        for (depth, slots) in [(1, 0..5), (3, 5..25), (8, 25..26), (1000, 26..100)] {
            assert_eq!(fill(disk, &file, slots.clone(), 12000, depth), slots.collect::<Vec<_>>());
        }
        assert_eq!(wrong(disk, &file, 0..100, 12000), NONE);
        disk.run(4, || None, |_, _| panic!("nothing was to be done"));
    }
}

#[test]
fn next_is_not_asked_again_once_it_has_ended() {
    let dir = dir();
    let disk = Disk::open(dir.path(), options(Io::Auto, Direct::Auto)).unwrap();
    let file = disk.create(&dir.path().join("f")).unwrap();
    let page = stamped(0, 4096);
    let mut asked = 0;
    let next = || {
        asked += 1;
        assert!(asked <= 4, "asked again");
        (asked < 4).then(|| op_at(asked, &file, &page))
    };
    disk.run(2, next, |_, result| result.unwrap());
    assert_eq!(asked, 4);
}

#[test]
fn an_operation_without_bytes_is_done() {
    let dir = dir();
    for (n, disk) in disks(dir.path()).iter().enumerate() {
        let file = disk.create(&dir.path().join(format!("f{n}"))).unwrap();
        one(disk, true, &file, 0, &mut [], &[0]).unwrap();
        one(disk, false, &file, 0, &mut [], &[]).unwrap();
        assert_eq!(file.file().metadata().unwrap().len(), 0);
    }
}

#[test]
fn what_isn_t_there_is_an_error_of_its_own_operation() {
    let dir = dir();
    for (n, disk) in disks(dir.path()).iter().enumerate() {
        let file = disk.create(&dir.path().join(format!("f{n}"))).unwrap();
        fill(disk, &file, 0..4, 8192, 8);
        file.file().set_len(3 * 8192 + 4096).unwrap();
        assert_eq!(wrong(disk, &file, 0..6, 8192), [3, 4, 5], "{}", disk.describe());
        let error = one(disk, false, &file, 3 * 8192, Memory::new(8192, 0).slice(), &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}

#[test]
fn several_threads_share_a_disk() {
    let dir = dir();
    for (n, disk) in disks(dir.path()).iter().enumerate() {
        let file = disk.create(&dir.path().join(format!("f{n}"))).unwrap();
        std::thread::scope(|scope| {
            for part in 0..12 {
                let (disk, file) = (&disk, &file);
                scope.spawn(move || {
                    let slots = part * 20..part * 20 + 20;
                    for _ in 0..3 {
                        fill(disk, file, slots.clone(), 9000, 8);
                        assert_eq!(wrong(disk, file, slots.clone(), 9000), NONE);
                    }
                });
            }
        });
        assert!(!disk.busy());
        assert_eq!(wrong(disk, &file, 0..240, 9000), NONE);
    }
}

#[test]
fn options_out_of_range_are_named() {
    let dir = dir();
    let good = DiskOptions::default();
    let bad = [
        (DiskOptions { depth: 0, ..good }, "storage: depth=0"),
        (DiskOptions { depth: 5000, ..good }, "storage: depth=5000"),
        (DiskOptions { threads: 0, ..good }, "storage: threads=0"),
        (DiskOptions { threads: 1025, ..good }, "storage: threads=1025"),
    ];
    for (options, reason) in bad {
        let error = Disk::open(dir.path(), options).err().unwrap().to_string();
        assert!(error.starts_with(reason), "{error}");
    }
    let nowhere = Disk::open(&dir.path().join("nowhere"), good).err().unwrap().to_string();
    assert!(nowhere.starts_with("storage: ") && nowhere.contains("nowhere"), "{nowhere}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "probes are left behind");
}

#[test]
fn a_disk_says_how_it_works() {
    let dir = dir();
    let about = |io, direct| Disk::open(dir.path(), options(io, direct)).unwrap().describe();
    assert_eq!(about(Io::Threads, Direct::No), "4 threads, depth 8, buffered");
    if engines().contains(&Io::Uring) {
        assert_eq!(about(Io::Uring, Direct::No), "io_uring, depth 8, buffered");
    }
    assert!(about(Io::Threads, Direct::Auto).starts_with("4 threads, depth 8, "));
}

/// Places beyond 4 GiB of a file that is mostly a hole; what lies there when the place is cut to 32 bits stays.
#[test]
fn places_beyond_four_gib() {
    let (dir, far) = (dir(), 5_u64 << 30);
    for (n, disk) in disks(dir.path()).iter().enumerate() {
        let file = disk.create(&dir.path().join(format!("far{n}"))).unwrap();
        file.file().set_len(far + (1 << 20)).unwrap();
        for (seed, at) in [far, far + 4096, (1 << 32) - 4096, 1 << 32, 1 << 31].into_iter().enumerate() {
            let mut memory = Memory::new(4096, 0);
            memory.slice().copy_from_slice(&stamped(seed, 4096));
            one(disk, true, &file, at, memory.slice(), &[]).unwrap();
        }
        for (seed, at) in [far, far + 4096, (1 << 32) - 4096, 1 << 32, 1 << 31].into_iter().enumerate() {
            let mut back = Memory::filled(4096, 0xEE);
            one(disk, false, &file, at, back.slice(), &[]).unwrap();
            assert!(back.slice() == stamped(seed, 4096), "{}: {at}", disk.describe());
        }
        for at in [1 << 30, (1 << 30) + 4096, 0] {
            let mut back = Memory::filled(4096, 0xEE);
            one(disk, false, &file, at, back.slice(), &[]).unwrap();
            assert!(back.slice().iter().all(|byte| *byte == 0), "{}: {at}", disk.describe());
        }
    }
}
