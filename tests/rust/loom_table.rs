//! Every interleaving of one writer and two readers over the readers' table.
//! `cargo test --release --features loom --test loom_table`
#![cfg(feature = "loom")]

// The file itself, so that nothing else of the crate has to run under loom.
#[path = "../../rust/hicache-core/src/reader/table.rs"]
mod table;

use loom::sync::Arc;
use loom::thread;
use table::Table;

/// Three fingerprints that begin at the same entry.
const A: u64 = 0x04;
const B: u64 = 0x14;
const C: u64 = 0x24;

/// B stays throughout; A leaves and C takes its entry, in front of B. A reader always finds B, finds A until it
/// leaves and C once it is there, and never one's tiers under the other's name.
#[test]
fn an_entry_that_changes_owners_misleads_nobody() {
    loom::model(|| {
        let table = Arc::new(Table::new(2));
        assert!(table.set(A, 1) && table.set(B, 2));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    let (c, a, b) = (table.get(C), table.get(A), table.get(B));
                    assert!(matches!(a, 0 | 1), "A was only ever on the device: {a}");
                    assert_eq!(b, 2, "B never moved");
                    assert!(matches!(c, 0 | 3), "C was only ever on both: {c}");
                    assert!(c == 0 || a == 0, "A left before C came");
                })
            })
            .collect();
        table.set(A, 0);
        assert!(!table.set(C, 3), "it takes the entry that A left");
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert_eq!((table.get(A), table.get(B), table.get(C)), (0, 2, 3));
    });
}

/// A page's tiers change while it is read: one of the values it had, in the order it had them in.
#[test]
fn a_reader_sees_values_in_their_order() {
    loom::model(|| {
        let table = Arc::new(Table::new(2));
        table.set(A, 1);
        let reader = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let (first, second) = (table.get(A), table.get(A));
                let order = [1, 3, 2, 0];
                let at = |tiers| order.iter().position(|&value| value == tiers).unwrap();
                assert!(at(first) <= at(second), "{first} then {second}");
            })
        };
        for tiers in [3, 2, 0] {
            table.set(A, tiers);
        }
        reader.join().unwrap();
    });
}
