//! How calls and memory grow with the number of cached pages: 10^4 to 10^7.
//!
//! Conversations of 16 turns of 672 random tokens, all first turns first, pages of 16. Prints bytes a token
//! (what the allocator gave, hashes not counted, since no store is attached) and nanoseconds: of a match of a
//! whole key that was just written, of the comparison of that key alone beside it, of a turn that continues, of
//! evicting one page. `cargo bench --bench growth`; a number limits the pages.
//!
//! `-- --instructions` counts instead: instructions a call at 10^4 and 10^6 pages, by callgrind (`valgrind` must be
//! there). What differs between the two is what a call does more in a larger tree.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]

use hicache_core::hash::Namespace;
use hicache_core::ids::{Slot, Tier};
use hicache_core::page::{OwnedTokens, PageSize, Tokens};
use hicache_core::tree::{Place, Tree};
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const PAGE: usize = 16;
const TURN: usize = 672;
const TURNS: usize = 16;
const CALLS: usize = 400;
/// Of the smallest tree.
const CONVERSATIONS: usize = 15;
const WHAT: [&str; 5] = ["match int64", "match int32", "insert present", "insert new", "evict one"];

static HELD: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with a count of the bytes that are held.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system's allocator as it is.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: our caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: our caller's.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        HELD.fetch_add(size, Ordering::Relaxed);
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: our caller's.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Random numbers by xorshift (Marsaglia 2003).
struct Random(u64);

impl Random {
    fn new(seed: usize) -> Self {
        Self((seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % most
    }
}

fn conversation(number: usize) -> Vec<i32> {
    let mut random = Random::new(number);
    (0..TURN * TURNS).map(|_| random.below(151_936) as i32).collect()
}

struct Index {
    tree: Tree,
    ends: Vec<Place>,
    slots: u32,
}

impl Index {
    fn of(pages: usize) -> Self {
        let conversations = (pages * PAGE).div_ceil(TURN * TURNS);
        let mut tree = Tree::new(PageSize::new(PAGE as u32).unwrap(), false);
        let root = tree.root(&Namespace::default());
        let mut index = Self { tree, ends: vec![root; conversations], slots: 0 };
        for turn in 0..TURNS {
            for number in 0..conversations {
                let tokens = conversation(number);
                let slots = index.fresh(TURN / PAGE);
                index.continued(number, &tokens[turn * TURN..(turn + 1) * TURN], &slots);
            }
        }
        index
    }

    fn continued(&mut self, number: usize, tokens: &[i32], slots: &[Slot]) {
        let at = self.ends[number];
        self.ends[number] = self.tree.extend(at, Tokens::I32(tokens), Tier::Device, slots).place;
    }

    fn fresh(&mut self, pages: usize) -> Vec<Slot> {
        let slots = (self.slots..self.slots + pages as u32).map(Slot).collect();
        self.slots += pages as u32;
        slots
    }

    fn find(&mut self, key: Tokens<'_>) {
        let root = self.tree.root(&Namespace::default());
        let found = self.tree.walk(root, key);
        self.tree.touch_matched(found.place);
        assert_eq!(found.device as usize, key.len() / PAGE);
    }

    /// Calls `measured` with one call of the kind after another, each on a random conversation.
    fn calls(&mut self, what: &str, count: usize, measured: &mut dyn FnMut(&mut dyn FnMut())) {
        let mut random = Random::new(7);
        for call in 0..count {
            let number = random.below(self.ends.len() as u64) as usize;
            let narrow = conversation(number);
            let wide: Vec<i64> = narrow.iter().map(|&token| i64::from(token)).collect();
            match what {
                "match int64" => measured(&mut || self.find(Tokens::I64(&wide))),
                "match int32" => measured(&mut || self.find(Tokens::I32(&narrow))),
                "compare int64" | "compare int32" => {
                    let stored: OwnedTokens = Tokens::I32(&narrow).to_owned();
                    let key = if what == "compare int64" { Tokens::I64(&wide) } else { Tokens::I32(&narrow) };
                    measured(&mut || _ = black_box(key.common(&stored)));
                }
                "insert present" => {
                    let slots = self.fresh(narrow.len() / PAGE);
                    let root = self.tree.root(&Namespace::default());
                    measured(&mut || {
                        black_box(self.tree.extend(root, Tokens::I32(&narrow), Tier::Device, &slots));
                    });
                }
                "insert new" => {
                    // Three more turns of every conversation of the smallest tree: equal ones in all trees.
                    let number = call % CONVERSATIONS;
                    let tokens = conversation(self.ends.len() + call)[..TURN].to_vec();
                    let slots = self.fresh(TURN / PAGE);
                    if call < 3 * CONVERSATIONS {
                        measured(&mut || self.continued(number, &tokens, &slots));
                    }
                }
                _ => measured(&mut || _ = black_box(self.tree.evict(Tier::Device, 1))),
            }
        }
    }

    fn nanoseconds(&mut self, what: &str) -> f64 {
        let mut times = Vec::new();
        self.calls(what, CALLS, &mut |call| {
            let started = Instant::now();
            call();
            times.push(started.elapsed().as_nanos() as f64);
        });
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }
}

fn grow(most: usize) {
    println!("pages of {PAGE}, keys of {} tokens; medians in ns", TURN * TURNS);
    for pages in [10_000, 100_000, 1_000_000, 10_000_000].into_iter().filter(|&pages| pages <= most) {
        let before = HELD.load(Ordering::Relaxed);
        let mut index = Index::of(pages);
        let tokens = index.tree.resident(Tier::Device) * PAGE;
        let bytes = HELD.load(Ordering::Relaxed) - before - size_of_val(&*index.ends);
        print!("{pages:9} pages {:5.2} bytes a token", bytes as f64 / tokens as f64);
        for what in
            ["compare int64", "match int64", "compare int32", "match int32", "insert new", "evict one"]
        {
            print!("   {what} {:6.0}", index.nanoseconds(what));
        }
        println!();
    }
}

/// The one function during which callgrind collects.
#[inline(never)]
fn collected(call: &mut dyn FnMut()) {
    call();
    black_box(());
}

/// Instructions a call, from a run of this program under callgrind.
fn instructions(what: &str, pages: usize) -> f64 {
    let program = std::env::current_exe().unwrap();
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg("--toggle-collect=growth::collected*")
        .arg(program)
        .args(["--inside", what, &pages.to_string()])
        .output()
        .expect("valgrind is not there: install it to count instructions");
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    let collected = text.lines().find_map(|line| line.split("Collected :").nth(1));
    let collected: f64 = collected.unwrap_or_else(|| panic!("{text}")).trim().parse().unwrap();
    collected / if what == "insert new" { 3 * CONVERSATIONS } else { CALLS } as f64
}

fn count() {
    println!("instructions a call, at 10^4 and at 10^6 pages");
    for what in WHAT {
        let (small, large) = (instructions(what, 10_000), instructions(what, 1_000_000));
        println!("{what:16} {small:9.0} {large:9.0}   {:+.2} %", (large / small - 1.0) * 100.0);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match &*arguments.iter().map(String::as_str).collect::<Vec<_>>() {
        ["--inside", what, pages] => {
            Index::of(pages.parse().unwrap()).calls(what, CALLS, &mut |call| collected(call));
        }
        ["--instructions"] => count(),
        [most] => grow(most.parse().expect("a number of pages")),
        _ => grow(10_000_000),
    }
}
