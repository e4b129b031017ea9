//! Which pages are taken, and for how long.

use super::rig::{PAGE, Rig, US, get};
use hicache_core::storage::Outcome::{Absent, Declined, Hit};
use hicache_core::storage::Store;
use hicache_core::storage::slab::admit::Admission;
use hicache_core::storage::slab::{Moment, Seams};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

static CLOCK: AtomicU32 = AtomicU32::new(1000);

/// Both clocks in one.
fn clock() -> Moment {
    let wall = CLOCK.load(Ordering::SeqCst);
    Moment { wall, passed: wall.into() }
}

#[test]
fn pages_that_are_too_old_are_absent() {
    let seams = Seams { clock, ..Seams::default() };
    let mut rig = Rig::with(8, |options| options.ttl = Some(Duration::from_secs(100)), seams);
    (0..8).for_each(|number| assert_eq!(rig.put(number), Hit));
    CLOCK.fetch_add(100, Ordering::SeqCst);
    assert_eq!((rig.get(0), rig.store().list().unwrap()[0].age), (Hit, 100));
    CLOCK.fetch_add(1, Ordering::SeqCst);
    assert_eq!((rig.exists(0), rig.get(1), rig.remove(2)), (false, Absent, Absent));
    assert_eq!(rig.put(3), Hit);
    assert_eq!(rig.store().statistics().written_pages, 9, "written anew");
    rig.reopen();
    assert_eq!(rig.here(0..8), [3]);
    rig.store().slab().unwrap().keep();
    let held = rig.store().statistics();
    assert_eq!((held.pages, held.expired_pages), (1, 5));
    assert_eq!(get(rig.store(), US, &[3], PAGE), [Hit]);
}

#[test]
fn the_second_sight_is_taken() {
    let rig = Rig::with(16, |options| options.second = true, Seams::default());
    assert_eq!([1, 2, 1, 2, 1].map(|number| rig.put(number)), [Declined, Declined, Hit, Hit, Hit]);
    let counts = rig.store().statistics();
    assert_eq!((counts.declined_pages, counts.written_pages, counts.failed_pages), (2, 2, 0));
    // Its child comes for the second time before it does: then it is wanted.
    assert_eq!([rig.put_below(11, 10), rig.put_below(11, 10), rig.put(10)], [Declined, Hit, Hit]);
}

#[test]
fn what_a_stored_page_needs_is_written_whatever_the_budget_says() {
    // An hour's worth: 4 pages.
    let rate = 4 * PAGE as u64 / 3600;
    let rig = Rig::with(
        16,
        |options| options.write_rate = Some(rate),
        Seams { clock: || Moment { wall: 50, passed: 0 }, ..Seams::default() },
    );
    assert_eq!(rate, 4);
    let outcomes = [1, 2, 3].map(|number| rig.put_below(number, 100));
    assert_eq!(outcomes, [Hit, Hit, Hit]);
    assert_eq!([rig.put(4), rig.put(100), rig.put(5)], [Declined, Hit, Declined]);
    assert_eq!(rig.here(0..200), [1, 2, 3, 100]);
}

#[test]
fn the_budget_is_earned_in_time() {
    let mut rules = Admission::new(false, Some(10), 100);
    assert!(rules.admits(1, 36_000, false, 100), "an hour's worth at once");
    assert!(!rules.admits(2, 1, false, 100));
    assert!(rules.admits(3, 500, true, 100), "wanted; it is owed");
    assert!(!rules.admits(4, 1, false, 150));
    assert!(rules.admits(5, 10, false, 151) && !rules.admits(6, 1, false, 151));
    assert!(!rules.admits(6, 1, false, 20), "a clock that was set back earns nothing");
    assert!(
        rules.admits(7, 36_000, false, 9_000) && !rules.admits(8, 1, false, 9_000),
        "no more than an hour's"
    );
    rules.give_back(1);
    assert!(rules.admits(9, 1, false, 9_000));
}

#[test]
fn sizes_do_not_wrap() {
    use hicache_core::storage::slab::index::ground::class_of;
    assert_eq!([0, 1, 4096, 4097].map(class_of), [Some(4096), Some(4096), Some(4096), Some(8192)]);
    assert_eq!(class_of((1 << 32) - 4096), Some(0xFFFF_F000));
    assert_eq!([(1 << 32) - 4095, 1 << 32, (5 << 30) + 7, u64::MAX].map(class_of), [None; 4]);
}

static WALL: AtomicU32 = AtomicU32::new(0);
static PASSED: AtomicU32 = AtomicU32::new(0);

fn set(wall: u32, passed: u32) {
    WALL.store(wall, Ordering::SeqCst);
    PASSED.store(passed, Ordering::SeqCst);
}

#[test]
fn a_clock_that_jumps() {
    let clock = || Moment { wall: WALL.load(Ordering::SeqCst), passed: PASSED.load(Ordering::SeqCst).into() };
    let (year, day) = (31_536_000, 86_400);
    let change = |options: &mut hicache_core::storage::slab::Options| {
        options.ttl = Some(Duration::from_secs(day.into()));
        // An hour's worth: 4 pages.
        options.write_rate = Some(4 * PAGE as u64 / 3600);
    };
    set(50 * year, 7);
    let mut rig = Rig::with(16, change, Seams { clock, ..Seams::default() });
    assert_eq!([1, 2, 3, 4].map(|number| rig.put(number)), [Hit, Hit, Hit, Declined]);

    // While it is open it is nobody's business.
    for wall in [60 * year, u32::MAX, 0, 50 * year] {
        set(wall, 8);
        rig.store().slab().unwrap().keep();
        assert_eq!((rig.here(0..9), rig.put(4)), (vec![1, 2, 3], Declined), "at {wall}");
    }
    set(0, 8 + 1025);
    assert_eq!(rig.put(4), Hit, "what an hour's quarter and more earned");
    set(0, 7 + day);
    assert_eq!(rig.here(0..9), [1, 2, 3, 4]);
    set(0, 8 + day);
    assert_eq!(rig.here(0..9), [4], "a day and a second have passed");
    // The second round begins with the first page.
    (0..2).for_each(|_| rig.store().slab().unwrap().keep());
    assert_eq!(rig.store().statistics().expired_pages, 3);

    // Set back while it is closed: nothing is lost, and time goes on from the newest page.
    rig.close();
    set(year, 0);
    rig.reopen();
    assert_eq!((rig.here(0..9), rig.store().list().unwrap()[0].age), (vec![4], 0));
    assert_eq!([5, 6, 7, 8].map(|number| rig.put(number)), [Hit, Hit, Hit, Declined]);
    set(year, 3601);
    assert_eq!(rig.put(8), Hit);
    set(year, day + 1);
    assert_eq!(rig.here(0..9), [8]);
    (0..2).for_each(|_| rig.store().slab().unwrap().keep());

    // And right again.
    rig.close();
    set(50 * year + day, 0);
    rig.reopen();
    assert_eq!(rig.here(0..9), [8]);
    rig.close();
    set(51 * year, 0);
    rig.reopen();
    assert_eq!(rig.here(0..9), Vec::<u32>::new(), "set forward, it is a year older");
    // Further than it counts: it still earns what it may write.
    rig.close();
    set(u32::MAX, 0);
    rig.reopen();
    assert_eq!([1, 2, 3, 4].map(|number| rig.put(number)), [Hit, Hit, Hit, Declined]);
    set(u32::MAX, 3600);
    assert_eq!((rig.put(4), rig.here(0..9)), (Hit, vec![1, 2, 3, 4]));
}
