//! A process that is killed while it writes, again and again on one store: what it acknowledged is there, and right.
//!
//! `HICACHE_KILLS=1000 cargo test --test slab crash` takes longer (`make crash-test`). The child is this test binary.

use super::rig::{PAGE, US, get, options};
use hicache_core::storage::slab::{Seams, SlabStore};
use hicache_core::storage::{Client, Outcome, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const CHILD: &str = "HICACHE_CRASH_STORE";
/// Slots of the store: a new one is made before it is full, so that nothing is evicted.
const SLOTS: u64 = 8192;

fn random(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

fn opened(dir: &Path, seed: u64) -> SlabStore {
    let mut options = options(dir, SLOTS);
    options.extent = Some(256 * PAGE as u64);
    options.sync = seed.is_multiple_of(3);
    SlabStore::open(options, &Client::alone(US), &Seams::default()).unwrap()
}

/// The child: puts and removes pages, and says what was acknowledged, until it is killed.
#[test]
fn child() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let (mut next, mut seed) = (number("FIRST") as u32, number("SEED"));
    let store = opened(Path::new(&dir), seed);
    let say = |word: &str, numbers: &[u32]| {
        let text: Vec<String> = numbers.iter().map(u32::to_string).collect();
        // Not through the test's own capture.
        writeln!(std::io::stdout().lock(), "{word} {}", text.join(" ")).unwrap();
    };
    let mut mine = Vec::new();
    // Should nobody kill it for long, it ends before anything would be evicted.
    while u64::from(next) < SLOTS * 3 / 4 {
        let count = 1 + random(&mut seed, 12) as u32;
        let numbers: Vec<u32> = (next..next + count).collect();
        next += count;
        let parents: Vec<Option<u32>> =
            (0..numbers.len()).map(|at| at.checked_sub(1).map(|at| numbers[at])).collect();
        let outcomes = super::rig::put(&store, US, &numbers, &parents, PAGE);
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Hit), "{outcomes:?}");
        say("put", &numbers);
        mine.extend(numbers);
        if random(&mut seed, 4) == 0 {
            let gone = mine.swap_remove(random(&mut seed, mine.len() as u64) as usize);
            say("removing", &[gone]);
            let digests = [super::rig::key(gone)];
            store.remove(hicache_core::storage::Keys { identity: &US, digests: &digests });
            say("removed", &[gone]);
        }
        if random(&mut seed, 30) == 0 {
            store.compact().unwrap();
        }
    }
    loop {
        std::thread::park();
    }
}

/// What the children said.
#[derive(Default)]
struct Said {
    here: BTreeSet<u32>,
    perhaps: BTreeSet<u32>,
    gone: BTreeSet<u32>,
    next: u32,
}

impl Said {
    fn hear(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let word = words.next().unwrap_or_default();
        let numbers: Vec<u32> = words.map_while(|word| word.parse().ok()).collect();
        for number in numbers {
            match word {
                "put" => _ = self.here.insert(number),
                "removing" => _ = self.perhaps.insert(number),
                "removed" => _ = self.gone.insert(number),
                _ => return,
            }
            self.next = self.next.max(number + 1);
        }
    }
}

fn run_and_kill(dir: &Path, said: &mut Said, seed: u64) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["crash::child", "--exact", "--nocapture"])
        .env(CHILD, dir)
        .env("FIRST", said.next.to_string())
        .env("SEED", seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut moment = seed;
    let after = Duration::from_micros(random(&mut moment, 40_000));
    // From when it works on; every third from the start, while it opens the store.
    if !seed.is_multiple_of(3) {
        let first =
            lines.by_ref().map_while(Result::ok).find(|line| line.starts_with("put")).expect("it works");
        said.hear(&first);
    }
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    // A line that was cut short says less: it isn't whole without its end.
    lines.map_while(Result::ok).for_each(|line| said.hear(&line));
    // What was under way may be there or not.
    said.next += 20;
}

fn verify(store: &SlabStore, said: &Said) {
    let must: Vec<u32> = said.here.iter().copied().filter(|number| !said.perhaps.contains(number)).collect();
    let outcomes = get(store, US, &must, PAGE);
    let missing: BTreeMap<u32, Outcome> =
        must.iter().copied().zip(outcomes).filter(|(_, outcome)| *outcome != Outcome::Hit).collect();
    assert!(missing.is_empty(), "acknowledged and not there: {missing:?}; {}", store.describe());
    let gone: Vec<u32> = said.gone.iter().copied().collect();
    assert!(
        get(store, US, &gone, PAGE).iter().all(|outcome| *outcome == Outcome::Absent),
        "a removed page is back"
    );
    // Whatever else is there, is right.
    let all: Vec<u32> = (0..said.next).collect();
    get(store, US, &all, PAGE);
    let counts = store.statistics();
    assert_eq!(
        (counts.corrupt_pages, counts.short_pages, counts.failed_pages, counts.evicted_pages),
        (0, 0, 0, 0)
    );
}

#[test]
fn what_was_acknowledged_survives_the_process() {
    let kills: u64 = std::env::var("HICACHE_KILLS").map_or(30, |kills| kills.parse().unwrap());
    let (mut said, mut pages, mut dir) = (Said::default(), 0, tempfile::tempdir().unwrap());
    for kill in 0..kills {
        if u64::from(said.next) > SLOTS / 2 {
            pages += said.here.len();
            (said, dir) = (Said::default(), tempfile::tempdir().unwrap());
        }
        run_and_kill(dir.path(), &mut said, kill);
        let store = opened(dir.path(), kill);
        verify(&store, &said);
    }
    pages += said.here.len();
    assert!(pages > kills as usize, "hardly anything was acknowledged: {pages}");
    println!("{kills} kills, {pages} pages acknowledged");
}
