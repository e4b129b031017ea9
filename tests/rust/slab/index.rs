//! The index, and what a log makes of it, beside a naive map.

use super::twin::{KEYS, Twin};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Act {
    Put {
        identity: u16,
        number: u32,
        parent: Option<u32>,
    },
    /// Begun and ended later, or never; removed meanwhile, perhaps.
    Race {
        number: u32,
        removed: bool,
        fails: bool,
    },
    Get {
        identity: u16,
        number: u32,
    },
    /// Read while it is removed.
    Held {
        number: u32,
    },
    Remove {
        identity: u16,
        number: u32,
    },
    Clear(u16),
    Reopen,
    Compact,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let (identity, number) = (0..2_u16, 0..KEYS);
    let act = prop_oneof![
        8 => (identity.clone(), number.clone(), proptest::option::of(0..KEYS))
            .prop_map(|(identity, number, parent)| Act::Put { identity, number, parent: parent.filter(|p| *p < number) }),
        2 => (number.clone(), any::<bool>(), any::<bool>()).prop_map(|(number, removed, fails)| Act::Race { number, removed, fails }),
        3 => (identity.clone(), number.clone()).prop_map(|(identity, number)| Act::Get { identity, number }),
        1 => number.clone().prop_map(|number| Act::Held { number }),
        2 => (identity.clone(), number).prop_map(|(identity, number)| Act::Remove { identity, number }),
        1 => identity.prop_map(Act::Clear),
        1 => Just(Act::Reopen),
        1 => Just(Act::Compact),
    ];
    proptest::collection::vec(act, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn is_a_map_with_an_order(acts in acts()) {
        let mut twin = Twin::new();
        for act in acts {
            match act {
                Act::Put { identity, number, parent } => twin.put(identity, number, parent),
                Act::Race { number, removed, fails } => twin.race(number, removed, fails),
                Act::Get { identity, number } => twin.touch(identity, number),
                Act::Held { number } => twin.held(number),
                Act::Remove { identity, number } => twin.take_out(identity, number),
                Act::Clear(identity) => twin.clear(identity),
                Act::Reopen => twin.reopen(),
                Act::Compact => twin.compact(),
            }
            twin.check();
        }
    }
}
