//! How many nodes, strands and list entries each verb looks at, where it makes no difference how large the tree is:
//! nothing here reads a clock.
//!
//! Whoever walks through the tree, up a history of many turns or along a list looks at more in a large tree than in
//! a small one, and is seen here. What is counted is counted in debug builds.
#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::rig::{Rig, Shape};
use hicache_core::ids::{Cursor, HitId, Tier};
use hicache_core::looked_at;
use hicache_core::page::Tokens;
use std::collections::BTreeMap;

/// So many items more may be looked at in a large tree: names that share some bits of their hash.
const SLACK: u64 = 8;

/// A match from the root looks at the strands of all its key, which are short in debug builds: 16 words.
const LOOKS_A_STRAND: i32 = 6;

/// Turns of a conversation, of one page each.
const TURNS: i32 = 3;

/// One long history, which is the oldest, and conversations.
#[derive(Clone, Copy)]
struct Size {
    history: i32,
    conversations: i32,
}

/// Both histories end at the same place of a strand.
const SMALL: Size = Size { history: 40, conversations: 8 };
const LARGE: Size = Size { history: 1_512, conversations: 1_000 };

struct Counted {
    rig: Rig,
    /// The most that a call of each kind looked at.
    most: BTreeMap<String, u64>,
}

impl Counted {
    fn count<T>(&mut self, what: &str, call: impl FnOnce(&mut Rig) -> T) -> T {
        let before = looked_at();
        let result = call(&mut self.rig);
        let most = self.most.entry(what.to_owned()).or_default();
        *most = (*most).max(looked_at() - before);
        result
    }

    /// One request from match to release; `when` tells its calls from those of others. Returns where it ended.
    fn request(&mut self, when: &str, after: Option<Cursor>, tokens: &[i32]) -> Cursor {
        let hit = self.count(&format!("match {when}"), |rig| rig.find_after(tokens, after).unwrap());
        self.count(&format!("load {when}"), |rig| rig.cache.load(&[hit], None).unwrap());
        let known = self.rig.view(hit).device - after.map_or(0, |after| after.depth);
        let rest = &tokens[known as usize..];
        let slots =
            self.count(&format!("allocate {when}"), |rig| rig.cache.allocate(rest.len()).unwrap().unwrap());
        let done = self.count(&format!("insert {when}"), |rig| {
            rig.cache.insert(hit, Tokens::I32(rest), &slots).unwrap()
        });
        assert_eq!(done.duplicates, 0);
        self.count(&format!("backup {when}"), |rig| rig.cache.backup(hit).unwrap());
        self.count(&format!("poll {when}"), |rig| rig.cache.poll(None, 0.0).unwrap());
        self.count(&format!("release {when}"), |rig| rig.cache.release(hit, 0).unwrap())
    }

    /// A hit that is let go again before anything is loaded.
    fn look(&mut self, when: &str, after: Option<Cursor>, tokens: &[i32]) {
        let hit: HitId = self.count(&format!("match {when}"), |rig| rig.find_after(tokens, after).unwrap());
        self.count(&format!("release {when}"), |rig| rig.cache.release(hit, 0).unwrap());
    }
}

/// What each verb looks at, at most, in a tree of some size.
fn looks(size: Size, host: bool) -> BTreeMap<String, u64> {
    let pages = u32::try_from(size.history + TURNS * size.conversations).unwrap();
    let shape =
        Shape { page: 1, device: pages + 64, host: if host { pages + 64 } else { 0 }, ..Shape::default() };
    let mut c = Counted { rig: Rig::new(shape, None), most: BTreeMap::new() };
    let history: Vec<i32> = (1..=size.history).collect();
    let mut after = None;
    for token in &history {
        after = Some(c.request("made", after, &[*token]));
    }
    for conversation in 1..=size.conversations {
        let mut after = None;
        for turn in 0..TURNS {
            after = Some(c.request("made", after, &[10_000 * conversation + turn]));
        }
    }
    c.most.clear();

    // The oldest pages are the history's last ones.
    for _ in 0..8 {
        c.count("evict on the device", |rig| assert_eq!(rig.cache.evict(Tier::Device, 1).unwrap().len(), 1));
    }
    if host {
        for _ in 0..4 {
            c.count("evict on the host", |rig| assert_eq!(rig.cache.evict(Tier::Host, 1).unwrap().len(), 1));
        }
    }
    let cursor = c.request("of the whole history", None, &history);
    c.look("of what is there", None, &history);
    c.look("after all of it", Some(cursor), &[]);
    c.look("after all of it, of what is new", Some(cursor), &[7, 7, 7]);
    let mut after = c.request("after a hit", Some(cursor), &[-1 + (1 << 30)]);
    after = c.request("after a hit", Some(after), &[1 << 30]);
    // Another turn in the middle of the history.
    let half = history.len() / 2;
    let other: Vec<i32> = history[..half].iter().copied().chain([1 << 29]).collect();
    c.request("of half of it", None, &other);

    let free = c.rig.free(Tier::Device);
    let ours = c.rig.cache.allocate(free).unwrap().unwrap();
    for turn in 0..3 {
        after = c.request("without room", Some(after), &[(1 << 28) + turn]);
    }
    c.rig.cache.free(&ours).unwrap();
    c.rig.books();
    c.rig.drained();
    c.most
}

/// No verb looks at more items because there are more conversations, or more turns before.
#[test]
fn verbs_look_at_as_much_in_a_tree_of_any_size() {
    for host in [false, true] {
        let (small, large) = (looks(SMALL, host), looks(LARGE, host));
        assert!(small.len() > 20 && small.keys().eq(large.keys()));
        let idle = |what: &str| what.starts_with("poll") || what.starts_with("allocate");
        assert!(small.iter().all(|(what, &count)| count > 0 || idle(what)), "it is counted: {small:#?}");
        let strands = u64::try_from(LOOKS_A_STRAND * LARGE.history / 16).unwrap();
        let more = small.iter().filter(|&(what, &count)| {
            let key = if what.starts_with("match of") { strands } else { 0 };
            large[what] > count + key + SLACK
        });
        let more: Vec<_> =
            more.map(|(what, count)| format!("{what}: {count}, then {}", large[what])).collect();
        assert!(more.is_empty(), "host: {host}\n{}", more.join("\n"));
    }
}
