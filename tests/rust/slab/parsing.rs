//! What a log's bytes may be: its own records, and anything.

use hicache_core::hash::Digest;
use hicache_core::identity::Fingerprint;
use hicache_core::storage::slab::index::Index;
use hicache_core::storage::slab::record::{At, Record, Touches, Written};
use hicache_core::storage::slab::replay::Replay;
use hicache_core::storage::slab::segment::Header;
use proptest::prelude::*;

const STORE: u64 = 77;

fn fresh() -> Index {
    Index::new(4 * 4096, 12345)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn records_come_back(kind in 0..5_u8, number: u16, extent: u16, slot in 0..1_u32 << 24, bytes: u32, time: u32, checksum: u64, parent: u64, digest: [u8; 32], count in 0..13_usize) {
        let at = At { extent, slot };
        let digest = Digest(digest);
        let record = match kind {
            0 => Record::Page(Written { at, identity: number, digest, bytes, time, checksum, parent }),
            1 => Record::Gone(at),
            2 => Record::Clear(number),
            3 => Record::Identity(number, Fingerprint(digest.0)),
            _ => Record::Touch(Touches::of(&vec![at; count])),
        };
        let mut log = Vec::new();
        record.write(&mut log);
        prop_assert_eq!(Record::read(&log.try_into().unwrap()), Some(record));
    }

    #[test]
    fn any_bytes_are_some_log(mut segment in proptest::collection::vec(any::<u8>(), 0..600), valid: bool) {
        if valid {
            let header = Header { store: STORE, number: 1, first: 0, after: None };
            let mut whole = header.bytes().to_vec();
            // Checksums are right, so that the records themselves are read.
            segment.truncate(segment.len() / 64 * 64);
            whole.extend(header.group(0, &segment));
            segment = whole;
        }
        let mut replay = Replay::new(&[0, 1], fresh);
        replay.segment(&mut &segment[..], segment.len() as u64, STORE, 1).unwrap();
        prop_assert_eq!(replay.index.under_way(), 0);
    }
}
