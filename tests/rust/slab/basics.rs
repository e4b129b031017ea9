//! What a store does when nothing goes wrong.

use super::rig::{PAGE, Rig, THEM, US, get, key, payload, put};
use Outcome::{Absent, Corrupt, Failed, Hit, Short};
use hicache_core::storage::slab::{Seams, SlabStore};
use hicache_core::storage::{Client, Keys, Outcome, PageMut, PageRef, Store, open};

#[test]
fn pages_come_back_also_after_a_restart() {
    let mut rig = Rig::new(64);
    assert_eq!(rig.put_chain(&[1, 2, 3]), [Hit, Hit, Hit]);
    for _ in 0..2 {
        assert_eq!([1, 2, 3, 4].map(|number| rig.get(number)), [Hit, Hit, Hit, Absent]);
        assert_eq!(rig.here(0..6), [1, 2, 3]);
        let held = rig.store().statistics();
        assert_eq!((held.pages, held.bytes), (3, 3 * PAGE as u64));
        rig.reopen();
    }
    assert_eq!(rig.put(2), Hit);
    assert_eq!(rig.store().statistics().written_pages, 0, "it was there");
}

#[test]
fn sizes_that_are_no_slots_and_pages_in_pieces() {
    let mut rig = Rig::new(64);
    for (number, bytes) in [(1, 1), (2, 4095), (3, 4097), (4, 20_000), (5, 8 * PAGE), (6, 0)] {
        assert_eq!(put(rig.store(), US, &[number], &[None], bytes), [Hit], "{bytes}");
        assert_eq!(get(rig.store(), US, &[number], bytes), [Hit], "{bytes}");
    }
    let digests = [key(7)];
    let bytes = payload(US, &key(7), 5000);
    let keys = Keys { identity: &US, digests: &digests };
    assert_eq!(
        rig.store().put(
            keys,
            &[None],
            &[PageRef::new(vec![&bytes[..7], &[], &bytes[7..4099], &bytes[4099..]])]
        ),
        [Hit]
    );
    rig.reopen();
    assert_eq!(get(rig.store(), US, &[7], 5000), [Hit]);
    assert_eq!(get(rig.store(), US, &[6], 0), [Hit]);
    let mut again = vec![0; 5000];
    let (one, rest) = again.split_at_mut(999);
    assert_eq!(
        rig.store().get(Keys { identity: &US, digests: &digests }, &mut [PageMut::new(vec![one, rest])]),
        [Hit]
    );
    assert!(again == bytes);
    assert_eq!(
        put(rig.store(), US, &[8], &[None], 8 * PAGE + 1),
        [Outcome::Declined],
        "larger than an extent"
    );
}

#[test]
fn another_length_is_no_hit_and_is_mended_by_the_next_put() {
    let rig = Rig::new(64);
    for (stored, asked, outcome) in [(PAGE, PAGE + 1, Short), (PAGE, PAGE - 1, Corrupt)] {
        assert_eq!(put(rig.store(), US, &[1], &[None], stored), [Hit]);
        assert_eq!(get(rig.store(), US, &[1], asked), [outcome]);
        assert_eq!(put(rig.store(), US, &[1], &[None], asked), [Hit]);
        assert_eq!(get(rig.store(), US, &[1], asked), [Hit]);
        assert_eq!(rig.remove(1), Hit);
    }
    let counts = rig.store().statistics();
    assert_eq!((counts.short_pages, counts.corrupt_pages, counts.read_pages), (1, 1, 2));
}

#[test]
fn identities_share_nothing() {
    let mut rig = Rig::new(64);
    assert_eq!(put(rig.store(), US, &[1, 2], &[None, None], PAGE), [Hit, Hit]);
    assert_eq!(get(rig.store(), THEM, &[1], PAGE), [Absent]);
    assert_eq!(put(rig.store(), THEM, &[1], &[None], PAGE), [Hit]);
    rig.reopen();
    assert_eq!(get(rig.store(), US, &[1, 2], PAGE), [Hit, Hit]);
    assert_eq!(get(rig.store(), THEM, &[1, 2], PAGE), [Hit, Absent]);
    assert_eq!(rig.store().clear(&US), Ok(2));
    assert_eq!(rig.store().clear(&US), Ok(0));
    for _ in 0..2 {
        assert_eq!(get(rig.store(), US, &[1, 2], PAGE), [Absent, Absent]);
        assert_eq!(get(rig.store(), THEM, &[1], PAGE), [Hit]);
        rig.reopen();
    }
}

#[test]
fn removed_is_removed_also_after_a_restart() {
    let mut rig = Rig::new(64);
    rig.put_chain(&[1, 2, 3]);
    assert_eq!([2, 2, 9].map(|number| rig.remove(number)), [Hit, Absent, Absent]);
    assert_eq!(rig.here(0..9), [1, 3]);
    rig.reopen();
    assert_eq!(rig.here(0..9), [1, 3]);
}

#[test]
fn batches_are_as_large_as_they_like() {
    let mut rig = Rig::with(512, |options| options.extent = Some(128 * PAGE as u64), Seams::default());
    let numbers: Vec<u32> = (0..400).collect();
    assert!(rig.put_chain(&numbers).iter().all(|outcome| *outcome == Hit));
    rig.reopen();
    assert!(get(rig.store(), US, &numbers, PAGE).iter().all(|outcome| *outcome == Hit));
}

#[test]
fn a_second_user_is_refused_and_told_what_can_be_shared() {
    let mut rig = Rig::new(8);
    let error = SlabStore::open(rig.options.clone(), &Client::alone(US), &Seams::default())
        .err()
        .unwrap()
        .to_string();
    assert!(error.starts_with("storage: ") && error.contains("file:///directory"), "{error}");
    assert!(error.contains(&std::process::id().to_string()), "{error}");
    assert_eq!(rig.put(1), Hit);
    rig.reopen();
    assert_eq!(rig.get(1), Hit);
}

#[test]
fn closed_is_closed() {
    let rig = Rig::new(8);
    rig.put(1);
    rig.store().close();
    rig.store().close();
    assert_eq!([rig.put(2), rig.get(1), rig.remove(1)], [Failed; 3]);
    assert!(rig.store().clear(&US).is_err() && rig.store().list().is_err());
    assert!(rig.store().describe().ends_with("closed"));
    let again = SlabStore::open(rig.options.clone(), &Client::alone(US), &Seams::default()).unwrap();
    assert_eq!(get(&again, US, &[1], PAGE), [Hit]);
}

#[test]
fn it_can_list_what_it_holds() {
    let rig = Rig::new(8);
    rig.put_chain(&[1, 2]);
    put(rig.store(), THEM, &[7], &[None], 100);
    let mut held: Vec<_> = rig
        .store()
        .list()
        .unwrap()
        .into_iter()
        .map(|page| (page.identity, page.digest, page.bytes))
        .collect();
    held.sort_unstable_by_key(|(identity, digest, _)| (identity.0, digest.0));
    let mut expected = vec![(US, key(1), PAGE as u64), (US, key(2), PAGE as u64), (THEM, key(7), 100)];
    expected.sort_unstable_by_key(|(identity, digest, _)| (identity.0, digest.0));
    assert_eq!(held, expected);
}

#[test]
fn urls_are_checked_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let said = |options: &str| {
        let url = format!("slab://{}{options}", root.display());
        open(&url, &Client::alone(US)).err().map(|error| error.to_string()).unwrap_or_default()
    };
    for (options, word) in [
        ("", "size"),
        ("?size=8", "size=8"),
        ("?size=0", "size"),
        ("?size=64MiB&sise=3", "sise"),
        ("?size=64MiB&admission=third", "admission"),
        ("?size=64MiB&extent=5000", "extent=5000"),
        ("?size=64MiB&extent=64MiB", "size="),
        ("?size=64MiB&depth=0", "depth"),
        ("?size=64MiB&io=aio", "io"),
        ("?size=64MiB&ttl=never", "ttl"),
        ("?size=64MiB&ranks=0", "ranks"),
        ("?size=900TiB&extent=4096", "extent"),
    ] {
        let said = said(options);
        assert!(said.starts_with("storage: ") && said.contains(word), "{options}: {said}");
    }
    assert!(!root.join("all").join("STORE").exists(), "a refused URL made a store");
    assert_eq!(said("?size=64MiB&ttl=7d&write_rate=100MiB&admission=second&sync=yes&io=threads&free=0"), "");
    let other = said("?size=64MiB&extent=8192");
    assert!(other.contains("extent=8192") && other.contains("4194304"), "{other}");
    assert_eq!(said("?size=64MiB"), "", "it knows its own size of extents");
}

#[test]
fn ranks_have_a_directory_and_a_share_each() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("slab://{}?size=64MiB&free=0", dir.path().display());
    let client = |rank| Client { rank: vec![rank], world: vec![2], ..Client::alone(US) };
    let stores = [0, 1].map(|rank| open(&url, &client(rank)).unwrap());
    for (store, number) in stores.iter().zip(1..) {
        assert_eq!(store.statistics().capacity, Some(32 << 20));
        assert_eq!(put(&**store, US, &[number], &[None], PAGE), [Hit]);
    }
    assert_eq!(get(&*stores[0], US, &[1, 2], PAGE), [Hit, Absent]);
    assert_eq!(get(&*stores[1], US, &[1, 2], PAGE), [Absent, Hit]);
    assert!(open(&url, &client(1)).is_err(), "that rank's is taken");
}
