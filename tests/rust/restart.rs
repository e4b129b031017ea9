//! Warm restart of host memory: what the process before this one left is served, right to the byte, or not at all;
//! it never keeps anything from anybody, and a crash costs hits only.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::kept::{Place, ask, end, look, open, prompt, squall, whole};
use common::models::{STATE, Shape, WINDOW, config, shapes};
use common::{Seeded, seeds};
use hicache_core::host::LayoutKind;
use hicache_core::identity::Fingerprint;
use hicache_core::ids::Tier;
use hicache_core::{Config, Error};
use std::time::Duration;

const PLAIN: &[(hicache_core::pool::Needs, u32, u32)] = &[];

fn why(error: &Error) -> String {
    let Error::Argument { argument: "host restart", reason } = error else { panic!("{error}") };
    reason.clone()
}

#[test]
fn the_next_process_serves_what_was_on_the_host() {
    for layout in ["layer_first", "page_first", "page_first_direct", "page_head", "page_unified"] {
        for parts in [PLAIN, &[(WINDOW, 12, 20)], &[(STATE, 8, 8)], &[(WINDOW, 12, 20), (STATE, 8, 8)]] {
            let (place, layout) = (Place::new(), layout.parse::<LayoutKind>().unwrap());
            let shape = Shape { layout, ..Shape::of(parts) };
            let mut rig = place.open(&shape);
            assert_eq!(ask(&mut rig, &prompt(1, 16)), 0);
            assert_eq!(ask(&mut rig, &prompt(2, 10)), 0);
            end(rig);
            let mut rig = place.open(&shape);
            let found = whole(&rig).found;
            assert!(found >= 13 && found == whole(&rig).now, "{:?}", whole(&rig));
            assert_eq!(ask(&mut rig, &prompt(1, 20)), 8, "{layout:?} {parts:?}");
            assert_eq!(ask(&mut rig, &prompt(2, 10)), 5);
            assert_eq!(ask(&mut rig, &prompt(3, 10)), 0);
            let left = whole(&rig);
            assert_eq!((left.corrupt, left.given_up), (0, 0), "{left:?}");
            assert!(left.adopted >= 13, "{left:?}");
            rig.drained();
            end(rig);
            // Evicted is gone for good.
            assert_eq!(whole(&place.open(&shape)).found, 0);
        }
    }
}

#[test]
fn what_needs_the_room_gets_it_those_used_last_go_last() {
    let place = Place::new();
    let shape = Shape { device: 40, host: 24, ..Shape::of(PLAIN) };
    let mut rig = place.open(&shape);
    for number in 0..3 {
        ask(&mut rig, &prompt(number, 16));
    }
    // The first is used again: on the device alone, which counts.
    look(&mut rig, &prompt(0, 16));
    end(rig);
    let mut rig = place.open(&shape);
    assert_eq!((whole(&rig).now, rig.cache.slots(Tier::Host).free()), (24, 24));
    ask(&mut rig, &prompt(7, 12));
    assert_eq!(rig.cache.stats().backup_no_room_pages, 0);
    assert_eq!((whole(&rig).now, whole(&rig).given_up), (18, 6));
    // Of the one used longest ago the deepest pages went first.
    assert_eq!(look(&mut rig, &prompt(1, 16)), 2);
    assert_eq!(look(&mut rig, &prompt(0, 16)), 8);
    assert_eq!(look(&mut rig, &prompt(2, 16)), 8);
    rig.drained();
    assert_eq!(whole(&rig).adopted, 18);
}

#[test]
fn a_request_that_finds_no_room_for_all_gets_the_beginning() {
    let place = Place::new();
    let shape = Shape { device: 40, host: 8, ..Shape::of(PLAIN) };
    let mut rig = place.open(&shape);
    ask(&mut rig, &prompt(1, 16));
    end(rig);
    let mut rig = open(&place.config(&shape), Some(&place.url())).unwrap();
    // Its pages are found while they are read for another request, and given back by one that goes.
    let (first, second) = (rig.find(&prompt(1, 16)), rig.find(&prompt(1, 16)));
    assert!(rig.cache.prefetch(first).unwrap() && rig.cache.prefetch(second).unwrap());
    rig.until("answers", |rig| rig.cache.leftovers().claimed > 0 || rig.cache.leftovers().adopted > 0);
    rig.cache.release(first, 0).unwrap();
    rig.until("the second", |rig| !rig.view(second).waiting);
    rig.cache.release(second, 0).unwrap();
    rig.settle();
    whole(&rig);
    assert_eq!(look(&mut rig, &prompt(1, 16)), 8);
    rig.drained();
}

#[test]
fn a_store_behind_has_what_is_not_here_and_mends_what_is_damaged() {
    let place = Place::new();
    let shape = Shape { device: 12, host: 16, ..Shape::of(&[(WINDOW, 20, 20)]) };
    let mut rig = open(&place.config(&shape), Some(&place.url())).unwrap();
    let long = prompt(1, 40);
    ask(&mut rig, &long[..20]);
    ask(&mut rig, &prompt(2, 16));
    end(rig);
    place.flip("slab-0", 100);
    let mut rig = open(&place.config(&shape), Some(&place.url())).unwrap();
    assert!(whole(&rig).found >= 16);
    assert_eq!(look(&mut rig, &long[..20]), 10);
    // What is on the device stays on the host.
    rig.cache.evict(Tier::Device, usize::MAX).unwrap();
    assert_eq!(look(&mut rig, &prompt(2, 16)), 8);
    let left = whole(&rig);
    assert_eq!((left.corrupt, rig.cache.stats().corrupt_pages), (1, 0), "mended from the store: {left:?}");
    // Read from the store it is sealed, too.
    end(rig);
    std::fs::remove_dir_all(place.disk.path()).unwrap();
    let mut rig = place.open(&shape);
    assert_eq!(look(&mut rig, &prompt(2, 16)), 8);
}

#[test]
fn a_flipped_bit_is_a_miss_and_counted() {
    let mut random = Seeded(7);
    let (mut missed, mut counted) = (0, 0);
    for seed in seeds(60) {
        let place = Place::new();
        let shape = Shape { host: 16, ..Shape::of(if seed % 2 == 0 { PLAIN } else { &[(STATE, 8, 16)] }) };
        let mut rig = place.open(&shape);
        ask(&mut rig, &prompt(1, 16));
        end(rig);
        let (file, from) = if seed % 3 == 0 { ("table", 4096) } else { ("slab-0", 0) };
        // The first eight slots are in use; of a record the first 48 bytes say what is there.
        let bits = if file == "table" { 8 * 64 * 8 } else { place.bytes(file).len() * 8 / 2 };
        let at = random.below(bits) as u64;
        place.flip(file, from * 8 + at);
        let mut rig = place.open(&shape);
        let found = look(&mut rig, &prompt(1, 16));
        let padding = file == "table" && at / 8 % 64 >= 48;
        let corrupt = whole(&rig).corrupt;
        assert_eq!(found == 8 && corrupt == 0, padding || corrupt == 0, "{file} {at}: {found} {corrupt}");
        (missed, counted) = (missed + u32::from(found < 8), counted + corrupt);
        ask(&mut rig, &prompt(1, 16));
        end(rig);
        assert_eq!(look(&mut place.open(&shape), &prompt(1, 16)), 8, "stored again it is right");
    }
    assert!(missed > 20 && counted > 20, "{missed} {counted}");
}

#[test]
fn of_another_identity_or_shape_nothing_is_found() {
    let shape = Shape::of(PLAIN);
    let other = Config { identity: Fingerprint([7; 32]), ..config(&shape) };
    let others = [
        (other, "another identity"),
        (config(&Shape { host: 60, ..shape.clone() }), "other pools"),
        (config(&Shape { page: 4, ..shape.clone() }), "other pools"),
        (config(&Shape { layout: LayoutKind::LayerFirst, ..shape.clone() }), "other pools"),
        (config(&Shape::of(&[(STATE, 4, 4)])), "other pools"),
    ];
    for (config, said) in others {
        let place = Place::new();
        let mut rig = place.open(&shape);
        ask(&mut rig, &prompt(1, 16));
        end(rig);
        let config = Config {
            restart: Some(place.path()),
            identity: if said == "other pools" { place.config(&shape).identity } else { config.identity },
            ..config
        };
        let mut rig = open(&config, None).unwrap();
        assert_eq!(whole(&rig).found, 0);
        let why = rig.cache.host_restart().unwrap();
        assert!(why.contains("8 pages of") && why.contains(said), "{why}");
        assert_eq!(ask(&mut rig, &prompt(1, 16)), 0);
        end(rig);
        assert_eq!(
            look(&mut open(&config, None).unwrap(), &prompt(1, 16)),
            if config.page_size.tokens() == 4 { 4 } else { 8 }
        );
    }
}

#[test]
fn damaged_files_are_made_anew() {
    for (file, length) in
        [("table", 0), ("table", 100), ("slab-0", 8), ("slab-0", 1 << 20), ("table", 1 << 20)]
    {
        let (place, shape) = (Place::new(), Shape::of(PLAIN));
        let mut rig = place.open(&shape);
        ask(&mut rig, &prompt(1, 16));
        end(rig);
        let path = place.path().join(file);
        std::fs::File::options().write(true).open(path).unwrap().set_len(length).unwrap();
        let mut rig = place.open(&shape);
        assert_eq!((whole(&rig).found, ask(&mut rig, &prompt(1, 16))), (0, 0), "{file} {length}");
        assert!(rig.cache.host_restart().unwrap().contains("damaged"));
    }
}

#[test]
fn a_directory_is_one_live_cache_s_and_in_memory() {
    let (place, shape) = (Place::new(), Shape::of(PLAIN));
    let rig = place.open(&shape);
    let refused = open(&place.config(&shape), None).err().unwrap();
    assert!(why(&refused).contains(&format!("in use by process {}", std::process::id())), "{refused}");
    end(rig);
    end(place.open(&shape));
    std::fs::write(place.path().join("mine"), "x").unwrap();
    assert!(why(&open(&place.config(&shape), None).err().unwrap()).contains("files of others (mine)"));
    assert_eq!(std::fs::read(place.path().join("mine")).unwrap(), b"x");
    let relative = Config { restart: Some("here".into()), ..config(&shape) };
    assert!(why(&open(&relative, None).err().unwrap()).contains("absolute"));
    let huge = config(&Shape { host: u32::MAX / 2, ..shape.clone() });
    let huge = Config { restart: Some(place.memory.path().join("huge")), ..huge };
    assert!(open(&huge, None).err().unwrap().to_string().contains("bytes"));
    let shared = Config {
        memory: hicache_core::host::SlabOptions { shared: true, ..huge.memory },
        ..place.config(&shape)
    };
    assert!(why(&open(&shared, None).err().unwrap()).contains("shared"));
}

#[test]
fn storms_keep_their_books_over_restarts() {
    let (mut adopted, mut given_up) = (0, 0);
    for shape in shapes() {
        for seed in seeds(8) {
            let place = Place::new();
            for life in 0..4 {
                let mut squall =
                    squall(&place.path(), &Shape { deadline: 3.0, ..shape.clone() }, 10 * seed + life);
                squall.late = seed % 2 > 0;
                (0..120).for_each(|_| {
                    squall.step();
                    whole(&squall.rig);
                });
                squall.end();
                let left = whole(&squall.rig);
                assert_eq!(left.corrupt, 0);
                (adopted, given_up) = (adopted + left.adopted, given_up + left.given_up);
                if life == 3 {
                    squall.rig.drained();
                }
                squall.rig.cache.close(Duration::from_secs(10));
            }
        }
    }
    assert!(adopted > 60 && given_up > 200, "it happens: {adopted} {given_up}");
}
