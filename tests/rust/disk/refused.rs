//! A system that forbids io_uring, or a file system without direct I/O: played by a filter of system calls,
//! which holds for the thread that sets it and those that it starts.
#![allow(unsafe_code, reason = "sets a filter of system calls")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the kernel's own widths")]

use super::{NONE, dir, engines, fill, options, wrong};
use hicache_core::storage::disk::{Direct, Disk, Io};
use libc::{sock_filter, sock_fprog};

const fn op(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

/// From here on this system call fails on this thread; only if an argument has these bits, where some are given.
fn forbid(call: i64, argument: Option<(u32, u32)>, error: i32) {
    let load = |at: u32| op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0);
    let answer = |value: u32| op(libc::BPF_RET | libc::BPF_K, value, 0, 0);
    let jump = |code: u32, k: u32, jt: u8, jf: u8| op(libc::BPF_JMP | code | libc::BPF_K, k, jt, jf);
    let (at, bits) = argument.unwrap_or((0, 0));
    let last =
        if argument.is_some() { jump(libc::BPF_JSET, bits, 0, 1) } else { jump(libc::BPF_JA, 0, 0, 0) };
    let mut filter = [
        load(0),
        jump(libc::BPF_JEQ, call as u32, 0, 3),
        // The lower half of an argument, on this machine's byte order.
        load(16 + 8 * at),
        last,
        answer(libc::SECCOMP_RET_ERRNO | error as u32),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: this thread gives up rights, nothing else.
    let first = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the program is valid for the call.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!((first, set), (0, 0), "{}", std::io::Error::last_os_error());
}

/// Does it on a thread of its own.
fn apart(act: impl FnOnce() + Send + 'static) {
    std::thread::spawn(act).join().unwrap();
}

fn works(disk: &Disk, dir: &std::path::Path) {
    let file = disk.create(&dir.join("f")).unwrap();
    fill(disk, &file, 0..20, 9000, 8);
    assert_eq!(wrong(disk, &file, 0..20, 9000), NONE);
}

#[test]
fn without_io_uring_there_are_threads_and_it_says_so() {
    for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register] {
        apart(move || {
            let dir = dir();
            forbid(call, None, libc::EPERM);
            let disk = Disk::open(dir.path(), options(Io::Auto, Direct::Auto)).unwrap();
            let about = disk.describe();
            assert!(about.starts_with("4 threads (io_uring: "), "{about}");
            assert!(about.contains("), depth 8, "), "{about}");
            works(&disk, dir.path());
            let error = Disk::open(dir.path(), options(Io::Uring, Direct::Auto)).err().unwrap().to_string();
            assert!(error.starts_with("storage: io=uring: "), "{error}");
        });
    }
}

/// Entering a ring fails for good in the middle of its life: what it has fails, nothing hangs.
#[test]
fn a_ring_that_breaks_fails_its_operations() {
    if !engines().contains(&Io::Uring) {
        return;
    }
    apart(|| {
        let dir = dir();
        let disk = Disk::open(dir.path(), options(Io::Uring, Direct::Auto)).unwrap();
        works(&disk, dir.path());
        let file = disk.file(&dir.path().join("f")).unwrap();
        forbid(libc::SYS_io_uring_enter, None, libc::EPERM);
        assert_eq!(wrong(&disk, &file, 0..20, 9000), (0..20).collect::<Vec<_>>());
        assert_eq!(wrong(&disk, &file, 0..20, 9000), (0..20).collect::<Vec<_>>());
    });
}

#[test]
fn without_direct_io_it_is_buffered_and_says_so() {
    for io in engines() {
        apart(move || {
            let dir = dir();
            forbid(libc::SYS_openat, Some((2, libc::O_DIRECT as u32)), libc::EINVAL);
            let disk = Disk::open(dir.path(), options(io, Direct::Auto)).unwrap();
            assert!(!disk.direct());
            assert!(
                disk.describe().contains("buffered (direct I/O: Invalid argument"),
                "{}",
                disk.describe()
            );
            works(&disk, dir.path());
            let error = Disk::open(dir.path(), options(io, Direct::Yes)).err().unwrap().to_string();
            assert!(
                error.starts_with("storage: ") && error.contains("direct I/O: Invalid argument"),
                "{error}"
            );
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "probes are left behind");
        });
    }
}
