//! A slab store's log: any bytes are replayed without a panic, and what they tell holds together.
//!
//! The first byte says whether the rest are records, whose groups are then given right checksums (nobody guesses
//! those), or the segments themselves.
#![no_main]

use hicache_core::storage::slab::index::{Index, State};
use hicache_core::storage::slab::replay::Replay;
use hicache_core::storage::slab::segment::Header;
use libfuzzer_sys::fuzz_target;

const STORE: u64 = 7;

fuzz_target!(|data: &[u8]| {
    let Some((&how, rest)) = data.split_first() else { return };
    let mut replay = Replay::new(&[0, 1, 2], || Index::new(16 * 4096, 3));
    if how & 1 == 0 {
        // Two segments, cut where the byte says.
        let (one, two) = rest.split_at(rest.len() * usize::from(how) / 256);
        tell(&mut replay, one, 1);
        tell(&mut replay, two, 2);
    } else {
        let mut sequence = 0;
        for (number, records) in (1..).zip(rest.chunks(40 * 64)) {
            let after = (number == 1 && how & 2 != 0).then_some(9);
            let header = Header { store: STORE, number, first: sequence, after };
            let mut segment = header.bytes().to_vec();
            for records in records.chunks(64 * (1 + usize::from(how >> 4))) {
                let whole = records.len() / 64 * 64;
                segment.extend(header.group(sequence, &records[..whole]));
                sequence += 1;
            }
            tell(&mut replay, &segment, number);
            sequence = after.unwrap_or(sequence);
        }
    }
    check(&mut replay.index);
});

fn tell(replay: &mut Replay, mut bytes: &[u8], number: u64) {
    let length = bytes.len() as u64;
    replay.segment(&mut bytes, length, STORE, number).unwrap();
}

/// Every page is where its place says, is found by its key, and can be evicted.
fn check(index: &mut Index) {
    let here: Vec<u32> = (0..index.numbers()).filter(|&page| index.page(page).state == State::Here).collect();
    assert_eq!(index.holds().0, here.len() as u64);
    for &page in &here {
        let written = index.page(page).written;
        assert_eq!(index.ground.page(written.at), Some(page));
        let key = hicache_core::storage::slab::index::page::key_of(&written);
        assert_eq!(index.find(&key).map(|found| found.0), Some(page));
    }
    for page in here {
        assert!(index.take_out(page).is_some());
    }
    assert_eq!(index.holds(), (0, 0));
    assert!(index.ground.iter().all(|(_, slots)| slots.used == 0));
}
