//! Names that nearly are each other's: no digest is taken for another one that begins, or ends, like it.

use super::rig::{PAGE, Rig, THEM, US, payload};
use hicache_core::hash::Digest;
use hicache_core::identity::Fingerprint;
use hicache_core::storage::Outcome::{Absent, Hit};
use hicache_core::storage::slab::Seams;
use hicache_core::storage::{Keys, Outcome, PageMut, PageRef, Store};

fn put(store: &dyn Store, us: Fingerprint, digest: Digest, parent: Option<Digest>) -> Outcome {
    let bytes = payload(us, &digest, PAGE);
    let keys = Keys { identity: &us, digests: &[digest] };
    store.put(keys, &[parent], &[PageRef::from(&bytes[..])])[0]
}

fn get(store: &dyn Store, us: Fingerprint, digest: Digest) -> Outcome {
    let mut bytes = vec![0; PAGE];
    let keys = Keys { identity: &us, digests: &[digest] };
    let outcome = store.get(keys, &mut [PageMut::from(&mut bytes[..])])[0];
    assert!(outcome != Hit || bytes == payload(us, &digest, PAGE), "another page's bytes");
    assert_eq!(store.exists(keys)[0], outcome);
    outcome
}

/// The index finds a digest by its first 8 bytes: these all have the same, as if the hash had one value only.
fn alike() -> Vec<Digest> {
    let all = [8, 9, 15, 16, 17, 24, 31].into_iter().flat_map(|at| {
        [1, 0x80].map(|bit| {
            let mut digest = [0xA5; 32];
            digest[at] ^= bit;
            Digest(digest)
        })
    });
    all.chain([Digest([0xA5; 32])]).collect()
}

#[test]
fn digests_that_meet_in_the_index_are_different_pages() {
    let mut rig = Rig::with(64, |_| {}, Seams::default());
    let (ours, missing): (Vec<Digest>, Vec<Digest>) = {
        let all = alike();
        (all[..10].to_vec(), all[10..].to_vec())
    };
    for digest in &ours {
        assert_eq!((get(rig.store(), US, *digest), put(rig.store(), US, *digest, None)), (Absent, Hit));
    }
    // A parent is only known by its first bytes: that must not make one of them another.
    assert_eq!(put(rig.store(), THEM, ours[0], Some(ours[1])), Hit);
    for _ in 0..2 {
        assert!(ours.iter().all(|digest| get(rig.store(), US, *digest) == Hit));
        assert!(missing.iter().all(|digest| get(rig.store(), US, *digest) == Absent));
        assert_eq!((get(rig.store(), THEM, ours[0]), get(rig.store(), THEM, ours[1])), (Hit, Absent));
        rig.reopen();
    }
    let gone = Keys { identity: &US, digests: &ours[3..4] };
    assert_eq!(rig.store().remove(gone), [Hit]);
    for _ in 0..2 {
        let here: Vec<bool> = ours.iter().map(|digest| get(rig.store(), US, *digest) == Hit).collect();
        assert_eq!(here.iter().filter(|here| **here).count(), 9);
        assert!(!here[3]);
        rig.reopen();
    }
    assert_eq!(rig.store().statistics().corrupt_pages, 0);
}

/// Identities that differ in their last bit, or only there where a directory's name would not show it.
#[test]
fn identities_that_nearly_are_each_other() {
    let mut rig = Rig::new(64);
    let whose: Vec<Fingerprint> = [0, 15, 16, 31]
        .map(|at| {
            let mut identity = US.0;
            identity[at] ^= 0x10;
            Fingerprint(identity)
        })
        .to_vec();
    let digest = Digest([9; 32]);
    assert_eq!(put(rig.store(), US, digest, None), Hit);
    for us in &whose {
        assert_eq!((get(rig.store(), *us, digest), put(rig.store(), *us, digest, None)), (Absent, Hit));
    }
    rig.reopen();
    assert_eq!(rig.store().clear(&whose[3]).unwrap(), 1);
    assert_eq!(get(rig.store(), whose[3], digest), Absent);
    assert!(whose[..3].iter().chain([&US]).all(|us| get(rig.store(), *us, digest) == Hit));
}
