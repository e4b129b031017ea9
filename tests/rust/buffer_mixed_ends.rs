//! Buffer-only mode for models with windows and states: requests that leave, and many of them over a small pool.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails is loud")]

mod common;

use common::mixed::Mixed;
use common::staged_parts::{filled, fresh, loaded, nothing_left, pages, reads};
use common::store::{Fault, Verb};
use hicache_core::ids::HitId;
use hicache_core::policy::fetching::Verdict;

/// However far it is when its request leaves, nothing stays.
#[test]
fn an_abort_leaves_nothing() {
    let tokens = pages(0..8);
    let store = filled(&[&tokens]);
    for stage in 0..5 {
        let mut rig = fresh(&store, 12);
        let gated = [Some(Verb::Exists), Some(Verb::Get), None, None, None][stage];
        store.plan(move |verb, _| if Some(verb) == gated { Fault::Gated } else { Fault::None });
        let hit = rig.find(&tokens);
        assert!(rig.cache.prefetch(hit).unwrap());
        match stage {
            0 => {}
            1 => rig.until("the reads", |_| store.waiting() == 2),
            _ => rig.until("all of it", |rig| !rig.view(hit).waiting),
        }
        if stage == 3 {
            rig.cache.clear_memory().unwrap();
            assert_eq!(reads(&rig), 0);
        }
        if stage == 4 {
            rig.load(hit);
        }
        rig.cache.release(hit, 0).unwrap();
        rig.books();
        store.plan(|_, _| Fault::None);
        while rig.cache.in_flight() > 0 {
            store.pass(0);
            rig.land();
        }
        assert_eq!(reads(&rig), 0, "{stage}");
        nothing_left(&mut rig);
    }
}

/// Twelve requests over a pool for one at a time: all end in few polls that find nothing under way, and are served.
#[test]
fn everybody_ends() {
    let prompts: Vec<Vec<i32>> = (0..12).map(|number| pages(100 * number..100 * number + 8)).collect();
    let all: Vec<&[i32]> = prompts.iter().map(Vec::as_slice).collect();
    for store in [filled(&all[..6]), filled(&all)] {
        let mut rig = fresh(&store, 12);
        let ask = |rig: &mut Mixed, tokens: &[i32]| {
            let hit = rig.find(tokens);
            rig.cache.prefetch(hit).unwrap();
            hit
        };
        let mut waiting: Vec<(HitId, &[i32])> =
            all.iter().map(|&tokens| (ask(&mut rig, tokens), tokens)).collect();
        let mut idle = 0;
        while !waiting.is_empty() {
            rig.land();
            idle += usize::from(rig.cache.in_flight() == 0);
            assert!(idle < 12 * 20, "{} wait", waiting.len());
            let others = waiting.len() - 1;
            let runs = (0..waiting.len())
                .find(|&at| rig.cache.decide(waiting[at].0, others).unwrap() == Verdict::Compute);
            if let Some(at) = runs {
                let (hit, tokens) = waiting.remove(at);
                loaded(&mut rig, hit, tokens);
                rig.cache.release(hit, 0).unwrap();
            }
        }
        let served = rig.cache.stats().hit_storage_tokens;
        // One by one, in as small a pool.
        let mut alone = fresh(&store, 12);
        let usable = |tokens: &&[i32]| {
            let hit = alone.fetch(tokens);
            let usable = alone.view(hit).usable;
            alone.cache.release(hit, 0).unwrap();
            u64::from(usable)
        };
        let all: u64 = all.iter().map(usable).sum();
        assert!(all > 0);
        // While others have room a boundary may be chosen that is half as far, and none that is less.
        assert!((all..=2 * all).contains(&served), "{served} tokens of {all} pages of two");
        nothing_left(&mut rig);
    }
}
