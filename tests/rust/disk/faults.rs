//! What the kernel may do to requests, and what the caller may do to a batch.

use super::hostile::{Fate, Hostile};
use super::{Memory, NONE, dir, engines, fill, one, op_at, options, stamped, wrong};
use hicache_core::storage::disk::engine::Request;
use hicache_core::storage::disk::threads::Threads;
use hicache_core::storage::disk::{DataFile, Direct, Disk, Engine, Io, Op};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

type Case = (Disk, Arc<Hostile>, Arc<DataFile>);

/// Both engines, directly and buffered, each behind a hostile one.
fn cases(
    dir: &Path,
    judge: fn(usize, &Request<'_>) -> Fate,
    change: fn(&mut Hostile),
) -> impl Iterator<Item = Case> {
    let engines = engines().into_iter().map(|io| -> Arc<dyn Engine> {
        match io {
            #[cfg(target_os = "linux")]
            Io::Uring => Arc::new(hicache_core::storage::disk::uring::Uring::new(8).unwrap()),
            _ => Arc::new(Threads::new(4).unwrap()),
        }
    });
    let kinds = engines.flat_map(|engine| [Direct::Auto, Direct::No].map(|d| (Arc::clone(&engine), d)));
    kinds.enumerate().map(move |(n, (engine, direct))| {
        let mut hostile = Hostile::new(engine, judge);
        change(&mut hostile);
        let hostile = Arc::new(hostile);
        let disk = Disk::over(Arc::clone(&hostile) as _, dir, options(Io::Auto, direct)).unwrap();
        let file = disk.create(&dir.join(format!("f{n}"))).unwrap();
        (disk, hostile, file)
    })
}

#[test]
fn transfers_that_come_short_go_on() {
    let dir = dir();
    let judge = |number: usize, _: &Request<'_>| match number % 4 {
        0 => Fate::Short(4096),
        1 => Fate::Short(5000),
        2 => Fate::Short(20480),
        _ => Fate::Pass,
    };
    for (disk, hostile, file) in cases(dir.path(), judge, |_| {}) {
        fill(&disk, &file, 0..20, 40000, 8);
        assert_eq!(wrong(&disk, &file, 0..20, 40000), NONE, "{}", disk.describe());
        assert!(hostile.requests.load(Ordering::SeqCst) > 60, "none was short");
        let mut page = Memory::new(40960, 0);
        page.slice().copy_from_slice(&stamped(3, 40960));
        one(&disk, true, &file, 0, page.slice(), &[4096, 8192, 12288]).unwrap();
        page.slice().fill(0);
        one(&disk, false, &file, 0, page.slice(), &[512, 4096 - 512, 512]).unwrap();
        assert!(page.slice() == stamped(3, 40960));
    }
}

#[test]
fn nothing_moved_and_too_much_are_errors() {
    let dir = dir();
    for (disk, ..) in cases(dir.path(), |_, request| Fate::Told(usize::from(!request.write) * 9999), |_| {}) {
        let file = disk.file(&dir.path().join("f0")).unwrap();
        let mut page = Memory::new(8192, 0);
        let error = one(&disk, true, &file, 0, page.slice(), &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WriteZero);
        let error = one(&disk, false, &file, 0, page.slice(), &[]).unwrap_err();
        assert!(error.to_string().contains("9999 bytes moved"), "{error}");
    }
}

#[test]
fn a_fault_is_its_own_operation_s() {
    let dir = dir();
    let judge = |_: usize, request: &Request<'_>| match request.offset / 8192 % 5 {
        2 if request.write => Fate::Fail(libc::ENOSPC),
        3 if !request.write => Fate::Fail(libc::EIO),
        _ => Fate::Pass,
    };
    for (disk, _, file) in cases(dir.path(), judge, |_| {}) {
        let page = stamped(0, 8192);
        let mut next = (0..20).map(|slot| op_at(slot, &file, &page));
        let mut failed = Vec::new();
        disk.run(
            8,
            || next.next(),
            |op, result| {
                if let Err(error) = result {
                    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
                    failed.push(op.tag);
                }
            },
        );
        failed.sort_unstable();
        assert_eq!(failed, [2, 7, 12, 17]);
        let error = one(&disk, false, &file, 3 * 8192, Memory::new(8192, 0).slice(), &[]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    }
}

#[test]
fn what_the_kernel_puts_off_is_asked_again_but_not_for_ever() {
    let dir = dir();
    let judge = |number: usize, _: &Request<'_>| match number % 3 {
        0 => Fate::Fail(libc::EINTR),
        1 => Fate::Fail(libc::EAGAIN),
        _ => Fate::Pass,
    };
    for (disk, _, file) in cases(dir.path(), judge, |_| {}) {
        fill(&disk, &file, 0..20, 4096, 8);
        assert_eq!(wrong(&disk, &file, 0..20, 4096), NONE);
    }
    let dir = super::dir();
    for (disk, _, file) in cases(dir.path(), |_, _| Fate::Fail(libc::EAGAIN), |_| {}) {
        let error = one(&disk, true, &file, 0, Memory::new(4096, 0).slice(), &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}

#[test]
fn a_completion_counts_for_its_own_request_once() {
    let dir = dir();
    let judge = |number: usize, _: &Request<'_>| match number % 3 {
        0 => Fate::Late,
        1 => Fate::Twice,
        _ => Fate::Short(4096),
    };
    for (disk, _, file) in cases(dir.path(), judge, |_| {}) {
        for _ in 0..3 {
            assert_eq!(fill(&disk, &file, 0..50, 12288, 8), (0..50).collect::<Vec<_>>());
            assert_eq!(wrong(&disk, &file, 0..50, 12288), NONE, "{}", disk.describe());
        }
    }
}

#[test]
fn large_operations_are_cut_to_what_a_request_may_have() {
    let dir = dir();
    for (disk, hostile, file) in cases(dir.path(), |_, _| Fate::Pass, |hostile| hostile.limits = (8192, 2)) {
        fill(&disk, &file, 0..3, 20480, 8);
        assert_eq!(hostile.requests.load(Ordering::SeqCst), 9, "three requests each");
        assert_eq!(wrong(&disk, &file, 0..3, 20480), NONE);
        let before = hostile.requests.load(Ordering::SeqCst);
        let mut page = Memory::new(5 * 4096, 0);
        one(&disk, false, &file, 0, page.slice(), &[512, 512, 512, 512, 2048]).unwrap();
        assert!(page.slice() == &stamped(0, 20480)[..5 * 4096]);
        assert!(
            hostile.requests.load(Ordering::SeqCst) - before >= 5,
            "two runs of 512 bytes in each request"
        );
    }
}

#[test]
fn no_more_are_under_way_than_was_asked() {
    let dir = dir();
    for (disk, hostile, file) in cases(dir.path(), |_, _| Fate::Late, |_| {}) {
        for (depth, most) in [(3, 3), (100, 8)] {
            hostile.most.store(0, Ordering::SeqCst);
            fill(&disk, &file, 0..40, 4096, depth);
            assert_eq!(hostile.most.load(Ordering::SeqCst), most);
        }
    }
}

/// The memory of what is under way must not be given up: a panic waits for it, and the engine goes on working.
#[test]
fn a_panic_waits_for_what_is_under_way() {
    let dir = dir();
    for (disk, hostile, file) in cases(dir.path(), |_, _| Fate::Late, |_| {}) {
        let page = stamped(0, 1 << 20);
        for panics_in_next in [false, true] {
            let mut slot = 0;
            let next = || {
                slot += 1;
                assert!(!panics_in_next || slot < 6, "as planned");
                Some(op_at(slot % 16, &file, &page))
            };
            let done = |_: Op<'_>, _| assert!(panics_in_next, "as planned");
            assert!(catch_unwind(AssertUnwindSafe(|| disk.run(8, next, done))).is_err());
            assert_eq!(hostile.flying.load(Ordering::SeqCst), 0, "left behind under way");
            assert!(!disk.busy());
        }
        fill(&disk, &file, 0..20, 4096, 8);
        assert_eq!(wrong(&disk, &file, 0..20, 4096), NONE);
    }
}

#[test]
fn without_a_way_to_the_disk_every_operation_fails() {
    let dir = dir();
    for (disk, _, file) in cases(dir.path(), |_, _| Fate::Pass, |hostile| hostile.closed = true) {
        let page = stamped(0, 4096);
        let mut next = (0..20).map(|slot| op_at(slot, &file, &page));
        let mut failed = 0;
        disk.run(8, || next.next(), |_, result| failed += usize::from(result.is_err()));
        assert_eq!(failed, 20);
    }
}
