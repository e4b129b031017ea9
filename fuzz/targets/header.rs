//! A log segment's header and groups, and a record: what is read back is what it was read from.
#![no_main]

use hicache_core::storage::slab::record::{RECORD, Record};
use hicache_core::storage::slab::segment::{HEADER, Header, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(header) = Header::read(data) {
        assert_eq!(Header::read(&header.bytes()), Some(header));
        let mut records = 0;
        let found = read(&header, &mut data.get(HEADER..).unwrap_or(&[]), |some| records += some.len() as u64).unwrap();
        assert!(records <= found.records && found.records as usize * RECORD <= data.len());
    }
    for bytes in data.as_chunks::<RECORD>().0 {
        let Some(record) = Record::read(bytes) else { continue };
        let mut again = Vec::new();
        record.write(&mut again);
        assert_eq!(Record::read(again.as_slice().try_into().unwrap()), Some(record));
    }
});
