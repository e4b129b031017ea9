//! A process that ends at any moment: killed in the middle of a storm, or as if it had been. What it leaves is right to
//! the byte, or not found.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::kept::{Place, look, squall, whole};
use common::models::{Shape, shapes};
use common::{Seeded, seeds};
use hicache_core::ids::Tier;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn at_any_moment_every_record_tells_the_truth() {
    let (mut found, mut adopted) = (0, 0);
    for shape in shapes() {
        for seed in seeds(4) {
            let place = Place::new();
            for life in 0..3 {
                let mut squall = squall(&place.path(), &shape, 100 * seed + life);
                for step in 0..90 {
                    squall.step();
                    if step % 6 != 0 {
                        continue;
                    }
                    let killed = place.as_if_killed();
                    let mut rig = killed.open(&Shape { device: 40, ..shape.clone() });
                    for tokens in &squall.made {
                        look(&mut rig, tokens);
                        rig.cache.evict(Tier::Device, usize::MAX).unwrap();
                    }
                    let left = whole(&rig);
                    assert_eq!(left.corrupt, 0, "a record of what isn't there any more");
                    (found, adopted) = (found + left.found, adopted + left.adopted);
                }
                squall.end();
                squall.rig.cache.close(Duration::from_secs(10));
            }
        }
    }
    assert!(found > 1000 && adopted > 500, "it happens: {found} {adopted}");
}

/// Not a test: the process that `killed_at_any_moment_it_costs_hits_only` kills.
#[test]
fn victim() {
    let Ok(path) = std::env::var("HICACHE_TEST_VICTIM") else { return };
    let (path, seed) = path.split_once('#').unwrap();
    let seed: u64 = seed.parse().unwrap();
    let shape = shapes().swap_remove(usize::try_from(seed).unwrap() % shapes().len());
    let mut squall = squall(path.as_ref(), &shape, seed);
    println!("begins with {}", squall.rig.cache.leftovers().found);
    loop {
        squall.step();
        assert_eq!(whole(&squall.rig).corrupt, 0, "what was left is not what was written");
    }
}

#[test]
fn killed_at_any_moment_it_costs_hits_only() {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::ExitStatusExt as _;
    let kills: u64 = std::env::var("HICACHE_KILLS").map_or(25, |kills| kills.parse().expect("a number"));
    let (mut random, mut found) = (Seeded(kills), 0);
    let place = Place::new();
    for kill in 0..kills {
        // A life or two of the same shape, one after another.
        let victim = format!("{}#{}", place.path().display(), kill / 5);
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["victim", "--exact", "--nocapture"]).env("HICACHE_TEST_VICTIM", victim);
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let begins = lines.find_map(|line| line.unwrap().strip_prefix("begins with ").map(str::to_owned));
        found += begins.map_or(0, |found| found.parse::<u64>().unwrap());
        std::thread::sleep(Duration::from_micros(random.below(40_000) as u64));
        child.kill().unwrap();
        let done = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.signal(), Some(9), "it ended by itself: {said}");
    }
    assert!(found > 5 * kills, "there is something to take over: {found}");
}
