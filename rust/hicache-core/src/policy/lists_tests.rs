//! Lists against a plain vector, and torn on purpose.

use super::lists::Lists;

/// Both lists from old to new, list 0 first.
fn order(lists: &Lists<2>) -> Vec<Vec<u32>> {
    (0..2).map(|list| lists.walk(list)).collect()
}

#[test]
fn operations_do_what_they_say() {
    let mut lists: Lists<2> = Lists::default();
    lists.push_newest(0, 3);
    lists.push_newest(0, 9);
    lists.push_oldest(0, 4);
    lists.push_behind(9, 5);
    assert_eq!(order(&lists), [vec![4, 3, 5, 9], vec![]]);
    lists.push_newest(0, 9);
    lists.push_newest(1, 3);
    lists.push_behind(4, 1);
    lists.push_behind(77, 5);
    assert_eq!(order(&lists), [vec![1, 4, 9], vec![3]], "what stands beside nothing is in no list");
    lists.remove(1);
    lists.remove(1);
    lists.remove(1_000);
    assert_eq!((lists.oldest(0), lists.oldest(1)), (Some(4), Some(3)));
    assert!(lists.holds(4) && !lists.holds(1) && !lists.holds(5) && !lists.holds(1_000));
    assert_eq!(lists.check(), Ok(vec![3, 4, 9]));
    [3, 4, 9].into_iter().for_each(|number| lists.remove(number));
    assert!(lists.is_empty());
    assert_eq!(lists.check(), Ok(vec![]));
}

/// Random operations, beside vectors that are searched.
#[test]
fn lists_are_vectors() {
    let (mut lists, mut plain) = (Lists::<2>::default(), [Vec::<u32>::new(), Vec::new()]);
    let mut state = 1u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..20_000 {
        let (number, list) = (u32::try_from(random(12)).unwrap(), usize::try_from(random(2)).unwrap());
        let operation = random(4);
        let beside = u32::try_from(random(12)).unwrap();
        if operation == 3 && beside == number {
            continue;
        }
        plain.iter_mut().for_each(|all| all.retain(|&other| other != number));
        match operation {
            0 => (lists.push_newest(list, number), plain[list].push(number)).1,
            1 => (lists.push_oldest(list, number), plain[list].insert(0, number)).1,
            2 => lists.remove(number),
            _ => {
                lists.push_behind(beside, number);
                for all in &mut plain {
                    if let Some(at) = all.iter().position(|&other| other == beside) {
                        all.insert(at, number);
                    }
                }
            }
        }
        assert_eq!(order(&lists), plain);
        let mut all = plain.concat();
        all.sort_unstable();
        assert_eq!(lists.check(), Ok(all));
    }
}

#[test]
fn torn_lists_are_found() {
    let build = || {
        let mut lists: Lists<2> = Lists::default();
        (0..4).for_each(|number| lists.push_newest(0, number));
        lists
    };
    for tear in 0..4 {
        let mut lists = build();
        lists.tear(tear);
        assert!(lists.check().is_err(), "tear {tear}");
    }
}
