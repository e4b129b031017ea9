//! What must not grow with time, and numbers that run out.

use super::rig::{PAGE, Rig, get, put};
use hicache_core::hash::Digest;
use hicache_core::identity::Fingerprint;
use hicache_core::storage::Outcome::{Absent, Hit};
use hicache_core::storage::Store;
use hicache_core::storage::slab::Seams;
use hicache_core::storage::slab::index::Index;
use hicache_core::storage::slab::record::{At, Written};
use hicache_core::storage::slab::replay::segments;
use std::fs;

/// Identities that a store with the smallest log has numbers for.
const MOST: u16 = 256;

fn someone(number: u16) -> Fingerprint {
    let mut bytes = [7; 32];
    bytes[..2].copy_from_slice(&number.to_le_bytes());
    Fingerprint(bytes)
}

#[test]
fn what_came_and_went_is_not_kept_in_mind() {
    let rig = Rig::new(64);
    for number in 0..1000 {
        assert_eq!((rig.put(number), rig.remove(number)), (Hit, Hit));
    }
    assert_eq!(rig.put(1), Hit);
    let queued = rig.store().slab().unwrap().look(Index::queued);
    assert!(queued <= 200, "{queued} leaves of one page");
}

#[test]
fn an_identity_that_has_another_number_now_has_its_pages_after_a_restart() {
    let mut rig = Rig::new(64);
    for number in 0..MOST {
        assert_eq!(put(rig.store(), someone(number), &[1], &[None], PAGE), [Hit]);
        assert_eq!(rig.store().clear(&someone(number)).unwrap(), 1);
    }
    // No number is left: those of all that have no page are free.
    for number in [MOST, MOST - 1] {
        assert_eq!(put(rig.store(), someone(number), &[1], &[None], PAGE), [Hit]);
    }
    for _ in 0..2 {
        rig.reopen();
        for number in [MOST, MOST - 1] {
            assert_eq!(get(rig.store(), someone(number), &[1], PAGE), [Hit], "identity {number}");
        }
        assert_eq!(get(rig.store(), someone(5), &[1], PAGE), [Absent]);
        rig.store().compact().unwrap();
    }
}

#[test]
fn where_every_number_has_pages_the_coldest_identity_goes() {
    let mut rig = Rig::new(512);
    for number in 0..MOST {
        assert_eq!(put(rig.store(), someone(number), &[1, 2], &[None, Some(1)], PAGE), [Hit, Hit]);
    }
    assert_eq!(get(rig.store(), someone(0), &[1], PAGE), [Hit]);
    for again in 0..2 {
        assert_eq!(put(rig.store(), someone(MOST), &[1], &[None], PAGE), [Hit]);
        assert_eq!(get(rig.store(), someone(0), &[1, 2], PAGE), [Hit; 2]);
        assert_eq!(get(rig.store(), someone(1), &[1, 2], PAGE), [Absent; 2], "{again}");
        assert_eq!(get(rig.store(), someone(2), &[1, 2], PAGE), [Hit; 2]);
        rig.reopen();
    }
    assert_eq!(rig.store().statistics().pages, 2 * u64::from(MOST) - 1);
}

#[test]
fn more_identities_than_a_small_log_has_room_for() {
    let small = super::rig::options(std::path::Path::new("/"), 2048).size;
    let mut rig = Rig::with(8, |options| options.size = 1 << 30, Seams::default());
    for number in 0..1100 {
        assert_eq!(put(rig.store(), someone(number), &[1], &[None], PAGE), [Hit]);
    }
    rig.close();
    rig.options.size = small;
    rig.reopen();
    assert_eq!(rig.put(1), Hit);
    assert!(segments(&rig.home()).unwrap().len() < 10);
    rig.reopen();
    assert_eq!(rig.get(1), Hit);
    assert_eq!(get(rig.store(), someone(1099), &[1], PAGE), [Hit]);
}

#[test]
fn names_that_count_too_far_are_somebody_elses() {
    let mut rig = Rig::new(16);
    assert_eq!(rig.put(0), Hit);
    rig.close();
    for name in ["data-70000", "data-65535", "data-4294967295"] {
        fs::write(rig.home().join(name), vec![0; 8 * PAGE]).unwrap();
    }
    fs::write(rig.home().join("log-18446744073709551615"), b"somebody else's").unwrap();
    rig.reopen();
    let numbers: Vec<u32> = (0..16).collect();
    assert_eq!(rig.put_all(&numbers, &[None; 16]), [Hit; 16]);
    assert_eq!(rig.remove(3), Hit);
    rig.reopen();
    let rest: Vec<u32> = (0..16).filter(|number| *number != 3).collect();
    assert_eq!(rig.here(0..16), rest);
}

#[test]
fn a_file_that_could_not_be_removed_is_replaced() {
    let rig = Rig::new(40);
    fs::write(rig.home().join("data-00003"), b"remains").unwrap();
    let numbers: Vec<u32> = (0..40).collect();
    assert_eq!(rig.put_all(&numbers, &[None; 40]), [Hit; 40]);
    assert_eq!(rig.here(0..40), numbers);
}

#[test]
fn a_page_larger_than_its_extent_is_none() {
    let mut index = Index::new(8 * PAGE as u64, 1);
    let written = Written {
        at: At { extent: 2, slot: 0 },
        identity: 0,
        digest: Digest([9; 32]),
        bytes: 9 * PAGE as u32,
        time: 0,
        checksum: 0,
        parent: 0,
    };
    assert!(!index.restore(written));
    assert!(index.ground.get(2).is_none(), "an extent without a slot");
}
